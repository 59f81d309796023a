package phases_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// idle is a door behind which nothing costs anything, so that a benchmark measures the engine.
type idle struct{}

func (*idle) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}
func (*idle) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (*idle) Decide(req ssa.Request) (ssa.Decision, error) {
	return ssa.Decision{Request: req, Action: ssa.ActionNone}, nil
}

func (*idle) Execute(_ context.Context, d ssa.Decision) (ssa.Result, error) {
	return ssa.Result{Action: ssa.ActionNone, Live: d.Request.Live}, nil
}

func (*idle) ApplyStatus(_ context.Context, _ ssa.Configuration, live client.Object) (ssa.Result, error) {
	return ssa.Result{Action: ssa.ActionNone, Live: live}, nil
}

func (*idle) EnsureFinalizer(_ context.Context, live client.Object, _ string) (client.Object, error) {
	return live, nil
}

func (*idle) RemoveFinalizer(context.Context, client.Object, string) error { return nil }

func (*idle) Delete(context.Context, client.Object, metav1.OwnerReference, metav1.DeletionPropagation) error {
	return nil
}

// BenchmarkEngine6DonePhases is the engine's own share of a reconcile in which nothing is to do.
// What the kind brings, its scope and the configuration of its status, is not built here.
func BenchmarkEngine6DonePhases(b *testing.B) {
	g := NewWithT(b)
	metrics, err := phases.NewMetrics(prometheus.NewRegistry())
	g.Expect(err).NotTo(HaveOccurred())
	var settled []metav1.Condition
	definition := phases.Definition[*Toy, *Toy]{
		Controller: "toy",
		Finalizer:  toyFinalizer,
		Scope:      func(toy *Toy) *Toy { return toy },
		Conditions: func(toy *Toy) []metav1.Condition { return toy.Status.Conditions },
		Status: func(_ *Toy, summary phases.Summary) ssa.Configuration {
			settled = summary.Conditions
			return nil
		},
	}
	for _, name := range []string{"Config", "Service", "Deployment", "Autoscaling", "DisruptionBudget", "Ingress"} {
		definition.Phases = append(definition.Phases, phases.Step[*Toy]{
			Name:    name,
			Observe: func(context.Context, *Toy) (phases.Verdict, error) { return phases.Done("it is there"), nil },
		})
	}
	door := &idle{}
	engine, err := phases.New(definition, phases.Dependencies{
		Reader: door, Uncached: door, Applier: door, Scheme: toyScheme(), Metrics: metrics,
	})
	g.Expect(err).NotTo(HaveOccurred())
	toy := &Toy{ObjectMeta: metav1.ObjectMeta{Name: toyName, Namespace: toyNamespace, UID: "u", Generation: 1, Finalizers: []string{toyFinalizer}}}
	_, err = engine.ReconcileObject(b.Context(), toy)
	g.Expect(err).NotTo(HaveOccurred())
	toy.Status.Conditions = settled

	b.ReportAllocs()
	for b.Loop() {
		if _, err := engine.ReconcileObject(b.Context(), toy); err != nil {
			b.Fatal(err)
		}
	}
}
