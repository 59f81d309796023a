package appservice

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/phases/phasestest"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// withHook runs a migration, with changes of the hook.
func withHook(changes ...func(*v1beta1.AppServiceHook)) func(*v1beta1.AppServiceSpec) {
	return func(spec *v1beta1.AppServiceSpec) {
		hook := &v1beta1.AppServiceHook{Command: []string{"/app/migrate", "up"}}
		for _, change := range changes {
			change(hook)
		}
		spec.Hooks = &v1beta1.AppServiceHooks{PreDeploy: hook}
	}
}

// setOther gives a field another value than it has.
func setOther(t *testing.T, field reflect.Value) {
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(!field.Bool())
	case reflect.Int32:
		field.SetInt(field.Int() + 1)
	case reflect.String:
		field.SetString("other")
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
	default:
		t.Fatalf("give setOther a value of type %s", field.Type())
	}
}

// TestHookVersion changes each field of the spec: the version is that of what the pod of the hook is made of.
func TestHookVersion(t *testing.T) {
	type field = func(*v1beta1.AppServiceSpec)
	newVersions := map[string]field{
		"Image":            func(s *v1beta1.AppServiceSpec) { s.Image = "ghcr.io/acme/shop:2" },
		"ImagePullPolicy":  func(s *v1beta1.AppServiceSpec) { s.ImagePullPolicy = corev1.PullAlways },
		"ImagePullSecrets": func(s *v1beta1.AppServiceSpec) { s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}} },
		"Config":           withConfig(map[string]string{"DATABASE": "other"}),
		"ConfigMountPath":  func(s *v1beta1.AppServiceSpec) { s.ConfigMountPath = "/etc/shop" },
		"Mounts": func(s *v1beta1.AppServiceSpec) {
			s.Mounts = []v1beta1.AppServiceMount{{Name: "tmp", MountPath: "/tmp"}}
		},
		"Env": func(s *v1beta1.AppServiceSpec) { s.Env = []corev1.EnvVar{{Name: "DATABASE", Value: "other"}} },
		"Resources": func(s *v1beta1.AppServiceSpec) {
			s.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1")}
		},
		"ServiceAccountName":           func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = "shop" },
		"AutomountServiceAccountToken": func(s *v1beta1.AppServiceSpec) { s.AutomountServiceAccountToken = ptr.To(true) },
		"PodSecurityStandard":          func(s *v1beta1.AppServiceSpec) { s.PodSecurityStandard = v1beta1.PodSecurityRestricted },
		"PodSecurityContext": func(s *v1beta1.AppServiceSpec) {
			s.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1)}
		},
		"ContainerSecurityContext": func(s *v1beta1.AppServiceSpec) {
			s.ContainerSecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](1)}
		},
		"NodeSelector": func(s *v1beta1.AppServiceSpec) { s.NodeSelector = map[string]string{"disk": "fast"} },
		"Hooks":        withHook(func(h *v1beta1.AppServiceHook) { h.Args = []string{"--all"} }),
	}
	for f := range reflect.TypeFor[v1beta1.AppServiceSpec]().Fields() {
		t.Run(f.Name, func(t *testing.T) {
			g := NewWithT(t)
			change, isNew := newVersions[f.Name]
			if !isNew {
				change = func(s *v1beta1.AppServiceSpec) { setOther(t, reflect.ValueOf(s).Elem().FieldByIndex(f.Index)) }
			}
			before, after := webApp(withHook()), webApp(withHook(), change)
			g.Expect(after.Spec).NotTo(Equal(before.Spec))
			g.Expect(hookVersion(after) != hookVersion(before)).To(Equal(isNew),
				"if a change of %s is a new version of the hook, list it in newVersions", f.Name)
		})
	}
	g := NewWithT(t)
	g.Expect(hookVersion(webApp())).To(BeEmpty())
	// A release that computed another version would run all hooks again.
	g.Expect(hookVersion(webApp(withHook()))).To(Equal("0f3e7d9e23"))
	for name, change := range map[string]func(*v1beta1.AppServiceHook){
		"image":   func(h *v1beta1.AppServiceHook) { h.Image = "ghcr.io/acme/migrations:1" },
		"command": func(h *v1beta1.AppServiceHook) { h.Command = []string{"/app/migrate"} },
		"args":    func(h *v1beta1.AppServiceHook) { h.Args = []string{"--all"} },
		"env":     func(h *v1beta1.AppServiceHook) { h.Env = []corev1.EnvVar{{Name: "USER", Value: "admin"}} },
		"resources": func(h *v1beta1.AppServiceHook) {
			h.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}
		},
		"activeDeadlineSeconds": func(h *v1beta1.AppServiceHook) { h.ActiveDeadlineSeconds = ptr.To[int64](60) },
	} {
		g.Expect(hookVersion(webApp(withHook(change)))).NotTo(Equal(hookVersion(webApp(withHook()))), name)
	}
}

// As it replaces no pods, it must not migrate a database again.
func TestOrderOfMountsIsNoNewVersionOfTheHook(t *testing.T) {
	g := NewWithT(t)
	with := func(mounts ...v1beta1.AppServiceMount) string {
		return hookVersion(webApp(withHook(), func(s *v1beta1.AppServiceSpec) { s.Mounts = mounts }))
	}
	tmp, cache := v1beta1.AppServiceMount{Name: "tmp", MountPath: "/tmp"}, v1beta1.AppServiceMount{Name: "cache", MountPath: "/cache"}
	g.Expect(with(tmp, cache)).To(Equal(with(cache, tmp)))
	g.Expect(with(tmp, cache)).NotTo(Equal(with(tmp)))
}

func TestDesiredJob(t *testing.T) {
	g := NewWithT(t)
	app := webApp(withConfig(map[string]string{"LEVEL": "high"}), withHook(func(h *v1beta1.AppServiceHook) {
		h.Image, h.Args = "ghcr.io/acme/migrations:7", []string{"--all"}
		h.Env = []corev1.EnvVar{{Name: "DB_USER", Value: "admin"}}
		h.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}}
		h.ActiveDeadlineSeconds = ptr.To[int64](3600)
	}), func(s *v1beta1.AppServiceSpec) {
		s.Env = []corev1.EnvVar{{Name: "DB_HOST", Value: "db"}, {Name: "DB_USER", Value: "app"}}
		s.Probes = &v1beta1.AppServiceProbes{Readiness: &v1beta1.AppServiceProbe{Path: "/"}}
		s.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("64Mi")}
		s.ServiceAccountName = "shop"
	})

	job, err := desiredJob(&scope{app: app})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(asJSON(t, job)).To(MatchJSON(fmt.Sprintf(`{
		"kind": "Job", "apiVersion": "batch/v1",
		"metadata": {"name": "web-%s", "namespace": "shop", "labels": {
			"app.kubernetes.io/name": "web", "app.kubernetes.io/managed-by": "fixpoint", "fixpoint.dev/pre-deploy": "web"}},
		"spec": {
			"parallelism": 1, "completions": 1, "backoffLimit": 0, "activeDeadlineSeconds": 3600, "podReplacementPolicy": "Failed",
			"template": {
				"metadata": {"labels": {"app.kubernetes.io/managed-by": "fixpoint", "fixpoint.dev/pre-deploy": "web"}},
				"spec": {
					"restartPolicy": "Never", "serviceAccountName": "shop", "serviceAccount": "shop",
					"containers": [{
						"name": "app", "image": "ghcr.io/acme/migrations:7", "imagePullPolicy": "IfNotPresent",
						"command": ["/app/migrate", "up"], "args": ["--all"],
						"env": [{"name": "DB_HOST", "value": "db"}, {"name": "DB_USER", "value": "admin"}],
						"envFrom": [{"configMapRef": {"name": "web"}}],
						"resources": {"limits": {"memory": "1Gi"}}
					}]
				}
			}
		}
	}`, hookVersion(app))))
	for key, value := range selectorOf(app) {
		g.Expect(job.Spec.Template.Labels).NotTo(HaveKeyWithValue(key, value), "the Service would send requests to the pod")
	}
	g.Expect(app.Spec.Env).To(HaveLen(2), "the spec is not changed")
}

func TestJobIsCheckedAsThePods(t *testing.T) {
	manager := types.NamespacedName{Namespace: "shop", Name: "manager"}
	cases := map[string]struct {
		change func(*v1beta1.AppServiceSpec)
		says   string
	}{
		"as the manager": {func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = "manager" }, "spec.serviceAccountName"},
		"privileged": {func(s *v1beta1.AppServiceSpec) {
			s.ContainerSecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, "spec.containerSecurityContext"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := desiredJob(&scope{app: webApp(withHook(), c.change), managerAccount: manager})
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(c.says)))
		})
	}
}

func TestJobNameIsALabelValue(t *testing.T) {
	g := NewWithT(t)
	app := webApp(withHook())
	app.Name = strings.Repeat("b", 52)
	g.Expect(jobName(app)).To(Equal(app.Name + "-" + hookVersion(app)))
	names := map[string]bool{}
	for _, name := range []string{strings.Repeat("b", 53), strings.Repeat("b", 57), strings.Repeat("b", 42) + "-" + strings.Repeat("c", 14)} {
		app.Name = name
		names[jobName(app)] = true
		g.Expect(jobName(app)).To(MatchRegexp("^b{42,43}-[0-9a-f]{8}-" + hookVersion(app) + "$"))
		g.Expect(len(jobName(app))).To(BeNumerically("<=", 63))
		g.Expect(versionOf(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: jobName(app)}})).To(Equal(hookVersion(app)))
	}
	g.Expect(names).To(HaveLen(3), "they have the same beginning")
}

func TestRememberKeepsTheVersionsThatWereUsedLast(t *testing.T) {
	g := NewWithT(t)
	app := webApp()
	app.Status.Hooks = &v1beta1.AppServiceHooksStatus{PreDeploy: &v1beta1.AppServiceHookStatus{}}
	for i := range maxVersions {
		app.Status.Hooks.PreDeploy.SucceededVersions = append(app.Status.Hooks.PreDeploy.SucceededVersions, fmt.Sprint("v", i))
	}
	rolledBack := &hook{version: "v31"}
	rolledBack.remember(app)
	g.Expect(rolledBack.recorded).To(BeTrue())
	g.Expect(rolledBack.succeeded).To(And(HaveLen(maxVersions), HaveExactElements(append([]any{"v31", "v0"}, anyOf(30)...)...)))
	g.Expect(rolledBack.hasSucceeded()).To(BeTrue())

	fresh := &hook{version: "new", job: ended("web-new", batchv1.JobComplete)}
	fresh.remember(app)
	g.Expect(fresh.recorded).To(BeFalse(), "the status does not have it yet")
	g.Expect(fresh.succeeded).To(HaveLen(maxVersions))
	g.Expect(fresh.succeeded[0]).To(Equal("new"))
	g.Expect(fresh.succeeded).NotTo(ContainElement("v31"), "the version that was used longest ago makes room")
}

func anyOf(n int) []any {
	var matchers []any
	for range n {
		matchers = append(matchers, Not(BeEmpty()))
	}
	return matchers
}

func ended(name string, how batchv1.JobConditionType) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue}}}}
}

// rollout is an AppService with a hook over an API server in memory, and what the controllers of Kubernetes do.
type rollout struct {
	*phasestest.Env[*v1beta1.AppService, *scope]
	*WithT
	// fails makes Jobs fail, and hangs leaves them running.
	fails, hangs bool
	// runs counts the Jobs that have ended by what they ran, and broken are rollouts before the Job has succeeded.
	runs   map[string]int
	broken []string
	// writes are the numbers of the requests of the manager that write.
	writes []int
	// refuses is the error of a request. Optional.
	refuses func(ssatest.Call) error
}

func newRollout(t *testing.T) *rollout {
	t.Helper()
	return newRolloutWith(t, Options{})
}

func newRolloutWith(t *testing.T, options Options) *rollout {
	t.Helper()
	r := &rollout{WithT: NewWithT(t), runs: map[string]int{}}
	d := definition(phases.Dependencies{}, Options{}, nil)
	d.Scope = func(app *v1beta1.AppService) *scope {
		if r.Env == nil { // the definition is being checked
			return &scope{app: app}
		}
		of := phases.Dependencies{Reader: r.Cache, Uncached: r.Server, Clock: r.Clock}
		return definition(of, options, &references.Reader{Metadata: r.Cache, Data: r.Server}).Scope(app)
	}
	r.Env = phasestest.New(t, d, phasestest.Options{
		Scheme: newScheme(r.WithT), FieldManager: FieldManager, GarbageCollection: true, Between: r.kubernetes,
		Intercept: func(call ssatest.Call) error {
			if !call.Done && (call.Verb == "apply" || call.Verb == "patch" || call.Verb == "delete") {
				r.writes = append(r.writes, r.Requests())
			}
			if r.refuses != nil && !call.Done {
				return r.refuses(call)
			}
			return nil
		},
		TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{applyconfiguration.NewTypeConverter},
	})
	return r
}

// kubernetes completes rollouts and Jobs.
func (r *rollout) kubernetes() {
	r.Clock.SetTime(r.Clock.Now().Add(time.Second))
	ctx := context.Background()
	var jobs batchv1.JobList
	r.Expect(r.Server.List(ctx, &jobs)).To(Succeed())
	running := 0
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if len(job.Status.Conditions) > 0 || job.DeletionTimestamp != nil || len(job.OwnerReferences) == 0 {
			continue
		}
		running++
		if r.hangs {
			continue
		}
		how := batchv1.JobComplete
		if r.fails {
			how = batchv1.JobFailed
		}
		job.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue, Reason: "Ended", Message: "the database is locked"}}
		r.Expect(r.Server.Status().Update(ctx, job)).To(Succeed())
		r.runs[job.Spec.Template.Spec.Containers[0].Image+" "+string(how)]++
	}
	r.Expect(running).To(BeNumerically("<=", 1), "two Jobs run at the same time")
	var d appsv1.Deployment
	if err := r.Server.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, &d); err != nil {
		return
	}
	image := d.Spec.Template.Spec.Containers[0].Image
	if r.runs[image+" Complete"] == 0 {
		r.broken = append(r.broken, image)
	}
	if d.Status.ObservedGeneration != d.Generation {
		replicas := ptr.Deref(d.Spec.Replicas, 1)
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas}
		r.Expect(r.Server.Status().Update(ctx, &d)).To(Succeed())
	}
}

func (r *rollout) create() {
	app := webApp(withHook())
	app.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	r.Create(app)
	r.Settle("shop/web")
}

func (r *rollout) edit(change func(*v1beta1.AppServiceSpec)) {
	app := &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	r.Edit(app, func() { change(&app.Spec) })
}

func withImage(image string) func(*v1beta1.AppServiceSpec) {
	return func(s *v1beta1.AppServiceSpec) { s.Image = image }
}

func (r *rollout) app() *v1beta1.AppService {
	app := &v1beta1.AppService{}
	r.Expect(r.Server.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "web"}, app)).To(Succeed())
	return app
}

// condition is the status and the reason of a condition.
func (r *rollout) condition(conditionType string) string {
	c := meta.FindStatusCondition(r.app().Status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// running is the image of the Deployment.
func (r *rollout) running() string {
	var d appsv1.Deployment
	if err := r.Server.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "web"}, &d); err != nil {
		return ""
	}
	return d.Spec.Template.Spec.Containers[0].Image
}

func (r *rollout) jobs() []batchv1.Job {
	var jobs batchv1.JobList
	r.Expect(r.Server.List(context.Background(), &jobs)).To(Succeed())
	return jobs.Items
}

func (r *rollout) deleteJobs() {
	for _, job := range r.jobs() {
		r.Expect(r.Server.Delete(context.Background(), &job)).To(Succeed())
	}
}

const (
	v1 = "ghcr.io/acme/shop:1.4.2"
	v2 = "ghcr.io/acme/shop:2"
)

// life is two rollouts, a rollback and a deletion.
func (r *rollout) life() {
	r.create()
	r.Expect(r.running()).To(Equal(v1))
	r.edit(withImage(v2))
	r.Settle("shop/web")
	r.Expect(r.running()).To(Equal(v2))
	r.edit(withImage(v1))
	r.Settle("shop/web")
	r.Expect(r.running()).To(Equal(v1))
	r.Expect(r.condition(v1beta1.ConditionReady)).To(Equal("True Ready"))
	r.Expect(r.app().Status.Hooks.PreDeploy.Phase).To(Equal(v1beta1.PhaseSucceeded))
	r.Expect(r.runs).To(Equal(map[string]int{v1 + " Complete": 1, v2 + " Complete": 1}))
	r.Expect(r.broken).To(BeEmpty(), "rolled out before the Job has succeeded")

	r.Delete(&v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	r.Settle("shop/web")
	r.Expect(r.jobs()).To(BeEmpty())
	r.Expect(r.Exists(&v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})).To(BeFalse())
}

// TestHookRunsOncePerVersionWhereverTheManagerStops stops the manager before and after each of its writes.
func TestHookRunsOncePerVersionWhereverTheManagerStops(t *testing.T) {
	undisturbed := newRollout(t)
	undisturbed.life()
	undisturbed.Expect(len(undisturbed.writes)).To(BeNumerically(">=", 20), "the writes of two rollouts, a rollback and a deletion")
	for _, request := range undisturbed.writes {
		for _, carriedOut := range []bool{false, true} {
			t.Run(fmt.Sprintf("request %d, carried out %t", request, carriedOut), func(t *testing.T) {
				r := newRollout(t)
				r.StopAt(request, carriedOut)
				r.life()
			})
		}
	}
}

// TestRemovedHookLeavesNoJob stops the manager after each of its writes, and removes the hook before the next manager: the
// status may not have recorded the Job.
func TestRemovedHookLeavesNoJob(t *testing.T) {
	undisturbed := newRollout(t)
	undisturbed.create()
	for _, request := range undisturbed.writes {
		for _, isDeleted := range []bool{false, true} {
			t.Run(fmt.Sprintf("request %d, deleted %t", request, isDeleted), func(t *testing.T) {
				r := newRollout(t)
				app := webApp(withHook())
				app.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "web"}
				r.Create(app)
				r.StopAt(request, true)
				for err := error(nil); !errors.Is(err, phasestest.ErrStopped); _, err = r.Reconcile("shop/web") {
					r.kubernetes()
				}
				left := r.jobs()
				r.Forget()

				r.edit(func(s *v1beta1.AppServiceSpec) { s.Hooks = nil })
				if isDeleted {
					r.Delete(app)
				}
				r.Settle("shop/web")

				r.Expect(r.jobs()).To(BeEmpty())
				for _, job := range left {
					r.Expect(r.Changes()).To(ContainElement("delete Job "+job.Name), "by the manager, and not by garbage collection")
				}
			})
		}
	}
}

func TestFailedHookGatesTheRollout(t *testing.T) {
	r := newRollout(t)
	r.create()
	r.fails = true
	r.edit(func(s *v1beta1.AppServiceSpec) { s.Image, s.Replicas = v2, ptr.To[int32](7) })
	r.Settle("shop/web")

	r.Expect(r.running()).To(Equal(v1))
	r.Expect(r.condition(v1beta1.ConditionStalled)).To(Equal("True HookFailed"))
	r.Expect(r.condition(v1beta1.ConditionDeploymentReady)).To(Equal("Unknown Blocked"))
	r.Expect(r.app().Status.Phase).To(Equal(v1beta1.PhaseDegraded), "the pods of the previous version serve")
	hook := r.app().Status.Hooks.PreDeploy
	r.Expect(hook.Phase).To(Equal(v1beta1.PhaseFailed))
	message := meta.FindStatusCondition(r.app().Status.Conditions, v1beta1.ConditionPreDeployReady).Message
	r.Expect(message).To(And(ContainSubstring("the database is locked"), ContainSubstring("kubectl delete job web-"+hook.Version)))
	r.ExpectQuiet("shop/web")

	// A deletion of the Job runs it again.
	r.fails = false
	r.deleteJobs()
	r.Settle("shop/web")
	r.Expect(r.running()).To(Equal(v2))
	r.Expect(r.condition(v1beta1.ConditionReady)).To(Equal("True Ready"))
	r.Expect(r.runs).To(Equal(map[string]int{v1 + " Complete": 1, v2 + " Failed": 1, v2 + " Complete": 1}))
	r.Expect(r.broken).To(BeEmpty())
}

func TestRevertToASucceededVersionNeedsNoJob(t *testing.T) {
	r := newRollout(t)
	r.create()
	r.fails = true
	r.edit(withImage(v2))
	r.Settle("shop/web")
	r.edit(withImage(v1))
	r.Settle("shop/web")

	r.Expect(r.condition(v1beta1.ConditionReady)).To(Equal("True Ready"))
	r.Expect(r.runs).To(Equal(map[string]int{v1 + " Complete": 1, v2 + " Failed": 1}))
	r.Expect(r.jobs()).To(BeEmpty(), "that of the failed version is no longer desired")
}

func TestDeletedJobOfASucceededVersionDoesNotRunAgain(t *testing.T) {
	r := newRollout(t)
	r.create()
	r.deleteJobs()
	r.Settle("shop/web")
	r.edit(func(s *v1beta1.AppServiceSpec) { s.Hooks = nil })
	r.Settle("shop/web")
	r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(BeEmpty())
	r.edit(withHook())
	r.Settle("shop/web")

	r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(Equal("True Ready"))
	r.Expect(r.runs).To(Equal(map[string]int{v1 + " Complete": 1}))
	r.Expect(r.jobs()).To(BeEmpty())
}

// TestJobsOfTwoVersionsDoNotOverlap changes the version while a Job runs: the Job is deleted with its pod, which takes
// its time, before the next one is created.
func TestJobsOfTwoVersionsDoNotOverlap(t *testing.T) {
	r := newRollout(t)
	r.hangs = true
	r.create()
	r.Expect(r.app().Status.Hooks.PreDeploy.Phase).To(Equal(v1beta1.PhaseRunning))
	first := r.jobs()[0]
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pod", Labels: first.Spec.Template.Labels}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	r.Expect(r.Server.Create(context.Background(), pod)).To(Succeed())
	r.edit(withImage(v2))
	r.Settle("shop/web")
	r.Expect(r.jobs()).To(BeEmpty())
	r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(Equal("False Progressing"))
	r.Expect(r.app().Status.Hooks.PreDeploy.Phase).To(Equal(v1beta1.PhasePending))

	r.hangs = false
	r.Expect(r.Server.Delete(context.Background(), pod)).To(Succeed())
	elsewhere := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "pod", Labels: first.Spec.Template.Labels}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	r.Expect(r.Server.Create(context.Background(), elsewhere)).To(Succeed(), "of an AppService with the same name")
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		ended := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: strings.ToLower(string(phase)), Labels: first.Spec.Template.Labels}}
		r.Expect(r.Server.Create(context.Background(), ended)).To(Succeed())
		ended.Status.Phase = phase
		r.Expect(r.Server.Status().Update(context.Background(), ended)).To(Succeed())
	}
	r.Settle("shop/web")
	r.Expect(r.running()).To(Equal(v2))
	r.Expect(r.runs).To(Equal(map[string]int{v2 + " Complete": 1}))
}

// TestCacheThatLagsCreatesNoSecondJob changes the version while the cache does not show the Job of the first.
func TestCacheThatLagsCreatesNoSecondJob(t *testing.T) {
	r := newRollout(t)
	r.hangs = true
	app := webApp(withHook())
	app.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	r.Create(app)
	r.Cache.Freeze()
	_, err := r.Reconcile("shop/web")
	r.Expect(err).NotTo(HaveOccurred())
	r.edit(withImage(v2))
	for range 3 {
		r.Restart()
		_, err := r.Reconcile("shop/web")
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(r.jobs()).To(HaveLen(1))
	}
	r.Cache.Thaw()
	r.hangs = false
	r.Settle("shop/web")
	r.Expect(r.running()).To(Equal(v2))
}

// The Job may have succeeded, and was deleted with the AppService, whose finalizer a user removed during a reconcile.
func TestHookOfADeletedAppServiceDoesNotRunAgain(t *testing.T) {
	for name, isReplaced := range map[string]bool{"deleted": false, "replaced": true} {
		t.Run(name, func(t *testing.T) {
			r := newRollout(t)
			app := webApp()
			app.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "web"}
			successor := app.DeepCopy()
			app.Spec.Hooks = webApp(withHook()).Spec.Hooks
			r.Create(app)
			gone, created := false, false
			r.refuses = func(call ssatest.Call) error {
				created = created || call.Kind.Kind == "Job" && call.Verb == "apply"
				if gone || call.Kind.Kind != "Job" || call.Verb != "get" || call.Cached {
					return nil
				}
				gone = true
				live := r.app()
				r.Edit(live, func() { live.Finalizers = nil })
				r.Delete(live)
				if isReplaced {
					r.Create(successor)
				}
				return nil
			}

			_, err := r.Reconcile("shop/web")

			r.Expect(err).NotTo(HaveOccurred())
			r.Settle("shop/web")
			r.Expect(gone).To(BeTrue())
			r.Expect(created).To(BeFalse())
		})
	}
}

func TestJobOfTheNameThatIsNotOwnedIsNotTouched(t *testing.T) {
	r := newRollout(t)
	app := webApp(withHook())
	app.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	foreign := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: jobName(app)}}
	r.Expect(r.Server.Create(context.Background(), foreign)).To(Succeed())
	r.Create(app)
	r.Settle("shop/web")

	r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(Equal("False NotOwned"))
	r.Expect(r.running()).To(BeEmpty())
	r.Delete(app)
	r.Settle("shop/web")
	r.Expect(r.jobs()).To(HaveLen(1), "it is not that of the AppService")
}

// A deletion of the AppService with --cascade=orphan leaves such a Job. That it is deleted concerns no watch.
func TestHookRunsOnceTheJobOfItsNameIsDeleted(t *testing.T) {
	r := newRollout(t)
	app := webApp(withHook())
	app.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	orphan := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: jobName(app), Labels: hookLabels(app)}}
	r.Expect(r.Server.Create(context.Background(), orphan)).To(Succeed())
	r.Create(app)
	stalled := r.Settle("shop/web")
	r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(Equal("False NotOwned"))
	r.Expect(stalled.RequeueAfter).To(BeNumerically("~", time.Minute, time.Second))

	r.deleteJobs()
	r.Settle("shop/web")

	r.Expect(r.condition(v1beta1.ConditionReady)).To(Equal("True Ready"))
	r.Expect(r.running()).To(Equal(v1))
}

// Garbage collection has not finished to delete it.
func TestJobOfADeletedAppServiceOfTheSameNameDoesNotCount(t *testing.T) {
	r := newRollout(t)
	app := webApp(withHook())
	app.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "former"}
	former := ended(jobName(app), batchv1.JobComplete)
	former.Namespace, former.Labels, former.Finalizers = "shop", hookLabels(app), []string{"example.com/keep"}
	former.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(app, v1beta1.SchemeGroupVersion.WithKind("AppService"))}
	status := former.Status
	r.Expect(r.Server.Create(context.Background(), former)).To(Succeed())
	r.Expect(r.Server.Get(context.Background(), client.ObjectKeyFromObject(former), former)).To(Succeed())
	former.Status = status
	r.Expect(r.Server.Status().Update(context.Background(), former)).To(Succeed())
	app.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	r.Create(app)
	for range 4 { // it is retried until the name is free
		_, _ = r.Reconcile("shop/web")
	}

	r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(Equal("False Terminating"))
	r.Expect(r.running()).To(BeEmpty())
	r.Delete(app)
	r.Settle("shop/web")
	r.Expect(r.jobs()).To(HaveLen(1), "it is not that of the AppService")
}

// A manager may have permissions in some namespaces only, and a restored backup the same UIDs in another namespace.
func TestJobsInAnotherNamespaceAreLeftOut(t *testing.T) {
	g := NewWithT(t)
	app := webApp(withHook())
	in := func(namespace string) *batchv1.Job {
		job := ended(jobName(app), batchv1.JobComplete)
		job.Namespace, job.Labels = namespace, hookLabels(app)
		job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(app, v1beta1.SchemeGroupVersion.WithKind("AppService"))}
		return job
	}
	reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(in("shop"), in("factory")).Build()
	owned, err := ownedPastCache(t.Context(), phases.Reconcile[*scope]{Scope: &scope{app: app, uncached: reader}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(owned).To(HaveExactElements(HaveField("Namespace", "shop")))
}

func TestSuspendedAppServiceRunsNoHook(t *testing.T) {
	r := newRollout(t)
	r.create()
	r.edit(func(s *v1beta1.AppServiceSpec) { s.Image, s.Suspend = v2, true })
	r.Settle("shop/web")
	r.Expect(r.runs).To(Equal(map[string]int{v1 + " Complete": 1}))
	r.Expect(r.app().Status.Hooks.PreDeploy.SucceededVersions).To(HaveLen(1))
	r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(Equal("Unknown Suspended"))
}

func TestPlanNamesTheJob(t *testing.T) {
	r := newRollout(t)
	r.create()
	r.edit(withImage(v2))
	app := r.app()
	plan := r.Plan(app)
	var changes []string
	for _, change := range plan.Changes() {
		changes = append(changes, string(change.Action)+" "+change.Object)
	}
	r.Expect(changes).To(ContainElement("Delete Job " + r.jobs()[0].Name))
	r.Expect(changes).NotTo(ContainElement(ContainSubstring("Deployment")), "the rollout waits for the Job")
	r.deleteJobs()
	plan = r.Plan(app)
	r.Expect(plan.Changes()).To(HaveLen(1))
	r.Expect(plan.Changes()[0].Object).To(Equal("Job " + jobName(app)))
}

func TestImageFieldOfTheJob(t *testing.T) {
	for name, c := range map[string]struct {
		hook *v1beta1.AppServiceHook
		want string
	}{
		"image of the hook":       {&v1beta1.AppServiceHook{Image: "shop-migrations:2"}, "spec.hooks.preDeploy.image"},
		"image of the AppService": {&v1beta1.AppServiceHook{Command: []string{"/migrate"}}, "spec.image"},
	} {
		t.Run(name, func(t *testing.T) {
			app := &v1beta1.AppService{Spec: v1beta1.AppServiceSpec{Image: "shop:2", Hooks: &v1beta1.AppServiceHooks{PreDeploy: c.hook}}}
			NewWithT(t).Expect(imageField(app)).To(Equal(c.want))
		})
	}
}
