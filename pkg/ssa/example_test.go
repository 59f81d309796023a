package ssa_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// A child is created, found in order, changed by somebody and put back. The API server here is its
// field manager in memory; an operator gives the client of its manager.
func Example() {
	ctx := context.Background()
	server := ssa.NewServer()
	applier, err := ssa.New(ssa.Options{Client: server, FieldManager: "shop-operator"})
	if err != nil {
		log.Fatal(err)
	}
	shop := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "7b0c"}} // of your own kind
	owner := ssa.ControllerReference(shop, corev1.SchemeGroupVersion.WithKind("ConfigMap"))

	reconcile := func(live client.Object) *corev1.ConfigMap {
		before := server.Requests
		result, err := applier.Apply(ctx, ssa.Request{
			Desired: corev1ac.ConfigMap("settings", "default").WithData(map[string]string{"colour": "green"}),
			Live:    live,
			Owner:   &owner,
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, requests: %d\n", result.Action, server.Requests-before)
		for _, drift := range result.Drifts {
			fmt.Println(" ", drift)
		}
		settings, _ := result.Live.(*corev1.ConfigMap)
		return settings
	}

	live := reconcile(nil)
	live = reconcile(live)

	edited := live.DeepCopy()
	edited.Data["colour"] = "red"
	edited.Data["shape"] = "round" // nobody else's business
	if err := server.Update(ctx, edited, client.FieldOwner("kubectl-edit")); err != nil {
		log.Fatal(err)
	}
	live = reconcile(edited)
	live = reconcile(live)
	fmt.Println(live.Data)

	// Output:
	// Create, requests: 1
	// None, requests: 0
	// Correct, requests: 1
	//   kubectl-edit changed .data.colour from "green" to "red"
	// None, requests: 0
	// map[colour:green shape:round]
}
