package versions_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/internal/migration"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// stored is the CustomResourceDefinition whose stored version a test changes.
type stored struct {
	*fixture
	definitions apiextensionsclient.CustomResourceDefinitionInterface
	discovery   discovery.DiscoveryInterface
}

func (f *fixture) stored() *stored {
	f.T.Helper()
	extensions, err := apiextensionsclient.NewForConfig(suite.Cluster.Admin())
	f.Expect(err).NotTo(HaveOccurred())
	resources, err := discovery.NewDiscoveryClientForConfig(suite.Cluster.Admin())
	f.Expect(err).NotTo(HaveOccurred())
	return &stored{fixture: f, definitions: extensions.CustomResourceDefinitions(), discovery: resources}
}

func (s *stored) definition() *apiextensionsv1.CustomResourceDefinition {
	s.T.Helper()
	live, err := s.definitions.Get(s.Ctx, definition, metav1.GetOptions{})
	s.Expect(err).NotTo(HaveOccurred())
	return live
}

// hash identifies the version that the API server stores.
func (s *stored) hash() string {
	s.T.Helper()
	list, err := s.discovery.ServerResourcesForGroupVersion(group + "/" + beta)
	s.Expect(err).NotTo(HaveOccurred())
	for i := range list.APIResources {
		if list.APIResources[i].Name == plurals["MCPServer"] {
			return list.APIResources[i].StorageVersionHash
		}
	}
	return ""
}

// store lets the API server store a version of MCPServers, with a maximum of spec.driftHistoryLimit that is not that of
// before, and returns when it does.
func (s *stored) store(version string, maximum int) {
	s.T.Helper()
	before := s.hash()
	s.define(s.definitions, maximum, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		for i := range spec.Versions {
			spec.Versions[i].Storage = spec.Versions[i].Name == version
		}
	})
	s.Eventually(s.hash).ShouldNot(Equal(before))
}

// servers are the objects of the test, by name.
func (s *stored) servers() map[string]*unstructured.Unstructured {
	s.T.Helper()
	client, _ := s.in(beta, "MCPServer")
	list, err := client.List(s.Ctx, metav1.ListOptions{})
	s.Expect(err).NotTo(HaveOccurred())
	servers := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		servers[list.Items[i].GetName()] = &list.Items[i]
	}
	return servers
}

// inNamespace lists the objects of one namespace only. Those of other tests were created while v1beta1 was stored.
type inNamespace struct {
	migration.API
	namespace string
}

// List implements [migration.API].
func (n inNamespace) List(ctx context.Context, kind migration.Kind, from string, limit int64) (*metav1.PartialObjectMetadataList, error) {
	page, err := n.API.List(ctx, kind, from, limit)
	if page != nil {
		page.Items = slices.DeleteFunc(page.Items, func(o metav1.PartialObjectMetadata) bool { return o.Namespace != n.namespace })
	}
	return page, err
}

// migrate runs a migration until it ends, or until it has migrated a number of objects.
func (s *stored) migrate(atMost int) {
	s.T.Helper()
	ctx, cancel := context.WithCancel(s.Ctx)
	defer cancel()
	cfg := suite.Cluster.Config(harness.ManagerUser)
	api, err := migration.NewAPI(cfg)
	s.Expect(err).NotTo(HaveOccurred())
	metrics, err := migration.NewMetrics(prometheus.NewRegistry())
	s.Expect(err).NotTo(HaveOccurred())
	clientset, err := kubernetes.NewForConfig(cfg)
	s.Expect(err).NotTo(HaveOccurred())
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clientset.EventsV1()})
	s.Expect(broadcaster.StartRecordingToSinkWithContext(ctx)).To(Succeed())
	defer broadcaster.Shutdown()
	now := clocktesting.NewFakeClock(time.Now())
	m := &migration.Migration{
		API: inNamespace{api, s.Namespace}, Metrics: metrics, Logger: logr.Discard(), Clock: now, Recorder: broadcaster.NewRecorder(scheme.Scheme, "fixpoint-migration"),
		Kinds: []migration.Kind{{
			GroupVersionKind: v1beta1.SchemeGroupVersion.WithKind("MCPServer"), Resource: plurals["MCPServer"],
			FieldManager: mcpserver.FieldManager, Finalizer: mcpserver.Finalizer,
		}},
		Wait: func(ctx context.Context) error {
			if atMost--; atMost < 0 {
				cancel()
			}
			return ctx.Err()
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	s.Eventually(func() bool { now.Step(time.Minute); return len(ended) == 1 }).Should(BeTrue())
	s.Expect(<-ended).To(Succeed())
	if atMost >= 0 { // all are migrated
		s.Eventually(s.events).ShouldNot(BeEmpty()) // before the broadcaster ends
	}
}

// events are those of migrations.
func (s *stored) events() []string {
	s.T.Helper()
	list := &eventsv1.EventList{}
	s.Expect(suite.API.List(s.Ctx, list)).To(Succeed())
	var texts []string
	for i := range list.Items {
		if event := &list.Items[i]; event.ReportingController == "fixpoint-migration" {
			texts = append(texts, fmt.Sprintf("%s %s %s: %s", event.Type, event.Reason, event.Regarding.Name, event.Note))
		}
	}
	return texts
}

// Objects of all kinds of states are migrated, also when the migration is interrupted, and nothing about them changes.
func TestStoredObjectsAreMigrated(t *testing.T) {
	s := newFixture(t).stored()
	t.Cleanup(func() {
		if !slices.ContainsFunc(s.definition().Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage && v.Name == beta }) {
			s.store(beta, mostHistory)
		}
	})

	// Given objects that were created while v1alpha1 was stored, by rules of that time
	s.store(alpha, mostHistory+1)
	client, _ := s.in(alpha, "MCPServer")
	specs := map[string]string{
		"plain":     "{image: a, protocol: {tls: true, disabled: true}}",
		"suspended": "{image: a, suspend: true}",
		"invalid":   fmt.Sprintf("{image: a, driftHistoryLimit: %d}", mostHistory+1),
		"deleted":   "{image: a}",
		"applied":   "{image: a}",
		"stalled":   "{image: a}",
	}
	for i := range 20 {
		specs[fmt.Sprintf("server-%02d", i)] = "{image: a, networkPolicy: {egress: {allowDNS: false}}}"
	}
	for name, spec := range specs {
		object := s.object(alpha, "MCPServer", name, spec)
		if name == "deleted" {
			object.SetFinalizers([]string{"example.com/wait"})
		}
		s.create(object)
	}
	s.Expect(client.Delete(s.Ctx, "deleted", metav1.DeleteOptions{})).To(Succeed())
	t.Cleanup(func() {
		_, err := client.Patch(context.Background(), "deleted", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		s.Expect(err).NotTo(HaveOccurred())
	})
	// A manager of v1alpha1 has added its finalizer, and a status.
	held := s.object(alpha, "MCPServer", "applied", "{}")
	delete(held.Object, "spec")
	held.SetFinalizers([]string{mcpserver.Finalizer})
	s.mustApply(mcpserver.FieldManager, held)
	status := s.object(alpha, "MCPServer", "stalled", "{}")
	delete(status.Object, "spec")
	status.Object["status"] = map[string]any{"observedGeneration": int64(1), "phase": "Failed", "askedVersions": []any{"1.0"}}
	_, err := client.ApplyStatus(s.Ctx, "stalled", status, metav1.ApplyOptions{FieldManager: mcpserver.FieldManager, Force: true})
	s.Expect(err).NotTo(HaveOccurred())

	// When v1beta1 is stored, and a migration is interrupted
	s.store(beta, mostHistory)
	s.Expect(s.definition().Status.StoredVersions).To(ConsistOf(alpha, beta))
	before := s.servers()
	const some = 10
	s.migrate(some)
	s.Expect(s.definition().Status.StoredVersions).To(ConsistOf(alpha, beta), "it is not complete")
	s.Expect(s.condition()).To(And(HaveField("Status", apiextensionsv1.ConditionFalse), HaveField("Reason", migration.ReasonMigrating)))
	half := s.servers()
	var written []string
	for name := range half {
		if half[name].GetResourceVersion() != before[name].GetResourceVersion() {
			written = append(written, name)
		}
	}
	s.Expect(written).To(HaveLen(some), "applying an object stores it in v1beta1")

	// And another leader continues it
	s.migrate(len(specs))

	// Then all objects are stored in v1beta1, each by one write, and are the same in all else.
	s.Expect(s.definition().Status.StoredVersions).To(Equal([]string{beta}))
	s.Expect(s.condition()).To(And(HaveField("Status", apiextensionsv1.ConditionTrue), HaveField("Reason", migration.ReasonMigrated),
		HaveField("Message", fmt.Sprintf("All objects are stored in v1beta1. %d were migrated.", len(specs)))))
	s.Expect(s.events()).To(ConsistOf(fmt.Sprintf("Normal Migrated %s: All objects are stored in v1beta1. %d were migrated.", definition, len(specs))))
	after := s.servers()
	s.Expect(after).To(HaveLen(len(specs)))
	for name, live := range after {
		if slices.Contains(written, name) {
			s.Expect(live.GetResourceVersion()).To(Equal(half[name].GetResourceVersion()), "%s is not written a second time", name)
		} else {
			s.Expect(live.GetResourceVersion()).NotTo(Equal(before[name].GetResourceVersion()), "%s is written", name)
		}
		s.Expect(withoutVersion(live)).To(Equal(withoutVersion(before[name])), name)
	}
	s.Expect(entryOf(after["applied"], mcpserver.FieldManager).APIVersion).To(Equal(group + "/" + beta))
	s.Expect(after["applied"].GetFinalizers()).To(ConsistOf(mcpserver.Finalizer))

	// And the next one writes nothing.
	s.migrate(0)
	s.Expect(s.servers()).To(Equal(after))
}

func (s *stored) condition() apiextensionsv1.CustomResourceDefinitionCondition {
	s.T.Helper()
	for _, condition := range s.definition().Status.Conditions {
		if condition.Type == migration.ConditionMigrated {
			return condition
		}
	}
	return apiextensionsv1.CustomResourceDefinitionCondition{}
}

func entryOf(object *unstructured.Unstructured, manager string) metav1.ManagedFieldsEntry {
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == manager {
			return entry
		}
	}
	return metav1.ManagedFieldsEntry{}
}

// withoutVersion is an object without what a write changes, and without the version of the manager's entry.
func withoutVersion(object *unstructured.Unstructured) *unstructured.Unstructured {
	kept := object.DeepCopy()
	kept.SetResourceVersion("")
	var entries []metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		entry.Time = nil
		if entry.Manager == mcpserver.FieldManager && entry.Subresource == "" {
			entry.APIVersion = ""
		}
		entries = append(entries, entry)
	}
	kept.SetManagedFields(entries)
	return kept
}
