// Package ssa_test shows pkg/ssa against a real API server.
package ssa_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// manager is the field manager under test.
const manager = "fixpoint-test"

var (
	// api is the client by which tests read and edit, without a rate limit.
	api    client.WithWatch
	scheme = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	options := cluster.Options{CRDPaths: []string{"../../config/crd/bases"}}
	cluster.RunTests(m, options, func(c *cluster.Cluster) {
		var err error
		if api, err = client.NewWithWatch(c.Admin(), client.Options{Scheme: scheme}); err != nil {
			panic(err)
		}
		if err := startWebhooks(context.Background(), api); err != nil {
			panic(err)
		}
		err = wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, eventually, true, func(context.Context) (bool, error) {
			return readAlphaTypes(c.Admin()) == nil, nil
		})
		if err != nil {
			panic(err)
		}
	})
}

// sent is what an applier sends, in the order in which it does.
type sent struct{ bodies [][]byte }

// lastApply is the body of the last apply, which is a document and not a list of JSON patches.
func (s *sent) lastApply() []byte {
	for _, body := range slices.Backward(s.bodies) {
		if body[0] == '{' {
			return body
		}
	}
	return nil
}

// newApplier is an applier as after a restart of the manager, with a log of what it sends.
func newApplier(reader client.Reader) (*ssa.Applier, *sent) {
	log := &sent{}
	watched := interceptor.NewClient(api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			body, err := patch.Data(obj)
			if err != nil {
				return err
			}
			log.bodies = append(log.bodies, body)
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			body, err := patch.Data(obj)
			if err != nil {
				return err
			}
			log.bodies = append(log.bodies, body)
			return c.SubResource(subresource).Patch(ctx, obj, patch, opts...)
		},
	})
	applier, err := ssa.New(ssa.Options{
		Client:       watched,
		Reader:       reader,
		FieldManager: manager,
		TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{
			func(*runtime.Scheme) managedfields.TypeConverter { return betaTypes() },
			func(*runtime.Scheme) managedfields.TypeConverter { return alphaTypes },
		},
	})
	if err != nil {
		panic(err)
	}
	return applier, log
}

// newNamespace creates a namespace for one test, with labels that select webhooks.
func newNamespace(ctx context.Context, g Gomega, labels map[string]string) string {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ssa-", Labels: labels}}
	g.Expect(api.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// newOwner creates an object that can own others.
func newOwner(ctx context.Context, g Gomega, namespace, name string) metav1.OwnerReference {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	g.Expect(api.Create(ctx, owner)).To(Succeed())
	return *metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
}
