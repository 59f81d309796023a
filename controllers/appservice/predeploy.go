package appservice

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete

// preDeploy runs the Job of spec.hooks.preDeploy, once for each version of what it runs. The Job is no child: a
// child is recreated when it is missing and corrected when it differs, and an operation that is complete is neither.
// That it is complete is recorded in the status before the Deployment changes (ADR 47).
type preDeploy struct{}

// PhaseName implements [phases.Phase].
func (preDeploy) PhaseName() string { return "PreDeploy" }

// Declare implements [phases.Phase].
func (preDeploy) Declare(*runtime.Scheme) (phases.Declaration[*scope], error) {
	return phases.Declaration[*scope]{Next: nextOfHook, Observe: observeHook, Gone: deleteJobs}, nil
}

const (
	// recordInterval is how soon the phase continues after the status has recorded what it found.
	recordInterval = 50 * time.Millisecond
	// podsEndInterval is how often the pods of a deleted Job are listed until they have ended.
	podsEndInterval = 2 * time.Second
	// maxVersions is the limit of the schema for status.hooks.preDeploy.succeededVersions.
	maxVersions = 32
	// maxJobPrefix leaves room for the version in the name of a Job, which is also the value of a label.
	maxJobPrefix = 52
)

// hook is what a reconcile knows of spec.hooks.preDeploy and its Jobs.
type hook struct {
	// version is that of what the spec runs; empty without a hook.
	version string
	// job is that of the version, and others are those of other versions.
	job    *batchv1.Job
	others []*batchv1.Job
	// succeeded are the versions that have succeeded, last used first; recorded says whether the status has them all.
	succeeded []string
	recorded  bool
}

func (h *hook) hasSucceeded() bool { return slices.Contains(h.succeeded, h.version) }

func hookOf(app *v1beta1.AppService) *v1beta1.AppServiceHook {
	if app.Spec.Hooks == nil {
		return nil
	}
	return app.Spec.Hooks.PreDeploy
}

func nextOfHook(ctx context.Context, p phases.Reconcile[*scope]) (phases.Next, error) {
	h, err := readHook(ctx, p)
	if err != nil {
		return nil, err
	}
	switch {
	case !h.recorded:
		return phases.Wait(v1beta1.ReasonProgressing, "recording that the Job has succeeded", recordInterval), nil
	case len(h.others) > 0:
		return deleteJob(h.others, phases.Wait(v1beta1.ReasonPruning, "waiting for Job "+h.others[0].Name+" and its pods to be deleted; it is no longer desired", 0)), nil
	case h.version == "":
		return phases.NotConfigured(), nil
	case h.hasSucceeded():
		return phases.Done("the Job has succeeded for version " + h.version), nil
	case h.job == nil:
		return createJob(ctx, p)
	case h.job.DeletionTimestamp != nil:
		return phases.Wait(v1beta1.ReasonRecreating, "Job "+h.job.Name+" is being deleted before it has succeeded; it will run again", 0), nil
	default:
		return workload.JobReady(ctx, p.Scope.uncached, p.Scope.clock, h.job, imageField(p.Scope.app)), nil
	}
}

// imageField is the field with the image of the Job.
func imageField(app *v1beta1.AppService) string {
	if hook := hookOf(app); hook != nil && hook.Image != "" {
		return "spec.hooks.preDeploy.image"
	}
	return "spec.image"
}

// observeHook reads the Jobs for the status where the phase does not run.
func observeHook(ctx context.Context, p phases.Reconcile[*scope]) (phases.Next, error) {
	h, err := readHook(ctx, p)
	if err == nil && h.version == "" && len(h.others) == 0 {
		return phases.NotConfigured(), nil
	}
	return nil, err
}

// readHook hands what it finds to the scope.
func readHook(ctx context.Context, p phases.Reconcile[*scope]) (*hook, error) {
	app := p.Scope.app
	jobs, err := ownedJobs(ctx, p)
	if err != nil {
		return nil, err
	}
	h := &hook{version: hookVersion(app)}
	h.sort(app, jobs)
	h.remember(app)
	p.Scope.hook = h
	return h, nil
}

// ownedJobs reads the Jobs of the AppService from the cache, and that of the version as this reconcile has created it. It
// does so without a hook too: the status may not have recorded one that was removed just after its Job was created.
func ownedJobs(ctx context.Context, p phases.Reconcile[*scope]) ([]*batchv1.Job, error) {
	app := p.Scope.app
	var list batchv1.JobList
	if err := p.Cluster.Cached.List(ctx, &list, client.InNamespace(app.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Jobs: %w", err)
	}
	var names []string
	if hookOf(app) != nil {
		names = append(names, jobName(app))
	}
	for i := range list.Items {
		if job := &list.Items[i]; metav1.IsControlledBy(job, app) && !slices.Contains(names, job.Name) {
			names = append(names, job.Name)
		}
	}
	var jobs []*batchv1.Job
	for _, name := range names {
		var job batchv1.Job
		exists, err := p.Cluster.Get(ctx, client.ObjectKey{Namespace: app.Namespace, Name: name}, &job)
		if err != nil {
			return nil, fmt.Errorf("reading Job %s: %w", name, err)
		}
		if exists && metav1.IsControlledBy(&job, app) {
			jobs = append(jobs, &job)
		}
	}
	return jobs, nil
}

// sort tells the Job of the version from others.
func (h *hook) sort(app *v1beta1.AppService, jobs []*batchv1.Job) {
	for _, job := range jobs {
		if h.version != "" && job.Name == jobName(app) {
			h.job = job
		} else {
			h.others = append(h.others, job)
		}
	}
}

// remember adds what has succeeded since the status was written.
func (h *hook) remember(app *v1beta1.AppService) {
	h.recorded = true
	if app.Status.Hooks != nil && app.Status.Hooks.PreDeploy != nil {
		h.succeeded = slices.Clone(app.Status.Hooks.PreDeploy.SucceededVersions)
	}
	for _, job := range append(slices.Clone(h.others), h.job) {
		if job == nil || !workload.JobSucceeded(job) {
			continue
		}
		if version := versionOf(job); !slices.Contains(h.succeeded, version) {
			h.succeeded, h.recorded = slices.Insert(h.succeeded, 0, version), false
		}
	}
	if i := slices.Index(h.succeeded, h.version); i > 0 {
		h.succeeded = slices.Insert(slices.Delete(h.succeeded, i, i+1), 0, h.version)
	}
	h.succeeded = h.succeeded[:min(len(h.succeeded), maxVersions)]
}

// deleteJob deletes the next Job with its pods, or else waits.
func deleteJob(jobs []*batchv1.Job, wait phases.Verdict) phases.Next {
	for _, job := range jobs {
		if job.DeletionTimestamp == nil {
			return phases.Delete{Object: job, Propagation: metav1.DeletePropagationForeground}
		}
	}
	return wait
}

// deleteJobs is the teardown. It reads past the cache where a Job may exist, since the finalizer is removed by it.
func deleteJobs(ctx context.Context, p phases.Reconcile[*scope]) (phases.Next, error) {
	if hookOf(p.Scope.app) == nil && !p.MayHaveLeft(preDeploy{}.PhaseName()) {
		return phases.Done("deleted"), nil
	}
	left, err := ownedPastCache(ctx, p)
	if err != nil || len(left) == 0 {
		return phases.Done("deleted"), err
	}
	for _, job := range left { // as a deletion of this reconcile, or of its plan, has left it
		if _, err := p.Cluster.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return nil, fmt.Errorf("reading Job %s: %w", job.Name, err)
		}
	}
	return deleteJob(left, phases.Wait(v1beta1.ReasonTerminating, "waiting for Job "+left[0].Name+" and its pods to be deleted", 0)), nil
}

func ownedPastCache(ctx context.Context, p phases.Reconcile[*scope]) ([]*batchv1.Job, error) {
	app := p.Scope.app
	var list batchv1.JobList
	if err := p.Scope.uncached.List(ctx, &list, client.InNamespace(app.Namespace), client.MatchingLabels(hookLabels(app))); err != nil {
		return nil, fmt.Errorf("listing Jobs: %w", err)
	}
	var owned []*batchv1.Job
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], app) {
			owned = append(owned, &list.Items[i])
		}
	}
	return owned, nil
}

// createJob creates the Job of the version when no other Job of the hook, and no pod of one, exists: past the cache,
// so that two never run at the same time.
func createJob(ctx context.Context, p phases.Reconcile[*scope]) (phases.Next, error) {
	s := p.Scope
	desired, err := desiredJob(s)
	if err != nil {
		return nil, err
	}
	owned, err := ownedPastCache(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(owned) > 0 {
		return phases.Wait(v1beta1.ReasonProgressing, "waiting for the cache of the manager to show Job "+owned[0].Name, recordInterval), nil
	}
	var pods corev1.PodList
	if err := s.uncached.List(ctx, &pods, client.InNamespace(s.app.Namespace), client.MatchingLabels(hookLabels(s.app))); err != nil {
		return nil, fmt.Errorf("listing the pods of earlier Jobs: %w", err)
	}
	isRunning := func(pod corev1.Pod) bool { return !workload.HasEnded(&pod) }
	if i := slices.IndexFunc(pods.Items, isRunning); i >= 0 {
		return phases.Wait(v1beta1.ReasonProgressing, "waiting for Pod "+pods.Items[i].Name+" of a deleted Job to end", podsEndInterval), nil
	}
	request := ssa.Request{Desired: desired, Owner: &p.Reference, Adoption: p.Policies.Adoption, Redact: p.Policies.Redact}
	var live batchv1.Job
	switch err := s.uncached.Get(ctx, client.ObjectKey{Namespace: s.app.Namespace, Name: jobName(s.app)}, &live); {
	case err == nil:
		request.Live = &live
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("reading Job %s: %w", jobName(s.app), err)
	default:
		// The Job may have run, and be deleted with an AppService that no finalizer kept. So the AppService is read after it.
		if exists, err := existsPastCache(ctx, s); !exists || err != nil {
			return phases.Wait(v1beta1.ReasonProgressing, "waiting for the cache of the manager to show that the AppService was deleted", recordInterval), err
		}
	}
	decision, err := p.Cluster.Decide(request)
	if err != nil {
		return nil, err
	}
	return phases.Apply{Decision: decision}, nil
}

// existsPastCache says whether the API server still has the AppService, and not another one of its name.
func existsPastCache(ctx context.Context, s *scope) (bool, error) {
	var live v1beta1.AppService
	if err := s.uncached.Get(ctx, client.ObjectKeyFromObject(s.app), &live); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading AppService %s: %w", s.app.Name, err)
	}
	return live.UID == s.app.UID, nil
}

// desiredJob runs one pod, which is not restarted: only who knows what it has done can say whether to run it again.
func desiredJob(s *scope) (*batchv1ac.JobApplyConfiguration, error) {
	app, spec := s.app, hookOf(s.app)
	template := podTemplate(&v1beta1.AppService{ObjectMeta: app.ObjectMeta, Spec: podSpecOfHook(app)})
	// Labels of its own: the Service, and all that selects pods of the application, must not select this one.
	template.Labels, template.Annotations = hookLabels(app), nil
	template.Spec.WithRestartPolicy(corev1.RestartPolicyNever)
	container := &template.Spec.Containers[0]
	container.Ports, container.Command, container.Args = nil, spec.Command, spec.Args
	if err := checkTemplate(app, s.managerAccount, template); err != nil {
		return nil, err
	}
	job := batchv1ac.JobSpec().WithParallelism(1).WithCompletions(1).WithBackoffLimit(0).
		WithPodReplacementPolicy(batchv1.Failed).WithTemplate(template)
	if spec.ActiveDeadlineSeconds != nil {
		job.WithActiveDeadlineSeconds(*spec.ActiveDeadlineSeconds)
	}
	return batchv1ac.Job(jobName(app), app.Namespace).WithLabels(labelsOf(app)).WithLabels(hookLabels(app)).WithSpec(job), nil
}

// podSpecOfHook is the part of the spec that the pod of the hook is made of.
func podSpecOfHook(app *v1beta1.AppService) v1beta1.AppServiceSpec {
	spec, own := app.Spec, hookOf(app)
	pod := v1beta1.AppServiceSpec{
		Image: cmp.Or(own.Image, spec.Image), ImagePullPolicy: spec.ImagePullPolicy, ImagePullSecrets: spec.ImagePullSecrets,
		Config: spec.Config, ConfigMountPath: spec.ConfigMountPath, Mounts: sorted(spec.Mounts), Resources: spec.Resources,
		ServiceAccountName: spec.ServiceAccountName, AutomountServiceAccountToken: spec.AutomountServiceAccountToken,
		PodSecurityStandard: spec.PodSecurityStandard, PodSecurityContext: spec.PodSecurityContext,
		ContainerSecurityContext: spec.ContainerSecurityContext, NodeSelector: spec.NodeSelector,
	}
	if own.Resources != nil {
		pod.Resources = *own.Resources
	}
	isOverridden := func(variable corev1.EnvVar) bool {
		return slices.ContainsFunc(own.Env, func(other corev1.EnvVar) bool { return other.Name == variable.Name })
	}
	pod.Env = append(slices.DeleteFunc(slices.Clone(spec.Env), isOverridden), own.Env...)
	return pod
}

// hookVersion is a digest of what the hook runs, by the values of the spec and not by the Job that a release of
// Fixpoint makes of them: an upgrade must not run it again. It is empty without a hook.
func hookVersion(app *v1beta1.AppService) string {
	own := hookOf(app)
	if own == nil {
		return ""
	}
	// Marshaling these types cannot fail.
	raw, _ := json.Marshal(struct {
		Pod                   v1beta1.AppServiceSpec
		Command, Args         []string
		ActiveDeadlineSeconds *int64
	}{podSpecOfHook(app), own.Command, own.Args, own.ActiveDeadlineSeconds})
	const length = 5 // bytes
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:length])
}

// jobName shortens a long name, and tells it by a digest from others with the same beginning.
func jobName(app *v1beta1.AppService) string {
	prefix := app.Name
	if len(prefix) > maxJobPrefix {
		const length = 4 // bytes
		sum := sha256.Sum256([]byte(app.Name))
		digest := hex.EncodeToString(sum[:length])
		prefix = strings.TrimRight(prefix[:maxJobPrefix-len(digest)-1], "-") + "-" + digest
	}
	return prefix + "-" + hookVersion(app)
}

func versionOf(job *batchv1.Job) string { return job.Name[strings.LastIndex(job.Name, "-")+1:] }

// hookLabels are the labels of the pods of the hook.
func hookLabels(app *v1beta1.AppService) map[string]string {
	return map[string]string{preDeployLabel: app.Name, workload.LabelManagedBy: workload.ManagedBy}
}

// hooksStatus returns status.hooks, or nil. Without observations, it stays as it is.
func hooksStatus(s *scope) *fixpointac.AppServiceHooksStatusApplyConfiguration {
	h := s.hook
	switch {
	case h == nil && s.app.Status.Hooks != nil:
		return workload.MustConvert(s.app.Status.Hooks, fixpointac.AppServiceHooksStatus())
	case h == nil || h.version == "" && len(h.succeeded) == 0:
		return nil
	}
	status := fixpointac.AppServiceHookStatus().WithSucceededVersions(h.succeeded...)
	if h.version != "" {
		status.WithVersion(h.version).WithPhase(h.phase())
	}
	return fixpointac.AppServiceHooksStatus().WithPreDeploy(status)
}

func (h *hook) phase() v1beta1.Phase {
	switch {
	case h.hasSucceeded():
		return v1beta1.PhaseSucceeded
	case h.job == nil:
		return v1beta1.PhasePending
	case workload.JobFailed(h.job):
		return v1beta1.PhaseFailed
	default:
		return v1beta1.PhaseRunning
	}
}
