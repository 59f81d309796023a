package phases_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/phases/phasestest"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// diskIn is a phase whose child is a Disk in a namespace, of the name of the Machine, which has no namespace.
func diskIn(namespace, name string) diskPhase {
	return diskPhase{
		Name:           name,
		ChildNamespace: func(*scope) string { return namespace },
		Desired: func(s *scope) (*deviceConfiguration, error) {
			return desiredDevice(s, name, inNamespace(disk(machineName), namespace)), nil
		},
		Observed: func(s *scope, live *Disk) { s.seen = append(s.seen, live.Namespace+"/"+live.Name) },
	}
}

type clusterScoped = phasestest.Env[*Machine, *scope]

// newClusterScoped is an engine whose Machine is cluster-scoped. It has a Disk of the same name in each of two
// namespaces, and a set of Disks in the first.
func newClusterScoped(t *testing.T) *clusterScoped {
	spare := diskIn("attic", "Spare")
	spare.ChildName = func(*scope) string { return machineName }
	volumes := disksOf("Volumes")
	volumes.Health, volumes.ChildNamespace = nil, func(*scope) string { return "lab" }
	definition := newHarness(newFakeCluster(), diskIn("lab", "Boot"), spare, volumes).definition
	definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
		return ssa.StatusOf(s.machine, machineGroup.WithKind("Machine"), MachineStatus{
			ObservedGeneration: summary.ObservedGeneration, Conditions: summary.Conditions,
		})
	}
	return phasestest.New(t, definition, phasestest.Options{Scheme: machineScheme(), GarbageCollection: true})
}

func clusterScopedMachine() *Machine {
	return &Machine{ObjectMeta: metav1.ObjectMeta{Name: machineName}, Spec: map[string]string{"Boot": "fast", "Spare": "slow", "Volumes": "a b"}}
}

func exists(e *clusterScoped, namespace, name string) bool {
	disk := &Disk{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	machine := clusterScopedMachine()
	return e.Exists(disk) && e.Exists(machine) && metav1.IsControlledBy(disk, machine)
}

func TestClusterScopedObjectHasChildrenInNamespaces(t *testing.T) {
	g := NewWithT(t)
	e := newClusterScoped(t)
	machine := clusterScopedMachine()
	e.Create(machine)

	// When it is reconciled, its children exist, each in its namespace
	e.Settle(machineName)
	g.Expect(exists(e, "lab", machineName)).To(BeTrue())
	g.Expect(exists(e, "attic", machineName)).To(BeTrue())
	g.Expect(exists(e, "lab", "a")).To(BeTrue())
	g.Expect(exists(e, "lab", "b")).To(BeTrue())
	e.ExpectQuiet(machineName)

	// When children are no longer desired, they are pruned, and not what has their name in another namespace
	e.Edit(machine, func() { machine.Spec = map[string]string{"Spare": "slow", "Volumes": "a"} })
	e.Settle(machineName)
	g.Expect(exists(e, "lab", machineName)).To(BeFalse())
	g.Expect(exists(e, "attic", machineName)).To(BeTrue())
	g.Expect(exists(e, "lab", "a")).To(BeTrue())
	g.Expect(exists(e, "lab", "b")).To(BeFalse())
	e.ExpectQuiet(machineName)

	// When a child is deleted or changed by another client, it is restored
	e.Delete(&Disk{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "a"}})
	spare := &Disk{ObjectMeta: metav1.ObjectMeta{Namespace: "attic", Name: machineName}}
	e.Edit(spare, func() { spare.Spec["class"] = "fast" })
	e.Settle(machineName)
	g.Expect(exists(e, "lab", "a")).To(BeTrue())
	g.Expect(e.Exists(spare)).To(BeTrue())
	g.Expect(spare.Spec).To(HaveKeyWithValue("class", "slow"))

	// When it is deleted, nothing is left
	e.Delete(machine)
	e.Settle(machineName)
	g.Expect(e.State()).To(BeEmpty())
}

func TestTeardownOfAClusterScopedObjectFindsItsChildrenPastTheCache(t *testing.T) {
	g := NewWithT(t)
	// Given a Machine that is being deleted, and disks that the cache does not show
	e := newClusterScoped(t)
	machine := clusterScopedMachine()
	machine.Finalizers = []string{machineFinalizer}
	e.Create(machine)
	e.Delete(machine)
	g.Expect(e.Exists(machine)).To(BeTrue())
	e.Cache.Freeze()
	for _, name := range []string{machineName, "a", "b"} {
		e.Create(&Disk{ObjectMeta: metav1.ObjectMeta{
			Namespace: "lab", Name: name,
			OwnerReferences: []metav1.OwnerReference{ssa.ControllerReference(machine, machineGroup.WithKind("Machine"))},
		}})
	}

	e.Settle(machineName)

	g.Expect(e.Changes()).To(ContainElements("delete Disk vm1", "delete Disk a", "delete Disk b"), "it does not rely on the garbage collector")
	g.Expect(e.State()).To(BeEmpty())
}

func TestClusterScopedObjectSurvivesCrashes(t *testing.T) {
	phasestest.SurvivesCrashes(t, newClusterScoped, func(_ *testing.T, e *clusterScoped) {
		machine := clusterScopedMachine()
		e.Create(machine)
		e.Settle(machineName)
		e.Edit(machine, func() { machine.Spec = map[string]string{"Spare": "slow", "Volumes": "a"} })
		e.Settle(machineName)
		e.Delete(machine)
		e.Settle(machineName)
	})
}
