package ssa_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// A child is created, left unchanged, edited by a user and reverted. The API server here is in memory;
// an operator passes the client of its manager.
func Example() {
	ctx := context.Background()
	server := ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{})
	applier, err := ssa.New(ssa.Options{Client: server, FieldManager: "shop-operator"})
	if err != nil {
		log.Fatal(err)
	}
	shop := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "7b0c"}} // of your own kind
	owner := metav1.NewControllerRef(shop, corev1.SchemeGroupVersion.WithKind("ConfigMap"))

	reconcile := func(live client.Object) *corev1.ConfigMap {
		result, err := applier.Apply(ctx, ssa.Request{
			Desired: corev1ac.ConfigMap("settings", "default").WithData(map[string]string{"color": "green"}),
			Live:    live,
			Owner:   owner,
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Action, server.Writes())
		for _, drift := range result.Drifts {
			fmt.Println(" ", drift)
		}
		settings, _ := result.Live.(*corev1.ConfigMap)
		return settings
	}

	live := reconcile(nil)
	live = reconcile(live)

	edited := live.DeepCopy()
	edited.Data["color"] = "red"
	edited.Data["shape"] = "round" // the applier does not manage it
	if err := server.Update(ctx, edited, client.FieldOwner("kubectl-edit")); err != nil {
		log.Fatal(err)
	}
	server.Writes()
	live = reconcile(edited)
	live = reconcile(live)
	fmt.Println(live.Data)

	// Output:
	// Create [create ConfigMap settings]
	// None []
	// Correct [update ConfigMap settings]
	//   kubectl-edit changed .data.color from "green" to "red"
	// None []
	// map[color:green shape:round]
}
