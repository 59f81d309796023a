package workload

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func TestFindPodProblem(t *testing.T) {
	pod := func(changes ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-6d4b9c7f5-x7k2p"}}
		for _, change := range changes {
			change(&p)
		}
		return p
	}
	container := func(status corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status) }
	}
	initContainer := func(status corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, status) }
	}
	scheduled := func(status corev1.ConditionStatus, reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: status, Reason: reason, Message: message})
		}
	}
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	evicted := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	pulls := waiting("app", "shop:404", "ImagePullBackOff", `Back-off pulling image "shop:404"`)
	running := corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	const cannotPull = "container app cannot pull image shop:404 (ImagePullBackOff); correct spec.image or spec.imagePullSecrets"

	cases := map[string]struct {
		pods []corev1.Pod
		want string
	}{
		"no pods":               {nil, ""},
		"pods being created":    {[]corev1.Pod{pod(container(waiting("app", "shop:1", "ContainerCreating", "")))}, ""},
		"running":               {[]corev1.Pod{pod(scheduled(corev1.ConditionTrue, "", ""), container(running))}, ""},
		"a pull that fails":     {[]corev1.Pod{pod(container(pulls))}, cannotPull},
		"the second pod":        {[]corev1.Pod{pod(container(running)), pod(container(pulls))}, cannotPull},
		"the second container":  {[]corev1.Pod{pod(container(running), container(pulls))}, cannotPull},
		"only terminating pods": {[]corev1.Pod{pod(deleted, container(pulls))}, ""},
		"only evicted pods":     {[]corev1.Pod{pod(evicted, container(pulls))}, ""},
		"an init container": {[]corev1.Pod{pod(initContainer(waiting("migrate", "m:1", "CrashLoopBackOff", "")), container(waiting("app", "shop:1", "PodInitializing", "")))},
			"container migrate crashes; see kubectl logs --previous"},
		"no node": {[]corev1.Pod{pod(scheduled(corev1.ConditionFalse, corev1.PodReasonUnschedulable, "0/3 nodes are available: 3 Insufficient cpu."))},
			"pods cannot be scheduled: 0/3 nodes are available: 3 Insufficient cpu.; lower spec.resources, relax the scheduling constraints, or add nodes"},
		"no volume": {[]corev1.Pod{pod(scheduled(corev1.ConditionFalse, corev1.PodReasonUnschedulable,
			"0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."))},
			"pods cannot be scheduled: 0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.; correct the PersistentVolumeClaim: see kubectl describe pvc"},
		"a claim that is missing": {[]corev1.Pod{pod(scheduled(corev1.ConditionFalse, corev1.PodReasonUnschedulable,
			`0/3 nodes are available: persistentvolumeclaim "data" not found.`))},
			`pods cannot be scheduled: 0/3 nodes are available: persistentvolumeclaim "data" not found.; correct the PersistentVolumeClaim: see kubectl describe pvc`},
		"another condition": {[]corev1.Pod{pod(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		})}, ""},
		"scheduled since": {[]corev1.Pod{pod(scheduled(corev1.ConditionTrue, corev1.PodReasonUnschedulable, ""))}, ""},
		"scheduling gate": {[]corev1.Pod{pod(scheduled(corev1.ConditionFalse, corev1.PodReasonSchedulingGated, "gated"))}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(findPodProblem(c.pods, imageField)).To(Equal(c.want))
		})
	}
}

func TestContainerProblem(t *testing.T) {
	crashed := func(message string) corev1.ContainerStatus {
		status := waiting("app", "shop:1", "CrashLoopBackOff", "back-off 5m0s restarting failed container=app pod=web-6d4b9c7f5-x7k2p")
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Message: message}
		return status
	}
	outOfMemory := func(container string) corev1.ContainerStatus {
		status := waiting(container, "shop:1", "CrashLoopBackOff", "")
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
		return status
	}
	restarted := func(count, code int32, ready bool) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: "app", Ready: ready, RestartCount: count, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
		}
	}
	cases := map[string]struct {
		status corev1.ContainerStatus
		want   string
	}{
		"running":                      {corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, ""},
		"restarted after a crash":      {restarted(1, 2, false), "container app crashes with exit code 2; see kubectl logs --previous"},
		"ready after a crash":          {restarted(1, 2, true), ""},
		"crashed, not restarted":       {restarted(0, 2, false), ""},
		"restarted after it had ended": {restarted(1, 0, false), ""},
		"restarted, nothing is known":  {corev1.ContainerStatus{RestartCount: 1}, ""},
		"creating":                     {waiting("app", "shop:1", "ContainerCreating", ""), ""},
		"initialising":                 {waiting("app", "shop:1", "PodInitializing", ""), ""},
		"pull backs off":               {waiting("app", "shop:1", "ImagePullBackOff", "x"), "container app cannot pull image shop:1 (ImagePullBackOff); correct spec.image or spec.imagePullSecrets"},
		// The kubelet alternates between the two reasons; the condition must not.
		"pull fails":    {waiting("app", "shop:1", "ErrImagePull", "x"), "container app cannot pull image shop:1 (ImagePullBackOff); correct spec.image or spec.imagePullSecrets"},
		"no image name": {waiting("app", "Shop", "InvalidImageName", "x"), "container app cannot pull image Shop (InvalidImageName); correct spec.image or spec.imagePullSecrets"},
		"never pulled": {waiting("app", "shop:1", "ErrImageNeverPull", "x"),
			"container app cannot pull image shop:1 (ErrImageNeverPull); load the image on the nodes, or set spec.imagePullPolicy to IfNotPresent"},
		"the image of the bridge": {waiting(v1beta1.MCPReservedPrefix+"bridge", "manager:1", "ErrImagePull", "x"),
			"container " + v1beta1.MCPReservedPrefix + "bridge cannot pull image manager:1 (ImagePullBackOff); " +
				"have an administrator correct the flag --bridge-image of the manager, or correct spec.imagePullSecrets"},
		"out of memory": {outOfMemory("app"), "container app ran out of memory (OOMKilled); raise its limit in spec.resources.limits"},
		"the proxy is out of memory": {outOfMemory(v1beta1.MCPReservedPrefix + "proxy"),
			"container " + v1beta1.MCPReservedPrefix + "proxy ran out of memory (OOMKilled); raise its limit in spec.podOverrides"},
		"an image that runs as root": {waiting("app", "shop:1", "CreateContainerConfigError",
			`container has runAsNonRoot and image will run as root (pod: "web-6d4b9c7f5-x7k2p_shop(0b6c8bb1-71a8-4a6f-9a01-5a3a8d5d3a11)", container: app)`),
			"container app cannot be created (CreateContainerConfigError): container has runAsNonRoot and image will run as root; " +
				"set spec.podSecurityContext.runAsUser to the number of a user other than root"},
		"an image with the name of a user": {waiting("app", "shop:1", "CreateContainerConfigError",
			`container has runAsNonRoot and image has non-numeric user (node), cannot verify user is non-root (pod: "web-1_shop(u)", container: app)`),
			"container app cannot be created (CreateContainerConfigError): container has runAsNonRoot and image has non-numeric user (node), " +
				"cannot verify user is non-root; set spec.podSecurityContext.runAsUser to the number of a user other than root"},
		"crashes":                              {waiting("app", "shop:1", "CrashLoopBackOff", ""), "container app crashes; see kubectl logs --previous"},
		"crashes silently":                     {crashed(""), "container app crashes with exit code 2; see kubectl logs --previous"},
		"crashes with a message of many lines": {crashed("  no \x1b[2J\n\tDATABASE_URL\u202e\r\n"), "container app crashes with exit code 2: no [2J DATABASE_URL; see kubectl logs --previous"},
		"crashes with a long message":          {crashed(strings.Repeat("x", 4096)), "container app crashes with exit code 2: " + strings.Repeat("x", 253) + "…; see kubectl logs --previous"},
		"crashes with message":                 {crashed("no DATABASE_URL"), "container app crashes with exit code 2: no DATABASE_URL; see kubectl logs --previous"},
		"bad reference":                        {waiting("app", "shop:1", "CreateContainerConfigError", `secret "db" not found`), `container app cannot be created (CreateContainerConfigError): secret "db" not found`},
		"cannot create":                        {waiting("app", "shop:1", "CreateContainerError", "no command"), "container app cannot be created (CreateContainerError): no command"},
		"cannot start":                         {waiting("app", "shop:1", "RunContainerError", "exec: not found"), "container app cannot be created (RunContainerError): exec: not found"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(containerProblem(c.status, imageField)).To(Equal(c.want))
		})
	}
}

// podReader answers a list with those of its pods that the options select, in their order, or fails, and counts.
type podReader struct {
	client.Reader
	pods  []corev1.Pod
	err   error
	lists int
}

func (r *podReader) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	r.lists++
	pods, ok := list.(*corev1.PodList)
	if r.err != nil || !ok {
		return r.err
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	for i, from := 0, o.Continue; i < len(r.pods); i++ {
		pod := r.pods[i]
		if from == strconv.Itoa(i) {
			from = ""
		}
		if from != "" || pod.Namespace != o.Namespace || o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if o.Limit > 0 && int64(len(pods.Items)) == o.Limit {
			pods.Continue = strconv.Itoa(i)
			break
		}
		pods.Items = append(pods.Items, pod)
	}
	return nil
}

// failingPod is a pod of the Deployment web with a container in a state.
func failingPod(status corev1.ContainerStatus) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelName: "web"}},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status}},
	}
}

func TestExplain(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	broken := []corev1.Pod{failingPod(waiting("app", "shop:1", "CrashLoopBackOff", ""))}
	slow := phases.Wait(v1beta1.ReasonRolloutProgressing, "waiting for updated pods to become available", podsRecheckInterval)
	stalled := phases.Stalled(v1beta1.ReasonRolloutStalled, "too slow")
	quota := phases.Wait(v1beta1.ReasonQuotaExceeded, "no room", 0)
	serving := phases.DoneBecause(v1beta1.ReasonOldReplicasServing, "old pods serve").WhileReconciling()
	const crashes = "container app crashes; see kubectl logs --previous"

	cases := map[string]struct {
		verdict phases.Verdict
		since   time.Duration
		reader  *podReader
		want    outcome
		lists   int
	}{
		"not stuck yet":     {slow, time.Second, &podReader{pods: broken}, outcomeOf(slow), 0},
		"five seconds":      {slow, 5 * time.Second, &podReader{pods: broken}, outcomeOf(slow), 0},
		"ready":             {phases.Done("all pods are available"), time.Minute, &podReader{pods: broken}, outcomeOf(phases.Done("all pods are available")), 0},
		"stuck, pods fail":  {slow, time.Minute, &podReader{pods: broken}, outcome{"wait", v1beta1.ReasonPodsFailing, crashes}, 1},
		"stuck, no problem": {slow, time.Minute, &podReader{}, outcomeOf(slow), 1},
		"stuck, list fails": {slow, time.Minute, &podReader{err: errors.New("no")}, outcomeOf(slow), 1},
		"old pods serve":    {serving, time.Minute, &podReader{pods: broken}, outcome{"done", v1beta1.ReasonOldReplicasServing, "old pods serve: " + crashes}, 1},
		"stalled, old pods serve": {phases.DoneBecause(v1beta1.ReasonRolloutStalled, "old pods serve").WhileStalled(), time.Second, &podReader{pods: broken},
			outcome{"done", v1beta1.ReasonRolloutStalled, "old pods serve: " + crashes}, 1},
		"stalled":        {stalled, time.Second, &podReader{pods: broken}, outcome{"stalled", v1beta1.ReasonRolloutStalled, crashes + "; too slow"}, 1},
		"quota exceeded": {quota, time.Minute, &podReader{pods: broken}, outcomeOf(quota), 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := &appsv1.Deployment{}
			live.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, LastUpdateTime: metav1.NewTime(now.Add(-c.since))}}
			live.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{LabelName: "web"}}

			verdict := Explain(t.Context(), c.reader, clocktesting.NewFakePassiveClock(now), live, c.verdict)

			g.Expect(outcomeOf(verdict)).To(Equal(c.want))
			g.Expect(c.reader.lists).To(Equal(c.lists), "lists of pods")
		})
	}
}

// The status of a Deployment does not change when its pods fail for another reason.
func TestStalledRolloutIsExplainedAgain(t *testing.T) {
	g := NewWithT(t)
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	live.Spec.ProgressDeadlineSeconds, live.Spec.Selector = ptr.To[int32](600), &metav1.LabelSelector{}
	live.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Reason: "ProgressDeadlineExceeded"}}
	broken := []corev1.Pod{failingPod(waiting("app", "shop:1", "CrashLoopBackOff", ""))}

	for name, reader := range map[string]*podReader{
		"pods fail":                 {pods: broken},
		"no pod fails yet":          {},
		"the pods cannot be listed": {err: errors.New("the server is currently unable to handle the request")},
	} {
		verdict := Explain(t.Context(), reader, clocktesting.NewFakePassiveClock(time.Now()), live, Ready(live))
		g.Expect(verdict.IsStalled()).To(BeTrue(), name)
		g.Expect(verdict.After()).To(Equal(time.Minute), name)
	}
}

func TestOnlyPodsOfTheDeploymentExplainItsRollout(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	own := map[string]string{LabelName: "web"}
	slow := phases.Wait(v1beta1.ReasonRolloutProgressing, "waiting for updated pods to become available", podsRecheckInterval)
	for name, c := range map[string]struct {
		namespace string
		labels    map[string]string
		explains  bool
	}{
		"its pod":                       {"shop", own, true},
		"the pod of another Deployment": {"shop", map[string]string{LabelName: "api"}, false},
		"a pod in another namespace":    {"factory", own, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
			live.Spec.Selector = &metav1.LabelSelector{MatchLabels: own}
			live.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, LastUpdateTime: metav1.NewTime(now.Add(-time.Minute))}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "web-1", Labels: c.labels}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{waiting("app", "shop:1", "CrashLoopBackOff", "")}
			reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(pod).Build()

			verdict := Explain(t.Context(), reader, clocktesting.NewFakePassiveClock(now), live, slow)

			g.Expect(verdict.Reason() == v1beta1.ReasonPodsFailing).To(Equal(c.explains), verdict.String())
		})
	}
}

// Pods of earlier versions stay until those of the current one are available.
func TestOnlyPodsOfTheCurrentVersionExplainARollout(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	slow := phases.Wait(v1beta1.ReasonRolloutProgressing, "waiting for updated pods to become available", podsRecheckInterval)
	pod := func(replicaSet, image string) corev1.Pod {
		p := failingPod(waiting("app", image, "ImagePullBackOff", ""))
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: replicaSet, Controller: ptr.To(true)}}
		return p
	}
	const old, current = "web-5d4b", "web-5d4bc"
	cannotPull := func(image string) outcome {
		return outcome{"wait", v1beta1.ReasonPodsFailing, "container app cannot pull image " + image + " (ImagePullBackOff); correct spec.image or spec.imagePullSecrets"}
	}
	for name, c := range map[string]struct {
		message  string // of the condition Progressing
		observed int64
		pods     []corev1.Pod
		want     outcome
	}{
		"the current version":             {`ReplicaSet "web-5d4bc" is progressing.`, 2, []corev1.Pod{pod(old, "shop:1"), pod(current, "shop:2")}, cannotPull("shop:2")},
		"an earlier version":              {`ReplicaSet "web-5d4bc" is progressing.`, 2, []corev1.Pod{pod(old, "shop:1")}, outcomeOf(slow)},
		"the first pods of a new version": {`Created new replica set "web-5d4bc"`, 2, []corev1.Pod{pod(old, "shop:1")}, outcomeOf(slow)},
		"a change that is not observed":   {`ReplicaSet "web-5d4b" is progressing.`, 1, []corev1.Pod{pod(old, "shop:1")}, outcomeOf(slow)},
		"a message without a ReplicaSet":  {"in progress", 2, []corev1.Pod{pod(old, "shop:1")}, cannotPull("shop:1")},
		"a pod that no ReplicaSet owns":   {`ReplicaSet "web-5d4bc" is progressing.`, 2, []corev1.Pod{failingPod(waiting("app", "shop:1", "ImagePullBackOff", ""))}, outcomeOf(slow)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			live.Status.ObservedGeneration = c.observed
			live.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{LabelName: "web"}}
			live.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Message: c.message, LastUpdateTime: metav1.NewTime(now.Add(-time.Minute))}}
			verdict := Explain(t.Context(), &podReader{pods: c.pods}, clocktesting.NewFakePassiveClock(now), live, slow)
			g.Expect(outcomeOf(verdict)).To(Equal(c.want))
		})
	}
}

// A list is in the order of the names, which begin with that of the ReplicaSet.
func TestProblemIsFoundBehindManyPodsThatHaveNone(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	slow := phases.Wait(v1beta1.ReasonRolloutProgressing, "waiting for updated pods to become available", podsRecheckInterval)
	const many = 3*maxPods + 1
	pod := func(hash string, status corev1.PodPhase) corev1.Pod {
		p := failingPod(waiting("app", "shop:2", "ImagePullBackOff", ""))
		p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-" + hash, Controller: ptr.To(true)}}
		p.Status.Phase = status
		return p
	}
	old, evicted := pod("5d4b", corev1.PodRunning), pod("5d4bc", corev1.PodFailed)
	const named = `ReplicaSet "web-5d4bc" is progressing.`
	for name, c := range map[string]struct {
		message string // of the condition Progressing
		before  corev1.Pod
		lists   int
	}{
		"pods of an earlier version":               {named, old, 1},
		"evicted pods":                             {named, evicted, 4},
		"evicted pods, and no ReplicaSet is known": {"in progress", evicted, 4},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
			live.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{LabelName: "web"}}
			live.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Message: c.message, LastUpdateTime: metav1.NewTime(now.Add(-time.Minute))}}
			reader := &podReader{pods: append(slices.Repeat([]corev1.Pod{c.before}, many), pod("5d4bc", corev1.PodPending))}

			verdict := Explain(t.Context(), reader, clocktesting.NewFakePassiveClock(now), live, slow)

			g.Expect(outcomeOf(verdict)).To(Equal(outcome{"wait", v1beta1.ReasonPodsFailing,
				"container app cannot pull image shop:2 (ImagePullBackOff); correct spec.image or spec.imagePullSecrets"}))
			g.Expect(reader.lists).To(Equal(c.lists), "lists of pods")
			g.Expect(live.Spec.Selector.MatchLabels).To(HaveLen(1), "the Deployment is not changed")
		})
	}
}

func TestPodsDoNotExplainARolloutThatIsPaused(t *testing.T) {
	g := NewWithT(t)
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	live.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{LabelName: "web"}}
	live.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Reason: "DeploymentPaused", Message: "Deployment is paused"}}
	pod := failingPod(waiting("app", "shop:1", "ImagePullBackOff", ""))
	paused := Ready(live)
	g.Expect(outcomeOf(Explain(t.Context(), &podReader{pods: []corev1.Pod{pod}}, clocktesting.NewFakePassiveClock(time.Now()), live, paused))).To(Equal(outcomeOf(paused)))
}

func TestRolloutWithoutConditionsIsNotStuck(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Now())
	NewWithT(t).Expect(isStuck(now, &appsv1.Deployment{}, phases.Wait("X", "", 0))).To(BeFalse())
}

func waiting(name, image, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, Image: image,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}
}
