package references_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/internal/managertest"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// builderIndexer adds indexes to a fake client.
type builderIndexer struct{ *fake.ClientBuilder }

func (b builderIndexer) IndexField(_ context.Context, object client.Object, field string, function client.IndexerFunc) error {
	b.WithIndex(object, field, function)
	return nil
}

// enqueued notes when objects are to be reconciled.
type enqueued struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]

	after map[types.NamespacedName]time.Duration
}

func (e *enqueued) AddAfter(request reconcile.Request, after time.Duration) {
	e.after[request.NamespacedName] = after
}

// watching is a reader whose sources for Secrets and ConfigMaps have started. Pods refer to the Secret and the ConfigMap
// that their annotations name.
type watching struct {
	cluster *cluster
	*managertest.Manager
	queue   *enqueued
	failure error
	logged  []string
}

func watch(t *testing.T, referrers ...client.Object) *watching {
	t.Helper()
	g := NewWithT(t)
	w := &watching{cluster: newCluster(secret("tokens", "a", "1")), Manager: managertest.New(t, clientgoscheme.Scheme, ssatest.Options{}), queue: &enqueued{after: map[types.NamespacedName]time.Duration{}}}
	builder := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(referrers...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, under client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if w.failure != nil {
				return w.failure
			}
			return under.List(ctx, list, options...)
		}})
	g.Expect(references.Index(t.Context(), builderIndexer{builder}, &corev1.Pod{}, func(pod *corev1.Pod) []references.Reference {
		return []references.Reference{{Kind: references.Secret, Name: pod.Annotations["secret"]}, {Kind: references.ConfigMap, Name: pod.Annotations["configMap"]}}
	})).To(Succeed())
	sources := w.cluster.reader.Sources(w.GetCache(), references.Referrers{Reader: builder.Build(), List: &corev1.PodList{}, Delay: time.Second}, references.Secret, references.ConfigMap)
	g.Expect(sources).To(HaveLen(2))
	log := funcr.New(func(_, args string) { w.logged = append(w.logged, args) }, funcr.Options{})
	for _, source := range sources {
		g.Expect(source.Start(ctrl.LoggerInto(t.Context(), log), w.queue)).To(Succeed())
		g.Expect(source.(interface{ WaitForSync(context.Context) error }).WaitForSync(t.Context())).To(Succeed()) //nolint:errcheck // all of them can
	}
	return w
}

func metadataOf(kind references.Kind, object client.Object) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: string(kind)}, ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}}
}

func referrer(namespace, name, secret, configMap string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"secret": secret, "configMap": configMap}}}
}

func TestReferrersAreReconciledAfterAChange(t *testing.T) {
	tokens, settings := metadataOf(references.Secret, secret("tokens")), metadataOf(references.ConfigMap, configMap("settings"))
	for name, c := range map[string]struct {
		send func(*watching)
		want []string
	}{
		"Secret created":         {func(w *watching) { w.Send(tokens) }, []string{"both", "one"}},
		"Secret changed":         {func(w *watching) { w.SendUpdate(metadataOf(references.Secret, secret("other")), tokens) }, []string{"both", "one"}},
		"Secret deleted":         {func(w *watching) { w.SendDelete(tokens) }, []string{"both", "one"}},
		"ConfigMap created":      {func(w *watching) { w.Send(settings) }, []string{"both"}},
		"ConfigMap of that name": {func(w *watching) { w.Send(metadataOf(references.ConfigMap, configMap("tokens"))) }, nil},
		"Secret without any":     {func(w *watching) { w.Send(metadataOf(references.Secret, secret("unknown"))) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := watch(t, referrer(namespace, "one", "tokens", ""), referrer(namespace, "both", "tokens", "settings"), referrer("elsewhere", "far", "tokens", "settings"))

			c.send(w)

			want := map[types.NamespacedName]time.Duration{}
			for _, name := range c.want {
				want[types.NamespacedName{Namespace: namespace, Name: name}] = time.Second
			}
			g.Expect(w.queue.after).To(Equal(want))
			g.Expect(w.logged).To(BeEmpty())
		})
	}
}

func TestDataOfADeletedObjectIsForgotten(t *testing.T) {
	g := NewWithT(t)
	w := watch(t)
	reference := references.Reference{Kind: references.Secret, Name: "tokens", Rolls: true}
	w.cluster.find(t, reference)

	w.SendDelete(metadataOf(references.Secret, secret("tokens")))

	w.cluster.find(t, reference)
	g.Expect(w.cluster.reads).To(Equal(2))
}

func TestReferrersThatCannotBeListedAreLogged(t *testing.T) {
	g := NewWithT(t)
	w := watch(t, referrer(namespace, "one", "tokens", ""))
	w.failure = errors.New("the cache has no index")

	w.Send(metadataOf(references.Secret, secret("tokens")))

	g.Expect(w.queue.after).To(BeEmpty())
	g.Expect(w.logged).To(HaveExactElements(And(ContainSubstring("the cache has no index"), ContainSubstring("Secret/tokens"))))
}

// failingIndexer has no indexes.
type failingIndexer struct{ err error }

func (f failingIndexer) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return f.err
}

func TestIndexFails(t *testing.T) {
	err := references.Index(t.Context(), failingIndexer{errors.New("it is there")}, &corev1.Pod{}, func(*corev1.Pod) []references.Reference { return nil })
	NewWithT(t).Expect(err).To(MatchError("indexing references: it is there"))
}
