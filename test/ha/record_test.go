package ha_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const leaseResource = "leases.coordination.k8s.io"

// act is a write, whether or not it was let in: a request that the API server received, or a call that
// the cloud decided about.
type act struct {
	who  string
	at   time.Time
	what string
}

func (a act) String() string {
	return fmt.Sprintf("%s %s %s", a.at.Format("15:04:05.000000"), a.who, a.what)
}

// acts are all writes of the replicas, of Kubernetes and of the cloud, in the order of their times.
// Writes of the Lease are how a leader is found, and not among them; Events are.
func (f *fleet) acts() []act {
	f.t.Helper()
	var acts []act
	for _, r := range f.requests().Writes().Except(leaseResource) {
		acts = append(acts, act{who: r.User, at: r.Received, what: r.Verb + " " + r.URI})
	}
	for _, e := range f.cloud.Ledger() {
		if f.isReplica(e.Who) {
			acts = append(acts, act{who: e.Who, at: e.Time, what: e.Method + " " + e.Resource + " in the cloud"})
		}
	}
	slices.SortStableFunc(acts, func(a, b act) int { return a.at.Compare(b.at) })
	return acts
}

// requests are all requests of the replicas to the API server, watches aside. Each call reads the part of the
// audit log that was written since the last one.
func (f *fleet) requests() cluster.Requests {
	f.t.Helper()
	fresh, err := shared.Audit().Since(f.read)
	f.Expect(err).NotTo(HaveOccurred())
	f.read += cluster.Mark(len(fresh))
	f.asked = append(f.asked, fresh.Where(func(r cluster.Request) bool { return f.isReplica(r.User) && r.Verb != "watch" })...)
	return f.asked
}

// isReplica reports whether a user is a replica of this fleet.
func (f *fleet) isReplica(user string) bool { return strings.HasPrefix(user, f.namespace+"-") }

// overlaps are the acts of replicas after the first act of their successor. A process is the leader
// once at most.
func overlaps(acts []act) []act {
	var late []act
	terms := map[string]int{}
	for _, a := range acts {
		if _, known := terms[a.who]; !known {
			terms[a.who] = len(terms)
		}
		if terms[a.who] < len(terms)-1 {
			late = append(late, a)
		}
	}
	return late
}

// firstActAfter is the first act of a replica other than the given ones, after a moment.
func (f *fleet) firstActAfter(moment time.Time, except ...*replica) (act, bool) {
	f.t.Helper()
	for _, a := range f.acts() {
		isOneOf := slices.ContainsFunc(except, func(r *replica) bool { return r.name == a.who })
		if a.at.After(moment) && !isOneOf {
			return a, true
		}
	}
	return act{}, false
}

// lists are the lists that new leaders asked for in the time after they took the Lease. Pods are in no
// cache: they are listed to tell why a rollout makes no progress.
func (f *fleet) lists(leader string, within time.Duration) cluster.Requests {
	f.t.Helper()
	own := f.requests().By(leader)
	taken := own.Of(leaseResource).Writes().Succeeded()
	if len(taken) == 0 {
		return nil
	}
	from := taken[0].Received
	return own.Verbs("list").Except("pods").Where(func(r cluster.Request) bool {
		return r.Received.After(from) && r.Received.Before(from.Add(within))
	})
}

// readsBeforeTaking are the reads of the Lease by a leader before it took it, and after the last write of the Lease by
// another replica.
func (f *fleet) readsBeforeTaking(leader string) cluster.Requests {
	f.t.Helper()
	ofLease := f.requests().In(f.namespace).Of(leaseResource)
	writes := ofLease.Writes().Succeeded()
	taken := slices.IndexFunc(writes, func(r cluster.Request) bool { return r.User == leader })
	f.Expect(taken).To(BeNumerically(">", 0), "%s took no Lease from another replica", leader)
	return ofLease.By(leader).Verbs("get").Where(func(r cluster.Request) bool {
		return r.Received.After(writes[taken-1].Answered) && r.Received.Before(writes[taken].Received)
	})
}

// failedReads is how often a replica failed to take the Lease because a request for it failed, by its log: the API server does
// not know whether a response arrived in time. Each time costs a read.
func (f *fleet) failedReads(name string) int {
	for _, r := range f.everyone() {
		if r.name == name {
			return r.count("Error retrieving lease lock") + r.count("Failed to update lease")
		}
	}
	return 0
}

// leaseHistory is who had the Lease, one after the other; nobody is "".
type leaseHistory struct {
	mu      sync.Mutex
	holders []string
}

func watchLease(f *fleet) *leaseHistory {
	h := &leaseHistory{}
	ctx, cancel := context.WithCancel(f.ctx)
	f.t.Cleanup(cancel)
	go wait.UntilWithContext(ctx, func(ctx context.Context) { h.follow(ctx, f.namespace) }, harness.Interval)
	return h
}

// follow watches until the API server ends the watch. A watch begins with the existing objects.
func (h *leaseHistory) follow(ctx context.Context, namespace string) {
	watcher, err := api.Watch(ctx, &coordinationv1.LeaseList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": controllers.LeaderElectionID})
	if err != nil {
		return
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if lease, ok := event.Object.(*coordinationv1.Lease); ok {
			h.note(ptr.Deref(lease.Spec.HolderIdentity, ""))
		}
	}
}

func (h *leaseHistory) note(holder string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.holders) == 0 || h.holders[len(h.holders)-1] != holder {
		h.holders = append(h.holders, holder)
	}
}

func (h *leaseHistory) holder() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.holders) == 0 {
		return ""
	}
	return h.holders[len(h.holders)-1]
}

// wipes are the holders who lost the Lease to nobody without having given it up themselves.
func (h *leaseHistory) wipes(releasedBy func(identity string) bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var wiped []string
	for i, holder := range h.holders {
		if holder == "" && i > 0 && !releasedBy(h.holders[i-1]) {
			wiped = append(wiped, h.holders[i-1])
		}
	}
	return wiped
}

// hasReleased says whether the log of some replica says that it gave up the Lease under the identity.
func (f *fleet) hasReleased(identity string) bool {
	for _, r := range f.everyone() {
		for _, line := range r.lines() {
			if containsAll(line, released, identity) {
				return true
			}
		}
	}
	return false
}

// accounts are those in the cloud that some replica made, and how often.
func accountsMade(cloud *fakecloud.Server) map[string]int {
	made := map[string]int{}
	for _, entry := range cloud.Effects(fakecloud.Created, "/storageaccounts/") {
		if entry.Who != fakecloud.WhoMeddler {
			made[entry.Resource]++
		}
	}
	return made
}
