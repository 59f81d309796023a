package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// applying is a server that also has the method Apply, and no Watch.
type applying struct {
	client.WithWatch
	server *ssatest.Server
}

// Get implements [client.Reader].
func (a applying) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return a.server.Get(ctx, key, into, options...)
}

// Apply implements [client.Writer].
func (a applying) Apply(ctx context.Context, configuration runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	raw, err := json.Marshal(configuration)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return err
	}
	given := (&client.ApplyOptions{}).ApplyOptions(options)
	return a.server.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, raw), &client.PatchOptions{FieldManager: given.FieldManager, Force: given.Force})
}

func TestConsoleResumesWithoutHoldingTheField(t *testing.T) {
	g := NewWithT(t)
	api := applying{server: ssatest.NewServer(scheme, ssatest.Options{})}
	c := &Client{clients: &clients{WithWatch: api}}
	suspend := func(suspend bool, reason string) *unstructured.Unstructured {
		live, err := c.Suspend(t.Context(), "appservices", "shop", "web", suspend, reason)
		g.Expect(err).NotTo(HaveOccurred())
		return live
	}
	declare := func(spec *fixpointac.AppServiceSpecApplyConfiguration) {
		g.Expect(api.Apply(t.Context(), fixpointac.AppService("web", "shop").WithSpec(spec), client.FieldOwner("argocd"))).To(Succeed())
	}
	holders := func(live *unstructured.Unstructured) []string {
		return holdersOfField(live, []string{"spec", "suspend"})
	}
	declare(fixpointac.AppServiceSpec().WithImage("a"))

	live := suspend(true, "maintenance")
	g.Expect(holders(live)).To(Equal([]string{suspendManager}))
	g.Expect(live.GetAnnotations()).To(HaveKeyWithValue(v1beta1.AnnotationReason, "maintenance"))

	live = suspend(false, "")
	g.Expect(live.Object["spec"]).NotTo(HaveKey("suspend"))
	g.Expect(holders(live)).To(BeEmpty())
	g.Expect(live.GetAnnotations()).NotTo(HaveKey(v1beta1.AnnotationReason))

	declare(fixpointac.AppServiceSpec().WithImage("a").WithSuspend(true))
	live = suspend(false, "")
	g.Expect(live.Object["spec"]).To(HaveKeyWithValue("suspend", false), "what another field manager has set is overridden")
	g.Expect(holders(live)).To(Equal([]string{suspendManager}))
}

// The manager never handles a request of an object that is deleted meanwhile.
func TestReconcileEndsWhenTheObjectIsDeleted(t *testing.T) {
	g := NewWithT(t)
	o := app("web", isRunning, func(a *v1beta1.AppService) { a.Finalizers = nil })
	c := clientOf(o.Object)
	watched := make(chan struct{})
	api := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return nil
		},
		Watch: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			stream, err := api.Watch(ctx, list, options...)
			close(watched)
			return stream, err
		},
	})
	ended := make(chan error, 1)
	go func() {
		command := &options{IOStreams: testStreams(), now: func() time.Time { return now }}
		ended <- command.reconcile(t.Context(), &clients{WithWatch: api, namespace: "shop"}, o, "", time.Minute)
	}()
	g.Eventually(watched, time.Minute).Should(BeClosed())
	g.Expect(c.Delete(t.Context(), o.Object)).To(Succeed())
	g.Eventually(ended, time.Minute).Should(Receive(MatchError("AppService shop/web is deleted")))
}

// Another user may replace the request before the manager handles it. A watch may begin with a version from before the
// request.
func TestReconcileEndsWhenTheLastRequestIsHandled(t *testing.T) {
	own := now.Format(time.RFC3339Nano)
	for name, c := range map[string]struct {
		version, requested, handled string
		timeout                     time.Duration
		isHandled                   bool
	}{
		"this one":                 {"2000", own, own, 10 * time.Second, true},
		"a later one":              {"2000", "later", "later", 10 * time.Second, true},
		"not yet":                  {"2000", "later", own, 50 * time.Millisecond, false},
		"removed":                  {"2000", "", "", 50 * time.Millisecond, false},
		"an earlier one, replaced": {"1", "earlier", "earlier", 50 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			shown := app("web", isRunning, func(a *v1beta1.AppService) {
				a.ResourceVersion, a.Status.LastHandledReconcileAt = c.version, c.handled
				a.Annotations = map[string]string{v1beta1.AnnotationReconcileRequest: c.requested}
			})
			stream := watch.NewFakeWithChanSize(1, false)
			stream.Modify(shown.Object)
			o := app("web", isRunning)
			api := interceptor.NewClient(clientOf(o.Object).WithWatch, interceptor.Funcs{
				Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
					return stream, nil
				},
			})
			streams, out := testStreams(), &bytes.Buffer{}
			streams.Out = out
			command := &options{IOStreams: streams, now: func() time.Time { return now }}

			err := command.reconcile(t.Context(), &clients{WithWatch: api, namespace: "shop"}, o, "", c.timeout)

			if c.isHandled {
				g.Expect(err).NotTo(HaveOccurred(), out.String())
				g.Expect(out.String()).To(Equal("AppService shop/web is reconciled and Ready.\n"))
				return
			}
			g.Expect(err).To(MatchError(&exitError{code: exitFailure}))
			g.Expect(out.String()).To(HavePrefix("The manager has not handled the request within 50ms.\n"))
		})
	}
}

// The manager may handle a request of the object that has its name by then.
func TestReconcileEndsWhenTheObjectIsReplaced(t *testing.T) {
	g := NewWithT(t)
	request := now.Format(time.RFC3339Nano)
	stream := watch.NewFakeWithChanSize(1, false)
	stream.Add(app("web", isRunning, func(a *v1beta1.AppService) {
		a.UID, a.ResourceVersion, a.Status.LastHandledReconcileAt = "uid-of-a-new-one", "2000", request
		a.Annotations = map[string]string{v1beta1.AnnotationReconcileRequest: request}
	}).Object)
	o := app("web", isRunning)
	api := interceptor.NewClient(clientOf(o.Object).WithWatch, interceptor.Funcs{
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			return stream, nil
		},
	})
	command := &options{IOStreams: testStreams(), now: func() time.Time { return now }}
	err := command.reconcile(t.Context(), &clients{WithWatch: api, namespace: "shop"}, o, "", 10*time.Second)
	g.Expect(err).To(MatchError("AppService shop/web is deleted"))
}

// Ctrl-C says nothing about the manager.
func TestReconcileThatIsInterruptedDoesNotReportATimeout(t *testing.T) {
	g := NewWithT(t)
	o := app("web", isRunning)
	ctx, interrupt := context.WithCancel(t.Context())
	api := interceptor.NewClient(clientOf(o.Object).WithWatch, interceptor.Funcs{
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return nil
		},
		Watch: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			interrupt()
			return api.Watch(ctx, list, options...)
		},
	})
	streams, out := testStreams(), &bytes.Buffer{}
	streams.Out = out
	command := &options{IOStreams: streams, now: func() time.Time { return now }}
	g.Expect(command.reconcile(ctx, &clients{WithWatch: api, namespace: "shop"}, o, "", time.Hour)).To(MatchError(context.Canceled))
	g.Expect(out.String()).To(BeEmpty())
}
