package ssa

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Server is an API server's bookkeeping in memory: the real field manager of the API server, with
// neither defaulting nor admission nor etcd. It serves applies, updates and reads of the kinds of
// k8s.io/api.
type Server struct {
	client.Client // what is not implemented below panics
	objects       map[string]managedfieldstest.TestFieldManager
	identities    map[string]metav1.ObjectMeta
	versions      int
	// Requests counts what was sent.
	Requests int
}

// NewServer makes a Server without objects.
func NewServer() *Server {
	return &Server{objects: map[string]managedfieldstest.TestFieldManager{}, identities: map[string]metav1.ObjectMeta{}, versions: 100}
}

// Scheme implements client.Client.
func (s *Server) Scheme() *runtime.Scheme { return clientgoscheme.Scheme }

// Get implements client.Reader.
func (s *Server) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	name, _, err := s.nameOf(object, key)
	if err != nil {
		return err
	}
	if _, ok := s.objects[name]; !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, key.Name)
	}
	return s.read(name, object)
}

// Patch implements client.Writer for Server-Side Apply.
func (s *Server) Patch(_ context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	s.Requests++
	options := (&client.PatchOptions{}).ApplyOptions(opts)
	raw, err := patch.Data(object)
	if err != nil {
		return err
	}
	if patch.Type() != types.ApplyPatchType {
		return fmt.Errorf("a %s patch", patch.Type())
	}
	tree, err := decode(raw)
	if err != nil {
		return err
	}
	name, gvk, err := s.nameOf(object, client.ObjectKeyFromObject(object))
	if err != nil {
		return err
	}
	if err := s.precondition(name, gvk, tree); err != nil {
		return err
	}
	force := options.Force != nil && *options.Force
	return s.change(name, object, func(fields managedfieldstest.TestFieldManager) error {
		return fields.Apply(&unstructured.Unstructured{Object: tree}, options.FieldManager, force)
	})
}

// Update implements client.Writer.
func (s *Server) Update(_ context.Context, object client.Object, opts ...client.UpdateOption) error {
	options := (&client.UpdateOptions{}).ApplyOptions(opts)
	name, gvk, err := s.nameOf(object, client.ObjectKeyFromObject(object))
	if err != nil {
		return err
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	tree["apiVersion"], tree["kind"] = gvk.GroupVersion().String(), gvk.Kind
	return s.change(name, object, func(fields managedfieldstest.TestFieldManager) error {
		return fields.Update(&unstructured.Unstructured{Object: tree}, options.FieldManager)
	})
}

// precondition checks and strips what binds a request to one object.
func (s *Server) precondition(name string, gvk schema.GroupVersionKind, tree map[string]any) error {
	body := unstructured.Unstructured{Object: tree}
	is, exists := s.identities[name]
	conflict := apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, body.GetName(), fmt.Errorf("it is another"))
	if uid := body.GetUID(); uid != "" && uid != is.UID {
		return conflict
	}
	if version := body.GetResourceVersion(); exists && version != "" && version != is.ResourceVersion {
		return conflict
	}
	unstructured.RemoveNestedField(tree, "metadata", "uid")
	unstructured.RemoveNestedField(tree, "metadata", "resourceVersion")
	if !exists {
		s.objects[name] = managedfieldstest.NewTestFieldManager(applyconfigurations.NewTypeConverter(clientgoscheme.Scheme), gvk)
		s.identities[name] = metav1.ObjectMeta{UID: types.UID("uid-" + strconv.Itoa(len(s.identities)+1))}
	}
	return nil
}

// change does something to an object, moves its version if that made a difference, and answers it.
func (s *Server) change(name string, answer client.Object, do func(managedfieldstest.TestFieldManager) error) error {
	fields := s.objects[name]
	before := fields.Live()
	if err := do(fields); err != nil {
		return err
	}
	if is := s.identities[name]; is.ResourceVersion == "" || !equality.Semantic.DeepEqual(before, fields.Live()) {
		s.versions++
		is.ResourceVersion = strconv.Itoa(s.versions)
		s.identities[name] = is
	}
	return s.read(name, answer)
}

func (s *Server) read(name string, into client.Object) error {
	live, _ := s.objects[name].Live().(*unstructured.Unstructured)
	live.SetUID(s.identities[name].UID)
	live.SetResourceVersion(s.identities[name].ResourceVersion)
	return runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, into)
}

func (s *Server) nameOf(object client.Object, key client.ObjectKey) (string, schema.GroupVersionKind, error) {
	kinds, _, err := s.Scheme().ObjectKinds(object)
	if err != nil {
		return "", schema.GroupVersionKind{}, err
	}
	return kinds[0].Kind + "/" + key.String(), kinds[0], nil
}

// ownedBy makes an owner with a UID.
func ownedBy(uid types.UID) *metav1.OwnerReference {
	owner := ControllerReference(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: uid}}, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return &owner
}
