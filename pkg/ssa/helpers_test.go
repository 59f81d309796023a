package ssa

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// countingServer counts the requests that write, and records patches and deletes of objects.
type countingServer struct {
	*ssatest.Server
	requests int
	patches  []sentPatch
	deletes  []client.DeleteOptions
	// refuse is a verb for which the manager lacks the permission.
	refuse string
}

type sentPatch struct {
	options client.PatchOptions
	body    string
}

func newServer() *countingServer { return newServerOf(clientgoscheme.Scheme) }

func newServerOf(scheme *runtime.Scheme) *countingServer {
	s := &countingServer{}
	s.Server = ssatest.NewServer(scheme, ssatest.Options{Intercept: func(call ssatest.Call) error {
		if call.Verb == s.refuse {
			return forbidden(`User "m" cannot ` + call.Verb)
		}
		if !call.Done && call.Verb != "get" && call.Verb != "list" {
			s.requests++
		}
		return nil
	}})
	return s
}

func (s *countingServer) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	body, err := patch.Data(object)
	if err != nil {
		return err
	}
	s.patches = append(s.patches, sentPatch{*(&client.PatchOptions{}).ApplyOptions(opts), string(body)})
	return s.Server.Patch(ctx, object, patch, opts...)
}

func (s *countingServer) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	s.deletes = append(s.deletes, *(&client.DeleteOptions{}).ApplyOptions(opts))
	return s.Server.Delete(ctx, object, opts...)
}

// Kinds of which only the server knows a schema, with the Go types of ConfigMap and Deployment.
var (
	settingsKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Settings"}
	widgetKind   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

func newCustomServer() *countingServer {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(settingsKind, &corev1.ConfigMap{})
	scheme.AddKnownTypeWithName(widgetKind, &appsv1.Deployment{})
	return newServerOf(scheme)
}

// ownedBy is the reference to an owner with this UID.
func ownedBy(uid types.UID) *metav1.OwnerReference {
	return metav1.NewControllerRef(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: uid}}, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
}

// unreadable is an object that has no JSON.
type unreadable struct {
	Callback chan int `json:"callback"`
	client.Object
}
