package appservice_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/record"
)

// world is what one test has to itself: a namespace, and the managers that it started. Whatever
// fails in it is reported with the objects, their managed fields and Events, the managers' log and
// their requests.
type world struct {
	Gomega
	t         *testing.T
	ctx       context.Context
	namespace string
	// began is where the audit log stood when the test began.
	began    cluster.Mark
	managers []*runningManager
	// focus names the AppServices to report on; all of the namespace without any.
	focus []string
}

// newWorld makes a namespace in which pods can be made.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ctx: context.Background()}
	w.Gomega = NewWithT(reporter{T: t, world: w})
	w.began = w.mark()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	w.Expect(api.Create(w.ctx, namespace)).To(Succeed())
	w.namespace = namespace.Name
	w.Eventually(func() error {
		return api.Get(w.ctx, w.key("default"), &corev1.ServiceAccount{})
	}).Should(Succeed(), "pods need a service account")
	t.Cleanup(func() {
		// The namespaces go with the cluster. Autoscalers would keep it busy until then.
		_ = api.DeleteAllOf(w.ctx, &autoscalingv2.HorizontalPodAutoscaler{}, client.InNamespace(w.namespace))
	})
	return w
}

// newManagedWorld is a world with a manager, for a test that runs beside others.
func newManagedWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := newWorld(t)
	w.startManager()
	return w
}

// sub is the world for a subtest that runs beside its siblings on AppServices of its own.
func (w *world) sub(t *testing.T, focus ...string) *world {
	t.Helper()
	t.Parallel()
	inner := *w
	inner.t, inner.focus = t, focus
	inner.Gomega = NewWithT(reporter{T: t, world: &inner})
	return &inner
}

func (w *world) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.namespace, Name: name}
}

// mark is where the audit log stands.
func (w *world) mark() cluster.Mark {
	mark, err := shared.Audit().Mark()
	w.Expect(err).NotTo(HaveOccurred())
	return mark
}

// requests are those of the managers for objects of the namespace, Events and Leases aside.
func (w *world) requests(since cluster.Mark) cluster.Requests {
	all, err := shared.Audit().Since(since)
	w.Expect(err).NotTo(HaveOccurred())
	return all.In(w.namespace).Except("events", "events.events.k8s.io", "leases.coordination.k8s.io").Where(func(r cluster.Request) bool {
		return strings.HasPrefix(r.User, managerUser)
	})
}

// settled returns when the managers have nothing more to do, and where the audit log stands then.
func (w *world) settled() cluster.Mark {
	w.t.Helper()
	// Longer than anything that a manager puts off by itself when nothing is wrong.
	const quiet = 2500 * time.Millisecond
	began := time.Now()
	w.Eventually(func() time.Duration {
		last := began
		if requests := w.requests(w.began); len(requests) > 0 && requests[len(requests)-1].Answered.After(began) {
			last = requests[len(requests)-1].Answered
		}
		return time.Since(last)
	}).Should(BeNumerically(">", quiet), "the manager never came to rest")
	return w.mark()
}

// read reads an object that is there.
func read[T client.Object](w *world, name string, into T) T {
	w.t.Helper()
	w.Expect(api.Get(w.ctx, w.key(name), into)).To(Succeed())
	return into
}

// isGone is for Eventually.
func (w *world) isGone(name string, object client.Object) func() error {
	return func() error {
		err := api.Get(w.ctx, w.key(name), object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%T %s is still there, with finalizers %q", object, name, object.GetFinalizers())
		}
		return err
	}
}

func clone[T client.Object](object T) T {
	copied, ok := object.DeepCopyObject().(T)
	if !ok {
		panic(fmt.Sprintf("a copy of a %T is none", object))
	}
	return copied
}

// eventually waits until the object passes the check, and returns it.
func eventually[T client.Object](w *world, name string, into T, check func(g Gomega, live T)) T {
	w.t.Helper()
	var found T
	w.Eventually(func(g Gomega) {
		live := clone(into) // what an earlier look has found must not show through
		g.Expect(api.Get(w.ctx, w.key(name), live)).To(Succeed())
		check(g, live)
		found = live
	}).Should(Succeed())
	return found
}

// recorded collects every version of an object that the API server shows from now on.
func recorded[T client.Object](w *world, list client.ObjectList, name string) func() []T {
	w.t.Helper()
	stop, err := record.Versions[T](w.ctx, api, list, client.InNamespace(w.namespace), client.MatchingFields{"metadata.name": name})
	w.Expect(err).NotTo(HaveOccurred())
	w.t.Cleanup(func() { stop() })
	return stop
}

// events are the notes of the Events about an AppService, with their type and reason.
func (w *world) events(name string) []string {
	var list eventsv1.EventList
	w.Expect(api.List(w.ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	var notes []string
	for _, e := range list.Items {
		if e.Regarding.Kind == "AppService" && e.Regarding.Name == name {
			notes = append(notes, e.Type+" "+e.Reason+" "+e.Note)
		}
	}
	return notes
}

// consistentlyFor watches something for a while that must stay as it is.
func (w *world) consistentlyFor(window time.Duration, check func(g Gomega)) {
	w.t.Helper()
	w.Consistently(check).WithTimeout(window).WithPolling(window / 20).Should(Succeed())
}

// isNotHot watches the manager for ten seconds, in which it may send so many requests: something
// is wrong that it cannot mend, and it must not try without end.
func (w *world) isNotHot(atMost int) {
	w.t.Helper()
	const window = 10 * time.Second
	mark := w.mark()
	w.consistentlyFor(window, func(g Gomega) {
		requests := w.requests(mark)
		g.Expect(len(requests)).To(BeNumerically("<=", atMost), "requests since something went wrong:\n%s", requests)
	})
}

// reporter adds the report on its world to every expectation that fails.
type reporter struct {
	*testing.T
	world *world
}

// Fatalf implements what gomega needs of a test.
func (r reporter) Fatalf(format string, args ...any) {
	r.Helper()
	r.T.Fatalf(format+"\n%s", append(args, r.world.report())...)
}

// report shows what there is to see of the world.
func (w *world) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n=== namespace %s\n", w.namespace)
	for _, list := range []client.ObjectList{
		&v1alpha1.AppServiceList{}, &appsv1.DeploymentList{}, &corev1.ConfigMapList{}, &corev1.ServiceList{},
		&autoscalingv2.HorizontalPodAutoscalerList{}, &policyv1.PodDisruptionBudgetList{}, &networkingv1.IngressList{},
	} {
		w.reportList(&b, list)
	}
	var events eventsv1.EventList
	if err := api.List(w.ctx, &events, client.InNamespace(w.namespace)); err == nil {
		for _, e := range events.Items {
			if w.isInFocus(e.Regarding.Name) {
				fmt.Fprintf(&b, "--- Event %s %s/%s %s %s: %s\n", e.EventTime.Format("15:04:05.000"), e.Regarding.Kind, e.Regarding.Name, e.Type, e.Reason, e.Note)
			}
		}
	}
	const lines = 80
	for i, m := range w.managers {
		fmt.Fprintf(&b, "--- log of manager %d\n%s\n", i+1, strings.Join(m.log.last(lines), "\n"))
	}
	if requests, err := shared.Audit().Since(w.began); err == nil {
		requests = requests.In(w.namespace).Where(func(r cluster.Request) bool {
			return strings.HasPrefix(r.User, managerUser) || (r.User == cluster.Admin && r.IsWrite())
		})
		fmt.Fprintf(&b, "--- requests of the manager and the test\n%s", requests[max(0, len(requests)-lines):])
	}
	return b.String()
}

func (w *world) reportList(b *strings.Builder, list client.ObjectList) {
	if err := api.List(w.ctx, list, client.InNamespace(w.namespace)); err != nil {
		fmt.Fprintf(b, "--- %T: %v\n", list, err)
		return
	}
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok || !w.isInFocus(object.GetName()) || object.GetName() == "kube-root-ca.crt" {
			return nil
		}
		text, err := yaml.Marshal(object)
		fmt.Fprintf(b, "--- %T %s (%v)\n%s", object, object.GetName(), err, text)
		return nil
	})
}

func (w *world) isInFocus(name string) bool {
	return len(w.focus) == 0 || slices.ContainsFunc(w.focus, func(focused string) bool { return strings.HasPrefix(name, focused) })
}
