package ssa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unique"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RecordAnnotationPrefix and the field manager make the annotation that holds what was applied
// last. Each manager has its own, so that two appliers can share an object.
const RecordAnnotationPrefix = "ssa.fixpoint.dev/"

// handOverSuffix names the field manager that holds a field which we let go, until its new
// owner writes it.
const handOverSuffix = "-handover"

const statusSubresource = "status"

// attempts bounds how often one call judges anew after the object changed under it.
const attempts = 3

// Options configure an [Applier].
type Options struct {
	// Client writes. Its Scheme must know the Go types of everything that is applied.
	Client client.Client
	// Reader reads past the cache, for the moment after a write met an object that the cache did
	// not show. Optional; Client is used without it.
	Reader client.Reader
	// FieldManager is the stable name under which everything is applied.
	FieldManager string
	// TypeConverters know the schemas of kinds outside k8s.io/api, as generated beside their
	// apply configurations. Kinds without one cost one apply more after a restart.
	TypeConverters []managedfields.TypeConverter
	// FormerManagers are names under which earlier versions of the same operator wrote by Update.
	// What they hold becomes ours at the first write. The field manager's own name is always one.
	FormerManagers []string
	// Metrics counts outcomes. Optional.
	Metrics *Metrics
}

// Applier brings objects to a desired state by Server-Side Apply under one field manager.
// It is safe for concurrent use.
type Applier struct {
	client   client.Client
	reader   client.Reader
	manager  string
	schemas  schemas
	former   sets.Set[string]
	metrics  *Metrics
	memory   *memory
	dryRun   bool
	recordIn string
}

// New makes an Applier, or says which option is missing.
func New(o Options) (*Applier, error) {
	if o.Client == nil {
		return nil, errors.New("ssa.Options.Client is nil: give the manager's client")
	}
	if o.FieldManager == "" {
		return nil, errors.New("ssa.Options.FieldManager is empty: give a stable name, such as the controller's")
	}
	if len(o.FieldManager)+len(migrationSuffix) > 63 {
		return nil, fmt.Errorf("ssa.Options.FieldManager %q is longer than %d characters: it is also the name of an annotation", o.FieldManager, 63-len(migrationSuffix))
	}
	reader := o.Reader
	if reader == nil {
		reader = o.Client
	}
	return &Applier{
		client:   o.Client,
		reader:   reader,
		manager:  o.FieldManager,
		schemas:  append(schemas{applyconfigurations.NewTypeConverter(clientgoscheme.Scheme)}, o.TypeConverters...),
		former:   sets.New(o.FormerManagers...).Insert(o.FieldManager),
		metrics:  o.Metrics,
		memory:   newMemory(),
		recordIn: RecordAnnotationPrefix + o.FieldManager,
	}, nil
}

// DryRun returns an Applier that decides in the same way and changes nothing: what it sends, it
// sends as a dry run, so that admission and defaulting have their say and results are those that
// an apply would give.
func (a *Applier) DryRun() *Applier {
	planner := *a
	planner.dryRun = true
	planner.metrics = nil
	return &planner
}

// FieldManager is the name under which the Applier writes.
func (a *Applier) FieldManager() string { return a.manager }

// Request is one object to bring about.
type Request struct {
	// Desired is what the object should be. With an Owner, its owner references are completed in
	// place; nothing else is changed. It must not hold a status: see [Applier.ApplyStatus].
	Desired Configuration
	// Live is the object as the caller's cache shows it, or nil if it shows none.
	// It is only read.
	Live client.Object
	// Owner is the controller of the object: it is then written with force, and never touched if
	// it belongs to somebody else. Nil is for objects that are shared: those are written without
	// force, and a field that another manager holds is a conflict.
	Owner *metav1.OwnerReference
	// Adoption says what to do with an object that exists and that no controller owns.
	Adoption AdoptionPolicy
	// Drift says what to do about fields of ours that others have changed.
	Drift DriftPolicy
	// HandOver lists fields, such as spec.replicas, that keep their live value when Desired no
	// longer has them. Without it the API server resets a field that its last owner drops.
	HandOver []string
	// Displaces lists fields, such as spec.strategy.rollingUpdate beside the strategy Recreate,
	// that the API server refuses beside Desired. Those that Desired does not have are removed
	// with the next write, whoever set them, which no typed configuration can say by itself. A path
	// into a list, such as spec.ports.name, is of what no two items may have in common: items go
	// that have it in common with one of Desired and are another one.
	Displaces []string
	// Confirm is asked before the first write, once it is clear that there is something to write: what
	// the configuration was made from may have changed since it was read. If it fails, nothing is
	// written, and the call fails with its error. A dry run does not ask. Optional.
	Confirm func(ctx context.Context) error
}

func (a *Applier) confirm(ctx context.Context, req Request) error {
	if req.Confirm == nil || a.dryRun {
		return nil
	}
	return req.Confirm(ctx)
}

// Result is what came of a [Request].
type Result struct {
	Action Action
	// Live is the object after the call, as the API server answered; the Live of the request if
	// nothing was sent. It belongs to the caller.
	Live client.Object
	// Drifts are the fields that others had changed: put back, or under ReportDrift left.
	Drifts []Drift
	// Left is true if the drifts were left as they are, under ReportDrift.
	Left bool
}

// prepared is a request with all that follows from its configuration alone.
type prepared struct {
	id        identity
	desired   Configuration
	manager   string
	raw       []byte
	hash      digest
	owner     types.UID
	recordKey string
	// fields is the FieldsV1 that we expect the server to hold for us; see Applier.expect.
	fields string
	// remembered is true if fields is what the memory holds for this configuration.
	remembered bool
}

func (p prepared) recordPath() fieldPath {
	return makeFieldPath("metadata", "annotations", p.recordKey)
}

func (p prepared) body(pre preconditions) ([]byte, error) {
	packed, err := pack(p.fields)
	if err != nil {
		return nil, err
	}
	return body(p.desired, p.recordKey, record{config: p.hash, owner: p.owner, packed: packed}.String(), pre)
}

// Apply brings the object to what is desired, and sends nothing if the API server would leave it
// as it is. What it fails with is an [*Error], or what Confirm failed with, unless the request itself is
// malformed.
func (a *Applier) Apply(ctx context.Context, req Request) (Result, error) {
	p, err := a.prepare(req)
	if err != nil {
		return Result{}, err
	}
	live := req.Live
	for range attempts {
		var result Result
		result, err = a.attempt(ctx, p, req, live)
		if !IsStale(err) {
			a.metrics.observe(p.id.gvk.Kind, result.Action, err)
			return result, err
		}
		// The object is not what the cache showed: judge what is there.
		fresh, readErr := a.readAfresh(ctx, p.id)
		if readErr != nil {
			return Result{}, readErr
		}
		live = fresh
	}
	a.metrics.observe(p.id.gvk.Kind, ActionNone, err)
	return Result{}, err
}

func (a *Applier) prepare(req Request) (prepared, error) {
	id, err := identityOf(req.Desired)
	if err != nil {
		return prepared{}, err
	}
	meta, err := metadataOf(req.Desired)
	if err != nil {
		return prepared{}, err
	}
	p := prepared{id: id, desired: req.Desired, manager: a.manager, recordKey: a.recordIn}
	if req.Owner != nil {
		if req.Owner.UID == "" {
			return prepared{}, fmt.Errorf("applying %s: the owner has no UID: it must have been read from the API server", id)
		}
		if err := setController(meta, *req.Owner); err != nil {
			return prepared{}, fmt.Errorf("applying %s: %w", id, err)
		}
		p.owner = req.Owner.UID
	}
	if p.raw, err = json.Marshal(req.Desired); err != nil {
		return prepared{}, fmt.Errorf("serialising the apply configuration of %s: %w", id, err)
	}
	p.hash = digestOf(p.raw)
	return p, a.expect(&p)
}

// expect finds the field set that the server records for the configuration: what it answered
// last time, or else what the schema says.
func (a *Applier) expect(p *prepared) error {
	if r, ok := a.memory.get(memoryKey{identity: p.id}); ok && r.config == p.hash {
		p.fields, p.remembered = r.fields.Value(), true
		return nil
	}
	raw, err := body(p.desired, p.recordKey, "", preconditions{})
	if err != nil {
		return err
	}
	set, err := a.schemas.fieldsOf(raw)
	if err != nil {
		return fmt.Errorf("applying %s: %w", p.id, err)
	}
	if set.holds(makeFieldPath(statusSubresource)) {
		return fmt.Errorf("applying %s: the configuration holds a status, which the API server ignores here: apply it with ApplyStatus", p.id)
	}
	fields, err := set.json()
	if err != nil {
		return err
	}
	p.fields = string(fields)
	return nil
}

func (a *Applier) attempt(ctx context.Context, p prepared, req Request, live client.Object) (Result, error) {
	if live == nil {
		if err := a.confirm(ctx, req); err != nil {
			return Result{}, err
		}
		return a.create(ctx, p)
	}
	e := a.gather(p, live)
	if isQuiet(e) {
		if !p.remembered {
			a.rememberFields(p, live, p.fields)
		}
		return Result{Action: ActionNone, Live: live}, nil
	}
	if live.GetDeletionTimestamp() != nil {
		return Result{}, terminating(p.id)
	}
	adopting, err := a.mayWrite(e, req)
	if err != nil {
		return Result{}, err
	}
	verdict, err := judge(e, req.Drift)
	if err != nil {
		return Result{}, fmt.Errorf("judging %s: %w", p.id, err)
	}
	if adopting {
		// What it was until now is somebody else's: nothing has drifted, and what we do not want stays.
		verdict = judgement{action: ActionAdopt, reclaim: emptyFieldSet()}
	}
	verdict.reclaim = reclaimable(req, verdict.reclaim)
	if verdict.action == ActionReport {
		return Result{Action: ActionReport, Live: live, Drifts: verdict.drifts, Left: true}, nil
	}
	if err := a.confirm(ctx, req); err != nil {
		return Result{}, err
	}
	return a.write(ctx, e, req, verdict)
}

// Drifts says what others have changed of an object that is ours, from the live object alone: it
// reads and sends nothing. It is for an object that the caller does not get to apply just now.
func (a *Applier) Drifts(req Request) ([]Drift, error) {
	if req.Live == nil {
		return nil, nil
	}
	p, err := a.prepare(req)
	if err != nil {
		return nil, err
	}
	e := a.gather(p, req.Live)
	if adopting, err := a.mayWrite(e, req); err != nil || adopting {
		return nil, err
	}
	verdict, err := judge(e, ReportDrift)
	if err != nil {
		return nil, fmt.Errorf("judging %s: %w", p.id, err)
	}
	return verdict.drifts, nil
}

func (a *Applier) gather(p prepared, live client.Object) evidence {
	return evidence{
		config: p,
		live:   live,
		entry:  appliedEntry(live, a.manager, ""),
		record: parseRecord(live.GetAnnotations()[a.recordIn]),
	}
}

// mayWrite decides whether the object is ours to write, and whether writing it is adopting it.
func (a *Applier) mayWrite(e evidence, req Request) (adopting bool, err error) {
	if req.Owner == nil {
		return false, nil
	}
	whose, err := belongs(e.config.id, e.live, *req.Owner, e.record, ownsRecord(e))
	if err != nil {
		return false, err
	}
	if whose == unowned && req.Adoption != AdoptIfUnowned {
		return false, notOwned(e.config.id)
	}
	return whose == unowned, nil
}

func (a *Applier) create(ctx context.Context, p prepared) (Result, error) {
	raw, err := p.body(preconditions{resourceVersion: neverExisting})
	if err != nil {
		return Result{}, err
	}
	created, err := a.send(ctx, p.id, raw, true)
	if err != nil {
		return Result{}, err
	}
	a.remember(p, created)
	return Result{Action: ActionCreate, Live: created}, nil
}

func (a *Applier) write(ctx context.Context, e evidence, req Request, verdict judgement) (Result, error) {
	p := e.config
	live, blocked, err := a.makeWay(ctx, e, req, verdict)
	if err != nil {
		return Result{}, err
	}
	if blocked {
		return Result{Action: verdict.action, Live: e.live, Drifts: verdict.drifts, Left: len(verdict.leave) > 0}, nil
	}
	raw, err := p.body(preconditions{uid: live.GetUID()})
	if err != nil {
		return Result{}, err
	}
	if raw, err = without(raw, verdict.leave); err != nil {
		return Result{}, err
	}
	applied, err := a.send(ctx, p.id, raw, req.Owner != nil)
	if err != nil {
		return Result{}, err
	}
	if len(verdict.leave) > 0 {
		// What was left out must go on to show as missing.
		a.rememberFields(p, applied, p.fields)
		return Result{Action: verdict.action, Live: applied, Drifts: verdict.drifts, Left: true}, nil
	}
	a.remember(p, applied)
	if a.changedNothing(e, applied) {
		// The server knew better than our schema what it records: nothing had drifted.
		return Result{Action: ActionNone, Live: applied}, nil
	}
	if hasManager(applied, beforeFirstApply) {
		// The object had no managed fields: what we have just applied has two owners now.
		if applied, err = a.migrate(ctx, p, applied, false, emptyFieldSet()); err != nil {
			return Result{}, err
		}
	}
	return Result{Action: verdict.action, Live: applied, Drifts: verdict.drifts}, nil
}

func (a *Applier) changedNothing(e evidence, applied client.Object) bool {
	if !a.dryRun {
		return applied.GetResourceVersion() == e.live.GetResourceVersion()
	}
	// A dry run is answered with the version that is there, whatever it would have changed.
	entry := appliedEntry(applied, a.manager, "")
	return entry != nil && entry.FieldsV1 != nil && configIsApplied(e) && entryIs(e, entry.FieldsV1.GetRawString())
}

// makeWay puts the ownership of fields in order before an apply, so that the apply finds nothing
// that it would leave behind or run into. A dry run cannot do that: it is blocked where the API
// server would refuse what follows.
func (a *Applier) makeWay(ctx context.Context, e evidence, req Request, verdict judgement) (live client.Object, blocked bool, err error) {
	// What we have never applied to was somebody else's, whoever controls it.
	adopting := req.Owner != nil && (e.entry == nil || verdict.action == ActionAdopt)
	if live, err = a.attribute(e.config.id, e.live, verdict.reclaim); err != nil {
		return nil, false, err
	}
	if live, err = a.migrate(ctx, e.config, live, adopting, verdict.reclaim); err != nil {
		return nil, false, err
	}
	if live, err = a.handOver(ctx, e.config, live, req.HandOver); err != nil {
		return nil, false, err
	}
	inTheWay, err := a.inTheWay(e.config, live, req, verdict)
	if err != nil {
		return nil, false, err
	}
	if a.dryRun {
		return live, !inTheWay.empty(), nil
	}
	live, err = a.seize(ctx, e.config.id, live, inTheWay)
	return live, false, err
}

// reclaimable narrows what we may take back from others because we want it no more: nothing of an
// object that is shared, and no field that is to be handed over, for there they are welcome to it.
func reclaimable(req Request, unwanted fieldSet) fieldSet {
	if req.Owner == nil {
		return emptyFieldSet()
	}
	return unwanted.outside(parseFieldPaths(req.HandOver))
}

// without takes the paths out of a request body.
func without(raw []byte, paths []fieldPath) ([]byte, error) {
	if len(paths) == 0 {
		return raw, nil
	}
	tree, err := decode(raw)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		path.remove(tree)
	}
	return encode(tree)
}

// handOver gives the fields that we are about to drop to a manager of their own, so that they
// keep their value until their new owner writes them. The write is bound to the version whose
// values it repeats: a new owner may have written meanwhile.
func (a *Applier) handOver(ctx context.Context, p prepared, live client.Object, fields []string) (client.Object, error) {
	dropped, err := a.handedOver(p, live, fields)
	if err != nil || len(dropped) == 0 {
		return live, err
	}
	kept := map[string]any{}
	for _, path := range dropped {
		if err := path.copyFrom(live, kept); err != nil {
			return nil, fmt.Errorf("handing over %s of %s: %w", path, p.id, err)
		}
	}
	kept["apiVersion"], kept["kind"] = p.id.gvk.GroupVersion().String(), p.id.gvk.Kind
	kept["metadata"] = map[string]any{
		"name": p.id.key.Name, "namespace": p.id.key.Namespace,
		"uid": string(live.GetUID()), "resourceVersion": live.GetResourceVersion(),
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("handing over fields of %s: %w", p.id, err)
	}
	return a.sendAs(ctx, a.manager+handOverSuffix, p.id, raw, true, "")
}

// handedOver lists what the manager for handed-over fields has to hold, if something of ours is
// to be added to it: what it holds already belongs to its apply too, or it would be let go.
func (a *Applier) handedOver(p prepared, live client.Object, fields []string) ([]fieldPath, error) {
	if len(fields) == 0 {
		return nil, nil
	}
	ours, err := entryFields(appliedEntry(live, a.manager, ""))
	if err != nil {
		return nil, err
	}
	already, err := entryFields(appliedEntry(live, a.manager+handOverSuffix, ""))
	if err != nil {
		return nil, err
	}
	wanted, err := parseFields([]byte(p.fields))
	if err != nil {
		return nil, err
	}
	var dropped []fieldPath
	needed := false
	for _, field := range fields {
		path := parseFieldPath(field)
		if wanted.holds(path) || !ours.union(already).holds(path) {
			continue
		}
		dropped, needed = append(dropped, path), needed || ours.holds(path)
	}
	if !needed {
		return nil, nil
	}
	return dropped, nil
}

func (a *Applier) send(ctx context.Context, id identity, raw []byte, force bool) (client.Object, error) {
	return a.sendAs(ctx, a.manager, id, raw, force, "")
}

// sendAs is the one place from which an apply leaves. The configuration goes as a patch, because
// client.Apply decodes the answer into the configuration, which has no place for managed fields.
func (a *Applier) sendAs(ctx context.Context, manager string, id identity, raw []byte, force bool, subresource string) (client.Object, error) {
	live, err := a.newObject(id)
	if err != nil {
		return nil, err
	}
	patch := client.RawPatch(types.ApplyPatchType, raw)
	options := client.PatchOptions{FieldManager: manager}
	if force {
		options.Force = &force
	}
	if a.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
		options.DisableReadYourWritesConsistency = true // there is no write to be read
	}
	if subresource == "" {
		err = a.client.Patch(ctx, live, patch, &options)
	} else {
		err = a.client.SubResource(subresource).Patch(ctx, live, patch, &client.SubResourcePatchOptions{PatchOptions: options})
	}
	if err != nil {
		return nil, classify(id, err)
	}
	return live, nil
}

func (a *Applier) newObject(id identity) (client.Object, error) {
	fresh, err := a.client.Scheme().New(id.gvk)
	if err != nil {
		if runtime.IsNotRegisteredError(err) {
			return nil, fmt.Errorf("applying %s: its Go type is not in the client's scheme: add the package's AddToScheme", id)
		}
		return nil, fmt.Errorf("applying %s: %w", id, err)
	}
	object, ok := fresh.(client.Object)
	if !ok {
		return nil, fmt.Errorf("applying %s: %T is not an object with metadata", id, fresh)
	}
	object.SetName(id.key.Name)
	object.SetNamespace(id.key.Namespace)
	return object, nil
}

// readAfresh reads past the cache; nil means that the object is not there.
func (a *Applier) readAfresh(ctx context.Context, id identity) (client.Object, error) {
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

func (a *Applier) remember(p prepared, applied client.Object) {
	fields := p.fields
	if entry := appliedEntry(applied, a.manager, ""); entry != nil && entry.FieldsV1 != nil {
		fields = entry.FieldsV1.GetRawString()
	}
	a.rememberFields(p, applied, fields)
}

func (a *Applier) rememberFields(p prepared, applied client.Object, fields string) {
	if a.dryRun {
		return
	}
	a.memory.put(memoryKey{identity: p.id}, remembered{uid: applied.GetUID(), config: p.hash, fields: unique.Make(fields)})
}

// Forget drops what the Applier remembers of an object that is gone. It is for tidiness: what is
// remembered of another object of the same name is never used.
func (a *Applier) Forget(c Configuration) {
	if id, err := identityOf(c); err == nil {
		a.memory.forget(id)
	}
}
