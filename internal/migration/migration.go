// Package migration moves objects that are stored in an older version of the API to the current one.
//
// The API server stores an object in the current version with the next write, also if the write changes nothing. So
// each object is applied once, without any field; or, if its controller holds a finalizer in an older version, with that
// finalizer, so that later writes have to convert nothing. When all objects of a CustomResourceDefinition are migrated,
// the older versions are removed from its status.storedVersions. That field is the only memory: a migration that was
// interrupted starts again, and an object that is migrated is not written a second time. The condition
// [ConditionMigrated] of the CustomResourceDefinition, Events and a metric show the progress.
package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

const (
	// settling is the delay before the first migration, in which all API servers observe the version to store.
	settling = 10 * time.Second
	// firstRetry is the delay after a migration in which objects failed, because others write an object at a high rate
	// for example. It doubles up to maxRetry.
	firstRetry = 5 * time.Second
	maxRetry   = time.Minute
	// pageSize is the number of objects that are listed at a time.
	pageSize = 500
)

// fieldManager applies objects whose controller holds no finalizer in an older version. It holds no fields of them, and
// of CustomResourceDefinitions status.storedVersions.
const fieldManager = "fixpoint-migration"

// conditionManager holds the condition of CustomResourceDefinitions.
const conditionManager = "fixpoint-migration-progress"

// ConditionMigrated is the type of a condition of a CustomResourceDefinition. Definitions of which all objects were
// created in the current version, and those that store another version, do not have it.
const ConditionMigrated apiextensionsv1.CustomResourceDefinitionConditionType = "fixpoint.dev/Migrated"

// Reasons of the condition, and of Events about the CustomResourceDefinition.
const (
	// ReasonMigrating means that objects are being migrated.
	ReasonMigrating = "Migrating"
	// ReasonMigrationFailed means that objects could not be migrated. The next attempt follows within a minute.
	ReasonMigrationFailed = "MigrationFailed"
	// ReasonMigrated means that all objects are stored in the current version.
	ReasonMigrated = "Migrated"
)

// Kind is a kind whose objects are migrated.
type Kind struct {
	schema.GroupVersionKind

	// Resource is its name in URLs, and with the group the name of its CustomResourceDefinition.
	Resource string
	// FieldManager and Finalizer are those of its controller.
	FieldManager, Finalizer string

	// generation is that of its CustomResourceDefinition when the migration of its objects began.
	generation int64
}

// API is what a migration needs of the API server.
type API interface {
	// Definition returns the CustomResourceDefinition of a kind.
	Definition(ctx context.Context, kind Kind) (*apiextensionsv1.CustomResourceDefinition, error)
	// List returns the metadata of some objects, and where the next ones begin.
	List(ctx context.Context, kind Kind, from string, limit int64) (*metav1.PartialObjectMetadataList, error)
	// Apply applies a configuration by force.
	Apply(ctx context.Context, kind Kind, configuration *unstructured.Unstructured, fieldManager string) error
	// SetStoredVersion declares that all objects of a kind are stored in its version, if its CustomResourceDefinition has
	// the resource version.
	SetStoredVersion(ctx context.Context, kind Kind, resourceVersion string) error
	// SetCondition sets a condition of the CustomResourceDefinition of a kind.
	SetCondition(ctx context.Context, kind Kind, condition apiextensionsv1.CustomResourceDefinitionCondition) error
	// RemoveCondition removes the condition that was set.
	RemoveCondition(ctx context.Context, kind Kind) error
}

// Migration migrates the objects of all kinds. It is a runnable of the leader.
type Migration struct {
	API   API
	Kinds []Kind
	// Wait waits before each write, to limit their rate.
	Wait func(ctx context.Context) error
	// Changed receives after a change of a CustomResourceDefinition. Without it, a migration ends when all objects are
	// migrated.
	Changed  <-chan struct{}
	Metrics  *Metrics
	Recorder events.EventRecorder
	Logger   logr.Logger
	Clock    clock.WithTicker
}

// NeedLeaderElection implements [manager.LeaderElectionRunnable].
func (m *Migration) NeedLeaderElection() bool { return true }

// Start migrates until all objects are stored in the current version, and again after each change of a
// CustomResourceDefinition. It is a [manager.Runnable].
func (m *Migration) Start(ctx context.Context) error {
	for {
		m.run(ctx)
		if m.Changed == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.Changed:
		}
	}
}

// run migrates until all objects are stored in the current version.
func (m *Migration) run(ctx context.Context) {
	if older, err := m.inspect(ctx); err == nil && len(older) == 0 {
		return
	}
	retry := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: maxRetry, Steps: math.MaxInt}
	for delay := settling; ; delay = retry.Step() {
		select {
		case <-ctx.Done():
			return
		case <-m.Clock.After(delay):
		}
		if m.migrateAll(ctx) {
			return
		}
	}
}

// inspect returns the kinds of which objects may be stored in an older version. A kind that another version is stored of
// is none of them: objects that are applied would be stored in that version. It loses the condition, which would not be
// true any longer.
func (m *Migration) inspect(ctx context.Context) ([]Kind, error) {
	var older []Kind
	for _, kind := range m.Kinds {
		definition, err := m.API.Definition(ctx, kind)
		if apierrors.IsNotFound(err) {
			continue // it has no objects
		}
		if err != nil {
			return nil, fmt.Errorf("reading the CustomResourceDefinition of %s: %w", kind.Resource, err)
		}
		switch {
		case !storesIn(definition, kind.Version):
			if err := m.removeCondition(ctx, kind, definition); err != nil {
				return nil, err
			}
		case !slices.Equal(definition.Status.StoredVersions, []string{kind.Version}):
			kind.generation = definition.Generation
			older = append(older, kind)
		default:
			if err := m.confirm(ctx, kind, definition); err != nil {
				return nil, err
			}
		}
	}
	return older, nil
}

// confirm corrects a condition that says that objects remain, although the definition declares that none does: the response
// to that write was lost, so that it was reported as a failure, or an administrator has written it.
func (m *Migration) confirm(ctx context.Context, kind Kind, definition *apiextensionsv1.CustomResourceDefinition) error {
	if !slices.ContainsFunc(definition.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == ConditionMigrated && c.Status != apiextensionsv1.ConditionTrue
	}) {
		return nil
	}
	message := fmt.Sprintf("All objects are stored in %s.", kind.Version)
	return m.report(ctx, kind, corev1.EventTypeNormal, apiextensionsv1.ConditionTrue, ReasonMigrated, message)
}

func (m *Migration) removeCondition(ctx context.Context, kind Kind, definition *apiextensionsv1.CustomResourceDefinition) error {
	if !slices.ContainsFunc(definition.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool { return c.Type == ConditionMigrated }) {
		return nil
	}
	if err := m.API.RemoveCondition(ctx, kind); err != nil {
		return fmt.Errorf("removing the condition %s of %s: %w", ConditionMigrated, kind.definition(), err)
	}
	m.Logger.Info("Removed the condition of a CustomResourceDefinition that stores another version", "definition", kind.definition(), "condition", ConditionMigrated)
	return nil
}

// storesIn reports whether objects are stored in a version when they are written.
func storesIn(definition *apiextensionsv1.CustomResourceDefinition, version string) bool {
	return slices.ContainsFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Storage && v.Name == version
	})
}

// migrateAll migrates the kinds that need it, and returns whether nothing remains.
func (m *Migration) migrateAll(ctx context.Context) (done bool) {
	older, err := m.inspect(ctx)
	if err != nil {
		m.Logger.Error(err, "Failed to migrate objects")
		return false
	}
	done = true
	for _, kind := range older {
		migrated, err := m.migrate(ctx, kind)
		if err == nil {
			err = m.complete(ctx, kind, migrated)
		}
		if ctx.Err() != nil {
			return false // the next leader continues
		}
		if err != nil {
			err = errors.Join(err, m.report(ctx, kind, corev1.EventTypeWarning, apiextensionsv1.ConditionFalse, ReasonMigrationFailed,
				fmt.Sprintf("%d objects are stored in %s; retrying within a minute: %v", migrated, kind.Version, err)))
			m.Logger.Error(err, "Failed to migrate objects; retrying", "resource", kind.Resource, "version", kind.Version)
			done = false
		}
	}
	return done
}

// complete declares that all objects of a kind are migrated. The stored versions come last, because without older ones
// no attempt follows.
func (m *Migration) complete(ctx context.Context, kind Kind, migrated int) error {
	if _, err := m.unchanged(ctx, kind); err != nil {
		return err
	}
	message := fmt.Sprintf("All objects are stored in %s. %d were migrated.", kind.Version, migrated)
	if err := m.report(ctx, kind, corev1.EventTypeNormal, apiextensionsv1.ConditionTrue, ReasonMigrated, message); err != nil {
		return err
	}
	resourceVersion, err := m.unchanged(ctx, kind)
	if err != nil {
		return err
	}
	if err := m.API.SetStoredVersion(ctx, kind, resourceVersion); err != nil {
		return fmt.Errorf("setting the stored version of %s: %w", kind.Resource, err)
	}
	m.Logger.Info("Migrated all objects", "resource", kind.Resource, "version", kind.Version, "objects", migrated)
	return nil
}

// unchanged returns the resource version of the CustomResourceDefinition of a kind. It fails if the definition has changed
// since the migration began: objects may have been stored in another version meanwhile.
func (m *Migration) unchanged(ctx context.Context, kind Kind) (resourceVersion string, err error) {
	definition, err := m.API.Definition(ctx, kind)
	if err != nil {
		return "", fmt.Errorf("reading the CustomResourceDefinition of %s: %w", kind.Resource, err)
	}
	if definition.Generation != kind.generation {
		return "", fmt.Errorf("CustomResourceDefinition %s has changed during the migration, so objects may be stored in another version", kind.definition())
	}
	return definition.ResourceVersion, nil
}

// report sets the condition, and emits an Event unless the type is empty.
func (m *Migration) report(ctx context.Context, kind Kind, eventType string, status apiextensionsv1.ConditionStatus, reason, message string) error {
	definition, err := m.API.Definition(ctx, kind)
	if err != nil {
		return fmt.Errorf("reading the CustomResourceDefinition of %s: %w", kind.Resource, err)
	}
	if err := m.setCondition(ctx, kind, definition, status, reason, message); err != nil {
		return err
	}
	if eventType != "" {
		definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		const longest = 1024 // bytes of a note that the API server accepts
		m.Recorder.Eventf(definition, nil, eventType, reason, "Migrate", "%s", workload.Cut(message, longest))
	}
	return nil
}

func (m *Migration) setCondition(ctx context.Context, kind Kind, definition *apiextensionsv1.CustomResourceDefinition, status apiextensionsv1.ConditionStatus, reason, message string) error {
	condition := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: ConditionMigrated, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(m.Clock.Now()),
	}
	for _, before := range definition.Status.Conditions {
		if before.Type == condition.Type && before.Status == condition.Status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
	}
	if err := m.API.SetCondition(ctx, kind, condition); err != nil {
		return fmt.Errorf("setting the condition %s of %s: %w", ConditionMigrated, kind.definition(), err)
	}
	return nil
}

// migrate migrates the objects of a kind, and returns how many. An object that fails does not keep the others from it.
func (m *Migration) migrate(ctx context.Context, kind Kind) (migrated int, err error) {
	m.Logger.Info("Migrating objects", "resource", kind.Resource, "version", kind.Version)
	var failures []error
	from := ""
	for {
		if err := m.progress(ctx, kind, migrated, len(failures)); err != nil {
			return migrated, err
		}
		page, err := m.API.List(ctx, kind, from, pageSize)
		if apierrors.IsResourceExpired(err) {
			if from = restOf(err); from == "" {
				migrated, failures = 0, nil // objects that are migrated are not written again
			}
			continue
		}
		if err != nil {
			return migrated, fmt.Errorf("listing %s: %w", kind.Resource, err)
		}
		for i := range page.Items {
			if err := m.migrateObject(ctx, kind, &page.Items[i]); err != nil {
				failures = append(failures, err)
				continue
			}
			migrated++
		}
		if from = page.Continue; from == "" {
			break
		}
	}
	m.Metrics.observe(kind, migrated, len(failures))
	if len(failures) > 0 {
		const shown = 5
		return migrated, fmt.Errorf("%d of %d objects failed: %w", len(failures), len(failures)+migrated, errors.Join(failures[:min(len(failures), shown)]...))
	}
	return migrated, nil
}

// restOf is where a list continues that has expired, with the objects as they are by then: those that were created meanwhile
// are stored in the current version. API servers keep a list for minutes, in which not all of many objects are migrated.
func restOf(expired error) (from string) {
	if status, ok := errors.AsType[*apierrors.StatusError](expired); ok {
		from = status.ErrStatus.Continue
	}
	return from
}

// progress shows how many objects are migrated so far.
func (m *Migration) progress(ctx context.Context, kind Kind, migrated, failed int) error {
	m.Metrics.observe(kind, migrated, failed)
	return m.report(ctx, kind, "", apiextensionsv1.ConditionFalse, ReasonMigrating,
		fmt.Sprintf("%d objects are migrated to %s so far; %d failed.", migrated, kind.Version, failed))
}

func (m *Migration) migrateObject(ctx context.Context, kind Kind, object *metav1.PartialObjectMetadata) error {
	if err := m.Wait(ctx); err != nil {
		return err
	}
	configuration, manager := configurationOf(kind, object)
	err := m.API.Apply(ctx, kind, configuration, manager)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it was deleted, and perhaps created again, in the current version
	}
	if err != nil {
		return fmt.Errorf("applying %s %s/%s: %w", kind.Kind, object.Namespace, object.Name, err)
	}
	return nil
}

// configurationOf is what to apply to an object, and by which field manager. The UID keeps it from an object that
// replaced this one.
func configurationOf(kind Kind, object *metav1.PartialObjectMetadata) (*unstructured.Unstructured, string) {
	configuration := &unstructured.Unstructured{}
	configuration.SetGroupVersionKind(kind.GroupVersionKind)
	configuration.SetNamespace(object.Namespace)
	configuration.SetName(object.Name)
	configuration.SetUID(object.UID)
	if !holdsInOlderVersion(kind, object) {
		return configuration, fieldManager
	}
	if slices.Contains(object.Finalizers, kind.Finalizer) {
		configuration.SetFinalizers([]string{kind.Finalizer})
	}
	return configuration, kind.FieldManager
}

// holdsInOlderVersion reports whether the controller holds the finalizer of an object in an older version. It holds
// nothing else outside of the status.
func holdsInOlderVersion(kind Kind, object *metav1.PartialObjectMetadata) bool {
	current := kind.GroupVersion().String()
	return slices.ContainsFunc(object.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == kind.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" &&
			entry.APIVersion != current && entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:finalizers"`))
	})
}
