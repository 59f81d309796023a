package cloud_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

// granted is a lock that is always acquired.
type granted struct{ resourcelock.Interface }

func (granted) Identity() string { return "me" }

func (granted) Create(context.Context, resourcelock.LeaderElectionRecord) error { return nil }

// given is a transport that counts its requests.
type given struct {
	policy.Transporter
	requests int
}

// Do implements the SDK's transport.
func (g *given) Do(request *http.Request) (*http.Response, error) {
	g.requests++
	return g.Transporter.Do(request)
}

func TestGuardRejectsWritesBeforeElection(t *testing.T) {
	for name, transport := range map[string]func(*fakecloud.Endpoint) policy.Transporter{
		"by our own transport":  func(*fakecloud.Endpoint) policy.Transporter { return nil },
		"by one that was given": func(e *fakecloud.Endpoint) policy.Transporter { return &given{Transporter: e.Client()} },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := fakecloud.New(fakecloud.Options{})
			demo := server.SeedDemo()
			endpoint := server.StartHTTP()
			t.Cleanup(endpoint.Close)
			guard := lease.New(time.Hour, nil)
			own := transport(endpoint)
			client, err := cloud.New(cloud.Config{Cloud: endpoint.Cloud(), AllowHTTP: true, Transport: own, Guard: guard}).
				Client(demo.Subscription, cloud.Credential{Name: "own", Token: endpoint.Credential("manager"), Scopes: []cloud.Scope{cloud.Anywhere}})
			g.Expect(err).NotTo(HaveOccurred())
			account := cloud.NewAccount{Group: demo.Group, Name: "fixpointguarded", Location: demo.Location, SKU: "Standard_LRS"}

			// Given a standby
			_, err = client.CreateAccount(t.Context(), account, nil)
			refusal, refused := lease.Refused(err)
			g.Expect(refused).To(BeTrue(), "%v", err)
			g.Expect(refusal.Reason).To(Equal(lease.NotElected))
			g.Expect(err).To(MatchError("creating the storage account: write refused: this replica is not the leader"))
			_, isCloudError := cloud.AsError(err)
			g.Expect(isCloudError).To(BeFalse(), "it is not an error of the cloud")
			g.Expect(server.Ledger()).To(BeEmpty())
			_, err = client.Account(t.Context(), account.Group, account.Name)
			g.Expect(cloud.Is(err, cloud.NotFound)).To(BeTrue(), "reads are permitted: %v", err)

			// When it is elected
			g.Expect(guard.Lock(granted{}).Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"})).To(Succeed())

			// Then it writes.
			_, err = client.CreateAccount(t.Context(), account, nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.Created(account.Name)).To(Equal(1))
			if own, isGiven := own.(*given); isGiven {
				g.Expect(own.requests).To(Equal(2), "the read, and the write that was permitted")
			}
		})
	}
}

// A write that is on its way when the process loses its Lease must not arrive later, so its connection is closed. Reads
// have connections of their own, which stay.
func TestGuardClosesConnectionsOfWrites(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	var mu sync.Mutex
	states := map[net.Conn]http.ConnState{}
	countOf := func(wanted ...http.ConnState) func() int {
		return func() (count int) {
			mu.Lock()
			defer mu.Unlock()
			for _, state := range states {
				if slices.Contains(wanted, state) {
					count++
				}
			}
			return count
		}
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	server.Config.ConnState = func(connection net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		states[connection] = state
	}
	server.Start()
	t.Cleanup(server.Close)
	guard := lease.New(time.Hour, nil)
	g.Expect(guard.Lock(granted{}).Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"})).To(Succeed())
	client, err := cloud.New(cloud.Config{Cloud: fakecloud.CloudAt(server.URL), AllowHTTP: true, Guard: guard}).
		Client("s", cloud.Credential{Name: "own", Token: fakecloud.StaticToken("t"), Scopes: []cloud.Scope{cloud.Anywhere}})
	g.Expect(err).NotTo(HaveOccurred())

	// Given a connection of reads and one of writes; a client that is paused for 50 ms does not keep one
	g.Eventually(func() int {
		account, err := client.Account(t.Context(), "g", "a")
		g.Expect(err).NotTo(HaveOccurred())
		account.Name = "a"
		g.Expect(client.DeleteAccount(t.Context(), "g", account)).To(Succeed())
		return countOf(http.StateIdle, http.StateActive)()
	}).Should(Equal(2))
	closed := countOf(http.StateClosed)()

	// When the Lease is given up
	guard.Close()

	// Then
	g.Eventually(countOf(http.StateClosed)).Should(Equal(closed + 1))
	g.Expect(countOf(http.StateIdle, http.StateActive)()).To(Equal(1), "that of reads stays")
}
