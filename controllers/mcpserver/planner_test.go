package mcpserver

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayconfigurations "sigs.k8s.io/gateway-api/applyconfiguration"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// mappedServer is an API server that tells which kinds it serves.
type mappedServer struct {
	*ssatest.Server

	mapper meta.RESTMapper
}

func (m mappedServer) RESTMapper() meta.RESTMapper { return m.mapper }

// planning is what a plan of the MCPServer tools goes by. The Secret s is refused with an error, if there is one.
func planning(t *testing.T, mapper meta.RESTMapper, refused error, objects ...client.Object) setup.Planning {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, gatewayv1.Install, v1beta1.AddToScheme} {
		g.Expect(add(scheme)).To(Succeed())
	}
	server := ssatest.NewServer(scheme, ssatest.Options{
		TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{applyconfiguration.NewTypeConverter, gatewayconfigurations.NewTypeConverter},
		Intercept: func(call ssatest.Call) error {
			if call.Key.Name == "s" && !call.Done && call.Verb == "get" {
				return refused
			}
			return nil
		}})
	for _, object := range objects {
		g.Expect(server.Create(t.Context(), object)).To(Succeed())
	}
	return setup.Planning{API: mappedServer{server, mapper}, Reader: server.Cache()}
}

func TestPlanOfAServer(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New("no role"))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "s"}, Data: map[string][]byte{"k": []byte("v")}}
	for name, c := range map[string]struct {
		change     func(*spec)
		namespace  string
		refused    error
		unreadable bool
		want       string
	}{
		"a Secret":                       {change: secretEnv, want: "all referenced objects exist"},
		"the key of hashes":              {change: secretEnv, namespace: "system", want: "create Secret system/hash-key.fixpoint.dev"},
		"a Secret that is not readable":  {change: secretEnv, refused: forbidden, unreadable: true, want: "not readable for you; assumed to be unchanged"},
		"a Secret that must be readable": {change: secretEnv, refused: forbidden, want: "no role"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := stored(c.change)
			p := planning(t, mapperOfKinds(), c.refused, server, secret.DeepCopy())
			if c.unreadable {
				p.Unreadable = func(error) {}
			}
			engine, err := NewPlanner(p, Options{Settings: Settings{BridgeImage: settings.BridgeImage, ManagerNamespace: c.namespace}})
			g.Expect(err).NotTo(HaveOccurred())
			index, ok := p.API.(mappedServer)
			g.Expect(ok).To(BeTrue())
			g.Expect(engine.Index(index)).To(Succeed())
			plan, err := engine.Plan(t.Context(), server)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(plan.String()).To(ContainSubstring(c.want))
		})
	}
}

func TestPlanReadsAsTheUserDoes(t *testing.T) {
	for name, mapper := range map[string]meta.RESTMapper{"served": mapperOfKinds("HTTPRoute"), "not served": mapperOfKinds()} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := planning(t, mapper, nil)
			p.Unreadable = func(error) {}
			r, err := planReaders(p, Options{Settings: Settings{ManagerNamespace: "system"}})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.plans).To(BeTrue())
			g.Expect(r.gateways).To(Equal(staticGatewayAPI(name == "served")))
			for _, reader := range []client.Reader{r.references.Metadata, r.references.Data, r.keys.metadata, r.keys.data, r.pods.uncached, r.hashKey.Reader} {
				g.Expect(reader).To(BeIdenticalTo(p.Reader))
			}
			g.Expect(r.references.Unreadable).NotTo(BeNil())
			g.Expect(r.hashKey.Namespace).To(Equal("system"))
			r, err = planReaders(p, Options{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.hashKey).To(BeNil(), "the namespace of the manager is not known")
		})
	}
}

func TestPlannerNeedsToKnowWhatTheClusterServes(t *testing.T) {
	g := NewWithT(t)
	_, err := NewPlanner(planning(t, failingMapper{}, nil), Options{})
	g.Expect(err).To(MatchError("checking whether the API server serves HTTPRoute: no answer"))
	_, err = NewPlanner(setup.Planning{}, Options{})
	g.Expect(err).To(MatchError(ContainSubstring("building the applier of plans: ")))
}

func TestPlanHasNoResultsOfProbes(t *testing.T) {
	g := NewWithT(t)
	result, ok := noProber{}.Result(client.ObjectKey{})
	g.Expect(ok).To(BeTrue())
	g.Expect(result.State).To(Equal(prober.Unknown))
}

// A plan reads no Gateways: the user may not be permitted to. The resource of tokens depends on them.
func TestPlanKeepsTheURLOfTheGateway(t *testing.T) {
	gateways := fakeGateways{"acme/public": gatewayWith(listener("web", "HTTPS", 8443, "*.example.com"))}
	l := newLifecycle(t, setup.Options{}, gateways, func(s *spec) {
		s.Authorization = &v1beta1.MCPServerAuthorization{Issuers: []v1beta1.MCPServerIssuer{{Issuer: "https://id.example.com"}}}
		s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{ParentRefs: []v1beta1.MCPServerParentRef{{Name: "public"}}, Hostnames: []string{"tools.example.com"}, Path: "/"}
	})
	l.settle()
	l.rollOut()
	l.settle()
	l.Expect(l.server().Status.ExternalEndpoint).To(Equal("https://tools.example.com:8443/mcp"))
	engine, err := NewPlanner(setup.Planning{API: mappedServer{l.Server, mapperOfKinds("HTTPRoute")}, Reader: l.Cache(), Clock: l.clock}, Options{Settings: settings})
	l.Expect(err).NotTo(HaveOccurred())

	plan, err := engine.Plan(t.Context(), l.server())

	l.Expect(err).NotTo(HaveOccurred())
	l.Expect(plan.String()).NotTo(Or(ContainSubstring("Update Deployment"), ContainSubstring("the external URL is unknown")))
}

func TestExternalURLOfAPlan(t *testing.T) {
	const before = "https://tools.example.com:8443/mcp"
	for name, c := range map[string]struct {
		status, path string
		hostnames    []string
		url          string
	}{
		"as it was":         {before, "", []string{"tools.example.com"}, before},
		"another path":      {before, "/v2", []string{"tools.example.com"}, "https://tools.example.com:8443/v2"},
		"another host name": {before, "", []string{"mcp.example.com", "b.example.com"}, "https://mcp.example.com:8443/mcp"},
		"more host names":   {before, "", []string{"a.example.com", "tools.example.com"}, before},
		"no host names":     {before, "", nil, before},
		"an IPv6 address":   {"http://[2001:db8::1]/mcp", "", nil, "http://[2001:db8::1]/mcp"},
		"without a port":    {"http://[2001:db8::1]/mcp", "", []string{"mcp.example.com"}, "http://mcp.example.com/mcp"},
		"no URL":            {"http://[", "", nil, ""},
		"not known":         {"", "", []string{"tools.example.com"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := tools(func(s *spec) {
				s.Path = c.path
				s.HTTPRoute = &v1beta1.MCPServerHTTPRoute{ParentRefs: []v1beta1.MCPServerParentRef{{Name: "public"}}, Hostnames: c.hostnames, Path: "/"}
			})
			server.Status.ExternalEndpoint = c.status
			url, why := externalEndpoint(&scope{server: server, readers: readers{gateways: staticGatewayAPI(true), plans: true}})
			g.Expect(url).To(Equal(c.url))
			g.Expect(why == "").To(Equal(url != ""), why)
		})
	}
}

// A plan tells which fields the controller would remove: those that it applied before with its field manager.
func TestPlanRemovesWhatTheControllerAppliedBefore(t *testing.T) {
	l := newLifecycle(t, setup.Options{}, staticGatewayAPI(false), func(s *spec) { s.Args = []string{"--verbose"} })
	l.settle()
	l.rollOut()
	l.settle()
	engine, err := NewPlanner(setup.Planning{API: mappedServer{l.Server, mapperOfKinds()}, Reader: l.Cache(), Clock: l.clock}, Options{Settings: settings})
	l.Expect(err).NotTo(HaveOccurred())
	server := l.server()
	before, err := engine.Plan(t.Context(), server)
	l.Expect(err).NotTo(HaveOccurred())
	l.Expect(before.String()).NotTo(ContainSubstring("Update Deployment"))

	server.Spec.Args = nil
	plan, err := engine.Plan(t.Context(), server)

	l.Expect(err).NotTo(HaveOccurred())
	l.Expect(plan.String()).To(And(ContainSubstring("Update Deployment tools"), ContainSubstring("waiting for the Deployment controller to observe the last change")))
}
