package phases_test

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// A Toy is made of a Gear, which is a Kubernetes object, and a rail, which is not. The list of
// phases is all that its controller says about the order of things; on deletion it runs backwards.
func Example() {
	// The world stands for a cluster, in which a Gear takes a while to turn.
	world := newWorld()
	world.turnsAfter["axle"] = 1
	rail := "" // what a cloud would hold

	axle := phases.Child[*scope, *partConfiguration, *Gear]{
		Name:      "Axle",
		ChildName: func(*scope) string { return "axle" },
		Desired: func(s *scope) (*partConfiguration, error) {
			return gear("axle").with("colour", s.toy.Spec["colour"]), nil
		},
		Ready: func(live *Gear) phases.Verdict {
			if !live.Turns {
				return phases.Wait("NotTurning", "the gear does not turn yet", 5*time.Second)
			}
			return phases.Done("the gear turns")
		},
	}
	track := phases.Step[*scope]{
		Name: "Track",
		Observe: func(context.Context, *scope) (phases.Verdict, error) {
			if rail == "" {
				return phases.Missing("RailMissing", "lay the rail"), nil
			}
			return phases.Done("the rail is laid"), nil
		},
		Ensure: func(context.Context, *scope) (phases.Verdict, error) {
			rail = "laid"
			return phases.Done("the rail is laid"), nil
		},
		Undo: func(context.Context, *scope) (phases.Verdict, error) {
			rail = ""
			return phases.Done("the rail is gone"), nil
		},
	}

	engine, err := phases.New(phases.Definition[*Toy, *scope]{
		Controller: "toy",
		Finalizer:  "toys.example.com/teardown",
		Phases:     []phases.Phase[*scope]{axle, track},
		Scope:      func(toy *Toy) *scope { return &scope{toy: toy} },
		Conditions: func(toy *Toy) []metav1.Condition { return toy.Status.Conditions },
		Status:     func(s *scope, summary phases.Summary) ssa.Configuration { return toyStatus(s.toy.Name, summary) },
	}, phases.Dependencies{
		Reader:   reader{world: world, cached: true},
		Uncached: reader{world: world},
		Applier:  applier{world: world},
		Scheme:   toyScheme(),
		Clock:    world.clock,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	pass := func(title string) {
		result, err := engine.Reconcile(context.Background(), reconcile.Request{
			NamespacedName: types.NamespacedName{Namespace: toyNamespace, Name: toyName},
		})
		fmt.Println(title, "look again after:", result.RequeueAfter, "error:", err)
		if toy := world.toy(); toy != nil {
			for _, c := range toy.Status.Conditions {
				fmt.Printf("  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}

	world.createToy(&Toy{Spec: map[string]string{"colour": "red"}})
	pass("created;")
	world.tick() // the gear begins to turn
	pass("turning;")
	world.deleteToy()
	pass("deleted;")
	pass("gone;")
	fmt.Println("left:", world.left(), rail)

	// Output:
	// created; look again after: 5s error: <nil>
	//   Ready=False NotTurning: Axle: the gear does not turn yet
	//   AxleReady=False NotTurning: the gear does not turn yet
	//   TrackReady=Unknown Blocked: not looked at before Axle is done
	//   Reconciling=True NotTurning: the gear does not turn yet
	// turning; look again after: 0s error: <nil>
	//   Ready=True Ready: all phases are done
	//   AxleReady=True Ready: the gear turns
	//   TrackReady=True Ready: the rail is laid
	// deleted; look again after: 30s error: <nil>
	//   Ready=False Terminating: Axle: waiting for Gear axle to be gone
	//   AxleReady=False Terminating: waiting for Gear axle to be gone
	//   TrackReady=False Terminating: gone
	//   Reconciling=True Terminating: waiting for Gear axle to be gone
	// gone; look again after: 0s error: <nil>
	// left: []
}
