package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// fakeAPI is an API server with AppServices alone, which knows users by their tokens. Everybody may do everything,
// except who is forbidden.
type fakeAPI struct {
	*httptest.Server
	mu      sync.Mutex
	version int
	objects map[string]map[string]any
	// changed is closed at the next event, and log has all events.
	changed chan struct{}
	log     []fakeEvent
	// requests are "user verb path".
	requests []string
	// forbidden are users who may not list in all namespaces.
	forbidden map[string]bool
	// unauthorized are users whose tokens are not accepted.
	unauthorized map[string]bool
	// cut ends all watches.
	cut chan struct{}
	// expired is the version up to which a watch can no longer begin.
	expired int
	// isDown: requests are answered with an error.
	isDown bool
}

type fakeEvent struct {
	kind    string
	version int
	object  map[string]any
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{version: 1, objects: map[string]map[string]any{}, changed: make(chan struct{}), forbidden: map[string]bool{}, unauthorized: map[string]bool{}, cut: make(chan struct{})}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.cutWatches()
		f.Close()
	})
	return f
}

func (f *fakeAPI) config(token string) *rest.Config {
	return &rest.Config{Host: f.URL, BearerToken: token}
}

// set creates or changes an AppService; an empty image deletes it.
func (f *fakeAPI) set(namespace, name, image string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setLocked(namespace, name, image)
}

func (f *fakeAPI) setLocked(namespace, name, image string) {
	f.version++
	key := namespace + "/" + name
	before, existed := f.objects[key]
	kind, object := "ADDED", map[string]any{
		"apiVersion": "fixpoint.dev/v1beta1", "kind": "AppService", "spec": map[string]any{"image": image},
		"metadata": map[string]any{
			"namespace": namespace, "name": name, "uid": key, "resourceVersion": strconv.Itoa(f.version), "generation": f.version,
			"managedFields": []any{map[string]any{"manager": "kubectl"}},
		},
		"status": map[string]any{"phase": "Running", "conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Ready", "message": "all phases are ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}}},
	}
	switch {
	case image == "":
		kind, object = "DELETED", before
		_ = unstructured.SetNestedField(object, strconv.Itoa(f.version), "metadata", "resourceVersion") // it is a map
		delete(f.objects, key)
	case existed:
		kind = "MODIFIED"
	}
	if image != "" {
		f.objects[key] = object
	}
	f.log = append(f.log, fakeEvent{kind, f.version, object})
	close(f.changed)
	f.changed = make(chan struct{})
}

// cutWatches ends all watches, as an API server that restarts does.
func (f *fakeAPI) cutWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
	f.cut = make(chan struct{})
}

// forget makes changes that no watch is told of, and that none that resumes is told of.
func (f *fakeAPI) forget(changes func(set func(namespace, name, image string))) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
	f.cut = make(chan struct{})
	changes(f.setLocked)
	f.expired = f.version + 1
}

// setDown makes the API server answer with errors, and ends its watches.
func (f *fakeAPI) setDown(isDown bool) {
	f.mu.Lock()
	f.isDown = isDown
	f.mu.Unlock()
	f.cutWatches()
}

// setUnauthorized says whether the token of a user is accepted, and ends all watches.
func (f *fakeAPI) setUnauthorized(user string, is bool) {
	f.mu.Lock()
	f.unauthorized[user] = is
	f.mu.Unlock()
	f.cutWatches()
}

func (f *fakeAPI) count(prefix string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := 0
	for _, r := range f.requests {
		if strings.HasPrefix(r, prefix) {
			count++
		}
	}
	return count
}

func (f *fakeAPI) refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"%s"}`, code, reason, reason)
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, isUser := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer token-of-")
	verb := r.Method
	if r.URL.Query().Get("watch") != "" {
		verb = "WATCH"
	}
	f.mu.Lock()
	f.requests = append(f.requests, user+" "+verb+" "+r.URL.Path)
	isForbidden, isDown, isUser := f.forbidden[user], f.isDown, isUser && !f.unauthorized[user]
	f.mu.Unlock()
	const kinds = "/apis/fixpoint.dev/v1beta1/"
	path := strings.TrimPrefix(r.URL.Path, kinds)
	switch {
	case isDown:
		f.refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable")
	case !isUser:
		f.refuse(w, http.StatusUnauthorized, "Unauthorized")
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":%q,"groups":["team"]}}}`, user)
	case isForbidden && !strings.HasPrefix(path, "namespaces/"):
		f.refuse(w, http.StatusForbidden, "Forbidden")
	case !strings.HasPrefix(r.URL.Path, kinds):
		f.refuse(w, http.StatusNotFound, "NotFound")
	case verb == "WATCH":
		f.watch(w, r, path)
	default:
		f.list(w, path)
	}
}

// matches says whether a request is about an object.
func matches(path string, object map[string]any) bool {
	if path == "appservices" {
		return true
	}
	namespace, _, _ := unstructured.NestedString(object, "metadata", "namespace")
	return path == "namespaces/"+namespace+"/appservices"
}

func (f *fakeAPI) list(w http.ResponseWriter, path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	items := []any{}
	for _, object := range f.objects {
		if matches(path, object) {
			items = append(items, object)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "fixpoint.dev/v1beta1", "kind": "List", "metadata": map[string]any{"resourceVersion": strconv.Itoa(f.version)}, "items": items,
	})
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, path string) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	f.mu.Lock()
	cut := f.cut
	isExpired := from > 0 && from < f.expired
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, object := range f.objects {
			if matches(path, object) {
				_ = encoder.Encode(map[string]any{"type": "ADDED", "object": object})
			}
		}
		from = f.version
		_ = encoder.Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{"apiVersion": "fixpoint.dev/v1beta1", "kind": "AppService", "metadata": map[string]any{
			"resourceVersion": strconv.Itoa(f.version), "annotations": map[string]any{"k8s.io/initial-events-end": "true"},
		}}})
		isExpired = false
	}
	f.mu.Unlock()
	if isExpired {
		f.refuse(w, http.StatusGone, "Expired")
		return
	}
	for {
		f.mu.Lock()
		select {
		case <-cut:
			f.mu.Unlock()
			return
		default:
		}
		changed := f.changed
		for _, e := range f.log {
			if e.version > from {
				from = e.version
				if matches(path, e.object) {
					_ = encoder.Encode(map[string]any{"type": e.kind, "object": e.object})
				}
			}
		}
		f.mu.Unlock()
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}
