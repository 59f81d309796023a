package phases_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// publication is the scope of one reconcile.
type publication struct{ service *corev1.Service }

// A Service is published by a ConfigMap with its address, which is a Kubernetes object, and by an entry in
// a registry, which is not. The list of phases is all that the controller says about the order of things;
// on deletion it is reversed. The API server here is in memory; an operator calls FromManager and
// SetupWithManager.
func Example() {
	ctx := context.Background()
	server := ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{})
	applier, err := ssa.New(ssa.Options{Client: server, FieldManager: "publisher"})
	if err != nil {
		log.Fatal(err)
	}
	address := phases.Child[*publication, *corev1ac.ConfigMapApplyConfiguration, *corev1.ConfigMap]{
		Name: "Address",
		Desired: func(p *publication) (*corev1ac.ConfigMapApplyConfiguration, error) {
			return corev1ac.ConfigMap(p.service.Name, p.service.Namespace).
				WithData(map[string]string{"address": p.service.Name + "." + p.service.Namespace + ".svc"}), nil
		},
	}
	registered := false
	registration := phases.Step[*publication]{
		Name: "Registration",
		Observe: func(_ context.Context, p *publication) (phases.Observation, error) {
			if !registered {
				return phases.Missing("Registering", "register "+p.service.Name), nil
			}
			return phases.Done("registered"), nil
		},
		Ensure: func(context.Context, *publication) (phases.Verdict, error) {
			registered = true
			return phases.Done("registered"), nil
		},
		Undo: func(context.Context, *publication) (phases.Verdict, error) {
			registered = false
			return phases.Done("no longer registered"), nil
		},
	}

	engine, err := phases.New(phases.Definition[*corev1.Service, *publication]{
		Controller: "publisher",
		Finalizer:  "example.com/teardown",
		Phases:     []phases.Phase[*publication]{address, registration},
		Scope:      func(service *corev1.Service) *publication { return &publication{service: service} },
		Conditions: func(service *corev1.Service) []metav1.Condition { return service.Status.Conditions },
		Status: func(p *publication, summary phases.Summary) ssa.Configuration {
			return corev1ac.Service(p.service.Name, p.service.Namespace).
				WithStatus(corev1ac.ServiceStatus().WithConditions(phases.ConditionConfigurations(summary.Conditions)...))
		},
	}, phases.Dependencies{
		Reader: server.Cache(), Uncached: server, Applier: applier, Planner: applier.DryRun(), Scheme: clientgoscheme.Scheme,
	})
	if err == nil {
		err = engine.Index(server)
	}
	if err != nil {
		log.Fatal(err)
	}

	shop := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}}
	key := client.ObjectKeyFromObject(shop)
	step := func(title string) {
		if _, err := engine.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err != nil {
			log.Fatal(err)
		}
		fmt.Println(title, server.Writes(), "registered:", registered)
		live := &corev1.Service{}
		if server.Get(ctx, key, live) == nil {
			for _, c := range live.Status.Conditions {
				fmt.Printf("  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	if err := server.Create(ctx, shop); err != nil {
		log.Fatal(err)
	}
	server.Writes()
	step("created:")
	step("again:")
	if err := server.Delete(ctx, shop); err != nil {
		log.Fatal(err)
	}
	server.Writes()
	step("deleted:")

	// Output:
	// created: [update Service shop create ConfigMap shop update Service shop/status] registered: true
	//   Ready=True Ready: all phases are ready
	//   AddressReady=True Ready: ConfigMap shop applied
	//   RegistrationReady=True Ready: registered
	// again: [] registered: true
	//   Ready=True Ready: all phases are ready
	//   AddressReady=True Ready: ConfigMap shop applied
	//   RegistrationReady=True Ready: registered
	// deleted: [delete ConfigMap shop update Service shop] registered: false
}
