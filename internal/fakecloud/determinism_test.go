package fakecloud

import (
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

// nervous has all delays and failures.
func nervous() Knobs {
	knobs := Realistic().Compress(100)
	knobs.Latency = Delay{}
	knobs.CreationFailures, knobs.ServerErrors, knobs.LostResponses, knobs.ErrorsAfterEffect = 0.2, 0.1, 0.1, 0.1
	return knobs
}

func story(t *testing.T, seed int64) []Entry {
	t.Helper()
	clock := clocktesting.NewFakeClock(noon)
	f := newFixtureWith(t, New(Options{Clock: clock, Seed: seed, Knobs: nervous()}), clock)
	f.perCall = 50 * time.Millisecond
	for i := range 20 {
		name := fmt.Sprint("data", i%4)
		// Errors are expected; the ledger shows them.
		_ = f.create(name)
		_ = f.tag(name, fmt.Sprint(i))
		if principal := f.cloud.Principal(name); principal != "" {
			_ = f.grant(fmt.Sprintf("%08d-2222-4333-8444-555555555555", i), principal, servicePrincipal())
		}
		_ = f.encrypt(name, f.demo.Key, "")
		_ = f.delete(name)
	}
	ledger := f.cloud.Ledger()
	for i := range ledger {
		ledger[i].ClientRequestID = "" // The SDK generates it.
	}
	return ledger
}

func TestSameSeedGivesSameResponses(t *testing.T) {
	g := NewWithT(t)
	first := story(t, 1)
	g.Expect(story(t, 1)).To(Equal(first))
	g.Expect(story(t, 2)).NotTo(Equal(first))
	effects := map[Effect]int{}
	for _, entry := range first {
		effects[entry.Effect]++
	}
	g.Expect(effects).To(And(HaveKey(Created), HaveKey(Updated), HaveKey(Refused), HaveKey(Deleted)))
}

func TestObjectsDoNotInfluenceEachOther(t *testing.T) {
	fate := func(others int) (time.Time, string) {
		knobs := Knobs{AccountCreation: Between(time.Second, time.Hour)}
		f := newFixture(t, knobs)
		for i := range others {
			f.Expect(f.create(fmt.Sprint("other", i))).To(Succeed())
		}
		f.Expect(f.create("data1")).To(Succeed())
		account, _ := f.cloud.Account("data1")
		return account.ReadyAt, account.Identity.PrincipalID
	}
	g := NewWithT(t)
	alone, principal := fate(0)
	crowded, samePrincipal := fate(9)
	g.Expect(crowded).To(Equal(alone))
	g.Expect(samePrincipal).To(Equal(principal))
}

func TestLedgerIsExactUnderConcurrency(t *testing.T) {
	f := newFixture(t, Instant())
	const accounts, callers = 12, 6
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for i := range accounts {
				_ = f.create(fmt.Sprint("data", i))
				_ = f.tag(fmt.Sprint("data", i), "x")
				_, _ = f.get(fmt.Sprint("data", i))
			}
		})
	}
	group.Wait()

	f.Expect(f.cloud.Created("storageAccounts/")).To(Equal(accounts), "each was created once, by whoever was first")
	f.Expect(f.cloud.Total("storageAccounts/")).To(And(HaveField("Reads", accounts*callers), HaveField("Writes", 2*accounts*callers)))
	ledger := f.cloud.Ledger()
	f.Expect(ledger).To(HaveLen(2 * accounts * callers))
	ids := map[string]bool{}
	for i, entry := range ledger {
		f.Expect(entry.Sequence).To(Equal(i + 1))
		ids[entry.RequestID] = true
	}
	f.Expect(ids).To(HaveLen(len(ledger)), "every request has its own request ID")
}

func TestRandomNumbersAreUniform(t *testing.T) {
	g := NewWithT(t)
	luck := chance{seed: 1, draws: map[string]uint64{}}
	low, seen := 0, map[float64]bool{}
	for range 1000 {
		x := luck.next("coin", "resource")
		g.Expect(x).To(And(BeNumerically(">=", 0), BeNumerically("<", 1)))
		seen[x] = true
		if x < 0.3 {
			low++
		}
	}
	g.Expect(seen).To(HaveLen(1000))
	g.Expect(low).To(BeNumerically("~", 300, 50))
	g.Expect(luck.happens("coin", "other", 0)).To(BeFalse())
	g.Expect(luck.draws).To(HaveLen(1), "what never happens is not drawn")
}
