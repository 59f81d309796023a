package split_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
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
	for _, place := range places {
		terms := f.writtenBy(place)
		f.Expect(len(terms)).To(BeNumerically("<=", moved[place]+1), "a namespace has at most one term more than moves: %v", terms)
		f.Expect(terms[len(terms)-1]).To(Equal([]*release{a, b}[shardOf[place]].name))
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

// TestClaimsOfAReleaseThatEndedExpire needs claims that expire sooner than those of the real manager.
func TestClaimsOfAReleaseThatEndedExpire(t *testing.T) {
	const expireAfter = 5 * time.Second
	f := newFixture(t, "expiry")
	place := f.namespace("one", "", 2)
	env := &harness.Env{T: t, Ctx: f.ctx, Suite: suite, Gomega: f.Gomega}
	options := controllers.Options{Namespaces: []string{place}, ClaimDuration: expireAfter}
	first := f.startInProcess(env, "first", options)
	f.eventuallyReconciled(place)
	f.startInProcess(env, "second", options)
	second := f.releases[1]
	second.eventuallyRefused("The release of Fixpoint in namespace expiry-first reconciles expiry-one")

	claims := &coordinationv1.Lease{}
	f.Expect(f.api.Get(f.ctx, client.ObjectKey{Namespace: releases.LeaseNamespace, Name: releases.LeaseName}, claims)).To(Succeed())
	var last releases.Record
	f.Expect(json.Unmarshal([]byte(claims.Annotations["release.fixpoint.dev/"+f.releases[0].name]), &last)).To(Succeed())

	// When the first ends, as when it is uninstalled
	env.Stop(first)

	// Then the second takes its place once the claims have expired.
	second.eventuallyClaims()
	f.Expect(time.Since(last.Renewed)).To(BeNumerically(">=", expireAfter))
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
