package phases_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// idle is a cluster in which nothing costs anything, so that a benchmark measures the engine.
type idle struct{}

func (*idle) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}
func (*idle) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (*idle) Decide(req ssa.Request) (ssa.Decision, error) {
	return ssa.Decision{Request: req, Action: ssa.ActionNone}, nil
}

func (*idle) Execute(_ context.Context, d ssa.Decision) (ssa.Result, error) {
	return ssa.Result{Action: d.Action, Live: d.Request.Live}, nil
}

func (*idle) ApplyStatus(_ context.Context, _ ssa.Configuration, live client.Object) (ssa.Result, error) {
	return ssa.Result{Action: ssa.ActionNone, Live: live}, nil
}

func (*idle) EnsureFinalizer(_ context.Context, live client.Object, _ string) (client.Object, error) {
	return live, nil
}

func (*idle) RemoveFinalizer(context.Context, client.Object, string) error { return nil }

func (*idle) Delete(context.Context, client.Object, metav1.OwnerReference, metav1.DeletionPropagation) (bool, error) {
	return false, nil
}

// BenchmarkEngine6DonePhases is the engine's own share of a reconcile that has nothing to do.
// What the kind brings, its scope and the configuration of its status, is not built here.
func BenchmarkEngine6DonePhases(b *testing.B) {
	g := NewWithT(b)
	var settled []metav1.Condition
	definition := phases.Definition[*Machine, *Machine]{
		Controller: "machine",
		Finalizer:  machineFinalizer,
		Scope:      func(machine *Machine) *Machine { return machine },
		Conditions: func(machine *Machine) []metav1.Condition { return machine.Status.Conditions },
	}
	built := false
	definition.Status = func(_ *Machine, summary phases.Summary) ssa.Configuration {
		if !built {
			return machineStatus(machineName, summary) // New checks it
		}
		settled = summary.Conditions
		return nil
	}
	for _, name := range []string{"Config", "Service", "Deployment", "Autoscaling", "DisruptionBudget", "Ingress"} {
		definition.Phases = append(definition.Phases, phases.Step[*Machine]{
			Name:    name,
			Observe: func(context.Context, *Machine) (phases.Observation, error) { return phases.Done("it exists"), nil },
		})
	}
	cluster := &idle{}
	engine, err := phases.New(definition, phases.Dependencies{
		Reader: cluster, Uncached: cluster, Applier: cluster, Scheme: machineScheme(),
	})
	g.Expect(err).NotTo(HaveOccurred())
	built = true
	machine := &Machine{ObjectMeta: metav1.ObjectMeta{Name: machineName, Namespace: machineNamespace, UID: "u", Generation: 1, Finalizers: []string{machineFinalizer}}}
	_, err = engine.ReconcileObject(b.Context(), machine)
	g.Expect(err).NotTo(HaveOccurred())
	machine.Status.Conditions = settled

	b.ReportAllocs()
	for b.Loop() {
		if _, err := engine.ReconcileObject(b.Context(), machine); err != nil {
			b.Fatal(err)
		}
	}
}
