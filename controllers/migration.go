package controllers

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/migration"
)

// migrationRate is the maximum number of objects that are migrated per second.
const migrationRate = 50

// addMigration adds the migration of stored objects to a manager that serves the conversion webhook. A manager without
// permissions on cluster-scoped resources migrates nothing.
func (o Options) addMigration(ctx context.Context, mgr ctrl.Manager, hook *webhook, cfg *rest.Config) error {
	if hook == nil || o.NoClusterRights {
		return nil
	}
	api, err := migration.NewAPI(cfg)
	if err != nil {
		return fmt.Errorf("preparing the migration of stored objects: %w", err)
	}
	metrics, err := migration.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	recorder, err := newMigrationRecorder(ctx, mgr.GetScheme(), cfg)
	if err != nil {
		return err
	}
	limit := rate.NewLimiter(migrationRate, 1)
	if err := mgr.Add(&migration.Migration{
		API: api, Kinds: o.migratedKinds(), Wait: func(ctx context.Context) error { return limit.Wait(ctx) }, Metrics: metrics,
		Changed:  hook.keeper.DefinitionChanged(),
		Recorder: recorder, Logger: o.Logger.WithName("migration"), Clock: clock.RealClock{},
	}); err != nil {
		return fmt.Errorf("adding the migration of stored objects: %w", err)
	}
	return nil
}

// newMigrationRecorder returns a recorder that sends Events until ctx ends. Those about CustomResourceDefinitions are in the
// namespace default, which another release may have claimed, so the recorder of the manager does not send them.
func newMigrationRecorder(ctx context.Context, scheme *runtime.Scheme, cfg *rest.Config) (clientevents.EventRecorder, error) {
	client, err := eventsclient.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for Events: %w", err)
	}
	broadcaster := clientevents.NewBroadcaster(&clientevents.EventSinkImpl{Interface: client})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("recording Events of migrations: %w", err)
	}
	return broadcaster.NewRecorder(scheme, "fixpoint-migration"), nil
}

// migratedKinds are the kinds of the controllers that the manager runs, and so has permissions for.
func (o Options) migratedKinds() []migration.Kind {
	var kinds []migration.Kind
	for controller, kind := range map[string]migration.Kind{
		appservice.Name: {
			GroupVersionKind: v1beta1.SchemeGroupVersion.WithKind("AppService"), Resource: "appservices",
			FieldManager: appservice.FieldManager, Finalizer: appservice.Finalizer,
		},
		mcpserver.Name: {
			GroupVersionKind: v1beta1.SchemeGroupVersion.WithKind("MCPServer"), Resource: "mcpservers",
			FieldManager: mcpserver.FieldManager, Finalizer: mcpserver.Finalizer,
		},
		securestorage.Name: {
			GroupVersionKind: v1beta1.SchemeGroupVersion.WithKind("SecureStorage"), Resource: "securestorages",
			FieldManager: securestorage.FieldManager, Finalizer: securestorage.Finalizer,
		},
	} {
		if slices.Contains(o.Controllers, controller) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
