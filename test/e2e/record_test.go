package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const managerUser = "system:serviceaccount:" + systemNamespace + ":" + managerName

// act is a write of a replica, whether or not it was let in: a request that the API
// server received, or a call that the cloud decided about.
type act struct {
	pod  string
	at   time.Time
	what string
}

func (a act) String() string {
	return fmt.Sprintf("%s %s %s", a.at.Format("15:04:05.000000"), a.pod, a.what)
}

// acts are all writes of the managers since the mark, of Kubernetes and of the cloud,
// in the order of their times. Those of the Lease are how a leader is found, and not
// among them; nor are the questions who somebody is, which metrics take.
func (w *world) acts(since cluster.Mark, from time.Time) []act {
	w.t.Helper()
	acts := w.requests(since)
	for _, e := range w.ledger() {
		if strings.HasPrefix(e.Who, managerName) && e.Time.After(from) {
			acts = append(acts, act{pod: e.Who, at: e.Time, what: e.Method + " " + e.Resource + " in the cloud"})
		}
	}
	slices.SortStableFunc(acts, func(a, b act) int { return a.at.Compare(b.at) })
	return acts
}

func (w *world) requests(since cluster.Mark) []act {
	w.t.Helper()
	requests, err := local.Cluster.Audit().Since(since)
	w.Expect(err).NotTo(HaveOccurred())
	var acts []act
	for _, r := range requests.By(managerUser).Writes().Except("leases.coordination.k8s.io", "tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io") {
		w.Expect(r.Pod).NotTo(BeEmpty(), "%s: the audit log names the pod", r)
		acts = append(acts, act{pod: r.Pod, at: r.Received, what: r.Verb + " " + r.URI})
	}
	return acts
}

// firstAct is the first act after a moment that will do.
func (w *world) firstAct(since cluster.Mark, moment time.Time, will func(act) bool) (act, bool) {
	w.t.Helper()
	for _, a := range w.requests(since) {
		if a.at.After(moment) && will(a) {
			return a, true
		}
	}
	return act{}, false
}

// term is a time for which a process had the Lease.
type term struct {
	// identity is the process: the pod's name and something random.
	identity string
	from     time.Time
}

func (t term) pod() string {
	pod, _, _ := strings.Cut(t.identity, "_")
	return pod
}

// leaseHistory is who had the Lease, one after the other.
type leaseHistory struct {
	mu    sync.Mutex
	terms []term
}

// watchLease follows the Lease until the test ends.
func (w *world) watchLease() *leaseHistory {
	h := &leaseHistory{}
	ctx, cancel := context.WithCancel(w.ctx)
	w.t.Cleanup(cancel)
	go wait.UntilWithContext(ctx, h.follow, interval)
	return h
}

// follow watches until the API server ends the watch. A watch begins with what is there.
func (h *leaseHistory) follow(ctx context.Context) {
	watcher, err := api.Watch(ctx, &coordinationv1.LeaseList{}, client.InNamespace(systemNamespace), client.MatchingFields{"metadata.name": controllers.LeaderElectionID})
	if err != nil {
		return
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		lease, ok := event.Object.(*coordinationv1.Lease)
		if ok && ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
			h.note(term{identity: *lease.Spec.HolderIdentity, from: ptr.Deref(lease.Spec.AcquireTime, metav1.MicroTime{}).Time})
		}
	}
}

func (h *leaseHistory) note(t term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.terms) == 0 || h.terms[len(h.terms)-1].identity != t.identity {
		h.terms = append(h.terms, t)
	}
}

// overlaps are the acts of a leader after the first act of its successor, and those of
// pods that did not lead.
func (h *leaseHistory) overlaps(acts []act) []act {
	h.mu.Lock()
	defer h.mu.Unlock()
	var late []act
	latest := 0
	for _, a := range acts {
		index := h.termOf(a)
		if index < latest {
			late = append(late, a)
		}
		latest = max(latest, index)
	}
	return late
}

// began is when the one who acted had got the Lease; the zero time if it had not. A
// process that is gone may have sent what arrives now, and its pod may lead again.
func (h *leaseHistory) began(a act) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if index := h.termOf(a); index >= 0 {
		return h.terms[index].from
	}
	return time.Time{}
}

// termOf is the last term of the pod that had begun by the time of the act, -1 if none
// had. The times are those of one machine.
func (h *leaseHistory) termOf(a act) int {
	for i := len(h.terms) - 1; i >= 0; i-- {
		if h.terms[i].pod() == a.pod && !h.terms[i].from.After(a.at) {
			return i
		}
	}
	return -1
}

func (h *leaseHistory) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, t := range h.terms {
		fmt.Fprintf(&b, "%s %s\n", t.from.Format("15:04:05.000000"), t.identity)
	}
	return b.String()
}
