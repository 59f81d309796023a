package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

const (
	// patience is for what takes seconds on a machine that has nothing else to do.
	patience = 90 * time.Second
	interval = 100 * time.Millisecond
	// clientPod calls, from within the cluster.
	clientPod = "client"
)

// The cluster under test.
var (
	api       client.WithWatch
	clientset kubernetes.Interface
)

func connect(config *rest.Config) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("making a client: %w", err)
		}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	var err error
	if api, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if clientset, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return nil
}

// world is a namespace for one test, with a pod that calls servers.
type world struct {
	Gomega
	t         *testing.T
	ctx       context.Context
	namespace string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ctx: context.Background()}
	w.Gomega = NewWithT(reporter{T: t, world: w})
	w.SetDefaultEventuallyTimeout(patience)
	w.SetDefaultEventuallyPollingInterval(interval)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	w.Expect(api.Create(w.ctx, namespace)).To(Succeed())
	w.namespace = namespace.Name
	t.Cleanup(func() {
		if !t.Failed() {
			NewWithT(t).Expect(client.IgnoreNotFound(api.Delete(w.ctx, namespace))).To(Succeed())
		}
	})
	w.Eventually(func() error {
		return api.Get(w.ctx, w.key("default"), &corev1.ServiceAccount{})
	}).Should(Succeed(), "pods need a service account")
	return w
}

// withClient adds the pod that calls.
func (w *world) withClient() *world {
	w.t.Helper()
	return w.withClientThat(func(*corev1.Pod) {})
}

// withClientThat adds one that is otherwise than most.
func (w *world) withClientThat(differs func(*corev1.Pod)) *world {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: clientPod},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{
				Name: "client", Image: subjectImage, Args: []string{"client"},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
					TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)},
				}},
			}},
		},
	}
	differs(pod)
	w.Expect(api.Create(w.ctx, pod)).To(Succeed())
	w.Eventually(func(g Gomega) {
		g.Expect(api.Get(w.ctx, w.key(clientPod), pod)).To(Succeed())
		g.Expect(isPodReady(pod)).To(BeTrue())
	}).Should(Succeed())
	return w
}

func (w *world) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.namespace, Name: name}
}

// report is what the client pod found: see subject/client.go.
type report struct {
	Calls    int
	Failures []string
	Pods     map[string]int
	Last     struct {
		Pod, Secret, Greeting string
		Calls                 int64
	}
	Server string
}

// ask has the client pod do something.
func (w *world) ask(path string, pairs ...string) (report, error) {
	var r report
	err := w.askFor(&r, path, pairs...)
	return r, err
}

// askFor has the client pod do something that it answers otherwise.
func (w *world) askFor(answer any, path string, pairs ...string) error {
	parameters := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		parameters[pairs[i]] = pairs[i+1]
	}
	content, err := clientset.CoreV1().Pods(w.namespace).ProxyGet("http", clientPod, "8080", path, parameters).DoRaw(w.ctx)
	if err != nil {
		return fmt.Errorf("asking the client for %s: %w: %s", path, err, content)
	}
	if err := json.Unmarshal(content, answer); err != nil {
		return fmt.Errorf("asking the client for %s: %w: %s", path, err, content)
	}
	return nil
}

// called is ask, and fails if one of the calls did.
func (w *world) called(path, url string) (report, error) {
	r, err := w.ask(path, "url", url)
	if err == nil && len(r.Failures) > 0 {
		err = fmt.Errorf("calling %s: %s", url, r.Failures[0])
	}
	return r, err
}

// reached is the first call that gets through. When an object is Ready, the kube-proxy of the client's node may
// not have written the rules of its Service yet, which nobody is told of; whoever is reached has to answer.
func (w *world) reached(path, url string) report {
	w.t.Helper()
	var found report
	w.Eventually(func() (err error) {
		found, err = w.called(path, url)
		if err != nil && !strings.Contains(err.Error(), "dial tcp") {
			return StopTrying("the server was reached and did not answer").Wrap(err)
		}
		return err
	}).Should(Succeed())
	return found
}

// load begins calls that go on until stopLoad.
func (w *world) load(kind, url string) {
	w.t.Helper()
	if kind == "get" {
		w.reached("/get", url)
	} else {
		w.reached("/call", url)
	}
	_, err := w.ask("/load", "kind", kind, "url", url)
	w.Expect(err).NotTo(HaveOccurred())
	w.Eventually(func() (int, error) {
		r, err := w.ask("/report")
		return r.Calls, err
	}).Should(BeNumerically(">", 5), "the load begins")
}

func (w *world) stopLoad() report {
	w.t.Helper()
	r, err := w.ask("/stop")
	w.Expect(err).NotTo(HaveOccurred())
	return r
}

// ready waits until the object is Ready, in its present generation.
func ready[T client.Object](w *world, object T) T {
	w.t.Helper()
	w.Eventually(func() error {
		if err := api.Get(w.ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		return isReady(object)
	}).Should(Succeed())
	return object
}

func isReady(object client.Object) error {
	condition := conditionOf(object, v1alpha1.ConditionReady)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.ObservedGeneration != object.GetGeneration() {
		return fmt.Errorf("%T %s/%s of generation %d is not ready: %+v", object, object.GetNamespace(), object.GetName(), object.GetGeneration(), condition)
	}
	return nil
}

func conditionOf(object client.Object, name string) *metav1.Condition {
	switch o := object.(type) {
	case *v1alpha1.AppService:
		return meta.FindStatusCondition(o.Status.Conditions, name)
	case *v1alpha1.MCPServer:
		return meta.FindStatusCondition(o.Status.Conditions, name)
	case *v1alpha1.SecureStorage:
		return meta.FindStatusCondition(o.Status.Conditions, name)
	}
	return nil
}

// gone waits until an object is not there any more.
func (w *world) gone(object client.Object) {
	w.t.Helper()
	w.Eventually(func() bool {
		return apierrors.IsNotFound(api.Get(w.ctx, client.ObjectKeyFromObject(object), object))
	}).Should(BeTrue(), "%T %s is to go", object, object.GetName())
}

// edit changes an object, as often as it takes to be the one who did.
func edit[T client.Object](w *world, object T, change func(T)) {
	w.t.Helper()
	w.Eventually(func() error {
		if err := api.Get(w.ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change(object)
		return api.Update(w.ctx, object)
	}).Should(Succeed())
}

// pods are those of one of our objects that are not on their way out.
func (w *world) pods(labels client.MatchingLabels) []corev1.Pod {
	w.t.Helper()
	var list corev1.PodList
	w.Expect(api.List(w.ctx, &list, client.InNamespace(w.namespace), labels)).To(Succeed())
	var live []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			live = append(live, pod)
		}
	}
	return live
}

func isPodReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// reporter adds what is on the cluster to a failure.
type reporter struct {
	*testing.T
	world *world
}

func (r reporter) Fatalf(format string, args ...any) {
	r.Helper()
	r.world.dump()
	r.T.Fatalf(format, args...)
}

// dump logs our objects, the pods and the Events of the namespace.
func (w *world) dump() {
	w.t.Helper()
	for _, list := range []client.ObjectList{&v1alpha1.AppServiceList{}, &v1alpha1.MCPServerList{}, &v1alpha1.SecureStorageList{}} {
		if api.List(w.ctx, list, client.InNamespace(w.namespace)) != nil {
			continue
		}
		if content, err := yaml.Marshal(list); err == nil && meta.LenList(list) > 0 {
			w.t.Logf("%s", content)
		}
	}
	var pods corev1.PodList
	if api.List(w.ctx, &pods) == nil {
		for _, pod := range pods.Items {
			w.t.Logf("pod %s/%s %s %s", pod.Namespace, pod.Name, pod.Status.Phase, containers(&pod))
		}
	}
	var events corev1.EventList
	if api.List(w.ctx, &events, client.InNamespace(w.namespace)) == nil {
		for _, e := range events.Items {
			w.t.Logf("event %s %s %s/%s: %s", e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
		}
	}
}

func containers(pod *corev1.Pod) string {
	var states []string
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil:
			states = append(states, c.Name+": "+c.State.Waiting.Reason+" "+c.State.Waiting.Message)
		case c.State.Terminated != nil:
			states = append(states, c.Name+": "+c.State.Terminated.Reason+" "+c.State.Terminated.Message)
		default:
			states = append(states, fmt.Sprintf("%s: ready %t, restarts %d", c.Name, c.Ready, c.RestartCount))
		}
	}
	return strings.Join(states, "; ")
}
