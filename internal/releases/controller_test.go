package releases

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

const own = "fixpoint-a"

// fixture is a controller of the release in namespace fixpoint-a, and what it has applied.
type fixture struct {
	Gomega
	controller *Controller
	clock      *clocktesting.FakePassiveClock
	// claims are what the controller has applied to the Lease of all releases, and conditions to its own.
	claims, conditions []*coordinationv1ac.LeaseApplyConfiguration
	// fails is the error of the next apply to the Lease of all releases.
	fails error
}

func newFixture(t *testing.T, o Options, objects ...client.Object) *fixture {
	t.Helper()
	f := &fixture{Gomega: NewWithT(t), clock: clocktesting.NewFakePassiveClock(time.Unix(10000, 0))}
	objects = append(objects, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "manager"}})
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, object runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			applied, ok := object.(*coordinationv1ac.LeaseApplyConfiguration)
			f.Expect(ok).To(BeTrue())
			if *applied.Name != LeaseName {
				f.conditions = append(f.conditions, applied)
				return nil
			}
			f.claims = append(f.claims, applied)
			return f.fails
		},
	}).Build()
	o.Guard = lease.New(time.Minute, nil)
	o.Guard.RequireClaims()
	o.Claims, o.Release, o.LeaseName, o.Leader, o.Duration, o.Clock = LeaseNamespace, own, "manager", "pod-1", DefaultDuration, f.clock
	f.controller = &Controller{
		Options: o, cached: api, direct: api, seen: map[string]observation{},
		refusals: prometheus.NewGauge(prometheus.GaugeOpts{Name: "refused"}),
	}
	return f
}

func (f *fixture) reconcile() reconcile.Result {
	result, err := f.controller.Reconcile(context.Background(), f.controller.leaseKey())
	f.Expect(err).NotTo(HaveOccurred())
	return result
}

// leaseWith is the Lease of all releases.
func leaseWith(g Gomega, records map[string]Record) *coordinationv1.Lease {
	annotations := map[string]string{}
	for release, record := range records {
		text, err := record.annotation()
		g.Expect(err).NotTo(HaveOccurred())
		annotations[annotationPrefix+release] = text
	}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: LeaseNamespace, Name: LeaseName, UID: "uid", Annotations: annotations}}
}

func TestFirstClaimCreatesTheLease(t *testing.T) {
	f := newFixture(t, Options{Namespaces: []string{"team-b", "team-a"}})

	result := f.reconcile()

	f.Expect(result.RequeueAfter).To(Equal(time.Minute))
	f.Expect(f.claims).To(HaveLen(1))
	f.Expect(*f.claims[0].ResourceVersion).To(Equal("1"), "another release may have created it")
	f.Expect(f.claims[0].Annotations).To(HaveKeyWithValue("release.fixpoint.dev/fixpoint-a",
		`{"leader":"pod-1","renewed":"1970-01-01T02:46:40Z","durationSeconds":300,"namespaces":"team-a team-b"}`))
	f.Expect(f.controller.Guard.Claimed().Equal(namespaces("team-a", "team-b"))).To(BeTrue())
}

func TestClaimIsBoundToTheLeaseThatItWasDecidedOn(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t, Options{Namespaces: []string{"team-a"}}, leaseWith(g, map[string]Record{"fixpoint-b": claims("team-b")}))
	current := &coordinationv1.Lease{}
	f.Expect(f.controller.cached.Get(t.Context(), f.controller.leaseKey().NamespacedName, current)).To(Succeed())

	f.reconcile()

	f.Expect(f.claims).To(HaveLen(1))
	f.Expect(*f.claims[0].ResourceVersion).To(Equal(current.ResourceVersion))
	f.Expect(*f.claims[0].UID).To(BeEquivalentTo("uid"))
	f.Expect(f.claims[0].Annotations).To(HaveLen(1), "the record of the other release is not its own")
}

func TestClaimThatIsNotWrittenPermitsNothing(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, LeaseName, errors.New("changed"))
	f := newFixture(t, Options{Namespaces: []string{"team-a"}})

	f.fails = conflict
	f.Expect(f.reconcile().RequeueAfter).To(Equal(coalesce), "it is decided again")
	f.Expect(f.controller.Guard.Claimed().Empty()).To(BeTrue())

	f.fails = errors.New("timeout")
	_, err := f.controller.Reconcile(t.Context(), f.controller.leaseKey())
	f.Expect(err).To(MatchError("claiming namespaces in the Lease kube-system/releases.fixpoint.dev: timeout"))
	f.Expect(f.controller.Guard.Claimed().Empty()).To(BeTrue())
}

func TestNewLeaderWritesTheClaimsOfItsRelease(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t, Options{Namespaces: []string{"team-a"}},
		leaseWith(g, map[string]Record{own: newRecord("pod-0", namespaces("team-a"), time.Unix(9990, 0), DefaultDuration)}))

	f.reconcile()

	f.Expect(f.claims).To(HaveLen(1))
	f.Expect(f.controller.Guard.Claimed().Equal(namespaces("team-a"))).To(BeTrue())
}

func TestLeaderAtRestRenewsItsClaimsEveryMinute(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t, Options{Namespaces: []string{"team-a"}},
		leaseWith(g, map[string]Record{own: newRecord("pod-1", namespaces("team-a"), time.Unix(9990, 0), DefaultDuration)}))
	f.reconcile()
	f.Expect(f.claims).To(HaveLen(1))

	f.clock.SetTime(f.clock.Now().Add(59 * time.Second))
	f.Expect(f.reconcile().RequeueAfter).To(Equal(time.Second))
	f.Expect(f.claims).To(HaveLen(1))

	f.clock.SetTime(f.clock.Now().Add(time.Second))
	f.reconcile()
	f.Expect(f.claims).To(HaveLen(2))
}

func TestChangesOfManyNamespacesAreWrittenTogether(t *testing.T) {
	f := newFixture(t, Options{Selector: labels.SelectorFromSet(labels.Set{"shard": "a"})}, namespace("team-a", "a"))
	f.reconcile()

	api, ok := f.controller.cached.(client.Client)
	f.Expect(ok).To(BeTrue())
	f.Expect(api.Create(t.Context(), namespace("team-b", "a"))).To(Succeed())
	f.clock.SetTime(f.clock.Now().Add(30 * time.Millisecond))
	f.Expect(f.reconcile().RequeueAfter).To(Equal(70 * time.Millisecond))
	f.Expect(f.claims).To(HaveLen(1))
	f.clock.SetTime(f.clock.Now().Add(70 * time.Millisecond))
	f.reconcile()
	f.Expect(f.claims).To(HaveLen(2))
	f.Expect(f.controller.Guard.Claimed().Equal(namespaces("team-a", "team-b"))).To(BeTrue())
}

func namespace(name, shard string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"shard": shard}}}
}

func TestSelectorDoesNotSelectTheNamespaceOfTheManager(t *testing.T) {
	f := newFixture(t, Options{Selector: labels.SelectorFromSet(labels.Set{"shard": "a"}), Pods: "pods"},
		namespace("team-a", "a"), namespace(own, "a"), namespace("pods", "a"), namespace("team-b", "b"))
	f.reconcile()
	f.Expect(f.controller.Guard.Claimed().Equal(namespaces("team-a"))).To(BeTrue())
}

func TestExpiredClaimsOfAnotherReleaseAreTakenOver(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t, Options{Namespaces: []string{"team-a"}}, leaseWith(g, map[string]Record{
		"fixpoint-b": {DurationSeconds: 300, Namespaces: "team-a"},
		own:          newRecord("pod-1", namespaces(), time.Unix(9990, 0), DefaultDuration),
	}))
	f.reconcile()
	f.Expect(f.controller.Guard.Claimed().Empty()).To(BeTrue())
	f.Expect(f.reconcile().RequeueAfter).To(BeNumerically("<=", time.Minute))

	f.clock.SetTime(f.clock.Now().Add(DefaultDuration))
	f.reconcile()

	last := f.claims[len(f.claims)-1]
	f.Expect(last.Annotations).To(HaveKeyWithValue("release.fixpoint.dev/fixpoint-b", ""))
	f.Expect(last.Annotations["release.fixpoint.dev/fixpoint-a"]).To(ContainSubstring(`"namespaces":"team-a"`))
	f.Expect(f.controller.Guard.Claimed().Equal(namespaces("team-a"))).To(BeTrue())
}

func TestRefusalIsReportedOnceOnTheReleasesOwnLease(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t, Options{Namespaces: []string{"team-a", "team-b"}}, leaseWith(g, map[string]Record{
		"fixpoint-b": {DurationSeconds: 300, Namespaces: "team-b team-c"},
		own:          newRecord("pod-1", namespaces("team-a"), time.Unix(9990, 0), DefaultDuration),
	}))

	for range 3 {
		f.reconcile()
	}

	f.Expect(testutil.ToFloat64(f.controller.refusals)).To(Equal(1.0))
	f.Expect(f.conditions).To(HaveLen(1))
	f.Expect(*f.conditions[0].Namespace).To(Equal(own))
	var conditions []metav1.Condition
	f.Expect(json.Unmarshal([]byte(f.conditions[0].Annotations[ConditionsAnnotation]), &conditions)).To(Succeed())
	f.Expect(conditions).To(HaveLen(1))
	f.Expect(conditions[0].Type).To(Equal("NamespacesClaimed"))
	f.Expect(conditions[0].Status).To(Equal(metav1.ConditionFalse))
	f.Expect(conditions[0].Reason).To(Equal("ClaimedByOtherRelease"))
	f.Expect(conditions[0].Message).To(HavePrefix("The release of Fixpoint in namespace fixpoint-b reconciles team-b, which this release selects too"))
	f.Expect(conditions[0].LastTransitionTime.Time).To(BeTemporally("==", f.clock.Now()))
}

func TestConditionOfAnEarlierLeaderIsKept(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t, Options{Namespaces: []string{"team-a"}},
		leaseWith(g, map[string]Record{own: newRecord("pod-1", namespaces("team-a"), time.Unix(9990, 0), DefaultDuration)}))
	mine := &coordinationv1.Lease{}
	api, ok := f.controller.cached.(client.Client)
	f.Expect(ok).To(BeTrue())
	f.Expect(api.Get(t.Context(), client.ObjectKey{Namespace: own, Name: "manager"}, mine)).To(Succeed())
	mine.Annotations = map[string]string{ConditionsAnnotation: `[{"type":"NamespacesClaimed","status":"True","reason":"Claimed","message":"All selected namespaces are claimed by this release","lastTransitionTime":"2026-01-01T00:00:00Z"}]`}
	f.Expect(api.Update(t.Context(), mine)).To(Succeed())

	f.reconcile()
	f.reconcile()

	f.Expect(f.conditions).To(BeEmpty())
}
