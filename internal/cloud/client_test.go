package cloud

import (
	"fmt"
	"testing"
	"time"

	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestSharesConnectionsAndDropsUnusedOnes(t *testing.T) {
	g := NewWithT(t)
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	cloud := New(Config{Clock: c})
	client := func(name string) *connection {
		client, err := cloud.Client("subscription", Credential{Name: name, Token: bearer(name)})
		g.Expect(err).NotTo(HaveOccurred())
		return client.connection
	}

	// given a client in use, and a Secret that changes every few minutes
	kept := client("kept")
	for i := range 100 {
		client(fmt.Sprintf("secret/%d", i))
		g.Expect(client("kept")).To(BeIdenticalTo(kept))
		step(c, connectionTimeout/10)
	}

	// then only the connections that were used recently remain
	g.Expect(len(cloud.connections)).To(BeNumerically("<=", 11))
	g.Expect(client("kept")).To(BeIdenticalTo(kept))
}

func TestIsBusyWhileAnySubscriptionIs(t *testing.T) {
	g := NewWithT(t)
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	cloud := New(Config{Clock: c})
	var clients []*Client
	for _, subscription := range []string{"one", "two"} {
		client, err := cloud.Client(subscription, Credential{Name: "a", Token: bearer("a")})
		g.Expect(err).NotTo(HaveOccurred())
		clients = append(clients, client)
	}
	g.Expect(cloud.IsBusy()).To(BeFalse())
	clients[1].budget.refused(time.Second)
	g.Expect(cloud.IsBusy()).To(BeTrue())
	step(c, time.Second)
	g.Expect(cloud.IsBusy()).To(BeFalse())
}

// A cloud without the service that the clients need is an error of each of them, and not of a request.
func TestInvalidCloudIsAnError(t *testing.T) {
	g := NewWithT(t)
	cloud := New(Config{Cloud: azcloud.Configuration{ActiveDirectoryAuthorityHost: "https://login.test/"}})
	credential := Credential{Name: "a", Token: bearer("a")}
	client, err := cloud.Client("s", credential)
	g.Expect(err).To(MatchError(HavePrefix("creating a client for subscription s: ")))
	g.Expect(client).To(BeNil())
	// and nothing is known of an object that was seen with such a client
	seen := &Seen{readings: []reading{{subscription: "s", single: list{kind: singleVault, group: "g", name: "v"}}}}
	cloud.Remember("object", "1", credential, seen)
	g.Expect(cloud.Unchanged(t.Context(), "object", "1", credential, Poll{Interval: time.Minute})).To(BeFalse())
}

// Credentials with different names never share a connection, and with it a token. Clients that share one
// keep their own scopes.
func TestCredentialsDoNotShareConnections(t *testing.T) {
	g := NewWithT(t)
	cloud := New(Config{})
	client := func(subscription, name string, scopes ...Scope) *Client {
		client, err := cloud.Client(subscription, Credential{Name: name, Token: bearer(name), Scopes: scopes})
		g.Expect(err).NotTo(HaveOccurred())
		return client
	}
	first := client("one", "a", "/subscriptions/one")
	g.Expect(client("one", "b").connection).NotTo(BeIdenticalTo(first.connection))
	g.Expect(client("two", "a").connection).NotTo(BeIdenticalTo(first.connection))
	second := client("one", "a", "/subscriptions/two")
	g.Expect(second.connection).To(BeIdenticalTo(first.connection), "they share the request budget")
	g.Expect(first.scopes).To(Equal([]Scope{"/subscriptions/one"}))
	g.Expect(second.scopes).To(Equal([]Scope{"/subscriptions/two"}))
}
