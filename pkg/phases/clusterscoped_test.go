package phases_test

import (
	"cmp"
	"testing"

	. "github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscalingv1ac "k8s.io/client-go/applyconfigurations/autoscaling/v1"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"

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
	return newStandalone(t, phasestest.Options{GarbageCollection: true}, diskIn("lab", "Boot"), spare, volumes)
}

// newStandalone is an engine over an API server in memory, whose Machine is cluster-scoped.
func newStandalone(t *testing.T, options phasestest.Options, list ...phase) *clusterScoped {
	definition := newHarness(newFakeCluster(), list...).definition
	definition.Status = func(s *scope, summary phases.Summary) ssa.Configuration {
		return ssa.StatusOf(s.machine, machineGroup.WithKind("Machine"), MachineStatus{
			ObservedGeneration: summary.ObservedGeneration, Conditions: summary.Conditions,
		})
	}
	options.Scheme = cmp.Or(options.Scheme, machineScheme())
	return phasestest.New(t, definition, options)
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
	e.Forget()
	e.Settle(machineName)
	g.Expect(e.Events()).To(ContainElement(ContainSubstring(`Disk attic/vm1: user changed .spec.class from "slow" to "fast"`)), "which of the two it is")
	g.Expect(exists(e, "lab", "a")).To(BeTrue())
	g.Expect(e.Exists(spare)).To(BeTrue())
	g.Expect(spare.Spec).To(HaveKeyWithValue("class", "slow"))

	// When it is deleted, nothing is left
	e.Delete(machine)
	e.Settle(machineName)
	g.Expect(e.State()).To(BeEmpty())
}

// Otherwise the recorder would take the Events about children of one name for one.
func TestEventOfADriftRelatesToTheNamespaceOfTheChild(t *testing.T) {
	g := NewWithT(t)
	for child, want := range map[string]corev1.ObjectReference{
		"Disk attic/boot": {Kind: "Disk", Namespace: "attic", Name: "boot"},
		"Disk boot":       {Kind: "Disk", Name: "boot"},
	} {
		related := phases.DriftedField(&Machine{}, phases.ObservedDrift{Child: child})
		g.Expect(*related).To(Equal(want))
	}
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
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(machine, machineGroup.WithKind("Machine"))},
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

func TestChildrenOfOneKindInTwoVersionsLeaveEachOtherAlone(t *testing.T) {
	g := NewWithT(t)
	// Given two autoscalers, in two versions of the API
	scheme := machineScheme()
	g.Expect(autoscalingv1.AddToScheme(scheme)).To(Succeed())
	g.Expect(autoscalingv2.AddToScheme(scheme)).To(Succeed())
	older := phases.Child[*scope, *autoscalingv1ac.HorizontalPodAutoscalerApplyConfiguration, *autoscalingv1.HorizontalPodAutoscaler]{
		Name:           "Older",
		ChildName:      func(*scope) string { return "older" },
		ChildNamespace: func(*scope) string { return "lab" },
		Desired: func(*scope) (*autoscalingv1ac.HorizontalPodAutoscalerApplyConfiguration, error) {
			return autoscalingv1ac.HorizontalPodAutoscaler("older", "lab").WithLabels(map[string]string{"disk": "boot"}), nil
		},
	}
	newer := phases.Child[*scope, *autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration, *autoscalingv2.HorizontalPodAutoscaler]{
		Name:           "Newer",
		ChildName:      func(*scope) string { return "newer" },
		ChildNamespace: func(*scope) string { return "lab" },
		Desired: func(*scope) (*autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration, error) {
			return autoscalingv2ac.HorizontalPodAutoscaler("newer", "lab").WithLabels(map[string]string{"disk": "boot"}), nil
		},
	}
	e := newStandalone(t, phasestest.Options{Scheme: scheme, GarbageCollection: true}, older, newer)
	machine := clusterScopedMachine()
	e.Create(machine)

	// When the Machine is reconciled, neither phase deletes the other's
	e.Settle(machineName)
	e.ExpectQuiet(machineName)
	g.Expect(e.Exists(&autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "older"}})).To(BeTrue())
	g.Expect(e.Exists(&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "newer"}})).To(BeTrue())

	// When it is deleted, nothing is left
	e.Delete(machine)
	e.Settle(machineName)
	g.Expect(e.State()).To(BeEmpty())
}
