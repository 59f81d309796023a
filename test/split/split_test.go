package split_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/internal/releases"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// chosenObjects is how many objects the environment asks for.
func chosenObjects(t *testing.T) int {
	t.Helper()
	text, given := os.LookupEnv("FIXPOINT_SPLIT_OBJECTS")
	if !given {
		const few = 300
		return few
	}
	objects, err := strconv.Atoi(text)
	if err != nil || objects < 30 {
		t.Fatalf("FIXPOINT_SPLIT_OBJECTS is %q: set a number of at least 30", text)
	}
	return objects
}

// share is what one release reconciles in TestThreeReleasesDivideTheObjects.
type share struct {
	release    *release
	namespaces []string
}

func TestThreeReleasesDivideTheObjects(t *testing.T) {
	const namespaces = 10 // of each release
	f := newFixture(t, "divide")
	perNamespace := chosenObjects(t) / (3 * namespaces)

	// Given two releases that select namespaces by labels, and one with a list
	list := make([]string, namespaces)
	for i := range list {
		list[i] = fmt.Sprintf("%s-c-%d", f.name, i)
	}
	shares := []*share{
		{release: f.release("a", 1, "--namespace-selector="+shard+"=divide-a")},
		{release: f.release("b", 1, "--namespace-selector="+shard+"=divide-b")},
		{release: f.release("c", 1, "--namespaces="+strings.Join(list, ","))},
	}

	// When objects are created in namespaces of each
	started := time.Now()
	for i := range namespaces {
		for s, name := range []string{"a", "b", "c"} {
			shares[s].namespaces = append(shares[s].namespaces, f.namespace(fmt.Sprintf("%s-%d", name, i), "divide-"+name, perNamespace))
		}
	}

	// Then each object is reconciled, by the release of its namespace alone, as often as any other object.
	for _, each := range shares {
		f.eventuallyReconciled(each.namespaces...)
	}
	took := time.Since(started)
	mark, err := suite.Cluster.Audit().Mark()
	f.Expect(err).NotTo(HaveOccurred())
	for _, each := range shares {
		each.release.eventuallyClaims()
		for _, namespace := range each.namespaces {
			f.Expect(f.writtenBy(namespace)).To(Equal([]string{each.release.name}), namespace)
		}
		each.release.eventuallyRefusedNamespaces(0)
	}
	f.Expect(f.createdTwice()).To(BeEmpty())
	t.Logf("%d objects in %d namespaces, 3 releases: reconciled within %s\n%s", 3*namespaces*perNamespace, 3*namespaces, took.Round(time.Millisecond), f.table(shares, mark))
}

// createdTwice are children that were applied as new more often than once.
func (f *fixture) createdTwice() []string {
	f.t.Helper()
	var twice []string
	applied := f.requests().Applies().Where(func(r cluster.Request) bool { return r.Code == 201 }).Except(leaseResource)
	for key, count := range applied.Count() {
		if count > 1 {
			twice = append(twice, fmt.Sprintf("%v: %d", key, count))
		}
	}
	return twice
}

// table is what each release has done.
func (f *fixture) table(shares []*share, until cluster.Mark) string {
	f.t.Helper()
	all, err := suite.Cluster.Audit().Since(0)
	f.Expect(err).NotTo(HaveOccurred())
	requests := all[f.began:until]
	var b strings.Builder
	fmt.Fprintf(&b, "| release | namespaces | writes of objects | writes of claims | processor time | resident memory |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, each := range shares {
		own := requests.Where(func(r cluster.Request) bool { return each.release.owns(r.User) })
		claims := own.In("kube-system").Of(leaseResource).Writes()
		seconds, err := each.release.metric("process_cpu_seconds_total")
		f.Expect(err).NotTo(HaveOccurred())
		bytes, err := each.release.metric("process_resident_memory_bytes")
		f.Expect(err).NotTo(HaveOccurred())
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %.1f s | %.0f MB |\n", each.release.name, len(each.namespaces),
			len(own.Writes().Except(leaseResource, "events.events.k8s.io")), len(claims), seconds, bytes/1e6)
	}
	return b.String()
}

func TestReleasesAtRestWriteOnlyTheirLeases(t *testing.T) {
	f := newFixture(t, "rest")
	a := f.release("a", 1, "--namespace-selector="+shard+"=rest-a")
	b := f.release("b", 1, "--namespace-selector="+shard+"=rest-b")
	f.eventuallyReconciled(f.namespace("one", "rest-a", 3), f.namespace("two", "rest-b", 3))
	a.eventuallyClaims()
	b.eventuallyClaims()

	isRenewal := func(r cluster.Request) bool { // of claims, which each release renews every minute
		return r.Verb == "patch" && r.Resource == "leases" && r.Namespace == releases.LeaseNamespace && r.Name == releases.LeaseName
	}
	others := func() cluster.Requests {
		return f.requests().Where(func(r cluster.Request) bool {
			isOwnLease := r.Resource == "leases" && r.Namespace == f.releaseOf(r.User).name
			return r.Verb != "watch" && !isOwnLease && !isRenewal(r)
		})
	}
	// rest waits until no other request was sent for a while. That while is made of many short ones in each of which the
	// releases and the API server have answered: that they could not run says nothing.
	rest := func(window time.Duration) {
		t.Helper()
		before, rested, sent := time.Now(), time.Duration(0), 0
		f.Eventually(func() (time.Duration, error) {
			_, ofA := a.metric("process_cpu_seconds_total")
			_, ofB := b.metric("process_cpu_seconds_total")
			err := errors.Join(ofA, ofB, f.api.Get(f.ctx, client.ObjectKey{Name: a.name}, &corev1.Namespace{}))
			now, requests := time.Now(), len(others())
			rested += min(now.Sub(before), 2*harness.Interval)
			before = now
			if err != nil || requests > sent {
				rested, sent = 0, requests
			}
			return rested, err
		}).Should(BeNumerically(">", window))
	}
	rest(3 * time.Second) // Events are written after the status
	before, renewals, began := len(others()), len(f.requests().Where(isRenewal)), time.Now()
	rest(5 * time.Second)
	f.Expect(others()[before:]).To(BeEmpty())
	renewed := map[string]int{}
	for _, r := range f.requests().Where(isRenewal)[renewals:].Succeeded() {
		renewed[f.releaseOf(r.User).name]++
	}
	f.Expect(renewed).NotTo(ContainElement(BeNumerically(">", 1+int(time.Since(began)/time.Minute))), "renewals of claims by release")
}

func TestNamespaceOfTwoReleasesIsRefusedToTheSecond(t *testing.T) {
	f := newFixture(t, "overlap")
	shared, other := f.namespace("shared", "", 2), f.namespace("other", "", 2)

	// Given a release with a namespace
	first := f.release("first", 1, "--namespaces="+shared)
	first.eventuallyClaims()

	// When a second release has it too
	second := f.release("second", 1, "--namespaces="+shared+","+other)

	// Then the second reconciles only its other namespace, and says so.
	second.eventuallyRefused("The release of Fixpoint in namespace overlap-first reconciles overlap-shared, which this release selects too: remove the overlap from --namespaces")
	second.eventuallyRefusedNamespaces(1)
	f.eventuallyReconciled(shared, other)
	f.Expect(f.writtenBy(shared)).To(Equal([]string{first.name}))
	f.Expect(f.writtenBy(other)).To(Equal([]string{second.name}))

	// When the first no longer has it, by a list that changes with a restart
	first.stop()
	first.args = []string{"--namespaces=" + f.name + "-unused"}
	first.add()

	// Then the second takes it.
	second.eventuallyClaims()
	f.edit(shared, 0, 1)
	f.eventuallyReconciled(shared)
	f.Expect(f.writtenBy(shared)).To(Equal([]string{first.name, second.name}))
	second.eventuallyRefusedNamespaces(0)
}

func TestOneOfSeveralReleasesThatStartTogetherClaimsANamespace(t *testing.T) {
	f := newFixture(t, "together")
	place := f.namespace("one", "together", 5)
	for _, name := range []string{"a", "b", "c"} {
		f.release(name, 1, "--namespace-selector="+shard+"=together")
	}

	f.eventuallyReconciled(place)
	terms := f.writtenBy(place)
	f.Expect(terms).To(HaveLen(1))
	for _, each := range f.releases {
		if each.name == terms[0] {
			each.eventuallyClaims()
			continue
		}
		each.eventuallyRefused("The release of Fixpoint in namespace " + terms[0] + " reconciles together-one")
	}
	f.Expect(f.writtenBy(place)).To(Equal(terms))
}

func TestClusterWideReleaseBesideSplitOnesIsRefused(t *testing.T) {
	f := newFixture(t, "after")
	one, two := f.namespace("one", "", 2), f.namespace("two", "", 2)
	split := f.release("split", 1, "--namespaces="+one)
	split.eventuallyClaims()

	everywhere := f.release("everywhere", 1)

	everywhere.eventuallyRefused("This release selects all namespaces, but the release of Fixpoint in namespace after-split reconciles some of them: nothing is reconciled by this release")
	everywhere.eventuallyRefusedNamespaces(1)
	f.eventuallyReconciled(one)
	f.Expect(f.writtenBy(one)).To(Equal([]string{split.name}))
	f.Expect(f.writtenBy(two)).To(BeEmpty())
}

func TestSplitReleaseBesideAClusterWideOneIsRefused(t *testing.T) {
	f := newFixture(t, "before")
	one := f.namespace("one", "before", 2)
	everywhere := f.release("everywhere", 1)
	everywhere.eventuallyClaims()

	split := f.release("split", 1, "--namespace-selector="+shard+"=before")

	split.eventuallyRefused("The release of Fixpoint in namespace before-everywhere selects all namespaces: nothing is reconciled by this release; set --namespaces or --namespace-selector of the other release, or uninstall one of the two")
	split.eventuallyRefusedNamespaces(1)
	f.eventuallyReconciled(one)
	f.Expect(f.writtenBy(one)).To(Equal([]string{everywhere.name}))

	// When the cluster-wide release is split
	everywhere.stop()
	everywhere.args = []string{"--namespace-selector=" + shard + "=rest"}
	everywhere.add()

	split.eventuallyClaims()
	f.edit(one, 0, 1)
	f.eventuallyReconciled(one)
	f.Expect(f.writtenBy(one)).To(Equal([]string{everywhere.name, split.name}))
}
