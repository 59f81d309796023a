package split_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/releases"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func TestMovedNamespaceIsWrittenByOneReleaseAtATime(t *testing.T) {
	const (
		namespaces = 4
		apps       = 3
		pause      = 400 * time.Millisecond
		killEvery  = 10
	)
	moves := chosenMoves(t)
	f := newFixture(t, "moves")
	shards := []string{"moves-a", "moves-b"}
	a := f.release("a", 2, "--namespace-selector="+shard+"="+shards[0])
	b := f.release("b", 2, "--namespace-selector="+shard+"="+shards[1])
	var places []string
	shardOf := map[string]int{}
	for i := range namespaces {
		places = append(places, f.namespace(strconv.Itoa(i), shards[0], apps))
	}
	a.eventuallyClaims()
	b.eventuallyClaims()
	f.eventuallyReconciled(places...)

	// When namespaces move back and forth while their objects are edited, and leaders are killed
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, seed))
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	moved := map[string]int{}
	for move := range moves {
		place := places[chance.IntN(namespaces)]
		for number := range apps {
			f.edit(place, number, move+1)
		}
		shardOf[place] = 1 - shardOf[place]
		f.move(place, shards[shardOf[place]])
		moved[place]++
		f.edit(places[chance.IntN(namespaces)], chance.IntN(apps), move+1)
		if move%killEvery == killEvery/2 {
			[]*release{a, b}[chance.IntN(2)].killLeader()
		}
		<-ticker.C
	}

	// Then every object ends as declared, and no two releases wrote in a namespace at the same time.
	f.eventuallyReconciled(places...)
	summary := ""
	edit := moves
	for _, place := range places {
		var terms []string
		// The release that has the namespace now has written nothing there if all was as declared when it got it.
		f.Eventually(func() string {
			edit++
			f.edit(place, 0, edit)
			f.eventuallyReconciled(place)
			terms = f.writtenBy(place)
			return terms[len(terms)-1]
		}).Should(Equal([]*release{a, b}[shardOf[place]].name))
		f.Expect(len(terms)).To(BeNumerically("<=", moved[place]+1), "a namespace has at most one term more than moves: %v", terms)
		summary += fmt.Sprintf("%s: %d moves, %d terms\n", place, moved[place], len(terms))
	}
	t.Logf("%d replicas started\n%s", a.started+b.started, summary)
}

// chosenMoves is how many moves the environment asks for.
func chosenMoves(t *testing.T) int {
	t.Helper()
	text, given := os.LookupEnv("FIXPOINT_SPLIT_MOVES")
	if !given {
		const few = 30
		return few
	}
	moves, err := strconv.Atoi(text)
	if err != nil || moves < 1 {
		t.Fatalf("FIXPOINT_SPLIT_MOVES is %q: set a number of at least 1", text)
	}
	return moves
}

// record is what a release has written into the Lease with the claims; empty if nothing.
func (r *release) record() (releases.Record, error) {
	claims := &coordinationv1.Lease{}
	if err := r.fixture.api.Get(r.fixture.ctx, client.ObjectKey{Namespace: releases.LeaseNamespace, Name: releases.LeaseName}, claims); err != nil {
		return releases.Record{}, err
	}
	var record releases.Record
	err := json.Unmarshal([]byte(cmp.Or(claims.Annotations["release.fixpoint.dev/"+r.name], "{}")), &record)
	return record, err
}

// setForward sets the clock of a release forward. It decides again when the Lease with the claims changes.
func (f *fixture) setForward(clock *fakecloud.ShiftedClock, by time.Duration) {
	f.t.Helper()
	clock.Step(by)
	claims := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: releases.LeaseNamespace, Name: releases.LeaseName}}
	patch := fmt.Sprintf(`{"metadata":{"labels":{"ahead":%q}}}`, by)
	f.Expect(f.api.Patch(f.ctx, claims, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// TestClaimsOfAReleaseThatEndedExpire sets the clock of the other release forward.
func TestClaimsOfAReleaseThatEndedExpire(t *testing.T) {
	f := newFixture(t, "expiry")
	place := f.namespace("one", "", 2)
	env := &harness.Env{T: t, Ctx: f.ctx, Suite: suite, Gomega: f.Gomega}
	options := controllers.Options{Namespaces: []string{place}}
	first := f.startInProcess(env, "first", options)
	f.eventuallyReconciled(place)
	clock := &fakecloud.ShiftedClock{}
	options.Clock = clock
	f.startInProcess(env, "second", options)
	second := f.releases[1]
	second.eventuallyRefused("The release of Fixpoint in namespace expiry-first reconciles expiry-one")

	// When the first ends, as when it is uninstalled
	env.Stop(first)

	// Then the second, which renews its own claims meanwhile, has no part of the namespace before those of the first have
	// expired,
	last, err := f.releases[0].record()
	f.Expect(err).NotTo(HaveOccurred())
	f.setForward(clock, releases.DefaultDuration/2)
	then := clock.Now().Truncate(time.Millisecond)
	f.Eventually(second.record).Should(HaveField("Renewed", BeTemporally(">=", then)))
	f.Expect(f.releases[0].record()).To(Equal(last))
	f.Expect(second.record()).To(HaveField("Namespaces", BeEmpty()))

	// and takes its place then.
	f.setForward(clock, releases.DefaultDuration)
	second.eventuallyClaims()
	f.Expect(f.releases[0].record()).To(BeZero())
	f.edit(place, 0, 1)
	f.eventuallyReconciled(place)
	f.Expect(f.writtenBy(place)).To(Equal([]string{f.releases[0].name, second.name}))
}

// startInProcess starts a release whose options have no flag.
func (f *fixture) startInProcess(env *harness.Env, name string, o controllers.Options) *harness.Manager {
	f.t.Helper()
	r := &release{fixture: f, name: f.name + "-" + name}
	f.createNamespace(r.name, "")
	f.releases = append(f.releases, r)
	o.Controllers, o.LeaderElection, o.LeaderElectionNamespace = []string{"appservice"}, true, r.name
	o.LeaseDuration, o.RenewDeadline = 2*time.Minute, 110*time.Second // as deploy.PatientElection
	return env.StartManager(suite.Cluster.Config(r.name+"-1", harness.ManagerGroup), o)
}

// TestWithoutClaimsReleasesWriteInTheSameNamespace shows that these tests would notice.
func TestWithoutClaimsReleasesWriteInTheSameNamespace(t *testing.T) {
	const apps = 3
	f := newFixture(t, "unclaimed")
	place := f.namespace("one", "", apps)
	env := &harness.Env{T: t, Ctx: f.ctx, Suite: suite, Gomega: f.Gomega}
	options := controllers.Options{Namespaces: []string{place}, Unguarded: true}
	f.startInProcess(env, "first", options)
	f.startInProcess(env, "second", options)

	edit := 0
	f.Eventually(func() int {
		edit++
		for number := range apps {
			f.edit(place, number, edit)
		}
		f.eventuallyReconciled(place)
		return len(f.terms(place))
	}).Should(BeNumerically(">", len(f.releases)), "without a move, each release has one term at most")
}
