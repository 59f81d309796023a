// Package migration moves objects that are stored in an older version of the API to the current one.
//
// The API server stores an object in the current version with the next write, also if the write changes nothing. So
// each object is applied once, without any field; or, if its controller holds a finalizer in an older version, with that
// finalizer, so that later writes have to convert nothing. When all objects of a CustomResourceDefinition are migrated,
// the older versions are removed from its status.storedVersions. That field is the only memory: a migration that was
// interrupted starts again, and an object that is migrated is not written a second time.
package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

const (
	// settling is the delay before the first migration, in which all API servers observe the version to store.
	settling = 10 * time.Second
	// retryDelay is the delay after a migration in which objects failed.
	retryDelay = time.Minute
	// pageSize is the number of objects that are listed at a time.
	pageSize = 500
)

// fieldManager applies objects whose controller holds no finalizer in an older version. It holds no fields.
const fieldManager = "fixpoint-migration"

// Kind is a kind whose objects are migrated.
type Kind struct {
	schema.GroupVersionKind

	// Resource is its name in URLs, and with the group the name of its CustomResourceDefinition.
	Resource string
	// FieldManager and Finalizer are those of its controller.
	FieldManager, Finalizer string
}

// API is what a migration needs of the API server.
type API interface {
	// StoredVersions returns the versions in which objects of a kind may be stored.
	StoredVersions(ctx context.Context, kind Kind) ([]string, error)
	// List returns the metadata of some objects, and where the next ones begin.
	List(ctx context.Context, kind Kind, from string, limit int64) (*metav1.PartialObjectMetadataList, error)
	// Apply applies a configuration by force.
	Apply(ctx context.Context, kind Kind, configuration *unstructured.Unstructured, fieldManager string) error
	// SetStoredVersion declares that all objects of a kind are stored in its version.
	SetStoredVersion(ctx context.Context, kind Kind) error
}

// Migration migrates the objects of all kinds. It is a runnable of the leader.
type Migration struct {
	API   API
	Kinds []Kind
	// Wait waits before each write, to limit their rate.
	Wait    func(ctx context.Context) error
	Metrics *Metrics
	Logger  logr.Logger
	Clock   clock.WithTicker
}

// NeedLeaderElection implements [manager.LeaderElectionRunnable].
func (m *Migration) NeedLeaderElection() bool { return true }

// Start migrates until all objects are stored in the current version. It is a [manager.Runnable].
func (m *Migration) Start(ctx context.Context) error {
	older, err := m.older(ctx)
	if err == nil && len(older) == 0 {
		return nil
	}
	for delay := settling; ; delay = retryDelay {
		select {
		case <-ctx.Done():
			return nil
		case <-m.Clock.After(delay):
		}
		if m.migrateAll(ctx) {
			return nil
		}
	}
}

// older are the kinds of which objects may be stored in an older version.
func (m *Migration) older(ctx context.Context) ([]Kind, error) {
	var older []Kind
	for _, kind := range m.Kinds {
		stored, err := m.API.StoredVersions(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("reading the stored versions of %s: %w", kind.Resource, err)
		}
		if slices.ContainsFunc(stored, func(version string) bool { return version != kind.Version }) {
			older = append(older, kind)
		}
	}
	return older, nil
}

// migrateAll migrates the kinds that need it, and returns whether nothing remains.
func (m *Migration) migrateAll(ctx context.Context) (done bool) {
	older, err := m.older(ctx)
	if err != nil {
		m.Logger.Error(err, "Failed to migrate objects")
		return false
	}
	done = true
	for _, kind := range older {
		if err := m.migrate(ctx, kind); err != nil {
			m.Logger.Error(err, "Failed to migrate objects; retrying", "resource", kind.Resource, "version", kind.Version)
			done = false
		}
	}
	return done
}

// migrate migrates the objects of a kind. An object that fails does not keep the others from it.
func (m *Migration) migrate(ctx context.Context, kind Kind) error {
	m.Logger.Info("Migrating objects", "resource", kind.Resource, "version", kind.Version)
	var failures []error
	migrated, from := 0, ""
	for {
		page, err := m.API.List(ctx, kind, from, pageSize)
		if apierrors.IsResourceExpired(err) {
			from = "" // objects that are migrated are not written again
			continue
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", kind.Resource, err)
		}
		for i := range page.Items {
			if err := m.migrateObject(ctx, kind, &page.Items[i]); err != nil {
				failures = append(failures, err)
				continue
			}
			migrated++
		}
		m.Metrics.observe(kind, migrated, len(failures))
		if from = page.Continue; from == "" {
			break
		}
	}
	if len(failures) > 0 {
		const shown = 5
		return fmt.Errorf("%d of %d objects failed: %w", len(failures), len(failures)+migrated, errors.Join(failures[:min(len(failures), shown)]...))
	}
	if err := m.API.SetStoredVersion(ctx, kind); err != nil {
		return fmt.Errorf("setting the stored version of %s: %w", kind.Resource, err)
	}
	m.Logger.Info("Migrated all objects", "resource", kind.Resource, "version", kind.Version, "objects", migrated)
	return nil
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
