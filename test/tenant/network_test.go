package tenant_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"unicode"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// quickly is the shortest interval between probes.
const quickly = "interval: 5s, timeout: 1s"

// networkAttempts try to direct the probes of the manager, or the traffic of others.
func networkAttempts() []attempt {
	return []attempt{
		{"write an EndpointSlice or the status of a pod, to direct probes", edit, "forbidden", func(a *trial) {
			a.forbidden(a.create(endpointSlice("direct", "tools", "10.255.0.1")))
			a.Expect(a.app("direct", "")).To(Succeed())
			a.Eventually(func() []corev1.Pod { return a.pods(tenant, "direct") }).ShouldNot(BeEmpty())
			a.forbidden(a.patch(&corev1.Pod{}, tenant, a.pods(tenant, "direct")[0].Name, "status: {podIP: 10.255.0.1}", "status"))
		}},
		{"direct probes with their token to the pods of another team by an EndpointSlice", endpoints, "only the addresses of pods of the MCPServer are dialed", func(a *trial) {
			var address string
			a.Eventually(func(g Gomega) {
				pods := a.pods(victim, "tools")
				g.Expect(pods).NotTo(BeEmpty())
				address = pods[0].Status.PodIP
				g.Expect(address).NotTo(BeEmpty())
			}).Should(Succeed())
			a.mustCreate("apiVersion: v1\nkind: Secret\nmetadata: {name: spy}\nstringData: {token: token-of-the-tenant}\n")
			a.mustCreate(endpointSlice("spy", "spy", address))
			a.mustCreate(endpointSlice("spy-elsewhere", "spy", "203.0.113.7"))
			var own atomic.Int32
			honest := honestServer()
			a.network.lead("spy", a.network.serve(a.t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "Bearer token-of-the-tenant" && r.Method == http.MethodPost {
					own.Add(1)
				}
				honest.ServeHTTP(w, r)
			})))
			a.Expect(a.server("spy", "protocol: {credentialsSecretRef: {name: spy}, "+quickly+"}")).To(Succeed())
			server := becomesReady(a, "spy", &v1beta1.MCPServer{})
			a.Expect(harness.Message(server, "ProtocolReady")).To(ContainSubstring("the token of spec.protocol.credentialsSecretRef is sent unencrypted"))
			first := own.Load()
			a.Eventually(own.Load).Should(BeNumerically(">", first), "its own pod is probed again")
			a.Expect(a.network.requests(func(r *http.Request) bool { return r.Header.Get("Authorization") != "" })).To(BeEmpty())
			a.Expect(a.network.hasDialed("203.0.113.7")).To(BeFalse())
		}},
		{"direct the probes of another team by an EndpointSlice of the own namespace", endpoints, "no effect outside: EndpointSlices are read in the namespace of the MCPServer", func(a *trial) {
			a.mustCreate(endpointSlice("tools", "tools", "203.0.113.8"))
			count := func() int {
				return len(a.network.requests(func(r *http.Request) bool { return strings.HasPrefix(r.Host, "tools.victim.") }))
			}
			before := count()
			a.Eventually(count).Should(BeNumerically(">", before), "the server of the other team is probed as before")
			a.Expect(a.network.hasDialed("203.0.113.8")).To(BeFalse())
		}},
		{"have a node probed by a pod in its network", edit, "addresses of nodes are not dialed", func(a *trial) {
			a.Expect(a.server("node", "protocol: {"+quickly+"}")).To(Succeed())
			becomesReady(a, "node", &v1beta1.MCPServer{})
			a.mustCreate("apiVersion: v1\nkind: Pod\nmetadata: {name: node, labels: {app.kubernetes.io/name: node, fixpoint.dev/kind: mcpserver}}\n" +
				"spec: {hostNetwork: true, containers: [{name: a, image: a, ports: [{name: mcp, containerPort: 10250, hostPort: 10250}]}]}\n")
			pod := &corev1.Pod{}
			a.Eventually(func(g Gomega) {
				g.Expect(a.read(pod, tenant, "node")).To(Succeed())
				g.Expect(pod.Status.PodIP).NotTo(BeEmpty())
				g.Expect(pod.Status.PodIP).To(Equal(pod.Status.HostIP))
			}).Should(Succeed())
			a.Eventually(func(g Gomega) {
				var slices discoveryv1.EndpointSliceList
				g.Expect(a.admin.List(a.ctx, &slices, client.InNamespace(tenant), client.MatchingLabels{discoveryv1.LabelServiceName: "node"})).To(Succeed())
				g.Expect(fmt.Sprint(slices.Items)).To(ContainSubstring(pod.Status.HostIP))
			}).Should(Succeed())
			a.Consistently(func() bool { return a.network.hasDialed(pod.Status.HostIP) }).WithTimeout(deadline).Should(BeFalse())
		}},
		{"turn the Service of an MCPServer into an alias of another host", edit, "no effect outside: the host is not dialed, and pods are probed at their own addresses", func(a *trial) {
			a.Expect(a.server("alias", "protocol: {"+quickly+"}")).To(Succeed())
			becomesReady(a, "alias", &v1beta1.MCPServer{})
			a.Expect(a.patch(&corev1.Service{}, tenant, "alias", "spec: {type: ExternalName, externalName: tools.victim.svc}")).To(Succeed())
			a.Consistently(func() bool { return a.network.hasDialed("tools.victim.svc") }).WithTimeout(deadline).Should(BeFalse())
			a.Expect(a.network.requests(func(r *http.Request) bool { return strings.HasPrefix(r.Host, "alias.victim.") })).To(BeEmpty())
		}},
		{"redirect a probe to another server", editor, "not followed: `ProtocolFailing`", func(a *trial) {
			target := a.asks(http.NotFoundHandler())
			a.network.lead("redirect", a.network.serve(a.t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
			})))
			a.network.lead("redirect-sse", a.network.serve(a.t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = fmt.Fprintf(w, "event: endpoint\ndata: %s/message\n\n", target.URL)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})))
			a.Expect(a.server("redirect", "protocol: {"+quickly+"}")).To(Succeed())
			a.Expect(a.server("redirect-sse", "transport: sse, protocol: {"+quickly+"}")).To(Succeed())
			for _, name := range []string{"redirect", "redirect-sse"} {
				shows(a, name, &v1beta1.MCPServer{}, v1beta1.ReasonProtocolFailing, "MCP handshake failed", "another host")
			}
			a.Expect(target.asked.Load()).To(BeZero())
		}},
		{"leave the server by `path`", editor, "refused: the message names `path`; what is accepted is a path of the own pod", func(a *trial) {
			for _, path := range []string{"http://tools.victim.svc/mcp", "@tools.victim.svc/mcp", ":8080/mcp", "mcp", "/mcp?a=b", "/mcp#a", "/ mcp"} {
				a.refused(a.server("path", fmt.Sprintf("path: %q", path)), "spec.path", "path must")
			}
		}},
		{"hold the slots of the prober with a long timeout, or probe without a pause", editor, "refused: the message names `timeout` or `interval`", func(a *trial) {
			for field, fields := range map[string]string{"timeout": "timeout: 1h, interval: 1h", "interval": "interval: 1ms, timeout: 1ms"} {
				a.refused(a.server("slots", "protocol: {"+fields+"}"), "spec.protocol."+field, field+" must be a duration from", "use a value such as")
			}
		}},
		{"put lines, control characters or long texts into the status and Events by the answers of a server", editor, "only the name and the version are kept, printable and bounded; errors contain no text of the server", func(a *trial) {
			forged := `CANARY\nReady\u0007 True\u001b[2J\u202e` + strings.Repeat("x", 4096)
			a.network.lead("texts", a.network.serve(a.t, answering(fmt.Sprintf(
				`{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"CANARY":{}},"serverInfo":{"name":"%s","version":"%s","title":"CANARY-title"},"instructions":"CANARY-instructions"}`, forged, forged))))
			a.network.lead("errors", a.network.serve(a.t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="CANARY"`)
				http.Error(w, "CANARY", http.StatusInternalServerError)
			})))
			a.Expect(a.server("texts", "protocol: {"+quickly+"}")).To(Succeed())
			a.Expect(a.server("errors", "protocol: {"+quickly+"}")).To(Succeed())
			server := becomesReady(a, "texts", &v1beta1.MCPServer{})
			for _, text := range []string{server.Status.Server.Name, server.Status.Server.Version} {
				a.Expect(len(text)).To(BeNumerically("<=", 128))
				a.Expect(strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })).To(Equal(-1), "%q", text)
			}
			a.Expect(server.Status.Server.Capabilities).To(Equal([]string{"tools"}))
			a.Expect(a.texts("MCPServer", "texts")).NotTo(ContainSubstring("CANARY-"))
			shows(a, "errors", &v1beta1.MCPServer{}, v1beta1.ReasonProtocolFailing, "MCP handshake failed")
			a.Expect(a.texts("MCPServer", "errors")).NotTo(ContainSubstring("CANARY"))
		}},
		{"put lines into the status and Events by the name of a field manager", edit, "refused by Kubernetes; other names are quoted as they are, on one line", func(a *trial) {
			a.Expect(a.app("manager-name", "replicas: 2")).To(Succeed())
			becomesReady(a, "manager-name", &v1beta1.AppService{})
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "manager-name"}}
			drift := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"revisionHistoryLimit":7,"replicas":3}}`))
			for _, name := range []string{"kubectl\nReady True", "a\x1b[2J", strings.Repeat("x", 129)} {
				a.Expect(a.api.Patch(a.ctx, deployment, drift, client.FieldOwner(name))).To(HaveOccurred(), "%q", name)
			}
			a.Expect(a.api.Patch(a.ctx, deployment, drift, client.FieldOwner("Ready: True; <b>"))).To(Succeed())
			a.Eventually(func() string { return a.texts("AppService", "manager-name") }).Should(ContainSubstring("Ready: True; <b>"))
			a.Expect(strings.Count(a.texts("AppService", "manager-name"), "\nReady: True")).To(BeZero())
		}},
		{"read values of the environment or of Secrets from drift reports and Events", viewer, "the reports name the field and the field manager, and no value", func(a *trial) {
			owner := a.as(edit)
			app := parse(a, objectText("AppService", "drift", `image: "registry.test/web:1", config: {PASSWORD: config-canary}, env: [{name: PIN, value: env-canary}]`))
			app.SetNamespace(tenant)
			a.Expect(owner.Create(a.ctx, app)).To(Succeed())
			becomesReady(a, "drift", &v1beta1.AppService{})
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "drift"}}
			patch := client.RawPatch("application/strategic-merge-patch+json", []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"app","env":[{"name":"PIN","value":"other-canary"}]}]}}}}`))
			a.Expect(owner.Patch(a.ctx, deployment, patch, client.FieldOwner("kubectl-edit"))).To(Succeed())
			var list v1beta1.AppServiceList
			a.Eventually(func(g Gomega) {
				g.Expect(a.api.List(a.ctx, &list, client.InNamespace(tenant))).To(Succeed())
				g.Expect(a.texts("AppService", "drift")).To(And(ContainSubstring("PIN"), ContainSubstring("kubectl-edit")))
			}).Should(Succeed())
			a.Expect(a.texts("AppService", "drift")).NotTo(ContainSubstring("canary"))
		}},
		{"guess a short Secret from the hash in the template of pods", viewer, "the hash has a key in the namespace of the manager, and differs between objects with the same data", func(a *trial) {
			owner := a.as(edit)
			secret := parse(a, "apiVersion: v1\nkind: Secret\nmetadata: {name: pin, namespace: tenant}\nstringData: {pin: \"481516\"}\n")
			a.Expect(owner.Create(a.ctx, secret)).To(Succeed())
			hashes := map[string]bool{}
			for _, name := range []string{"pin-one", "pin-two"} {
				server := parse(a, objectText("MCPServer", name, `image: "registry.test/tools:1", envFrom: [{secretRef: {name: pin}}]`))
				server.SetNamespace(tenant)
				a.Expect(owner.Create(a.ctx, server)).To(Succeed())
				becomesReady(a, name, &v1beta1.MCPServer{})
				deployment := &appsv1.Deployment{}
				a.Expect(a.api.Get(a.ctx, client.ObjectKey{Namespace: tenant, Name: name}, deployment)).To(Succeed())
				hash := deployment.Spec.Template.Annotations["fixpoint.dev/dependencies-hash"]
				a.Expect(hash).To(HaveLen(32), "a hash without a key has 16 digits")
				hashes[hash] = true
			}
			a.Expect(hashes).To(HaveLen(2))
			a.forbidden(a.api.Get(a.ctx, client.ObjectKey{Namespace: tenant, Name: "pin"}, &corev1.Secret{}))
			a.forbidden(a.api.Get(a.ctx, client.ObjectKey{Namespace: system, Name: "hash-key.fixpoint.dev"}, &corev1.Secret{}))
		}},
		{"take the host of another team with an Ingress", editor, "refused by `fixpoint-hosts`: the message names `spec.ingress.host`", func(a *trial) {
			for _, host := range []string{"shop.victim.example.com", "example.com", "eviltenant.example.com"} {
				for _, err := range []error{a.app("hosts", "ingress: {host: "+host+"}"), a.server("hosts", "ingress: {host: "+host+"}")} {
					a.refused(err, "spec.ingress.host: "+host+" is not allowed in namespace tenant", "or ask an administrator to add it")
				}
			}
			for _, host := range []string{"*.example.com", "SHOP.victim.example.com", "shop.victim.example.com."} {
				a.refused(a.app("hosts", fmt.Sprintf("ingress: {host: %q}", host)), "spec.ingress.host", "host")
			}
		}},
		{"take hosts of another team, or all hosts of a Gateway, with an HTTPRoute", editor, "refused by `fixpoint-hosts`: the message names `spec.httpRoute.hostnames`", func(a *trial) {
			for fields, host := range map[string]string{"hostnames: [a.tenant.example.com, shop.victim.example.com]": "shop.victim.example.com", "hostnames: []": "all hosts of the Gateway", "path: /": "all hosts of the Gateway"} {
				a.refused(a.server("hosts", "httpRoute: {parentRefs: [{name: internal, namespace: victim}], "+fields+"}"),
					"spec.httpRoute.hostnames: "+host+" is not allowed in namespace tenant", "or ask an administrator to add it")
			}
		}},
		{"configure the ingress controller by annotations of an Ingress", editor, "refused by `fixpoint-annotations`: the message names `spec.ingress.annotations`", func(a *trial) {
			a.refused(a.app("snippet", "ingress: {host: a.tenant.example.com, annotations: {nginx.ingress.kubernetes.io/server-snippet: a}}"),
				"spec.ingress.annotations: nginx.ingress.kubernetes.io/server-snippet is not allowed")
		}},
		{"read hosts, ports and addresses of the Gateway of another team", editor, "`status.externalEndpoint` shows only listeners that admit routes of the namespace", func(a *trial) {
			a.Expect(a.server("gateway", "protocol: {probe: Disabled}, httpRoute: {parentRefs: [{name: internal, namespace: victim}], hostnames: [a.tenant.example.com]}")).To(Succeed())
			server := becomesReady(a, "gateway", &v1beta1.MCPServer{})
			a.Expect(server.Status.ExternalEndpoint).To(BeEmpty())
			a.Expect(a.texts("MCPServer", "gateway")).NotTo(ContainSubstring("18443"))
			a.Expect(harness.Message(server, "RouteReady")).To(ContainSubstring("the external URL is unknown"))
		}},
	}
}

func endpointSlice(name, service, address string) string {
	return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, labels: {kubernetes.io/service-name: %s, app.kubernetes.io/managed-by: fixpoint}}\n"+
		"addressType: IPv4\nports: [{name: mcp, port: 8080, protocol: TCP}]\nendpoints: [{addresses: [%s], conditions: {ready: true}}]\n", name, service, address)
}

// counted is a server on loopback that counts its requests.
type counted struct {
	*httptest.Server
	asked atomic.Int32
}

func (a *trial) asks(handler http.Handler) *counted {
	c := &counted{}
	c.Server = a.network.serve(a.t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.asked.Add(1)
		handler.ServeHTTP(w, r)
	}))
	return c
}

// answering is a server that answers initialize with a result, and has no tools.
func answering(initialize string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id, method := idOf(body)
		switch {
		case method == "initialize":
			reply(w, id, initialize)
		case method == "tools/list":
			reply(w, id, `{"tools":[]}`)
		case strings.HasPrefix(method, "notifications/"):
			w.WriteHeader(http.StatusAccepted)
		default:
			http.Error(w, "", http.StatusBadRequest)
		}
	})
}
