package releases

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/internal/register"
)

// Name is the name of the controller in metrics and logs.
const Name = "releases"

const (
	// LeaseName is the name of the Lease in which all releases claim their namespaces.
	LeaseName = "releases.fixpoint.dev"
	// LeaseNamespace is its namespace by default, which exists in every cluster, and in which only administrators can write.
	LeaseNamespace = metav1.NamespaceSystem
	// ConditionsAnnotation is the annotation of a release's Lease for leader election with its conditions.
	ConditionsAnnotation = "fixpoint.dev/conditions"
)

// ConditionClaimed is True if no other release has claimed a namespace that this release selects.
const ConditionClaimed = "NamespacesClaimed"

// The reasons of ConditionClaimed.
const (
	ReasonClaimed               = "Claimed"
	ReasonClaimedByOtherRelease = "ClaimedByOtherRelease"
)

const (
	// DefaultDuration is how long claims are valid after they were renewed.
	DefaultDuration = 5 * time.Minute
	// renewShare is the fraction of the duration, 1/renewShare, after which claims are renewed.
	renewShare = 5
	// Claims are proven for 4/5 of their duration. Writes that are pending then have until the end of it.
	provenShares, ofShares = 4, 5
	// coalesce is the shortest time between two writes of the Lease, so that a change of many namespaces causes few.
	coalesce = 100 * time.Millisecond
	// maxRetry is the longest delay after claims that fail, for example without the permission: until they succeed, the
	// release reconciles nothing.
	maxRetry = 30 * time.Second
)

// Options of a [Controller].
type Options struct {
	// Guard permits writes in the claimed namespaces.
	Guard *lease.Guard
	// Claims is the namespace of the Lease with the claims of all releases.
	Claims string
	// Release is the namespace of the Lease for leader election, LeaseName is the name of that Lease, and Leader is
	// the identity of this replica.
	Release, LeaseName, Leader string
	// Pods is the namespace of the pods of the manager, which a selector does not select. It is optional.
	Pods string
	// Namespaces are those to reconcile. Selector selects them by labels. If both are empty, all are.
	Namespaces []string
	Selector   labels.Selector
	// Duration is how long claims are valid. Default [DefaultDuration].
	Duration time.Duration
	// Clock is optional.
	Clock clock.PassiveClock
}

// Controller claims the namespaces that this release selects, while this replica is the leader.
type Controller struct {
	Options
	// cached may lag behind writes: the resourceVersion of each write shows that what it was decided on is current.
	cached client.Reader
	direct client.Client
	// refusals is the metric of the namespaces that other releases have claimed.
	refusals prometheus.Gauge
	// seen are the claims of other releases, and since when they are unchanged.
	seen map[string]observation
	// written is when the claims were written last.
	written time.Time
	// reported is the condition on the Lease for leader election.
	reported *metav1.Condition
}

// CacheOptions are what the cache of the manager keeps for the controller.
func CacheOptions(claims string) map[client.Object]cache.ByObject {
	named := cache.Config{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, LeaseName)}
	return map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{claims: named}, Transform: cache.TransformStripManagedFields()},
		&corev1.Namespace{}:     {Transform: onlyLabels},
	}
}

// onlyLabels keeps the name and the labels of a namespace.
func onlyLabels(cached any) (any, error) {
	if metadata, ok := cached.(*metav1.PartialObjectMetadata); ok {
		metadata.ManagedFields, metadata.Annotations = nil, nil
	}
	return cached, nil
}

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, o Options) error {
	if o.Duration == 0 {
		o.Duration = DefaultDuration
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	refusals, err := register.Metric(ctrlmetrics.Registry, "claims", prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fixpoint_releases_refused_namespaces",
		Help: "Number of namespaces that this release selects but does not reconcile, because another release has claimed them; 1 if it selects all namespaces.",
	}))
	if err != nil {
		return err
	}
	direct, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("building a client for the claims: %w", err)
	}
	c := &Controller{Options: o, cached: mgr.GetCache(), direct: direct, refusals: refusals, seen: map[string]observation{}}
	toLease := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{c.leaseKey()} })
	b := ctrl.NewControllerManagedBy(mgr).Named(Name).Watches(&coordinationv1.Lease{}, toLease).WatchesRawSource(c.atStart()).
		WithOptions(controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](coalesce, maxRetry)})
	if o.Selector != nil {
		b = b.WatchesMetadata(&corev1.Namespace{}, toLease, builder.WithPredicates(predicate.LabelChangedPredicate{}))
	}
	if err := b.Complete(c); err != nil {
		return fmt.Errorf("building the controller %s: %w", Name, err)
	}
	return nil
}

// atStart requests the first reconcile, because the Lease may not exist.
func (c *Controller) atStart() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(c.leaseKey())
		return nil
	})
}

func (c *Controller) leaseKey() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: c.Claims, Name: LeaseName}}
}

// Reconcile implements [reconcile.Reconciler].
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	current := &coordinationv1.Lease{}
	if err := c.cached.Get(ctx, c.leaseKey().NamespacedName, current); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading the Lease %s: %w", c.leaseKey(), err)
	}
	selected, err := c.selected(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	records, texts := recordsOf(current.Annotations)
	own, exists := records[c.Release]
	delete(records, c.Release)
	now := c.Clock.Now()
	expired, nextExpiry := observe(c.seen, records, texts, now)
	for _, release := range expired {
		delete(records, release)
	}
	claimed, refused := decide(selected, records)
	if err := c.Guard.GiveUpAllBut(ctx, claimed); err != nil {
		return reconcile.Result{}, fmt.Errorf("waiting for writes in namespaces that this release gives up: %w", err)
	}
	renewIn := c.Duration/renewShare - now.Sub(c.written)
	if exists && own.Leader == c.Leader && own.claimed().Equal(claimed) && c.Guard.Claimed().Equal(claimed) && len(expired) == 0 && renewIn > 0 {
		return reconcile.Result{RequeueAfter: soonest(renewIn, nextExpiry)}, c.report(ctx, selected, refused)
	}
	if wait := coalesce - now.Sub(c.written); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	// What it wrote triggers the next reconcile, which reports it.
	return c.write(ctx, current, claimed, expired)
}

func soonest(a, b time.Duration) time.Duration {
	if b > 0 && b < a {
		return b
	}
	return a
}

// selected are the namespaces that this release is configured to reconcile. The namespace of the manager is not
// selected by labels, because whoever creates pods in it can run them with the ServiceAccount of the manager.
func (c *Controller) selected(ctx context.Context) (lease.Namespaces, error) {
	if c.Selector == nil {
		return lease.Namespaces{All: len(c.Namespaces) == 0, Names: sets.New(c.Namespaces...)}, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := c.cached.List(ctx, list, client.MatchingLabelsSelector{Selector: c.Selector}); err != nil {
		return lease.Namespaces{}, fmt.Errorf("listing the namespaces that --namespace-selector selects: %w", err)
	}
	names := sets.New[string]()
	for i := range list.Items {
		names.Insert(list.Items[i].Name)
	}
	return lease.Namespaces{Names: names.Delete(c.Release, c.Pods)}, nil
}

// write records the claims, and removes those of other releases that have expired. It has the resourceVersion of
// the Lease that the claims were decided on.
func (c *Controller) write(ctx context.Context, current *coordinationv1.Lease, claimed lease.Namespaces, expired []string) (reconcile.Result, error) {
	now := c.Clock.Now()
	text, err := newRecord(c.Leader, claimed, now, c.Duration).annotation()
	if err != nil {
		return reconcile.Result{}, err
	}
	desired := coordinationv1ac.Lease(LeaseName, c.Claims).WithAnnotations(map[string]string{annotationPrefix + c.Release: text})
	for _, release := range expired {
		// An empty annotation takes it over from the other release, and the next write removes it.
		desired.WithAnnotations(map[string]string{annotationPrefix + release: ""})
	}
	if current.UID == "" {
		desired.WithResourceVersion("1") // no object has it, so the API server refuses it if the Lease exists
	} else {
		desired.WithUID(current.UID).WithResourceVersion(current.ResourceVersion)
	}
	err = c.Guard.Claim(claimed, c.Duration*provenShares/ofShares, func() error {
		return c.direct.Apply(ctx, desired, client.FieldOwner("fixpoint-"+Name+"-"+c.Release), client.ForceOwnership)
	})
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: coalesce}, nil // another release has written the Lease
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("claiming namespaces in the Lease %s: %w", c.leaseKey(), err)
	}
	c.written = now
	for _, release := range expired {
		ctrl.LoggerFrom(ctx).Info("Removed the claims of a release that has not renewed them", "release", release)
	}
	return reconcile.Result{RequeueAfter: c.Duration / renewShare}, nil
}

// report shows what this release is refused: in a metric, in the log, and as a condition on its own Lease.
func (c *Controller) report(ctx context.Context, selected lease.Namespaces, refused refusals) error {
	c.refusals.Set(float64(refused.count(selected)))
	condition := metav1.Condition{Type: ConditionClaimed, Status: metav1.ConditionTrue, Reason: ReasonClaimed, Message: refused.message(selected, c.Duration)}
	if len(refused) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, ReasonClaimedByOtherRelease
	}
	previous, err := c.previous(ctx)
	if err != nil {
		return err
	}
	if previous.Status == condition.Status && previous.Message == condition.Message {
		return nil
	}
	condition.LastTransitionTime = previous.LastTransitionTime
	if previous.Status != condition.Status {
		condition.LastTransitionTime = metav1.NewTime(c.Clock.Now().Truncate(time.Second))
	}
	text, err := json.Marshal([]metav1.Condition{condition})
	if err != nil {
		return fmt.Errorf("encoding the condition: %w", err)
	}
	desired := coordinationv1ac.Lease(c.LeaseName, c.Release).WithAnnotations(map[string]string{ConditionsAnnotation: string(text)})
	if err := c.direct.Apply(ctx, desired, client.FieldOwner("fixpoint-"+Name), client.ForceOwnership); err != nil {
		return fmt.Errorf("writing the condition to the Lease %s/%s: %w", c.Release, c.LeaseName, err)
	}
	c.reported = &condition
	ctrl.LoggerFrom(ctx).Info("Compared the selected namespaces with the claims of other releases",
		"condition", condition.Type, "status", condition.Status, "reason", condition.Reason, "message", condition.Message)
	return nil
}

// previous is the condition that was reported last, if necessary by an earlier leader.
func (c *Controller) previous(ctx context.Context) (metav1.Condition, error) {
	if c.reported != nil {
		return *c.reported, nil
	}
	own := &coordinationv1.Lease{}
	if err := c.direct.Get(ctx, client.ObjectKey{Namespace: c.Release, Name: c.LeaseName}, own); err != nil {
		return metav1.Condition{}, fmt.Errorf("reading the Lease %s/%s: %w", c.Release, c.LeaseName, err)
	}
	var conditions []metav1.Condition
	if text := own.Annotations[ConditionsAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &conditions); err != nil {
			conditions = nil // it is replaced
		}
	}
	c.reported = &metav1.Condition{}
	for i := range conditions {
		if conditions[i].Type == ConditionClaimed {
			c.reported = &conditions[i]
		}
	}
	return *c.reported, nil
}
