package ssa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
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
	// Reader reads past the cache, after a write met an object that the cache did not show.
	// Optional; Client is used without it.
	Reader client.Reader
	// FieldManager is the stable name under which everything is applied.
	FieldManager string
	// TypeConverters know the schemas of kinds outside k8s.io/api; they are generated beside the
	// apply configurations. A kind without one may cost one more apply after a restart.
	TypeConverters []managedfields.TypeConverter
	// FormerManagers are names under which earlier versions of the same operator wrote by Update.
	// The first write transfers their fields to FieldManager. FieldManager is always one of them.
	FormerManagers []string
	// Metrics counts outcomes. Optional.
	Metrics *Metrics
}

// Applier brings objects to a desired state by Server-Side Apply under one field manager.
// It is safe for concurrent use.
type Applier struct {
	client    client.Client
	reader    client.Reader
	manager   string
	recordKey string
	schemas   schemas
	former    sets.Set[string]
	metrics   *Metrics
	cache     *applyCache
	dryRun    bool
}

// New creates an Applier, or names the option that is missing.
func New(o Options) (*Applier, error) {
	if o.Client == nil {
		return nil, errors.New("ssa.Options.Client is nil: set it to the manager's client")
	}
	if o.FieldManager == "" {
		return nil, errors.New("ssa.Options.FieldManager is empty: set a stable name, such as the controller's")
	}
	if longest := 63 - len(migrationSuffix); len(o.FieldManager) > longest {
		return nil, fmt.Errorf("ssa.Options.FieldManager %q is longer than %d characters: it is also the name of an annotation", o.FieldManager, longest)
	}
	reader := o.Reader
	if reader == nil {
		reader = o.Client
	}
	return &Applier{
		client:    o.Client,
		reader:    reader,
		manager:   o.FieldManager,
		recordKey: RecordAnnotationPrefix + o.FieldManager,
		schemas:   append(schemas{applyconfigurations.NewTypeConverter(clientgoscheme.Scheme)}, o.TypeConverters...),
		former:    sets.New(o.FormerManagers...).Insert(o.FieldManager),
		metrics:   o.Metrics,
		cache:     newApplyCache(),
	}, nil
}

// DryRun returns an Applier that decides in the same way and changes nothing: it sends what it
// sends as a dry run, so that results include defaulting, admission and refusals.
func (a *Applier) DryRun() *Applier {
	dry := *a
	dry.dryRun = true
	dry.metrics = nil
	return &dry
}

// FieldManager is the name under which the Applier writes.
func (a *Applier) FieldManager() string { return a.manager }

// Apply decides and executes. Where the write meets an object that is not the one decided on, it
// reads past the cache and decides again, at most three times. It fails with an [*Error], unless
// the request itself is malformed.
func (a *Applier) Apply(ctx context.Context, req Request) (Result, error) {
	for attempt := 1; ; attempt++ {
		d, err := a.Decide(req)
		if err != nil {
			return Result{}, err
		}
		result, err := a.Execute(ctx, d)
		if !IsStale(err) || attempt == attempts {
			return result, err
		}
		if req.Live, err = a.readUncached(ctx, d.evidence.target.id); err != nil {
			return Result{}, err
		}
	}
}

// prepare computes what follows from the request's configuration alone.
func (a *Applier) prepare(req Request) (target, error) {
	id, meta, err := identityOf(req.Desired)
	if err != nil {
		return target{}, err
	}
	t := target{id: id, desired: req.Desired, manager: a.manager, recordKey: a.recordKey}
	if req.Owner != nil {
		if req.Owner.UID == "" {
			return target{}, fmt.Errorf("applying %s: the owner has no UID: it must have been read from the API server", id)
		}
		if err := setController(meta, *req.Owner); err != nil {
			return target{}, fmt.Errorf("applying %s: %w", id, err)
		}
		t.owner = req.Owner.UID
	}
	if t.raw, err = json.Marshal(req.Desired); err != nil {
		return target{}, fmt.Errorf("serializing the apply configuration of %s: %w", id, err)
	}
	t.hash = digestOf(t.raw)
	return t, a.expectFields(&t)
}

// expectFields finds the field set that the API server records for the configuration: the one in
// its last answer, or else the one that the schema gives.
func (a *Applier) expectFields(t *target) error {
	if known, ok := a.cache.get(cacheKey{identity: t.id}); ok && known.config == t.hash {
		t.fields, t.cached = known.fields.Value(), true
		return nil
	}
	raw, err := body(t.desired, t.recordKey, "", preconditions{})
	if err != nil {
		return err
	}
	tree, err := decode(raw)
	if err != nil {
		return err
	}
	if _, ok := tree[statusSubresource]; ok {
		return fmt.Errorf("applying %s: the configuration holds a status, which the API server ignores here: apply it with ApplyStatus", t.id)
	}
	if t.fields, err = a.schemas.fieldsV1Of(tree); err != nil {
		return fmt.Errorf("applying %s: %w", t.id, err)
	}
	return nil
}

func (a *Applier) newObject(id identity) (client.Object, error) {
	created, err := a.client.Scheme().New(id.gvk)
	if err != nil {
		if runtime.IsNotRegisteredError(err) {
			return nil, fmt.Errorf("applying %s: its Go type is not in the client's scheme: call the package's AddToScheme", id)
		}
		return nil, fmt.Errorf("applying %s: %w", id, err)
	}
	object, ok := created.(client.Object)
	if !ok {
		return nil, fmt.Errorf("applying %s: %T is not an object with metadata", id, created)
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
