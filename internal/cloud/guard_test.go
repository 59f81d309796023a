package cloud_test

import (
	"context"
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

func TestGuardRejectsWritesBeforeElection(t *testing.T) {
	for name, transport := range map[string]func(*fakecloud.Endpoint) policy.Transporter{
		"by our own transport":  func(*fakecloud.Endpoint) policy.Transporter { return nil },
		"by one that was given": func(e *fakecloud.Endpoint) policy.Transporter { return e.Client() },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := fakecloud.New(fakecloud.Options{})
			demo := server.SeedDemo()
			endpoint := server.StartHTTP()
			t.Cleanup(endpoint.Close)
			guard := lease.New(time.Hour, nil)
			client, err := cloud.New(cloud.Config{Cloud: endpoint.Cloud(), AllowHTTP: true, Transport: transport(endpoint), Guard: guard}).
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
		})
	}
}
