package ssa

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// countingServer counts the requests that write.
type countingServer struct {
	*ssatest.Server
	requests int
}

func newServer() *countingServer {
	s := &countingServer{}
	s.Server = ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{Intercept: func(call ssatest.Call) error {
		if !call.Done && call.Verb != "get" && call.Verb != "list" {
			s.requests++
		}
		return nil
	}})
	return s
}

// ownedBy is the reference to an owner with this UID.
func ownedBy(uid types.UID) *metav1.OwnerReference {
	owner := ControllerReference(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: uid}}, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return &owner
}
