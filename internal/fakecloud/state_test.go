package fakecloud

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestTheStateSurvivesARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	clock := clocktesting.NewFakeClock(noon)
	knobs := Knobs{AccountCreation: Fixed(time.Minute), GrantDelay: Fixed(time.Minute)}
	open := func() *world {
		cloud, err := Open(Options{Clock: clock, Seed: 3, Knobs: knobs, StateFile: file})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return worldAround(t, cloud, clock)
	}

	// Given a cloud that ends while an account is made
	before := open()
	before.Expect(before.create("data1")).To(Succeed())
	before.Expect(before.grant(assignmentName, before.cloud.Principal("data1"), servicePrincipal())).To(Succeed())
	before.endpoint.Close()
	before.Expect(before.cloud.Close()).To(Succeed())

	// When it comes back, time having passed
	clock.Step(time.Minute)
	after := open()

	// Then the account is made, once, and the grant is in force
	after.Expect(after.cloud.Ledger()).To(Equal(before.cloud.Ledger()))
	after.Expect(after.encrypt("data1", after.demo.Key, "")).To(Succeed())
	after.Expect(after.cloud.ReadData("data1")).To(Succeed())
	after.Expect(after.cloud.Created("storageAccounts/data1")).To(Equal(1))
	after.Expect(after.cloud.Ledger()[2].RequestID).NotTo(BeElementOf(before.cloud.Ledger()[0].RequestID, before.cloud.Ledger()[1].RequestID))
	after.Expect(after.cloud.Close()).To(Succeed())

	// And the folder holds the state and nothing else
	entries, err := os.ReadDir(filepath.Dir(file))
	after.Expect(err).NotTo(HaveOccurred())
	after.Expect(entries).To(HaveLen(1))
}

func TestTheStateIsWrittenBeforeTheEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	cloud := New(Options{Clock: clocktesting.NewFakeClock(noon), StateFile: file})
	g := NewWithT(t)
	cloud.SeedDemo()
	g.Eventually(func() string { return readFile(file) }).WithTimeout(patience).Should(ContainSubstring(DemoSubscription))
	g.Expect(cloud.Close()).To(Succeed())
}

func readFile(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}

func TestAStateFileThatCannotBeRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	g := NewWithT(t)
	g.Expect(os.WriteFile(file, []byte("{"), 0o600)).To(Succeed())
	_, err := Open(Options{StateFile: file})
	g.Expect(err).To(MatchError(ContainSubstring(file)))
}
