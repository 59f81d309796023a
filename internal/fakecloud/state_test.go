package fakecloud

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestStateSurvivesRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	clock := clocktesting.NewFakeClock(noon)
	knobs := Knobs{AccountCreation: Fixed(time.Minute), GrantDelay: Fixed(time.Minute)}
	open := func() *fixture {
		cloud, err := Open(Options{Clock: clock, Seed: 3, Knobs: knobs, StateFile: file})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return newFixtureWith(t, cloud, clock)
	}

	// given a cloud that stops while an account is being created
	before := open()
	before.Expect(before.create("data1")).To(Succeed())
	before.Expect(before.grant(assignmentName, before.cloud.Principal("data1"), servicePrincipal())).To(Succeed())
	before.endpoint.Close()
	before.Expect(before.cloud.Close()).To(Succeed())

	// when it starts again later
	clock.Step(time.Minute)
	after := open()

	// then the account is provisioned, created once, and the grant is effective
	after.Expect(after.cloud.Ledger()).To(Equal(before.cloud.Ledger()))
	after.Expect(after.encrypt("data1", after.demo.Key, "")).To(Succeed())
	after.Expect(after.cloud.ReadData("data1")).To(Succeed())
	after.Expect(after.cloud.Created("storageAccounts/data1")).To(Equal(1))
	after.Expect(after.cloud.Ledger()[2].RequestID).NotTo(BeElementOf(before.cloud.Ledger()[0].RequestID, before.cloud.Ledger()[1].RequestID))
	after.Expect(after.cloud.Close()).To(Succeed())

	// and the directory contains only the state file
	entries, err := os.ReadDir(filepath.Dir(file))
	after.Expect(err).NotTo(HaveOccurred())
	after.Expect(entries).To(HaveLen(1))
}

func TestStateIsWrittenContinuously(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	cloud := New(Options{Clock: clocktesting.NewFakeClock(noon), StateFile: file})
	g := NewWithT(t)
	cloud.SeedDemo()
	g.Eventually(func() string { return readFile(file) }).WithTimeout(timeout).Should(ContainSubstring(DemoSubscription))
	g.Expect(cloud.Close()).To(Succeed())
}

func readFile(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}

func TestRejectsInvalidStateFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	g := NewWithT(t)
	g.Expect(os.WriteFile(file, []byte("{"), 0o600)).To(Succeed())
	_, err := Open(Options{StateFile: file})
	g.Expect(err).To(MatchError(ContainSubstring(file)))
}

func TestSnapshotIsTheWholeState(t *testing.T) {
	// given a cloud in which an account is being created
	clock := clocktesting.NewFakeClock(noon)
	knobs := Knobs{AccountCreation: Fixed(time.Minute), GrantDelay: Fixed(time.Minute)}
	before := newFixtureWith(t, New(Options{Clock: clock, Seed: 3, Knobs: knobs}), clock)
	before.Expect(before.create("data1")).To(Succeed())
	before.Expect(before.grant(assignmentName, before.cloud.Principal("data1"), servicePrincipal())).To(Succeed())
	// when
	snapshot, err := before.cloud.Snapshot()
	before.Expect(err).NotTo(HaveOccurred())
	copied := New(Options{Clock: clock, Seed: 3, Knobs: knobs, Snapshot: snapshot})
	// then both have the same state, and do not share it
	before.Expect(copied.Snapshot()).To(Equal(snapshot))
	before.Expect(copied.State()).To(Equal(before.cloud.State()))
	before.Expect(copied.DeleteAccount("data1")).To(Succeed())
	before.Expect(before.cloud.Snapshot()).To(Equal(snapshot))
	_, err = Open(Options{Snapshot: []byte("{")})
	before.Expect(err).To(MatchError(ContainSubstring("reading the snapshot")))
}
