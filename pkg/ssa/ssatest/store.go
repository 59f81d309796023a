package ssatest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// objects are what is stored. A stored object is never changed, only replaced.
type objects map[objectKey]*unstructured.Unstructured

type objectKey struct {
	kind schema.GroupKind
	client.ObjectKey
}

func keyOf(kind schema.GroupVersionKind, key client.ObjectKey) objectKey {
	return objectKey{kind.GroupKind(), key}
}

// compare orders keys by kind, and within a kind as etcd does.
func (k objectKey) compare(other objectKey) int {
	if order := cmp.Or(strings.Compare(k.kind.Kind, other.kind.Kind), strings.Compare(k.kind.Group, other.kind.Group)); order != 0 {
		return order
	}
	if k.Namespace != other.Namespace {
		return strings.Compare(k.Namespace+"/", other.Namespace+"/")
	}
	return strings.Compare(k.Name, other.Name)
}

// sorted are the keys in a stable order.
func (o objects) sorted() []objectKey { return slices.SortedFunc(maps.Keys(o), objectKey.compare) }

// in are the keys of a kind in a namespace, or in all if it is empty, in a stable order.
func (o objects) in(kind schema.GroupKind, namespace string) []objectKey {
	var keys []objectKey
	for key := range o {
		if key.kind == kind && (namespace == "" || key.Namespace == namespace) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, objectKey.compare)
	return keys
}

func (s *Server) encode(object client.Object, kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	encoded := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(tree)}
	encoded.SetGroupVersionKind(kind)
	return encoded, nil
}

// decode reads a stored object, or the answer to a dry run. Most stored objects are read many times, and copying takes
// a fraction of the time of converting.
func (s *Server) decode(stored *unstructured.Unstructured, into client.Object) error {
	target := reflect.ValueOf(into).Elem()
	if decoded, ok := s.decoded[stored]; ok && reflect.TypeOf(decoded) == reflect.TypeOf(into) {
		target.Set(reflect.ValueOf(decoded.DeepCopyObject()).Elem())
		return nil
	}
	target.SetZero()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.DeepCopy().Object, into); err != nil {
		return err
	}
	if s.objects[keyOf(stored.GroupVersionKind(), client.ObjectKeyFromObject(stored))] == stored {
		s.decoded[stored] = into.DeepCopyObject()
	}
	return nil
}

// apply is a Server-Side Apply of a document.
func (s *Server) apply(call Call, live *unstructured.Unstructured, raw []byte, options *client.PatchOptions) (*unstructured.Unstructured, error) {
	configuration := &unstructured.Unstructured{}
	// Numbers are integers where they can be, as in what is stored.
	if err := json.Unmarshal(raw, &configuration.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := checkPreconditions(call, live, configuration); err != nil {
		return nil, err
	}
	for _, name := range []string{"uid", "resourceVersion"} {
		unstructured.RemoveNestedField(configuration.Object, "metadata", name)
	}
	before := live
	if live == nil {
		before = blank(call)
	}
	merged, err := s.fieldManager(call).Apply(before.DeepCopy(), configuration, options.FieldManager, options.Force != nil && *options.Force)
	if err != nil {
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			return nil, err
		}
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: err.Error()}}
	}
	return s.keep(call, live, as(merged))
}

// change is any other write.
func (s *Server) change(call Call, live, updated *unstructured.Unstructured, manager string) (*unstructured.Unstructured, error) {
	if err := checkPreconditions(call, live, updated); err != nil {
		return nil, err
	}
	before := live
	if live == nil {
		before = blank(call)
	}
	kept, err := s.keep(call, live, updated)
	if err != nil {
		return nil, err
	}
	managed, err := s.fieldManager(call).Update(before.DeepCopy(), kept, cmp.Or(manager, "ssatest"))
	if err != nil {
		return nil, err
	}
	return as(managed), nil
}

// checkPreconditions compares the UID and the resourceVersion that a write carries with those of the
// live object. A write that creates ignores the resourceVersion.
func checkPreconditions(call Call, live, written *unstructured.Unstructured) error {
	var uid types.UID
	if live != nil {
		uid = live.GetUID()
		if v := written.GetResourceVersion(); v != "" && v != live.GetResourceVersion() {
			return apierrors.NewConflict(call.resource(), call.Key.Name, errors.New("the object has been modified"))
		}
	}
	switch want := written.GetUID(); {
	case want == "" || want == uid || live == nil && call.Verb == "create":
		return nil
	case live != nil && call.Verb == "apply":
		return apierrors.NewInvalid(call.Kind.GroupKind(), call.Key.Name, field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), want, "field is immutable")})
	default:
		return apierrors.NewConflict(call.resource(), call.Key.Name, fmt.Errorf("the UID in the precondition is %s, and that of the object is %q", want, uid))
	}
}

// keep gives a write only what its endpoint may change: the status endpoint the status, and the main
// one everything else but for what the server sets.
func (s *Server) keep(call Call, live, written *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	entries := written.GetManagedFields()
	if call.Subresource == "status" {
		kept := live.DeepCopy()
		copyField(written, kept, "status")
		kept.SetManagedFields(entries)
		return kept, nil
	}
	system := live
	if live == nil {
		system = blank(call)
	}
	for _, name := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		copyField(system, written, "metadata", name)
	}
	if s.hasStatus(call.Kind) {
		copyField(system, written, "status")
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		for _, finalizer := range written.GetFinalizers() {
			if !slices.Contains(live.GetFinalizers(), finalizer) {
				forbidden := field.Forbidden(field.NewPath("metadata", "finalizers"), "no new finalizers can be added if the object is being deleted")
				return nil, apierrors.NewInvalid(call.Kind.GroupKind(), call.Key.Name, field.ErrorList{forbidden})
			}
		}
	}
	return written, nil
}

func copyField(from, to *unstructured.Unstructured, path ...string) {
	if v, ok, _ := unstructured.NestedFieldCopy(from.Object, path...); ok {
		_ = unstructured.SetNestedField(to.Object, v, path...)
		return
	}
	unstructured.RemoveNestedField(to.Object, path...)
}

func blank(call Call) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(call.Kind)
	object.SetName(call.Key.Name)
	object.SetNamespace(call.Key.Namespace)
	return object
}

// store replaces live by written, says what that was, and returns the object as it is answered.
func (s *Server) store(key objectKey, live, written *unstructured.Unstructured, dryRun bool) (string, *unstructured.Unstructured) {
	if live != nil && (live == written || reflect.DeepEqual(timeless(live), timeless(written))) {
		return "unchanged", live
	}
	outcome := "update"
	if live == nil {
		outcome = "create"
		written.SetCreationTimestamp(metav1.NewTime(s.options.Clock.Now()))
		written.SetUID(types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", s.version)))
		if s.hasStatus(written.GroupVersionKind()) {
			written.SetGeneration(1)
		}
	} else if written.GetGeneration() > 0 && !reflect.DeepEqual(substance(live), substance(written)) {
		written.SetGeneration(written.GetGeneration() + 1)
	}
	s.stamp(live, written)
	if dryRun {
		return outcome, written
	}
	s.version++
	written.SetResourceVersion(strconv.Itoa(s.version))
	delete(s.decoded, live)
	s.objects[key] = written
	s.finish(key)
	return outcome, written
}

// stamp gives the entries of managedFields that have changed the time of the clock.
func (s *Server) stamp(live, written *unstructured.Unstructured) {
	entries, now := written.GetManagedFields(), metav1.NewTime(s.options.Clock.Now())
	var before []metav1.ManagedFieldsEntry
	if live != nil {
		before = live.GetManagedFields()
	}
	for i := range entries {
		isOld := slices.ContainsFunc(before, func(e metav1.ManagedFieldsEntry) bool { return e.Time.Equal(entries[i].Time) })
		if entries[i].Time != nil && !isOld {
			entries[i].Time = &now
		}
	}
	written.SetManagedFields(entries)
}

// finish removes an object that is being deleted and that nothing holds.
func (s *Server) finish(key objectKey) {
	object := s.objects[key]
	if object.GetDeletionTimestamp() == nil || len(object.GetFinalizers()) > 0 {
		return
	}
	if s.holds == nil || !s.holds(object.DeepCopy()) {
		delete(s.decoded, object)
		delete(s.objects, key)
	}
}

// timeless is the object without what an apply that changes nothing changes. It shares the rest with the object.
func timeless(object *unstructured.Unstructured) map[string]any {
	tree := maps.Clone(object.Object)
	metadata, _ := tree["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	if len(entries) == 0 {
		return tree
	}
	metadata, entries = maps.Clone(metadata), slices.Clone(entries)
	for i := range entries {
		if entry, ok := entries[i].(map[string]any); ok {
			entry = maps.Clone(entry)
			delete(entry, "time")
			entries[i] = entry
		}
	}
	metadata["managedFields"] = entries
	tree["metadata"] = metadata
	return tree
}

// substance is what the generation counts.
func substance(object *unstructured.Unstructured) map[string]any {
	tree := maps.Clone(object.Object)
	delete(tree, "metadata")
	delete(tree, "status")
	return tree
}

func (s *Server) hasStatus(kind schema.GroupVersionKind) bool {
	object, err := s.scheme.New(kind)
	return err == nil && reflect.ValueOf(object).Elem().FieldByName("Status").IsValid()
}

func as(object runtime.Object) *unstructured.Unstructured {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		panic(fmt.Sprintf("the field manager returned a %T", object))
	}
	return u
}

type managerKey struct {
	kind        schema.GroupVersionKind
	subresource string
}

// fieldManager is the one of the API server, for a kind and an endpoint of it.
func (s *Server) fieldManager(call Call) *managedfields.FieldManager {
	key := managerKey{call.Kind, call.Subresource}
	if m, ok := s.managers[key]; ok {
		return m
	}
	version := fieldpath.APIVersion(call.Kind.GroupVersion().String())
	reset := map[fieldpath.APIVersion]fieldpath.Filter{}
	switch {
	case call.Subresource == "status":
		reset[version] = fieldpath.NewIncludeMatcherFilter(fieldpath.MakePrefixMatcherOrDie("status"))
	case s.hasStatus(call.Kind):
		reset[version] = fieldpath.NewExcludeSetFilter(fieldpath.NewSet(fieldpath.MakePathOrDie("status")))
	}
	m, err := managedfields.NewDefaultFieldManager(s.converter(call.Kind), identical{}, identical{}, identical{}, call.Kind, call.Kind.GroupVersion(), call.Subresource, reset)
	if err != nil {
		panic(err)
	}
	s.managers[key] = m
	return m
}

// identical converts and defaults by leaving everything as it is.
type identical struct{}

// Convert implements runtime.ObjectConvertor.
func (identical) Convert(_, _, _ any) error { return nil }

// ConvertToVersion implements runtime.ObjectConvertor.
func (identical) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (identical) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// Default implements runtime.ObjectDefaulter.
func (identical) Default(runtime.Object) {}

// New implements runtime.ObjectCreater.
func (identical) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	return blank(Call{Kind: kind}), nil
}
