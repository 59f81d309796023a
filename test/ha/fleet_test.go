package ha_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// durations are those of an election.
type durations struct{ lease, renew, retry time.Duration }

var (
	// A write that takes longer than a tenth of the lease duration to reach the API server can overlap (ADR 20). On a busy
	// machine, that is more than 0.3 s.
	short     = durations{5 * time.Second, 4 * time.Second, 500 * time.Millisecond}
	asShipped = durations{controllers.DefaultLeaseDuration, controllers.DefaultRenewDeadline, controllers.DefaultRetryPeriod}
)

// chosenDurations and chosenRounds are what the environment asks for.
func chosenDurations() durations {
	if os.Getenv("FIXPOINT_HA_LEASE") == "default" {
		return asShipped
	}
	return short
}

func chosenRounds(t *testing.T) int {
	t.Helper()
	text, given := os.LookupEnv("FIXPOINT_HA_ROUNDS")
	if !given {
		const few = 2
		return few
	}
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("FIXPOINT_HA_ROUNDS is %q: give a number of rounds, at least 1", text)
	}
	return rounds
}

// size is how many replicas there are, as shipped.
const size = 3

// fleet is the replicas of a manager, and what they work on: a namespace and a cloud.
type fleet struct {
	Gomega
	t         *testing.T
	ctx       context.Context
	namespace string
	election  durations
	cloud     *fakecloud.Server
	demo      fakecloud.Demo
	endpoint  *fakecloud.Endpoint
	leases    *leaseHistory

	// read is how far the audit log has been read, and asked what the replicas have asked until then.
	read  cluster.Mark
	asked cluster.Requests

	program string
	env     []string

	mu   sync.Mutex
	live []*replica
	all  []*replica
}

func newFleet(t *testing.T, election durations, program string, env ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, ctx: context.Background(), election: election, program: program, env: env}
	f.Gomega = NewWithT(harness.Reporter{T: t, Report: f.report})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ha-"}}
	f.Expect(api.Create(f.ctx, namespace)).To(Succeed())
	f.namespace = namespace.Name
	knobs := fakecloud.Realistic().Compress(100)
	f.cloud = fakecloud.New(fakecloud.Options{Knobs: knobs, Seed: 1})
	f.demo = f.cloud.SeedDemo()
	f.endpoint = f.cloud.StartHTTP()
	t.Cleanup(f.endpoint.Close)
	mark, err := shared.Audit().Mark()
	f.Expect(err).NotTo(HaveOccurred())
	f.read = mark
	f.leases = watchLease(f)
	for range size {
		f.add()
	}
	f.eventuallyWhole()
	return f
}

// add starts one more replica.
func (f *fleet) add() *replica {
	f.t.Helper()
	f.mu.Lock()
	name := fmt.Sprintf("%s-%02d", f.namespace, len(f.all)+1)
	f.mu.Unlock()
	r := startReplica(f.t, name, f.program, f.env,
		"--leader-elect",
		"--leader-election-namespace="+f.namespace,
		"--leader-elect-lease-duration="+f.election.lease.String(),
		"--leader-elect-renew-deadline="+f.election.renew.String(),
		"--leader-elect-retry-period="+f.election.retry.String(),
		"--namespaces="+f.namespace,
		"--cloud-endpoint="+f.endpoint.URL,
		"--metrics-bind-address=0",
		"--zap-log-level=debug",
	)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live, f.all = append(f.live, r), append(f.all, r)
	return r
}

// replicas are those that are meant to run.
func (f *fleet) replicas() []*replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.live)
}

// everyone is all that ever ran.
func (f *fleet) everyone() []*replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// replaceEnded starts a new replica for each that has ended, as a kubelet does.
func (f *fleet) replaceEnded() {
	f.t.Helper()
	for _, r := range f.replicas() {
		if r.process.Running() {
			continue
		}
		f.mu.Lock()
		f.live = slices.DeleteFunc(f.live, func(other *replica) bool { return other == r })
		f.mu.Unlock()
		f.add()
	}
}

// eventuallyWhole waits until there are as many replicas as there should be, all ready, one of them
// the leader, which it returns.
func (f *fleet) eventuallyWhole() *replica {
	f.t.Helper()
	var leader *replica
	f.Eventually(func(g Gomega) {
		f.replaceEnded()
		for _, r := range f.replicas() {
			g.Expect(r.isReady()).To(BeTrue(), "%s is not ready", r)
		}
		leader = f.leader()
		g.Expect(leader).NotTo(BeNil(), "there is no leader")
	}).Should(Succeed())
	return leader
}

// leader is the replica that was the last to take or renew the Lease, unless it has ended since.
func (f *fleet) leader() *replica {
	f.t.Helper()
	writes := f.requests().In(f.namespace).Of(leaseResource).Writes().Succeeded()
	if len(writes) == 0 || f.leases.holder() == "" {
		return nil
	}
	user := writes[len(writes)-1].User
	for _, r := range f.replicas() {
		if r.name == user && r.process.Running() {
			return r
		}
	}
	return nil
}

// kill ends replicas with SIGKILL, at a moment that it returns. It returns false if one had ended before.
func (f *fleet) kill(replicas ...*replica) (time.Time, bool) {
	f.t.Helper()
	at, ran := time.Now(), true
	for _, r := range replicas {
		ran = r.signal(f.t, syscall.SIGKILL) && ran
	}
	for _, r := range replicas {
		f.Eventually(r.process.Ended()).Should(BeClosed())
	}
	return at, ran
}

// ends waits until the replica has ended by itself.
func (f *fleet) ends(r *replica) {
	f.t.Helper()
	f.Eventually(r.process.Ended()).Should(BeClosed(), "%s goes on", r)
}

// report is the ends of the logs.
func (f *fleet) report() string {
	var b strings.Builder
	const lines = 25
	for _, each := range f.everyone() {
		fmt.Fprintf(&b, "--- %s\n%s\n", each, each.tail(lines))
	}
	return b.String()
}
