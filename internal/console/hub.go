package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

const (
	// ringEvents and ringBytes bound the events that a stream can resume from.
	ringEvents = 20_000
	ringBytes  = 32 << 20
	// idleTime is how long a hub without streams keeps its watches, so that streams can resume.
	idleTime = 2 * time.Minute
)

// Types of events, beside those of watches.
const (
	eventSync = "SYNC"
	// eventReset tells streams to send all rows again.
	eventReset = "reset"
)

// event is a change of an object.
type event struct {
	sequence uint64
	kind     string // the event: ADDED, MODIFIED, DELETED or eventReset
	feed     *feed
	// namespace and version are those of the object.
	namespace, version string
	row, object        []byte
}

// hub watches the objects of all kinds for one user, each kind once, for any number of streams.
type hub struct {
	api   dynamic.Interface
	epoch string

	mu sync.Mutex
	// ring are the last events, and size the bytes that they hold. next is the sequence number of the next event.
	ring    []event
	size    int
	next    uint64
	changed chan struct{} // closed at the next event, and replaced
	feeds   map[scope]*feed
	streams int
	idle    *time.Timer
	ctx     context.Context
	cancel  context.CancelFunc
}

// scope is what one watch is about.
type scope struct{ kind, namespace string }

// feed is a watch with the rows of its objects.
type feed struct {
	scope
	gvk  schema.GroupVersionKind
	hub  *hub
	rows map[string]entry
	// since is the sequence number from which on the events are complete.
	since uint64
	// err is why the rows are not complete, or nil.
	err error
	// done is closed once the first rows, or the first error, have arrived.
	done     chan struct{}
	isDone   bool
	isSynced bool
	cancel   context.CancelFunc
}

// entry is an object of a feed.
type entry struct {
	key, namespace, version string
	uid                     types.UID
	row                     []byte
}

func newHub(api dynamic.Interface) *hub {
	h := &hub{api: api, epoch: randomText(), next: 1, changed: make(chan struct{}), feeds: map[scope]*feed{}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// join returns the feeds of a stream, once their rows have arrived. A user who may not list all namespaces gets the feed
// of the namespace, if one is given.
func (h *hub) join(ctx context.Context, kinds []plugin.Kind, namespace string) ([]*feed, error) {
	found := make([]*feed, 0, len(kinds))
	for _, kind := range kinds {
		found = append(found, h.feed(kind, ""))
	}
	for i, kind := range kinds {
		err := found[i].wait(ctx)
		if namespace != "" && apierrors.IsForbidden(err) {
			found[i] = h.feed(kind, namespace)
		}
	}
	for _, f := range found {
		_ = f.wait(ctx) // what a feed fails with is for the stream
	}
	// A wait whose rows have arrived may return without an error although the request or the hub has ended.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := h.ctx.Err(); err != nil {
		return nil, err
	}
	return found, nil
}

// feed is the feed of a kind, which is started unless it runs. One that was refused before is tried again.
func (h *hub) feed(kind plugin.Kind, namespace string) *feed {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := scope{kind.Name, namespace}
	if f := h.feeds[key]; f != nil && !isRefused(f.err) {
		return f
	}
	f := &feed{scope: key, gvk: kind.Resource.GroupVersion().WithKind(kind.Name), hub: h, rows: map[string]entry{}, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(h.ctx)
	f.cancel = cancel
	h.feeds[key] = f
	go f.run(ctx, kind)
	return f
}

// wait returns once the first rows have arrived, or why they have not.
func (f *feed) wait(ctx context.Context) error {
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	case <-f.hub.ctx.Done(): // the first rows never arrive
		return f.hub.ctx.Err()
	}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	return f.err
}

func (f *feed) run(ctx context.Context, kind plugin.Kind) {
	resource := f.hub.api.Resource(kind.Resource).Namespace(f.namespace)
	calls := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := resource.List(ctx, options)
			return list, f.note(err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			stream, err := resource.Watch(ctx, options)
			return stream, f.note(err)
		},
	}
	listWatch := cache.ToListWatcherWithWatchListSemantics(calls, f.hub.api)
	reflector := cache.NewReflectorWithOptions(listWatch, &unstructured.Unstructured{}, f, cache.ReflectorOptions{Name: "console", TypeDescription: kind.Name})
	reflector.RunWithContext(ctx)
}

// isRefused is true for errors that asking again does not help against.
func isRefused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// note records whether the API server answers. A watch that is refused ends: it would be refused again.
func (f *feed) note(err error) error {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled), isRefused(f.err):
		return err // it has ended
	case apierrors.IsInvalid(err), apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return err // the reflector goes on by itself
	case err == nil && f.err != nil && f.isSynced:
		f.err = nil
		f.hub.append(event{kind: eventReset, feed: f})
		return nil
	case err == nil:
		return nil
	}
	if f.err == nil || f.err.Error() != err.Error() {
		f.err = err
		if isRefused(err) {
			f.rows, f.isSynced = map[string]entry{}, false
		}
		if f.isDone {
			f.hub.append(event{kind: eventReset, feed: f})
		}
	}
	f.finish()
	if isRefused(err) {
		f.cancel()
	}
	return err
}

func (f *feed) finish() {
	if !f.isDone {
		f.isDone = true
		close(f.done)
	}
}

// append adds an event to the ring.
func (h *hub) append(e event) {
	e.sequence = h.next
	h.next++
	h.ring, h.size = append(h.ring, e), h.size+len(e.row)+len(e.object)
	drop := 0
	for h.size > ringBytes || len(h.ring)-drop > ringEvents {
		h.size -= len(h.ring[drop].row) + len(h.ring[drop].object)
		drop++
	}
	if drop > 0 {
		clear(h.ring[:drop])
		h.ring = h.ring[drop:]
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// Add implements [cache.ReflectorStore].
func (f *feed) Add(obj any) error { return f.put(obj, watch.Added) }

// Update implements [cache.ReflectorStore].
func (f *feed) Update(obj any) error { return f.put(obj, watch.Modified) }

func (f *feed) put(obj any, kind watch.EventType) error {
	live, is, err := entryOf(obj)
	if err != nil {
		return err
	}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.rows[is.key] = is
	return f.tell(kind, is, live)
}

// Delete implements [cache.ReflectorStore].
func (f *feed) Delete(obj any) error {
	live, was, err := entryOf(obj)
	if err != nil {
		return err
	}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	delete(f.rows, was.key)
	return f.tell(watch.Deleted, was, live)
}

// tell appends an event about an object.
func (f *feed) tell(kind watch.EventType, is entry, live *unstructured.Unstructured) error {
	object, err := live.MarshalJSON()
	if err != nil {
		return err
	}
	f.hub.append(event{kind: string(kind), feed: f, namespace: is.namespace, version: is.version, row: is.row, object: bytes.TrimSpace(object)})
	return nil
}

// Replace implements [cache.ReflectorStore]. It is called with the first list, and after a watch could not go on: then
// only what differs becomes events.
func (f *feed) Replace(list []any, version string) error {
	rows, objects := make(map[string]entry, len(list)), make(map[string]*unstructured.Unstructured, len(list))
	for _, obj := range list {
		live, is, err := entryOf(obj)
		if err != nil {
			return err
		}
		rows[is.key], objects[is.key] = is, live
	}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	before, wasComplete := f.rows, f.isSynced && f.err == nil
	f.rows, f.isSynced, f.err = rows, true, nil
	if !wasComplete {
		f.since = f.hub.next
		if f.isDone {
			f.hub.append(event{kind: eventReset, feed: f})
		}
		f.finish()
		return nil
	}
	for key, is := range rows {
		was, existed := before[key]
		kind := watch.Modified
		if !existed {
			kind = watch.Added
		}
		if was.version == is.version {
			continue
		}
		if err := f.tell(kind, is, objects[key]); err != nil {
			return err
		}
	}
	for key, was := range before {
		if _, exists := rows[key]; !exists {
			was.version = version
			if err := f.tell(watch.Deleted, was, f.stub(was)); err != nil {
				return err
			}
		}
	}
	return nil
}

// stub is what is known of an object whose deletion was not observed.
func (f *feed) stub(was entry) *unstructured.Unstructured {
	namespace, name, _ := strings.Cut(was.key, "/")
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(f.gvk)
	live.SetNamespace(namespace)
	live.SetName(name)
	live.SetUID(was.uid)
	live.SetResourceVersion(was.version)
	return live
}

// Resync implements [cache.ReflectorStore].
func (f *feed) Resync() error { return nil }

func entryOf(obj any) (*unstructured.Unstructured, entry, error) {
	live, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, entry{}, fmt.Errorf("%T is not an object", obj)
	}
	live.SetManagedFields(nil)
	row, err := plugin.RowOf(live)
	if err != nil { // one object of another version of the API must not hide all others
		row = plugin.Row{
			Kind: live.GetKind(), Namespace: live.GetNamespace(), Name: live.GetName(), UID: string(live.GetUID()), ResourceVersion: live.GetResourceVersion(),
			Created: live.GetCreationTimestamp(), Ready: string(metav1.ConditionUnknown), Message: err.Error(),
		}
	}
	is := entry{key: row.Namespace + "/" + row.Name, namespace: row.Namespace, version: row.ResourceVersion, uid: live.GetUID()}
	is.row, err = json.Marshal(row)
	return live, is, err
}

// id names the position after a sequence number, in the events of this hub only.
func (h *hub) id(sequence uint64) string { return h.epoch + "-" + strconv.FormatUint(sequence, 10) }

// resume is the sequence number that an id names, if the ring has all later events of the feeds.
func (h *hub) resume(id string, feeds []*feed) (sequence uint64, ok bool) {
	epoch, number, _ := strings.Cut(id, "-")
	sequence, err := strconv.ParseUint(number, 10, 64)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || epoch != h.epoch || sequence >= h.next || !h.has(sequence+1) {
		return 0, false
	}
	for _, f := range feeds {
		if !f.isSynced || f.err != nil || f.since > sequence+1 {
			return 0, false
		}
	}
	return sequence, true
}

// has is true if the ring has the event of that number and all later ones.
func (h *hub) has(sequence uint64) bool {
	return sequence >= h.next-uint64(len(h.ring))
}

// after returns the events after a sequence number, and a channel that is closed at the next one. It is not ok if the
// ring no longer has them.
func (h *hub) after(sequence uint64) (events []event, changed <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.has(sequence + 1) {
		return nil, nil, false
	}
	fresh := h.ring[len(h.ring)-int(h.next-sequence-1):]
	return append([]event(nil), fresh...), h.changed, true
}

// snapshot are the rows of the feeds, their errors, and the sequence number that they are as of.
func (h *hub) snapshot(feeds []*feed, namespace string) (rows [][]byte, failures []failure, sequence uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range feeds {
		if f.err != nil {
			failures = append(failures, failure{f.kind, refusal(f)})
		}
		for _, e := range f.rows {
			if namespace == "" || e.namespace == namespace {
				rows = append(rows, e.row)
			}
		}
	}
	return rows, failures, h.next - 1
}

// lost is the error of a feed in whose place another stream may get one that is complete, or nil: the credential is no
// longer accepted, or no longer for all namespaces although the stream needs only one.
func (h *hub) lost(feeds []*feed, namespace string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range feeds {
		if apierrors.IsUnauthorized(f.err) || apierrors.IsForbidden(f.err) && f.namespace != namespace {
			return f.err
		}
	}
	return nil
}

// failure is why the objects of a kind are not shown.
type failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

func refusal(f *feed) string {
	where, remedy := "in namespace "+f.namespace, ""
	if f.namespace == "" {
		where, remedy = "in all namespaces", "; select a namespace with namespace="
	}
	switch {
	case apierrors.IsForbidden(f.err):
		return fmt.Sprintf("You may not list and watch %s objects %s%s, or ask for the ClusterRole fixpoint-%s-viewer-role.", f.kind, where, remedy, strings.ToLower(f.kind))
	case apierrors.IsNotFound(f.err):
		return "The cluster does not serve " + f.kind + ": install the CustomResourceDefinitions of Fixpoint."
	default:
		return "The objects could not be read, and are read again: " + f.err.Error()
	}
}

// enter and leave count the streams. A hub without streams stops after a while.
func (h *hub) enter() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams++
	if h.idle != nil {
		h.idle.Stop()
		h.idle = nil
	}
}

func (h *hub) leave(stopped func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams--; h.streams > 0 {
		return
	}
	h.idle = time.AfterFunc(idleTime, func() {
		h.mu.Lock()
		isIdle := h.streams == 0
		h.mu.Unlock()
		if isIdle {
			h.cancel()
			stopped()
		}
	})
}

// isBusy is true while there are streams.
func (h *hub) isBusy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams > 0
}
