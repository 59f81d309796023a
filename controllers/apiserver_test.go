package controllers

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// apiServer serves the objects of an [ssatest.Server] over HTTP, as far as a manager needs that, with watches. It records the
// requests.
type apiServer struct {
	*ssatest.Server
	scheme    *runtime.Scheme
	resources map[string]schema.GroupVersionKind

	// unavailable says that requests for unknown groups are answered as if their server were down.
	unavailable bool

	mu       sync.Mutex
	requests []*http.Request
	// changed is closed and replaced with each write.
	changed chan struct{}
}

// startAPIServer starts a server that serves all kinds of Kubernetes and Fixpoint, except those of some groups.
func startAPIServer(t *testing.T, without ...string) (*apiServer, *rest.Config) {
	t.Helper()
	scheme := NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	s := &apiServer{scheme: scheme, resources: map[string]schema.GroupVersionKind{}, changed: make(chan struct{})}
	s.Server = ssatest.NewServer(scheme, ssatest.Options{TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{applyconfiguration.NewTypeConverter}})
	for kind := range scheme.AllKnownTypes() {
		if scheme.Recognizes(kind.GroupVersion().WithKind(kind.Kind+"List")) && !slices.Contains(without, kind.Group) {
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			s.resources[pathOf(resource)] = kind
		}
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return s, &rest.Config{Host: server.URL}
}

func pathOf(resource schema.GroupVersionResource) string {
	if resource.Group == "" {
		return "/api/" + resource.Version + "/" + resource.Resource
	}
	return "/apis/" + resource.Group + "/" + resource.Version + "/" + resource.Resource
}

// forget serves a group no longer.
func (s *apiServer) forget(group string) {
	maps.DeleteFunc(s.resources, func(_ string, kind schema.GroupVersionKind) bool { return kind.Group == group })
}

// sent returns the requests with a method, for a path and all below it.
func (s *apiServer) sent(method, path string) (found []*http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.requests {
		if request.Method == method && (request.URL.Path == path || strings.HasPrefix(request.URL.Path, path+"/")) {
			found = append(found, request)
		}
	}
	return found
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	if r.URL.Path == "/api" || r.URL.Path == "/apis" {
		respond(w, http.StatusOK, aggregatedType, s.discovery(r.URL.Path == "/api"))
		return
	}
	kind, key, subresource, ok := s.parse(r.URL.Path)
	if !ok && s.unavailable {
		fail(w, apierrors.NewServiceUnavailable("unavailable"))
		return
	}
	if !ok {
		fail(w, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path))
		return
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		s.watch(w, r, kind, key.Namespace)
	case r.Method == http.MethodGet && key.Name == "":
		items, err := s.list(r, kind, key.Namespace)
		if err != nil {
			fail(w, err)
			return
		}
		list := map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List", "metadata": metav1.ListMeta{ResourceVersion: "1000"}, "items": items}
		if isMetadata(r) {
			list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
		}
		respond(w, http.StatusOK, "application/json", list)
	default:
		object, err := s.serve(r, kind, key, subresource)
		if err != nil {
			fail(w, err)
			return
		}
		respond(w, http.StatusOK, "application/json", shown(r, object))
	}
}

// serve serves a request for a single object.
func (s *apiServer) serve(r *http.Request, kind schema.GroupVersionKind, key client.ObjectKey, subresource string) (client.Object, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	created, err := s.scheme.New(kind)
	if err != nil {
		return nil, err
	}
	object, ok := created.(client.Object)
	if !ok {
		return nil, errors.New("not an object")
	}
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		// Clients send the kinds of Kubernetes as Protobuf.
		if _, _, err := serializer.NewCodecFactory(s.scheme).UniversalDeserializer().Decode(body, nil, object); err != nil {
			return nil, err
		}
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	if object.SetNamespace(key.Namespace); key.Name != "" {
		object.SetName(key.Name)
	}
	query := r.URL.Query()
	switch r.Method {
	case http.MethodGet:
		err = s.Get(r.Context(), key, object)
	case http.MethodPost:
		err = s.Create(r.Context(), object)
	case http.MethodPut:
		err = s.Update(r.Context(), object)
	case http.MethodPatch:
		patch := client.RawPatch(types.PatchType(strings.Split(r.Header.Get("Content-Type"), ";")[0]), body)
		options := client.PatchOptions{FieldManager: query.Get("fieldManager"), DryRun: query["dryRun"]}
		if query.Get("force") == "true" {
			force := true
			options.Force = &force
		}
		if subresource == "status" {
			err = s.Status().Patch(r.Context(), object, patch, &client.SubResourcePatchOptions{PatchOptions: options})
		} else {
			err = s.Patch(r.Context(), object, patch, &options)
		}
	default:
		err = apierrors.NewMethodNotSupported(schema.GroupResource{Group: kind.Group}, r.Method)
	}
	if r.Method != http.MethodGet {
		s.mu.Lock()
		close(s.changed)
		s.changed = make(chan struct{})
		s.mu.Unlock()
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object, err
}

func (s *apiServer) list(r *http.Request, kind schema.GroupVersionKind, namespace string) ([]any, error) {
	created, err := s.scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return nil, err
	}
	list, ok := created.(client.ObjectList)
	if !ok {
		return nil, errors.New("not a list")
	}
	labelled, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	selected, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	if err := s.List(r.Context(), list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: labelled}); err != nil {
		return nil, err
	}
	items := []any{}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok {
			return errors.New("not an object")
		}
		set := fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace()}
		if secret, ok := object.(*corev1.Secret); ok {
			set["type"] = string(secret.Type)
		}
		if selected.Matches(set) {
			object.GetObjectKind().SetGroupVersionKind(kind)
			items = append(items, shown(r, object))
		}
		return nil
	})
	return items, err
}

// watch sends the objects, and then their changes. That sends some objects again, as a new watch may.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, kind schema.GroupVersionKind, namespace string) {
	w.Header().Set("Content-Type", "application/json")
	encoder, known := json.NewEncoder(w), map[types.UID]metav1.Object{}
	send := func(event string, object any) { _ = encoder.Encode(map[string]any{"type": event, "object": object}) }
	for initial := r.URL.Query().Get("sendInitialEvents") == "true"; ; initial = false {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		items, err := s.list(r, kind, namespace)
		if err != nil {
			return
		}
		gone := maps.Clone(known)
		for _, item := range items {
			object, _ := item.(metav1.Object)
			before := known[object.GetUID()]
			delete(gone, object.GetUID())
			known[object.GetUID()] = object
			switch {
			case before == nil:
				send("ADDED", item)
			case before.GetResourceVersion() != object.GetResourceVersion():
				send("MODIFIED", item)
			}
		}
		for uid, object := range gone {
			delete(known, uid)
			send("DELETED", object)
		}
		if initial {
			end := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1000", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
			if end.SetGroupVersionKind(kind); isMetadata(r) {
				end.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
				end.APIVersion = "meta.k8s.io/v1"
			}
			send("BOOKMARK", end)
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// discovery is the document of the core group, or of all others.
func (s *apiServer) discovery(core bool) apidiscoveryv2.APIGroupDiscoveryList {
	byVersion := map[schema.GroupVersion]*apidiscoveryv2.APIVersionDiscovery{}
	for path, kind := range s.resources {
		version := byVersion[kind.GroupVersion()]
		if version == nil {
			version = &apidiscoveryv2.APIVersionDiscovery{Version: kind.Version}
			byVersion[kind.GroupVersion()] = version
		}
		scope := apidiscoveryv2.ScopeNamespace
		if slices.Contains([]string{"Namespace", "IngressClass", "CustomResourceDefinition"}, kind.Kind) {
			scope = apidiscoveryv2.ScopeCluster
		}
		version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: path[strings.LastIndex(path, "/")+1:], ResponseKind: &metav1.GroupVersionKind{Kind: kind.Kind}, Scope: scope, Verbs: []string{"list"},
		})
	}
	list := apidiscoveryv2.APIGroupDiscoveryList{}
	for gv, version := range byVersion {
		if (gv.Group == "") == core {
			list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []apidiscoveryv2.APIVersionDiscovery{*version}})
		}
	}
	return list
}

// parse says what a path is about.
func (s *apiServer) parse(path string) (kind schema.GroupVersionKind, key client.ObjectKey, subresource string, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	prefix := 3
	if parts[0] == "api" {
		prefix = 2
	}
	if len(parts) <= prefix {
		return kind, key, "", false
	}
	base, rest := "/"+strings.Join(parts[:prefix], "/"), parts[prefix:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		key.Namespace, rest = rest[1], rest[2:]
	}
	kind, ok = s.resources[base+"/"+rest[0]]
	if len(rest) > 1 {
		key.Name = rest[1]
	}
	if len(rest) > 2 {
		subresource = rest[2]
	}
	return kind, key, subresource, ok
}

func isMetadata(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// shown is the object, or its metadata if the client asked for that.
func shown(r *http.Request, object client.Object) any {
	if !isMetadata(r) {
		return object
	}
	metadata := meta.AsPartialObjectMetadata(object)
	metadata.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	return metadata
}

func fail(w http.ResponseWriter, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewBadRequest(err.Error())
	}
	answer := status.Status()
	answer.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	respond(w, int(answer.Code), "application/json", answer)
}
