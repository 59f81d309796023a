package ssa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// RecordAnnotationPrefix followed by the field manager is the annotation that records what was
// applied last. Each manager has its own, so that two appliers can share an object.
const RecordAnnotationPrefix = "ssa.fixpoint.dev/"

const statusSubresource = "status"

// attempts bounds how often one call decides again after the object changed.
const attempts = 3

// Options configure an [Applier].
type Options struct {
	// Client writes. Its Scheme must know the Go types of everything that is applied.
	Client client.Client
	// Reader reads past the cache, after a write met an object that the cache did not show. Client is used without it.
	Reader client.Reader
	// FieldManager is the stable name under which everything is applied. It is also the name of an annotation, so it has
	// at most 53 letters, digits, '-', '_' and '.'.
	FieldManager string
	// TypeConverters know the schemas of kinds: the functions NewTypeConverter that are generated beside the apply
	// configurations. They are called, with the scheme of the client, when a schema is first needed, and asked in turn.
	// Kinds of k8s.io/api need none: the schemas of client-go are loaded for those that no converter knows.
	TypeConverters []func(*runtime.Scheme) managedfields.TypeConverter
	// FormerManagers are names under which earlier versions of the same operator wrote by Update.
	// The first write transfers all their fields to FieldManager, and removes those that the configuration lacks: do not list
	// a name that several controllers share. Fields of another API version are not transferred. FieldManager is always one
	// of them.
	FormerManagers []string
}

// Applier brings objects to a desired state by Server-Side Apply under one field manager.
// It is safe for concurrent use.
type Applier struct {
	client  client.Client
	reader  client.Reader
	manager string
	schemas schemas
	former  sets.Set[string]
	answers *answers
	dryRun  bool
}

// New creates an Applier, or names the option that is missing.
func New(o Options) (*Applier, error) {
	if o.Client == nil {
		return nil, errors.New("ssa.Options.Client is nil: set it to the manager's client")
	}
	longest := 63 - len(migrationSuffix)
	if len(o.FieldManager) > longest || len(content.IsLabelKey(RecordAnnotationPrefix+o.FieldManager)) > 0 {
		return nil, fmt.Errorf("ssa.Options.FieldManager %q cannot be the name of an annotation: "+
			"set a stable name, such as the controller's, with at most %d letters, digits, '-', '_' and '.'", o.FieldManager, longest)
	}
	a := &Applier{
		client:  o.Client,
		reader:  o.Reader,
		manager: o.FieldManager,
		schemas: newSchemas(o.Client.Scheme(), o.TypeConverters),
		former:  sets.New(o.FormerManagers...).Insert(o.FieldManager),
		answers: &answers{of: map[digest]answer{}},
	}
	if a.reader == nil {
		a.reader = o.Client
	}
	return a, nil
}

// DryRun returns an Applier that decides in the same way and sends dry runs, so that results include defaulting,
// admission and refusals. Where other managers must lose fields first, the result is that of the decision.
func (a *Applier) DryRun() *Applier {
	dry := *a
	dry.dryRun, dry.client = true, client.NewDryRunClient(a.client)
	return &dry
}

// Apply decides and executes. Where the write meets an object that is not the one decided on, it
// reads past the cache and decides again, at most three times. It fails with an [*Error], unless
// the request itself is malformed.
func (a *Applier) Apply(ctx context.Context, req Request) (Result, error) {
	for attempt := 1; ; attempt++ {
		d, err := a.Decide(req)
		var result Result
		if err == nil {
			result, err = a.Execute(ctx, d)
		}
		if !IsStale(err) || attempt == attempts {
			return result, err
		}
		id, _, _ := identityOf(req.Desired) // Decide has checked it
		if req.Live, err = a.readUncached(ctx, id); err != nil {
			return Result{}, err
		}
	}
}

// target is a configuration with all that follows from it alone.
type target struct {
	id          identity
	subresource string
	manager     string
	raw         []byte
	owner       types.UID
	// answer is what the API server is expected to record: its last answer to this configuration, or what the schema gives.
	answer

	// What [Applier.complete] computes: the configuration as decoded JSON, and the fields by the schema. The digests
	// suffice to find that nothing has changed.
	tree         map[string]any
	schemaFields string
	// deduced is true if the API server may record other fields, because no schema is known for the kind.
	deduced bool
}

// expect sets the fields to those that the API server has recorded.
func (t *target) expect(recorded string) {
	t.fields, t.fieldsDigest = recorded, digestOf([]byte(recorded))
}

// answerKey identifies what is applied: an object, or its status.
func (t target) answerKey() digest {
	return digestOf([]byte(strings.Join([]string{t.id.apiVersion(), t.id.gvk.Kind, t.id.key.Namespace, t.id.key.Name, t.subresource}, "\x00")))
}

func (t target) recordPath() fieldPath {
	return makeFieldPath("metadata", "annotations", RecordAnnotationPrefix+t.manager)
}

// entry is what the API server records for an apply of the target, without the fields.
func (t target) entry() metav1.ManagedFieldsEntry {
	return applyEntry(t.manager, t.id.apiVersion(), t.subresource)
}

func (t target) isRecordedIn(entry *metav1.ManagedFieldsEntry) bool {
	return entry != nil && entry.APIVersion == t.id.apiVersion() && digestOf(entry.FieldsV1.GetRawBytes()) == t.fieldsDigest
}

// body is the document to apply. All but a status has the record in its annotation.
func (t target) body(record string) *unstructured.Unstructured {
	body := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(t.tree)}
	if t.subresource == "" {
		annotations := map[string]string{}
		maps.Copy(annotations, body.GetAnnotations())
		annotations[RecordAnnotationPrefix+t.manager] = record
		body.SetAnnotations(annotations)
	}
	return body
}

// prepare computes what follows from the configuration alone.
func (a *Applier) prepare(desired Configuration, owner *metav1.OwnerReference, subresource string) (target, error) {
	id, meta, err := identityOf(desired)
	if err != nil {
		return target{}, err
	}
	t := target{id: id, manager: a.manager, subresource: subresource}
	if owner != nil {
		if err := setController(meta, *owner); err != nil {
			return target{}, fmt.Errorf("applying %s: %w", id, err)
		}
		t.owner = owner.UID
	}
	if t.raw, err = json.Marshal(desired); err != nil {
		return target{}, fmt.Errorf("serializing the apply configuration of %s: %w", id, err)
	}
	t.config = digestOf(t.raw)
	if known := a.answers.get(t.answerKey()); known.config == t.config {
		t.answer = known
		return t, nil
	}
	err = a.complete(&t)
	return t, err
}

// complete decodes the configuration, and computes the fields that the API server has not answered.
func (a *Applier) complete(t *target) (err error) {
	if t.tree != nil {
		return nil
	}
	if t.tree, err = decode(t.raw); err != nil {
		return err
	}
	if _, ok := t.tree[statusSubresource]; ok && t.subresource == "" {
		return fmt.Errorf("applying %s: the configuration holds a status, which the API server ignores here: apply it with ApplyStatus", t.id)
	}
	if t.fields != "" {
		return nil
	}
	if t.schemaFields, t.deduced, err = a.schemas.fieldsOf(t.body("").Object); err != nil {
		return fmt.Errorf("applying %s: %w", t.id, err)
	}
	t.expect(t.schemaFields)
	return nil
}

// answers are those to the last applies, by answerKey. There is one for each object and each status, so they are kept
// small. What they do not hold is found from the object, or by one apply that changes nothing.
type answers struct {
	mu sync.Mutex
	of map[digest]answer
}

const maxAnswers = 1 << 17

func (a *answers) get(key digest) answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[key]
}

// add drops any other answer if there are too many.
func (a *answers) add(key digest, added answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[key] = added
	for other := range a.of {
		if len(a.of) <= maxAnswers {
			return
		}
		delete(a.of, other)
	}
}

// answer is what the API server answered to the last apply. It makes the quiet check cheap.
type answer struct {
	config digest
	// fieldsDigest is that of the applier's entry as the server recorded it for config, and fields, in the cache, is
	// the entry itself if the schema gives another one.
	fieldsDigest digest
	fields       string
	version      digest // of the object that was found unchanged under config: only a status is not compared again
}

// versionOf identifies one version of one object.
func versionOf(live client.Object) digest {
	return digestOf([]byte(string(live.GetUID()) + "/" + live.GetResourceVersion()))
}

// remember caches the fields of the target as those that the API server records for it.
func (a *Applier) remember(t target, live client.Object) {
	if a.dryRun {
		return
	}
	if t.fields == t.schemaFields {
		t.fields = ""
	}
	t.version = versionOf(live)
	a.answers.add(t.answerKey(), t.answer)
}

// newObject is an empty object of the Go type that the scheme has for the kind.
func (a *Applier) newObject(id identity) (client.Object, error) {
	created, _ := a.client.Scheme().New(id.gvk)
	object, ok := created.(client.Object)
	if !ok {
		return nil, fmt.Errorf("applying %s: the client's scheme has no Go type of an object for %s: call the package's AddToScheme", id, id.gvk)
	}
	object.SetName(id.key.Name)
	object.SetNamespace(id.key.Namespace)
	return object, nil
}

// readUncached reads past the cache; nil means that the object does not exist.
func (a *Applier) readUncached(ctx context.Context, id identity) (client.Object, error) {
	live, err := a.newObject(id)
	if err != nil {
		return nil, err
	}
	if err := a.reader.Get(ctx, id.key, live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s: %w", id, classify(id, err))
	}
	return live, nil
}

func (a *Applier) identify(live client.Object) (identity, error) {
	gvk, err := apiutil.GVKForObject(live, a.client.Scheme())
	if err != nil {
		return identity{}, fmt.Errorf("finding the kind of %T: %w", live, err)
	}
	return identity{gvk: gvk, key: client.ObjectKeyFromObject(live)}, nil
}
