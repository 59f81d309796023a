package cloud

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestSharesClientsAndDropsUnusedOnes(t *testing.T) {
	g := NewWithT(t)
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	cloud := New(Config{Clock: c})
	client := func(name string) *Client {
		client, err := cloud.Client("subscription", Credential{Name: name, Token: bearer(name)})
		g.Expect(err).NotTo(HaveOccurred())
		return client
	}

	// given a client in use, and a Secret that changes every few minutes
	kept := client("kept")
	for i := range 100 {
		client(fmt.Sprintf("secret/%d", i))
		g.Expect(client("kept")).To(BeIdenticalTo(kept))
		step(c, clientTimeout/10)
	}

	// then only the clients that were used recently remain
	g.Expect(len(cloud.clients)).To(BeNumerically("<=", 11))
	g.Expect(client("kept")).To(BeIdenticalTo(kept))
}
