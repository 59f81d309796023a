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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

const (
	// timeout limits waits that take seconds on an idle machine.
	timeout  = 3 * time.Minute
	interval = 100 * time.Millisecond
	// clientPod sends requests from within the cluster.
	clientPod = "client"
)

// Clients of the cluster under test.
var (
	api       client.WithWatch
	clientset kubernetes.Interface
)

func connect(config *rest.Config) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("creating a client: %w", err)
		}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	var err error
	if api, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	if clientset, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	return nil
}

// environment is the namespace of one test, optionally with a client pod.
type environment struct {
	Gomega
	t         *testing.T
	ctx       context.Context
	namespace string
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	env := &environment{t: t, ctx: context.Background()}
	env.Gomega = NewWithT(reporter{T: t, env: env})
	env.SetDefaultEventuallyTimeout(timeout)
	env.SetDefaultEventuallyPollingInterval(interval)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	env.Expect(api.Create(env.ctx, namespace)).To(Succeed())
	env.namespace = namespace.Name
	t.Cleanup(func() {
		if !t.Failed() {
			NewWithT(t).Expect(client.IgnoreNotFound(api.Delete(env.ctx, namespace))).To(Succeed())
		}
	})
	env.Eventually(func() error {
		return api.Get(env.ctx, env.key("default"), &corev1.ServiceAccount{})
	}).Should(Succeed(), "pods need a service account")
	return env
}

// withClient adds the client pod.
func (env *environment) withClient() *environment {
	env.t.Helper()
	return env.withCustomClient(func(*corev1.Pod) {})
}

// withCustomClient adds a modified client pod.
func (env *environment) withCustomClient(differs func(*corev1.Pod)) *environment {
	env.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.namespace, Name: clientPod},
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
	env.Expect(api.Create(env.ctx, pod)).To(Succeed())
	env.Eventually(func(g Gomega) {
		g.Expect(api.Get(env.ctx, env.key(clientPod), pod)).To(Succeed())
		g.Expect(isPodReady(pod)).To(BeTrue())
	}).Should(Succeed())
	return env
}

func (env *environment) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: env.namespace, Name: name}
}

// report is the response of the client pod: see subject/client.go.
type report struct {
	Calls    int
	Failures []string
	Pods     map[string]int
	Pause    time.Duration
	Last     struct {
		Pod, Secret, Greeting string
		Calls                 int64
	}
	Server string
}

// request sends a request to the client pod.
func (env *environment) request(path string, pairs ...string) (report, error) {
	var r report
	err := env.requestInto(&r, path, pairs...)
	return r, err
}

// requestInto sends a request to the client pod and decodes another response.
func (env *environment) requestInto(answer any, path string, pairs ...string) error {
	parameters := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		parameters[pairs[i]] = pairs[i+1]
	}
	content, err := clientset.CoreV1().Pods(env.namespace).ProxyGet("http", clientPod, "8080", path, parameters).DoRaw(env.ctx)
	if err != nil {
		return fmt.Errorf("requesting %s from the client pod: %w: %s", path, err, content)
	}
	if err := json.Unmarshal(content, answer); err != nil {
		return fmt.Errorf("requesting %s from the client pod: %w: %s", path, err, content)
	}
	return nil
}

// call sends a request to the client pod and returns an error if the call failed.
func (env *environment) call(path, url string) (report, error) {
	r, err := env.request(path, "url", url)
	if err == nil && len(r.Failures) > 0 {
		err = fmt.Errorf("calling %s: %s", url, r.Failures[0])
	}
	return r, err
}

// callWhenReachable retries until a connection succeeds: when an object is Ready, kube-proxy may not have programmed
// its Service yet. A server that is reached must respond.
func (env *environment) callWhenReachable(path, url string) report {
	env.t.Helper()
	var found report
	env.Eventually(func() (err error) {
		found, err = env.call(path, url)
		if err != nil && !strings.Contains(err.Error(), "dial tcp") {
			return StopTrying("the server was reached and did not respond").Wrap(err)
		}
		return err
	}).Should(Succeed())
	return found
}

// startLoad starts calls that continue until stopLoad.
func (env *environment) startLoad(kind, url string) {
	env.t.Helper()
	if kind == "get" {
		env.callWhenReachable("/get", url)
	} else {
		env.callWhenReachable("/call", url)
	}
	_, err := env.request("/load", "kind", kind, "url", url)
	env.Expect(err).NotTo(HaveOccurred())
	env.Eventually(func() (int, error) {
		r, err := env.request("/report")
		return r.Calls, err
	}).Should(BeNumerically(">", 5), "the load starts")
}

func (env *environment) stopLoad() report {
	env.t.Helper()
	r, err := env.request("/stop")
	env.Expect(err).NotTo(HaveOccurred())
	return r
}

// ready waits until the object is Ready in its current generation.
func ready[T client.Object](env *environment, object T) T {
	env.t.Helper()
	env.Eventually(func() error {
		if err := api.Get(env.ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		return isReady(object)
	}).Should(Succeed())
	return object
}

func isReady(object client.Object) error {
	condition := conditionOf(object, v1beta1.ConditionReady)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.ObservedGeneration != object.GetGeneration() {
		return fmt.Errorf("%T %s/%s of generation %d is not ready: %+v", object, object.GetNamespace(), object.GetName(), object.GetGeneration(), condition)
	}
	return nil
}

func conditionOf(object client.Object, name string) *metav1.Condition {
	switch o := object.(type) {
	case *v1beta1.AppService:
		return meta.FindStatusCondition(o.Status.Conditions, name)
	case *v1beta1.MCPServer:
		return meta.FindStatusCondition(o.Status.Conditions, name)
	case *v1beta1.SecureStorage:
		return meta.FindStatusCondition(o.Status.Conditions, name)
	}
	return nil
}

// waitDeleted waits until an object is deleted.
func (env *environment) waitDeleted(object client.Object) {
	env.t.Helper()
	env.Eventually(func() bool {
		return apierrors.IsNotFound(api.Get(env.ctx, client.ObjectKeyFromObject(object), object))
	}).Should(BeTrue(), "%T %s is deleted", object, object.GetName())
}

// edit updates an object and retries conflicts.
func edit[T client.Object](env *environment, object T, change func(T)) {
	env.t.Helper()
	env.Eventually(func() error {
		if err := api.Get(env.ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		change(object)
		return api.Update(env.ctx, object)
	}).Should(Succeed())
}

// livePods returns the pods that are not terminating.
func (env *environment) livePods(labels client.MatchingLabels) []corev1.Pod {
	env.t.Helper()
	var list corev1.PodList
	env.Expect(api.List(env.ctx, &list, client.InNamespace(env.namespace), labels)).To(Succeed())
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

// reporter adds the state of the cluster to a failure.
type reporter struct {
	*testing.T
	env *environment
}

func (r reporter) Fatalf(format string, args ...any) {
	r.Helper()
	r.env.dump()
	r.T.Fatalf(format, args...)
}

// dump logs the Fixpoint objects, the pods and the Events of the namespace.
func (env *environment) dump() {
	env.t.Helper()
	for _, list := range []client.ObjectList{&v1beta1.AppServiceList{}, &v1beta1.MCPServerList{}, &v1beta1.SecureStorageList{}} {
		if api.List(env.ctx, list, client.InNamespace(env.namespace)) != nil {
			continue
		}
		if content, err := yaml.Marshal(list); err == nil && meta.LenList(list) > 0 {
			env.t.Logf("%s", content)
		}
	}
	var pods corev1.PodList
	if api.List(env.ctx, &pods) == nil {
		for _, pod := range pods.Items {
			env.t.Logf("pod %s/%s %s %s", pod.Namespace, pod.Name, pod.Status.Phase, containers(&pod))
		}
	}
	var events corev1.EventList
	if api.List(env.ctx, &events, client.InNamespace(env.namespace)) == nil {
		for _, e := range events.Items {
			env.t.Logf("event %s %s %s/%s: %s", e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
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
