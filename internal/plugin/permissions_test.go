package plugin

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func forbidden(list client.ObjectList) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: kindName(list)}, "", nil)
}

// refusing is the client with which lists of some kinds fail.
func refusing(c *clients, with func(client.ObjectList) error, kinds ...string) *clients {
	refused := func(list client.ObjectList) bool { return slices.Contains(kinds, kindName(list)) }
	return &clients{namespace: c.namespace, WithWatch: interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if refused(list) {
				return with(list)
			}
			return api.List(ctx, list, options...)
		},
		Watch: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			if refused(list) {
				return nil, with(list)
			}
			return api.Watch(ctx, list, options...)
		},
	})}
}

var everything = target{kinds: kinds}

func TestKindsThatMayNotBeListedAreNamed(t *testing.T) {
	const note = "you may not list MCPServer objects in namespace shop"
	c := refusing(clientOf(app("web", isRunning).Object), forbidden, "MCPServerList", "EventList")
	for name, command := range map[string]func(*options, context.Context) (string, error){
		"status": func(o *options, ctx context.Context) (string, error) { return o.status(ctx, c, everything) },
		"why":    func(o *options, ctx context.Context) (string, error) { return o.why(ctx, c, everything) },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			text, err := command(&options{IOStreams: testStreams(), now: func() time.Time { return now }}, t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(text).To(And(ContainSubstring("1 "), HaveSuffix("\n\nNot shown: "+note+".\n")))
		})
	}
	g := NewWithT(t)
	o := &options{IOStreams: testStreams(), now: func() time.Time { return now }}
	_, text, err := o.drifts(t.Context(), c, everything, 0)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(Equal("\nNot shown: " + note + ".\n\nNot shown: drifts of SecureStorages, because you may not list Events.\n"))
	objects, notes, err := o.plannedObjects(t.Context(), c, everything, planOptions{all: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(1))
	g.Expect(notes).To(Equal([]string{note}))
	c.namespace = ""
	_, notes, err = c.objects(t.Context(), everything)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(notes).To(Equal([]string{"you may not list MCPServer objects in all namespaces"}))
}

// Scripts read the rows, so notes go to the standard error.
func TestNotesAreNoPartOfJSON(t *testing.T) {
	g := NewWithT(t)
	c := refusing(clientOf(app("web", isRunning, hasDrifted).Object), forbidden, "MCPServerList", "EventList")
	var errs bytes.Buffer
	o := &options{IOStreams: testStreams(), now: func() time.Time { return now }, output: "json"}
	o.ErrOut = &errs
	text, err := o.status(t.Context(), c, everything)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(MatchJSON(`[{"namespace":"shop","object":"appservice/web","ready":"True","reason":"Ready","since":"2026-01-02T09:55:00Z","message":"all phases are ready"}]`))
	g.Expect(errs.String()).To(Equal("\nNot shown: you may not list MCPServer objects in namespace shop.\n"))
}

func TestListsFailIfNothingCanBeListed(t *testing.T) {
	missing := func(list client.ObjectList) error {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1beta1.SchemeGroupVersion.Group, Kind: kindName(list)}}
	}
	unavailable := func(client.ObjectList) error { return apierrors.NewServiceUnavailable("it starts") }
	for name, c := range map[string]struct {
		with    func(client.ObjectList) error
		refused []string
		target  target
		want    string
	}{
		"forbidden":         {forbidden, []string{"AppServiceList", "MCPServerList", "SecureStorageList"}, everything, "listing AppService: "},
		"the one forbidden": {forbidden, []string{"MCPServerList"}, target{kinds: []*kind{mustKind("mcp")}}, "listing MCPServer: "},
		"not installed":     {missing, []string{"AppServiceList", "MCPServerList", "SecureStorageList"}, everything, "install the CustomResourceDefinitions"},
		"one not installed": {missing, []string{"MCPServerList"}, everything, ""},
		"another error":     {unavailable, []string{"MCPServerList"}, everything, "it starts"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects, notes, err := refusing(clientOf(app("web").Object), c.with, c.refused...).objects(t.Context(), c.target)
			g.Expect(notes).To(BeEmpty())
			if c.want != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.want)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(objects).To(HaveLen(1))
		})
	}
}

func TestOnlyObjectsOfTheNamespaceAreListed(t *testing.T) {
	elsewhere := app("web").Object
	elsewhere.SetNamespace("factory")
	for namespace, want := range map[string]int{"shop": 1, "factory": 1, "other": 0, "": 2} {
		g := NewWithT(t)
		c := clientOf(app("web").Object, elsewhere)
		c.namespace = namespace
		objects, _, err := c.objects(t.Context(), everything)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(objects).To(HaveLen(want), namespace)
		for _, o := range objects {
			g.Expect([]string{o.GetNamespace(), ""}).To(ContainElement(namespace))
		}
	}
}

func TestWatchesFailIfNoKindMayBeWatched(t *testing.T) {
	for name, c := range map[string]struct {
		refused []string
		fails   bool
		said    string
	}{
		"one of three": {[]string{"MCPServerList"}, false, "Not followed: watching MCPServerList: "},
		"all":          {[]string{"AppServiceList", "MCPServerList", "SecureStorageList"}, true, "Not followed: watching "},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			errs := writerFunc(func(text string) {
				g.Expect(text).To(HavePrefix(c.said))
				if !c.fails {
					cancel()
				}
			})
			o := &options{IOStreams: testStreams()}
			o.ErrOut = errs
			err := o.watchKinds(ctx, refusing(clientOf(), forbidden, c.refused...), everything, func(object) {})
			g.Expect(apierrors.IsForbidden(err)).To(Equal(c.fails), "%v", err)
		})
	}
}

// writerFunc calls a function with what is written.
type writerFunc func(string)

func (f writerFunc) Write(text []byte) (int, error) {
	f(string(text))
	return len(text), nil
}
