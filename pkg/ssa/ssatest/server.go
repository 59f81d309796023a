// Package ssatest is an in-memory API server for tests of operators.
//
// A [Server] is a client.Client. It keeps managed fields with the field manager of the real API
// server, so Server-Side Apply, conflicts and drift are exact. It has UIDs, resourceVersions,
// generations, status subresources, finalizers, deletion with preconditions and propagation, and
// dry runs, for every kind of its scheme:
//
//	server := ssatest.NewServer(scheme, ssatest.Options{})
//	applier, err := ssa.New(ssa.Options{Client: server, FieldManager: "shop-operator"})
//
// [Server.Cache] reads as the cache of a manager does: by the indexes that were added with
// [Server.IndexField], and late if it is frozen. [Options.Intercept] sees each request before and
// after it is carried out, and can fail it. [Server.Writes] tells what changed.
//
// It has no defaulting, validation, admission, conversion, watches, or real garbage collector: use
// envtest for what depends on those. Without defaulting, an Update also takes over an atomic list to which its Go type
// adds zero values, such as spec.volumeClaimTemplates of a StatefulSet: patch such an object. A kind whose Go type has a
// field Status has a status subresource; other subresources are not served. It does not know which kinds are
// namespaced: an object without a namespace is cluster-scoped.
package ssatest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4" // the API server's: it replaces fields that do not exist
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Options configure a [Server]. The zero value is valid.
type Options struct {
	// TypeConverters are those of ssa.Options. The schema of a kind without one is deduced: all of its lists are
	// atomic, but for those in metadata and status.conditions.
	TypeConverters []func(*runtime.Scheme) managedfields.TypeConverter
	// Clock gives the times in metadata. The default is the system's.
	Clock clock.PassiveClock
	// GarbageCollection runs [Server.CollectGarbage] after each write. Without it nobody deletes
	// dependents, and an object that is deleted in the foreground stays, as under envtest.
	GarbageCollection bool
	// Intercept is called before and after each request, including reads from a Cache. An error
	// before it fails the request; one after it loses the answer to a request that was carried out.
	// The hook may use the Server.
	Intercept func(Call) error
}

// Call is one request.
type Call struct {
	// Verb is get, list, create, update, patch, apply or delete.
	Verb string
	// Kind and Key are what the request is about. A list has no name.
	Kind schema.GroupVersionKind
	Key  client.ObjectKey
	// Subresource is empty or status.
	Subresource string
	// Cached is true for reads from a Cache.
	Cached bool
	// DryRun is true for writes that are not carried out.
	DryRun bool
	// Done is true if the request was carried out.
	Done bool
}

// String reads like "apply Deployment web" or "update AppService web/status".
func (c Call) String() string { return c.Verb + " " + c.what() }

func (c Call) what() string {
	what := strings.TrimSpace(c.Kind.Kind + " " + c.Key.Name)
	if c.Subresource != "" {
		what += "/" + c.Subresource
	}
	return what
}

func (c Call) resource() schema.GroupResource {
	resource, _ := meta.UnsafeGuessKindToResource(c.Kind)
	return resource.GroupResource()
}

// Server is an API server in memory. It is safe for concurrent use.
type Server struct {
	client.Client // what is not implemented below panics

	scheme  *runtime.Scheme
	options Options

	mu      sync.Mutex
	objects objects
	// decoded are stored objects as the Go type as which they were first read.
	decoded  map[*unstructured.Unstructured]runtime.Object
	managers map[managerKey]*managedfields.FieldManager
	indexes  map[indexKey]client.IndexerFunc
	holds    func(client.Object) bool
	version  int
	writes   []string
}

var _ interface {
	client.Client
	client.FieldIndexer
} = &Server{}

// NewServer creates a Server without objects.
func NewServer(scheme *runtime.Scheme, options Options) *Server {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Server{
		scheme: scheme, options: options, version: 100,
		objects: objects{}, decoded: map[*unstructured.Unstructured]runtime.Object{}, managers: map[managerKey]*managedfields.FieldManager{}, indexes: map[indexKey]client.IndexerFunc{},
	}
}

// Writes returns what was written since the last call, such as "create Deployment web",
// "update AppService web/status" or "delete ConfigMap web". An apply counts by what it did: create,
// update, or unchanged.
func (s *Server) Writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := s.writes
	s.writes = nil
	return writes
}

// Get implements client.Reader.
func (s *Server) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return s.get(key, into, false, func() objects { return s.objects })
}

// List implements client.Reader.
func (s *Server) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return s.list(into, false, func() objects { return s.objects }, opts)
}

// Create implements client.Writer.
func (s *Server) Create(_ context.Context, object client.Object, opts ...client.CreateOption) error {
	options := (&client.CreateOptions{}).ApplyOptions(opts)
	return s.write("create", object, "", options.DryRun, func(call Call, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if live != nil {
			return nil, apierrors.NewAlreadyExists(call.resource(), call.Key.Name)
		}
		created, err := s.encode(object, call.Kind)
		if err != nil {
			return nil, err
		}
		return s.change(call, nil, created, options.FieldManager)
	})
}

// Update implements client.Writer.
func (s *Server) Update(_ context.Context, object client.Object, opts ...client.UpdateOption) error {
	return s.update(object, "", (&client.UpdateOptions{}).ApplyOptions(opts))
}

func (s *Server) update(object client.Object, subresource string, options *client.UpdateOptions) error {
	return s.write("update", object, subresource, options.DryRun, func(call Call, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		updated, err := s.encode(object, call.Kind)
		if err != nil {
			return nil, err
		}
		return s.change(call, live, updated, options.FieldManager)
	})
}

// Patch implements client.Writer for Server-Side Apply, JSON patches and merge patches.
func (s *Server) Patch(_ context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return s.patch(object, "", patch, (&client.PatchOptions{}).ApplyOptions(opts))
}

func (s *Server) patch(object client.Object, subresource string, patch client.Patch, options *client.PatchOptions) error {
	raw, err := patch.Data(object)
	if err != nil {
		return err
	}
	verb := "patch"
	if patch.Type() == types.ApplyPatchType {
		verb = "apply"
	}
	return s.write(verb, object, subresource, options.DryRun, func(call Call, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if verb == "apply" {
			return s.apply(call, live, raw, options)
		}
		patched, err := patchDocument(live, patch.Type(), raw)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return s.change(call, live, patched, options.FieldManager)
	})
}

func patchDocument(live *unstructured.Unstructured, kind types.PatchType, patch []byte) (*unstructured.Unstructured, error) {
	document, err := json.Marshal(live)
	if err != nil {
		return nil, err
	}
	switch kind {
	case types.JSONPatchType:
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		if document, err = operations.Apply(document); err != nil {
			return nil, err
		}
	case types.MergePatchType:
		if document, err = jsonpatch.MergePatch(document, patch); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("ssatest does not serve patches of type %s", kind)
	}
	patched := &unstructured.Unstructured{}
	return patched, patched.UnmarshalJSON(document)
}

// Delete implements client.Writer.
func (s *Server) Delete(_ context.Context, object client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	target, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is not an object with metadata", object)
	}
	return s.write("delete", target, "", options.DryRun, func(call Call, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		if pre := options.Preconditions; pre != nil {
			if pre.UID != nil && *pre.UID != live.GetUID() || pre.ResourceVersion != nil && *pre.ResourceVersion != live.GetResourceVersion() {
				return nil, apierrors.NewConflict(call.resource(), call.Key.Name, errors.New("the precondition does not hold"))
			}
		}
		propagation := metav1.DeletePropagationBackground
		if options.PropagationPolicy != nil {
			propagation = *options.PropagationPolicy
		}
		return s.terminating(live, propagation), nil
	})
}

// write carries out a request that turns the live object, nil if it does not exist, into another.
func (s *Server) write(verb string, object client.Object, subresource string, dryRun []string, to func(Call, *unstructured.Unstructured) (*unstructured.Unstructured, error)) error {
	kind, err := apiutil.GVKForObject(object, s.scheme)
	if err != nil {
		return err
	}
	call := Call{Verb: verb, Kind: kind, Key: client.ObjectKeyFromObject(object), Subresource: subresource, DryRun: len(dryRun) > 0}
	return s.carryOut(call, func() error {
		key := keyOf(kind, call.Key)
		live := s.objects[key]
		if live == nil && verb != "create" && (verb != "apply" || subresource != "") {
			return apierrors.NewNotFound(call.resource(), call.Key.Name)
		}
		written, err := to(call, live)
		if err != nil {
			return err
		}
		outcome, written := s.store(key, live, written, call.DryRun)
		if !call.DryRun {
			if verb == "patch" || verb == "delete" {
				outcome = verb
			}
			s.writes = append(s.writes, outcome+" "+call.what())
			if s.options.GarbageCollection {
				s.collectGarbage()
			}
		}
		return s.decode(written, object)
	})
}

func (s *Server) carryOut(call Call, execute func() error) error {
	if err := s.intercept(call); err != nil {
		return err
	}
	s.mu.Lock()
	err := execute()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	call.Done = true
	return s.intercept(call)
}

func (s *Server) intercept(call Call) error {
	if s.options.Intercept == nil {
		return nil
	}
	return s.options.Intercept(call)
}

// Scheme implements client.Client.
func (s *Server) Scheme() *runtime.Scheme { return s.scheme }

// Status implements client.Client.
func (s *Server) Status() client.SubResourceWriter { return s.SubResource("status") }

// SubResource implements client.Client for Update and Patch of the status.
func (s *Server) SubResource(name string) client.SubResourceClient {
	if name != "status" {
		panic("ssatest serves no subresource " + name)
	}
	return status{server: s}
}

type status struct {
	client.SubResourceClient // what is not implemented below panics
	server                   *Server
}

// Update implements client.SubResourceWriter.
func (r status) Update(_ context.Context, object client.Object, opts ...client.SubResourceUpdateOption) error {
	return r.server.update(object, "status", &(&client.SubResourceUpdateOptions{}).ApplyOptions(opts).UpdateOptions)
}

// Patch implements client.SubResourceWriter.
func (r status) Patch(_ context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return r.server.patch(object, "status", patch, &(&client.SubResourcePatchOptions{}).ApplyOptions(opts).PatchOptions)
}
