package harness

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// Env is what one test has to itself: a namespace, and the managers that it starts. An expectation
// that fails is reported with the objects, their managed fields and Events, the managers' logs and
// their requests.
type Env struct {
	gomega.Gomega
	T         *testing.T
	Ctx       context.Context
	Suite     *Suite
	Namespace string
	// Began is the position of the audit log when the test began.
	Began    cluster.Mark
	Managers []*Manager
	// Focus holds prefixes of names to report on; without any, the report is on the whole namespace.
	Focus []string
	// Details add to the report.
	Details []func() string
}

// NewEnv creates a namespace in which pods can be created.
func (s *Suite) NewEnv(t *testing.T) *Env {
	t.Helper()
	e := &Env{T: t, Ctx: context.Background(), Suite: s}
	e.Gomega = gomega.NewWithT(Reporter{T: t, Report: e.Report})
	if s.audited {
		e.Began = e.Mark()
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	e.Expect(s.API.Create(e.Ctx, namespace)).To(gomega.Succeed())
	e.Namespace = namespace.Name
	if s.controlled {
		e.Eventually(func() error {
			return s.API.Get(e.Ctx, e.Key("default"), &corev1.ServiceAccount{})
		}).Should(gomega.Succeed(), "pods need a service account")
		t.Cleanup(func() {
			// The namespaces go with the cluster. Autoscalers would keep it busy until then.
			_ = s.API.DeleteAllOf(e.Ctx, &autoscalingv2.HorizontalPodAutoscaler{}, client.InNamespace(e.Namespace))
		})
	}
	return e
}

// Sub is the same for a subtest, which has objects of its own in the namespace: those whose names begin
// with one of the prefixes are reported.
func (e *Env) Sub(t *testing.T, focus ...string) *Env {
	t.Helper()
	inner := *e
	inner.T, inner.Focus = t, focus
	inner.Gomega = gomega.NewWithT(Reporter{T: t, Report: inner.Report})
	return &inner
}

// Key is that of an object in the namespace.
func (e *Env) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: e.Namespace, Name: name}
}

// Mark is the position of the audit log.
func (e *Env) Mark() cluster.Mark {
	e.T.Helper()
	mark, err := e.Suite.Cluster.Audit().Mark()
	e.Expect(err).NotTo(gomega.HaveOccurred())
	return mark
}

// Requests are those of the managers for objects of the namespace, Events and Leases aside.
func (e *Env) Requests(since cluster.Mark) cluster.Requests {
	e.T.Helper()
	all, err := e.Suite.Cluster.Audit().Since(since)
	e.Expect(err).NotTo(gomega.HaveOccurred())
	return e.ofManagers(all)
}

func (e *Env) ofManagers(requests cluster.Requests) cluster.Requests {
	return requests.In(e.Namespace).Except("events", "events.events.k8s.io", "leases.coordination.k8s.io").Where(func(r cluster.Request) bool {
		return strings.HasPrefix(r.User, ManagerUser)
	})
}

// Settled returns when the managers have sent no request for a while, with the position of the audit
// log. That while is made of many short ones in each of which the API server has answered: that neither it nor the
// managers, which run in this process, could run says nothing.
func (e *Env) Settled() cluster.Mark {
	e.T.Helper()
	// Longer than any delay that a manager chooses while nothing is wrong.
	const quiet = 2500 * time.Millisecond
	position, before, rest := e.Mark(), time.Now(), time.Duration(0)
	e.Eventually(func(g gomega.Gomega) time.Duration {
		g.Expect(e.Suite.API.Get(e.Ctx, client.ObjectKey{Name: e.Namespace}, &corev1.Namespace{})).To(gomega.Succeed())
		recorded, err := e.Suite.Cluster.Audit().Since(position)
		e.Expect(err).NotTo(gomega.HaveOccurred())
		position += cluster.Mark(len(recorded)) // the whole log would be copied many times a second
		now := time.Now()
		rest += min(now.Sub(before), 2*Interval)
		before = now
		if len(e.ofManagers(recorded)) > 0 {
			rest = 0
		}
		return rest
	}).Should(gomega.BeNumerically(">", quiet), "the manager never came to rest")
	return e.Mark()
}

// Events are the notes of the Events about an object, with their type and reason, in order.
func (e *Env) Events(kind, name string) []string {
	e.T.Helper()
	var list eventsv1.EventList
	e.Expect(e.Suite.API.List(e.Ctx, &list, client.InNamespace(e.Namespace))).To(gomega.Succeed())
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	var notes []string
	for _, event := range list.Items {
		if event.Regarding.Kind == kind && event.Regarding.Name == name {
			notes = append(notes, event.Type+" "+event.Reason+" "+event.Note)
		}
	}
	return notes
}

// FreeAddress is a loopback address that is reserved until the test ends.
func FreeAddress(t *testing.T) string {
	t.Helper()
	address, release, err := cluster.FreeAddress()
	gomega.NewWithT(t).Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(release)
	return address
}
