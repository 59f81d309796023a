package migration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

var (
	apps = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "fixpoint.dev", Version: "v1beta1", Kind: "AppService"},
		Resource:         "appservices", FieldManager: "fixpoint-appservice", Finalizer: "fixpoint.dev/teardown",
	}
	stores = Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "fixpoint.dev", Version: "v1beta1", Kind: "SecureStorage"},
		Resource:         "securestorages", FieldManager: "fixpoint-securestorage", Finalizer: "fixpoint.dev/teardown",
	}
)

// fakeAPI stores objects, and the version in which each is stored.
type fakeAPI struct {
	stored     map[string][]string
	conditions map[string][]apiextensionsv1.CustomResourceDefinitionCondition
	// storage is the version in which objects are stored, v1beta1 by default, and generation that of the definitions.
	storage    string
	generation int64
	objects    map[string][]metav1.PartialObjectMetadata
	// version is that in which an object is stored, by its UID.
	version map[types.UID]string
	// fail returns the error of a request.
	fail    func(request string) error
	applied []string
}

func newFakeAPI(kind Kind, count int) *fakeAPI {
	f := &fakeAPI{
		stored: map[string][]string{}, conditions: map[string][]apiextensionsv1.CustomResourceDefinitionCondition{}, storage: "v1beta1",
		objects: map[string][]metav1.PartialObjectMetadata{}, version: map[types.UID]string{}, fail: func(string) error { return nil },
	}
	f.add(kind, count)
	return f
}

func (f *fakeAPI) add(kind Kind, count int) {
	f.stored[kind.Resource] = []string{"v1alpha1", "v1beta1"}
	for i := range count {
		object := metav1.PartialObjectMetadata{}
		object.Namespace, object.Name, object.UID = "shop", fmt.Sprintf("%s-%04d", kind.Resource, i), types.UID(kind.Resource+strconv.Itoa(i))
		f.objects[kind.Resource] = append(f.objects[kind.Resource], object)
		f.version[object.UID] = "v1alpha1"
	}
}

func (f *fakeAPI) Definition(_ context.Context, kind Kind) (*apiextensionsv1.CustomResourceDefinition, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kind.definition()}}
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version, Storage: version == f.storage})
	}
	definition.Generation, definition.ResourceVersion = f.generation, strconv.FormatInt(f.generation, 10)
	definition.Status.StoredVersions = f.stored[kind.Resource]
	definition.Status.Conditions = f.conditions[kind.Resource]
	return definition, f.fail("stored " + kind.Resource)
}

func (f *fakeAPI) SetCondition(_ context.Context, kind Kind, condition apiextensionsv1.CustomResourceDefinitionCondition) error {
	if err := f.fail("condition " + kind.Resource + " " + condition.Reason); err != nil {
		return err
	}
	f.conditions[kind.Resource] = []apiextensionsv1.CustomResourceDefinitionCondition{condition}
	return nil
}

func (f *fakeAPI) RemoveCondition(_ context.Context, kind Kind) error {
	delete(f.conditions, kind.Resource)
	return f.fail("no condition " + kind.Resource)
}

func (f *fakeAPI) List(_ context.Context, kind Kind, from string, limit int64) (*metav1.PartialObjectMetadataList, error) {
	if err := f.fail("list " + kind.Resource + " " + from); err != nil {
		return nil, err
	}
	start, _ := strconv.Atoi(from)
	end := min(start+int(limit), len(f.objects[kind.Resource]))
	page := &metav1.PartialObjectMetadataList{Items: f.objects[kind.Resource][start:end]}
	if end < len(f.objects[kind.Resource]) {
		page.Continue = strconv.Itoa(end)
	}
	return page, nil
}

func (f *fakeAPI) Apply(_ context.Context, kind Kind, configuration *unstructured.Unstructured, manager string) error {
	f.applied = append(f.applied, configuration.GetName()+" by "+manager)
	if err := f.fail("apply " + configuration.GetName()); err != nil {
		return err
	}
	f.version[configuration.GetUID()] = kind.Version
	return nil
}

func (f *fakeAPI) SetStoredVersion(_ context.Context, kind Kind, resourceVersion string) error {
	if err := f.fail("set " + kind.Resource); err != nil {
		return err
	}
	if resourceVersion != strconv.FormatInt(f.generation, 10) {
		panic("the CustomResourceDefinition has changed since it was read")
	}
	for _, object := range f.objects[kind.Resource] {
		if f.version[object.UID] != kind.Version {
			panic(object.Name + " is stored in an older version")
		}
	}
	f.stored[kind.Resource] = []string{kind.Version}
	return nil
}

func newMigration(t *testing.T, api API, kinds ...Kind) *Migration {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &Migration{
		API: api, Kinds: kinds, Wait: func(ctx context.Context) error { return ctx.Err() }, Metrics: metrics,
		Recorder: &recorder{}, Logger: logr.Discard(), Clock: clocktesting.NewFakeClock(time.Now()),
	}
}

// recorder keeps Events.
type recorder struct{ events []string }

// Eventf implements [events.EventRecorder].
func (r *recorder) Eventf(regarding, _ runtime.Object, eventType, reason, action, note string, args ...any) {
	name := ""
	if object, ok := regarding.(metav1.Object); ok {
		name = object.GetName()
	}
	r.events = append(r.events, fmt.Sprintf("%s %s %s %s: %s", eventType, reason, action, name, fmt.Sprintf(note, args...)))
}

// recorded are the Events of a migration.
func recorded(m *Migration) []string {
	r, _ := m.Recorder.(*recorder)
	return r.events
}

func TestMigratesEveryObjectOnce(t *testing.T) {
	g, api := NewWithT(t), newFakeAPI(apps, 2*pageSize+1)
	api.add(stores, 1)
	m := newMigration(t, api, apps, stores)

	g.Expect(m.migrateAll(t.Context())).To(BeTrue())

	g.Expect(api.stored).To(Equal(map[string][]string{"appservices": {"v1beta1"}, "securestorages": {"v1beta1"}}))
	g.Expect(api.applied).To(HaveLen(2*pageSize + 2))
	g.Expect(testutil.ToFloat64(m.Metrics.objects.WithLabelValues("appservices", "migrated"))).To(BeEquivalentTo(2*pageSize + 1))
	g.Expect(m.migrateAll(t.Context())).To(BeTrue())
	g.Expect(api.applied).To(HaveLen(2*pageSize+2), "nothing remains")
	g.Expect(recorded(m)).To(Equal([]string{
		"Normal Migrated Migrate appservices.fixpoint.dev: All objects are stored in v1beta1. 1001 were migrated.",
		"Normal Migrated Migrate securestorages.fixpoint.dev: All objects are stored in v1beta1. 1 were migrated.",
	}))
	g.Expect(api.conditions["appservices"]).To(ConsistOf(apiextensionsv1.CustomResourceDefinitionCondition{
		Type: ConditionMigrated, Status: apiextensionsv1.ConditionTrue, Reason: ReasonMigrated,
		Message: "All objects are stored in v1beta1. 1001 were migrated.", LastTransitionTime: metav1.NewTime(m.Clock.Now()),
	}))
}

func TestAFailureKeepsTheStoredVersion(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		request string
		applied int
		event   string
	}{
		"of an object": {request: "apply appservices-0001", applied: 3,
			event: "2 objects are stored in v1beta1; retrying within a minute: 1 of 3 objects failed: applying AppService shop/appservices-0001: broken"},
		"of a list": {request: "list appservices ", applied: 0,
			event: "0 objects are stored in v1beta1; retrying within a minute: listing appservices: broken"},
		"of the definition": {request: "stored appservices", applied: 0},
		"of setting the stored version": {request: "set appservices", applied: 3,
			event: "3 objects are stored in v1beta1; retrying within a minute: setting the stored version of appservices: broken"},
		"of the last object": {request: "apply appservices-0002", applied: 3,
			event: "2 objects are stored in v1beta1; retrying within a minute: 1 of 3 objects failed: applying AppService shop/appservices-0002: broken"},
		"of the progress": {request: "condition appservices Migrating", applied: 0,
			event: "0 objects are stored in v1beta1; retrying within a minute: setting the condition fixpoint.dev/Migrated of appservices.fixpoint.dev: broken"},
		"of the result": {request: "condition appservices Migrated", applied: 3,
			event: "3 objects are stored in v1beta1; retrying within a minute: setting the condition fixpoint.dev/Migrated of appservices.fixpoint.dev: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			g, api := NewWithT(t), newFakeAPI(apps, 3)
			api.fail = func(request string) error {
				if request == c.request {
					return broken
				}
				return nil
			}
			m := newMigration(t, api, apps)
			g.Expect(m.migrateAll(t.Context())).To(BeFalse())
			g.Expect(api.applied).To(HaveLen(c.applied), "other objects are migrated")
			g.Expect(api.stored["appservices"]).To(ContainElement("v1alpha1"))
			if c.event != "" {
				g.Expect(recorded(m)).To(ContainElement("Warning MigrationFailed Migrate appservices.fixpoint.dev: " + c.event))
				g.Expect(api.conditions["appservices"]).To(ConsistOf(And(
					HaveField("Status", apiextensionsv1.ConditionFalse), HaveField("Reason", ReasonMigrationFailed), HaveField("Message", c.event))))
			}

			// And the next attempt completes it.
			api.fail = func(string) error { return nil }
			g.Expect(m.migrateAll(t.Context())).To(BeTrue())
			g.Expect(api.stored["appservices"]).To(ConsistOf("v1beta1"))
		})
	}
}

// Without an older stored version no attempt follows, so a condition that says otherwise would stay forever.
func TestAConditionThatSaysThatObjectsRemainIsCorrected(t *testing.T) {
	for name, last := range map[string]func(*fakeAPI){
		"the response to the last write is lost":                   func(api *fakeAPI) { api.stored["appservices"] = []string{"v1beta1"} },
		"an administrator sets the stored version after a failure": func(*fakeAPI) {},
	} {
		t.Run(name, func(t *testing.T) {
			g, api := NewWithT(t), newFakeAPI(apps, 1)
			m := newMigration(t, api, apps)
			api.fail = func(request string) error {
				if request == "set appservices" {
					last(api)
					return errors.New("connection reset")
				}
				return nil
			}
			g.Expect(m.migrateAll(t.Context())).To(BeFalse())
			g.Expect(api.conditions["appservices"]).To(ConsistOf(HaveField("Reason", ReasonMigrationFailed)))
			api.stored["appservices"] = []string{"v1beta1"}

			g.Expect(m.migrateAll(t.Context())).To(BeTrue())

			g.Expect(api.conditions["appservices"]).To(ConsistOf(And(
				HaveField("Status", apiextensionsv1.ConditionTrue), HaveField("Reason", ReasonMigrated), HaveField("Message", "All objects are stored in v1beta1."))))
			events := len(recorded(m))
			g.Expect(m.migrateAll(t.Context())).To(BeTrue())
			g.Expect(recorded(m)).To(HaveLen(events), "it is reported once")
		})
	}
}

// The API server refuses an Event with a longer note.
func TestEventAboutManyFailuresIsNotTooLong(t *testing.T) {
	g, api := NewWithT(t), newFakeAPI(apps, 9)
	api.fail = func(request string) error {
		if strings.HasPrefix(request, "apply ") {
			return errors.New(strings.Repeat("spec.image: Invalid value ", 20))
		}
		return nil
	}
	m := newMigration(t, api, apps)
	g.Expect(m.migrateAll(t.Context())).To(BeFalse())
	_, note, _ := strings.Cut(recorded(m)[0], "appservices.fixpoint.dev: ")
	g.Expect(note).To(HavePrefix("0 objects are stored in v1beta1; retrying within a minute: 9 of 9 objects failed: applying AppService shop/appservices-0000: "))
	g.Expect(len(note)).To(BeNumerically("<=", 1024))
	g.Expect(api.conditions["appservices"][0].Message).To(ContainSubstring("appservices-0004"))
}

func TestObjectsThatAreDeletedMeanwhileAreMigrated(t *testing.T) {
	resource := schema.GroupResource{Group: "fixpoint.dev", Resource: "appservices"}
	for name, failure := range map[string]error{
		"deleted":  apierrors.NewNotFound(resource, "a"),
		"replaced": apierrors.NewConflict(resource, "a", errors.New("the UID differs")),
	} {
		t.Run(name, func(t *testing.T) {
			g, api := NewWithT(t), newFakeAPI(apps, 2)
			api.version["appservices0"] = "v1beta1"
			api.fail = func(request string) error {
				if request == "apply appservices-0000" {
					return failure
				}
				return nil
			}
			g.Expect(newMigration(t, api, apps).migrateAll(t.Context())).To(BeTrue())
		})
	}
}

func TestAListThatExpiresStartsAgain(t *testing.T) {
	g, api := NewWithT(t), newFakeAPI(apps, pageSize+1)
	expired := false
	api.fail = func(request string) error {
		if request == fmt.Sprintf("list appservices %d", pageSize) && !expired {
			expired = true
			return apierrors.NewResourceExpired("too old")
		}
		return nil
	}
	g.Expect(newMigration(t, api, apps).migrateAll(t.Context())).To(BeTrue())
	g.Expect(expired).To(BeTrue())
	g.Expect(api.stored["appservices"]).To(ConsistOf("v1beta1"))
}

// A list is valid for minutes, in which not all objects are migrated if there are many. If it started again, it would
// expire again, and the migration would not end.
func TestAListThatExpiresContinuesWithTheRest(t *testing.T) {
	g, api := NewWithT(t), newFakeAPI(apps, 2*pageSize+1)
	api.fail = func(request string) error {
		if strings.HasPrefix(request, "list appservices ") && slices.Contains([]string{strconv.Itoa(pageSize), strconv.Itoa(2 * pageSize)}, strings.TrimPrefix(request, "list appservices ")) {
			expired := apierrors.NewResourceExpired("too old")
			expired.ErrStatus.Continue = "0" + strings.TrimPrefix(request, "list appservices ") // the rest, as it is now
			return expired
		}
		return nil
	}
	m := newMigration(t, api, apps)
	g.Expect(m.migrateAll(t.Context())).To(BeTrue())
	g.Expect(api.applied).To(HaveLen(2*pageSize+1), "each object is written once")
	g.Expect(recorded(m)).To(ContainElement(ContainSubstring("1001 were migrated")))
}

func TestTheErrorOfAnExpiredListSaysWhereItContinues(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGone)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","metadata":{"continue":"rest"},"status":"Failure","message":"too old","reason":"Expired","code":410}`))
	}))
	t.Cleanup(server.Close)
	api, err := NewAPI(&rest.Config{Host: server.URL})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = api.List(t.Context(), apps, "first", pageSize)
	g.Expect(apierrors.IsResourceExpired(err)).To(BeTrue())
	g.Expect(restOf(err)).To(Equal("rest"))
	g.Expect(restOf(apierrors.NewResourceExpired("too old"))).To(BeEmpty())
	g.Expect(restOf(errors.New("broken"))).To(BeEmpty())
}

// A migration starts when all API servers store the current version, and goes on until it succeeds.
func TestStartRetriesUntilAllIsMigrated(t *testing.T) {
	g, api := NewWithT(t), newFakeAPI(apps, 1)
	g.SetDefaultEventuallyTimeout(time.Minute)
	fails := true
	api.fail = func(request string) error {
		if fails && request == "apply appservices-0000" {
			return errors.New("broken")
		}
		return nil
	}
	m := newMigration(t, api, apps)
	now := clocktesting.NewFakeClock(time.Now())
	m.Clock = now
	ended := make(chan error)
	go func() { ended <- m.Start(t.Context()) }()
	for i, delay := range []time.Duration{settling, firstRetry, 2 * firstRetry, 4 * firstRetry, 8 * firstRetry, maxRetry, maxRetry} {
		g.Eventually(now.HasWaiters).Should(BeTrue(), "waiting for attempt %d", i)
		fails = i < 6
		now.Step(delay - 1)
		g.Consistently(now.HasWaiters, "20ms").Should(BeTrue(), "before attempt %d", i)
		g.Expect(api.applied).To(HaveLen(i))
		now.Step(1)
	}
	g.Eventually(ended).Should(Receive(BeNil()))
	g.Expect(api.stored["appservices"]).To(ConsistOf("v1beta1"))
}

// An administrator who returns to the older version stores it again: applying objects would not change that.
func TestNothingIsMigratedToAVersionThatIsNotStored(t *testing.T) {
	g, api := NewWithT(t), newFakeAPI(apps, 1)
	api.storage = "v1alpha1"
	g.Expect(newMigration(t, api, apps).migrateAll(t.Context())).To(BeTrue(), "nothing remains")
	g.Expect(api.applied).To(BeEmpty())
	g.Expect(api.stored["appservices"]).To(Equal([]string{"v1alpha1", "v1beta1"}))
}

// Objects that were written meanwhile may be stored in the older version, although it is not stored any more.
func TestAChangeOfTheDefinitionStartsAgain(t *testing.T) {
	for _, request := range []string{"apply appservices-0001", "condition appservices Migrated"} {
		t.Run(request, func(t *testing.T) {
			g, api := NewWithT(t), newFakeAPI(apps, 2)
			m := newMigration(t, api, apps)
			api.fail = func(now string) error {
				if now == request && api.generation == 0 {
					api.generation, api.version["appservices0"] = 1, "v1alpha1"
				}
				return nil
			}

			g.Expect(m.migrateAll(t.Context())).To(BeFalse())
			g.Expect(api.stored["appservices"]).To(ContainElement("v1alpha1"))
			g.Expect(recorded(m)).To(ContainElement(ContainSubstring("appservices.fixpoint.dev has changed during the migration, so objects may be stored in another version")))

			g.Expect(m.migrateAll(t.Context())).To(BeTrue())
			g.Expect(api.stored["appservices"]).To(ConsistOf("v1beta1"))
		})
	}
}

func TestAKindWithoutDefinitionKeepsNoOtherFromBeingMigrated(t *testing.T) {
	g, api := NewWithT(t), newFakeAPI(apps, 1)
	api.fail = func(request string) error {
		if request == "stored securestorages" {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, "securestorages.fixpoint.dev")
		}
		return nil
	}
	g.Expect(newMigration(t, api, stores, apps).migrateAll(t.Context())).To(BeTrue())
	g.Expect(api.stored["appservices"]).To(ConsistOf("v1beta1"))
}

// What the condition says is not true any longer when another version is stored.
func TestTheConditionIsRemovedWhenAnotherVersionIsStored(t *testing.T) {
	g, api := NewWithT(t), newFakeAPI(apps, 1)
	api.add(stores, 1)
	m := newMigration(t, api, apps, stores)
	g.Expect(m.migrateAll(t.Context())).To(BeTrue())
	g.Expect(api.conditions).To(And(HaveKey("appservices"), HaveKey("securestorages")))

	api.storage = "v1alpha1"
	api.fail = func(request string) error {
		if request == "no condition securestorages" {
			return errors.New("broken")
		}
		return nil
	}
	_, err := m.inspect(t.Context())
	g.Expect(err).To(MatchError("removing the condition fixpoint.dev/Migrated of securestorages.fixpoint.dev: broken"))
	g.Expect(m.migrateAll(t.Context())).To(BeTrue(), "nothing remains")
	g.Expect(api.conditions).To(BeEmpty())
}

// A leader migrates again when a CustomResourceDefinition changes, and inspects none while none does.
func TestStartMigratesAfterAChange(t *testing.T) {
	g, api := NewWithT(t), newFakeAPI(apps, 1)
	g.SetDefaultEventuallyTimeout(time.Minute)
	api.stored["appservices"] = []string{"v1beta1"}
	inspected := make(chan struct{}, 100)
	api.fail = func(request string) error {
		if request == "stored appservices" {
			inspected <- struct{}{}
		}
		return nil
	}
	m := newMigration(t, api, apps)
	now, changed := clocktesting.NewFakeClock(time.Now()), make(chan struct{})
	m.Clock, m.Changed = now, changed
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Start(ctx) }()
	g.Eventually(inspected).Should(Receive())
	g.Consistently(inspected, "50ms").ShouldNot(Receive())

	// When the CustomResourceDefinition stored an older version for a while
	api.stored["appservices"] = []string{"v1alpha1", "v1beta1"}
	changed <- struct{}{}
	g.Eventually(now.HasWaiters).Should(BeTrue())
	now.Step(settling)
	changed <- struct{}{} // received after the migration
	g.Expect(api.stored["appservices"]).To(ConsistOf("v1beta1"))

	cancel()
	g.Eventually(ended).Should(Receive(BeNil()))
}

// A migration that its leader loses is no failure.
func TestAnInterruptedMigrationReportsNoFailure(t *testing.T) {
	g, api := NewWithT(t), newFakeAPI(apps, 3)
	m := newMigration(t, api, apps)
	ctx, cancel := context.WithCancel(t.Context())
	api.fail = func(request string) error {
		if request == "apply appservices-0001" {
			cancel()
		}
		return ctx.Err()
	}
	g.Expect(m.migrateAll(ctx)).To(BeFalse())
	g.Expect(recorded(m)).To(BeEmpty())
	g.Expect(api.stored["appservices"]).To(ContainElement("v1alpha1"))
}

func TestStartEndsIfNothingIsOlder(t *testing.T) {
	g, api := NewWithT(t), newFakeAPI(apps, 1)
	api.stored["appservices"] = []string{"v1beta1"}
	g.Expect(newMigration(t, api, apps).Start(t.Context())).To(Succeed())
	g.Expect(api.applied).To(BeEmpty())
}

func TestConfigurationMovesTheFinalizerOfTheController(t *testing.T) {
	entry := func(manager, version, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "fixpoint.dev/" + version, Subresource: subresource,
			FieldsV1: metav1.NewFieldsV1(fields),
		}
	}
	const finalizers = `{"f:metadata":{"f:finalizers":{"v:\"fixpoint.dev/teardown\"":{}}}}`
	for name, c := range map[string]struct {
		entry      metav1.ManagedFieldsEntry
		finalizers []string
		manager    string
		applied    []string
	}{
		"held in the older version":                  {entry("fixpoint-appservice", "v1alpha1", "", finalizers), []string{"fixpoint.dev/teardown", "a/b"}, "fixpoint-appservice", []string{"fixpoint.dev/teardown"}},
		"held in the current version":                {entry("fixpoint-appservice", "v1beta1", "", finalizers), []string{"fixpoint.dev/teardown"}, fieldManager, nil},
		"held by another manager":                    {entry("velero", "v1alpha1", "", finalizers), []string{"fixpoint.dev/teardown"}, fieldManager, nil},
		"a status":                                   {entry("fixpoint-appservice", "v1alpha1", "status", `{"f:status":{}}`), nil, fieldManager, nil},
		"held, but removed by a client in that time": {entry("fixpoint-appservice", "v1alpha1", "", finalizers), nil, "fixpoint-appservice", nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web", UID: "uid", Finalizers: c.finalizers, ManagedFields: []metav1.ManagedFieldsEntry{c.entry},
			}}
			configuration, manager := configurationOf(apps, object)
			g.Expect(manager).To(Equal(c.manager))
			metadata := map[string]any{"namespace": "shop", "name": "web", "uid": "uid"}
			if c.applied != nil {
				metadata["finalizers"] = []any{c.applied[0]}
			}
			g.Expect(configuration.Object).To(Equal(map[string]any{"apiVersion": "fixpoint.dev/v1beta1", "kind": "AppService", "metadata": metadata}))
		})
	}
}
