package cloud

import (
	"fmt"
	"testing"
	"time"

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
