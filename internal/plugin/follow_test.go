package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// followed is a command that follows AppService shop/web.
type followed struct {
	Gomega
	*clients
	t     *testing.T
	out   *gbytes.Buffer
	ended chan error
	stop  context.CancelFunc
}

func follow(t *testing.T, output string, command func(context.Context, *options, *clients, target) error) *followed {
	t.Helper()
	streams := testStreams()
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	f := &followed{g, clientOf(app("web", isRunning, hasDrifted).Object), t, gbytes.NewBuffer(), make(chan error, 1), nil}
	streams.Out = f.out
	o := &options{IOStreams: streams, output: output, now: func() time.Time { return now }}
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	go func() {
		f.ended <- command(ctx, o, f.clients, target{kinds: []*kind{mustKind("appservice")}, name: "web"})
	}()
	return f
}

// documents are those of the whole output, once the command has ended.
func (f *followed) documents() (all []map[string]any) {
	f.t.Helper()
	f.Eventually(f.ended).Should(Receive(Or(BeNil(), MatchError(context.Canceled))))
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(f.out.Contents()), 4096)
	for {
		var one map[string]any
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		f.Expect(err).NotTo(HaveOccurred(), string(f.out.Contents()))
		if len(one) > 0 {
			all = append(all, one)
		}
	}
}

func TestDriftsAreFollowedInTheFormatOfTheOutput(t *testing.T) {
	command := func(ctx context.Context, o *options, c *clients, at target) error {
		return o.followDrifts(ctx, c, at, 0)
	}
	for _, output := range []string{"json", "yaml"} {
		t.Run(output, func(t *testing.T) {
			f := follow(t, output, command)
			f.Eventually(f.out).Should(gbytes.Say("Deployment"))
			f.stop()
			f.Expect(f.documents()).To(HaveExactElements(
				HaveKeyWithValue("kind", "Service"), HaveKeyWithValue("kind", "ConfigMap"), And(HaveKeyWithValue("kind", "Deployment"), HaveKeyWithValue("namespace", "shop"))))
		})
	}
}

// The clock of a workstation may be ahead of that of the manager, which writes the times.
func TestNewDriftsAreFollowedWithAnyClock(t *testing.T) {
	f := follow(t, "", func(ctx context.Context, o *options, c *clients, at target) error {
		o.now = func() time.Time { return now.Add(time.Hour) }
		return o.followDrifts(ctx, c, at, time.Minute)
	})
	live := &v1beta1.AppService{}
	f.Eventually(func(g Gomega) { // the watch may begin later
		g.Expect(f.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, live)).To(Succeed())
		live.Status.Drifts[0].Manager, live.Status.Drifts[0].Time = "eve-"+live.ResourceVersion, metav1.NewTime(now)
		g.Expect(f.Update(t.Context(), live)).To(Succeed())
		g.Expect(string(f.out.Contents())).To(ContainSubstring("eve-"))
	}).Should(Succeed())
	f.stop()
	f.Eventually(f.ended).Should(Receive(Or(BeNil(), MatchError(context.Canceled))))
	f.Expect(string(f.out.Contents())).NotTo(ContainSubstring("ConfigMap"), "what is older than --since, by this clock")
}

func TestStatusIsFollowedInTheFormatOfTheOutput(t *testing.T) {
	command := func(ctx context.Context, o *options, c *clients, at target) error {
		return o.follow(ctx, c, at, func(ctx context.Context) (string, error) { return o.status(ctx, c, at) })
	}
	for _, output := range []string{"json", "yaml"} {
		t.Run(output, func(t *testing.T) {
			f := follow(t, output, command)
			f.Eventually(f.out).Should(gbytes.Say("Deployment"))
			live := &v1beta1.AppService{}
			f.Eventually(func(g Gomega) { // the watch may begin later
				g.Expect(f.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, live)).To(Succeed())
				live.Finalizers = nil
				live.Annotations = map[string]string{v1beta1.AnnotationReason: "maintenance"}
				g.Expect(f.Update(t.Context(), live)).To(Succeed())
				g.Expect(string(f.out.Contents())).To(ContainSubstring("maintenance"))
			}).Should(Succeed())
			f.Expect(f.Delete(t.Context(), live)).To(Succeed())
			f.Expect(f.documents()).To(HaveExactElements(Not(HaveKey("reasonOfUser")), HaveKeyWithValue("reasonOfUser", "maintenance")))
		})
	}
}

// An API server that restarts ends a watch, and a read in the meantime fails.
func TestStatusIsFollowedAfterAFailedRead(t *testing.T) {
	failures := map[string]struct {
		err  error
		ends bool
	}{
		"a server that restarts": {apierrors.NewServiceUnavailable("it starts"), false},
		"no connection":          {errors.New("connection refused"), false},
		"a lost permission":      {apierrors.NewForbidden(schema.GroupResource{Resource: "appservices"}, "web", nil), true},
	}
	for name, c := range failures {
		t.Run(name, func(t *testing.T) {
			reads := 0
			f := follow(t, "", func(ctx context.Context, o *options, api *clients, at target) error {
				return o.follow(ctx, api, at, func(context.Context) (string, error) {
					if reads++; reads == 2 {
						return "", c.err
					}
					return fmt.Sprintf("read %d\n", min(reads, 3)), nil
				})
			})
			f.Eventually(f.out).Should(gbytes.Say("read 1"))
			live := &v1beta1.AppService{}
			f.Eventually(func(g Gomega) { // the watch may begin later
				g.Expect(f.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, live)).To(Succeed())
				live.Annotations = map[string]string{v1beta1.AnnotationReason: "maintenance " + live.ResourceVersion}
				g.Expect(f.Update(t.Context(), live)).To(Succeed())
				if c.ends {
					g.Expect(f.ended).To(Receive(MatchError(c.err)))
					return
				}
				g.Expect(f.out).To(gbytes.Say("read 3"))
			}).Should(Succeed())
			if !c.ends {
				f.stop()
				f.Eventually(f.ended).Should(Receive(Or(BeNil(), MatchError(context.Canceled))))
			}
		})
	}
}
