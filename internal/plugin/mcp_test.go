package plugin

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// reachable is an MCPServer that is Ready.
func reachable(edits ...func(*v1beta1.MCPServer)) *v1beta1.MCPServer {
	s := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Name: "tools", Namespace: "agents"}}
	s.Spec.Transport = v1beta1.TransportStdio
	s.Status.Endpoint, s.Status.Selector = "http://tools.agents.svc:8080/mcp", "app.kubernetes.io/name=tools"
	s.Status.Server = &v1beta1.MCPServerInfo{ProtocolVersion: "2025-11-25"}
	s.Status.Conditions = []metav1.Condition{condition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonReady, "")}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func isExternal(s *v1beta1.MCPServer) { s.Status.ExternalEndpoint = "https://tools.example.com/mcp" }

func usesSSE(s *v1beta1.MCPServer) {
	s.Spec.Transport, s.Status.Endpoint = v1beta1.TransportSSE, "http://tools.agents.svc:8080/sse"
}

func isStateless(s *v1beta1.MCPServer) { s.Status.Server.ProtocolVersion = "2026-07-28" }

func hasToken(s *v1beta1.MCPServer) {
	s.Spec.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "tools-token"}
}

func requiresTokens(s *v1beta1.MCPServer) {
	s.Spec.Authorization = &v1beta1.MCPServerAuthorization{
		Issuers: []v1beta1.MCPServerIssuer{{Issuer: "https://id.example.com"}}, Scopes: []string{"tools", "offline"},
		Tools: []v1beta1.MCPServerToolScopes{{Name: "delete_*", Scopes: []string{"tools:admin"}}},
	}
}

func TestLocalPortsOfProtectedServersNeedAToken(t *testing.T) {
	g := NewWithT(t)
	g.Expect(localCredentialsNote(reachable(isExternal, requiresTokens))).To(Equal([]string{
		"The server requires a token for https://tools.example.com/mcp, so clients cannot sign in through the local port: add --token-file FILE with such a token, or --token-secret NAME/KEY.",
	}))
	g.Expect(localCredentialsNote(reachable(hasToken))).To(Equal(credentialsNote(reachable(hasToken))))
}

func TestConnectionsFitTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		server *v1beta1.MCPServer
		want   []string
		not    string
	}{
		"external":     {reachable(isExternal), []string{`"url": "https://tools.example.com/mcp"`}, "within the cluster"},
		"SSE":          {reachable(usesSSE), []string{`"type": "sse"`, "curl -sSN 'http://tools.agents.svc:8080/sse'", `"--allow-http",`, `"sse-only"`, "--transport sse tools"}, "initialize"},
		"stateless":    {reachable(isStateless), []string{"-H 'Mcp-Method: server/discover'"}, "initialize"},
		"with a token": {reachable(hasToken), []string{"The server requires credentials: ", "--token-secret tools-token/token."}, "not Ready"},
		"with the key of a token": {reachable(hasToken, func(s *v1beta1.MCPServer) { s.Spec.Protocol.CredentialsSecretRef.Key = "bearer" }),
			[]string{"--token-secret tools-token/bearer."}, "not Ready"},
		"with its own resource": {reachable(isExternal, requiresTokens, func(s *v1beta1.MCPServer) { s.Spec.Authorization.Resource = "https://mcp.example.com/tools" }),
			[]string{`"url": "https://mcp.example.com/tools"`, "Use exactly the URL above"}, "tools.example.com"},
		"protected in the cluster": {reachable(requiresTokens), []string{"at https://id.example.com", "To connect from this machine"}, "not Ready"},
		"credentials required": {reachable(func(s *v1beta1.MCPServer) {
			s.Status.Conditions = append(s.Status.Conditions, condition(v1beta1.ConditionProtocolReady, metav1.ConditionTrue, v1beta1.ReasonCredentialsRequired, ""))
		}), []string{"--token-secret NAME/KEY."}, "not Ready"},
		"not Ready": {reachable(func(s *v1beta1.MCPServer) { s.Status.Conditions, s.Status.Server = nil, nil }),
			[]string{"The server is not Ready: run kubectl fixpoint why mcpserver/tools -n agents.", "initialize"}, "credentials"},
		"a path with a quote": {reachable(func(s *v1beta1.MCPServer) { s.Status.Endpoint = "http://tools.agents.svc:8080/a'b" }),
			[]string{`curl -sS 'http://tools.agents.svc:8080/a'\''b' `}, "not Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			text := connectionText(connectionOf(c.server))
			for _, want := range c.want {
				g.Expect(text).To(ContainSubstring(want))
			}
			g.Expect(text).NotTo(ContainSubstring(c.not))
		})
	}
}

func TestConnectionsAreJSONForConfigurationFiles(t *testing.T) {
	g := NewWithT(t)
	streams := testStreams()
	var out strings.Builder
	streams.Out = &out
	o := &options{IOStreams: streams, output: "json"}
	g.Expect(o.printConnection(connectionOf(reachable(isExternal)))).To(Succeed())
	g.Expect(out.String()).To(MatchJSON(`{
		"url": "https://tools.example.com/mcp",
		"mcpServers": {"tools": {"type": "http", "url": "https://tools.example.com/mcp"}},
		"servers": {"tools": {"type": "http", "url": "https://tools.example.com/mcp"}},
		"claudeDesktop": {"tools": {"command": "npx", "args": ["-y", "mcp-remote", "https://tools.example.com/mcp"]}},
		"curl": ` + jsonString(connectionOf(reachable(isExternal)).Curl) + `}`))
	for _, message := range []string{initializeMessage, discoverMessage} {
		g.Expect(json.Valid([]byte(message))).To(BeTrue(), message)
	}
}

func TestConnectionsSayHowToSignIn(t *testing.T) {
	g := NewWithT(t)
	g.Expect(jsonString(connectionOf(reachable(isExternal, requiresTokens)).Authorization)).To(MatchJSON(`{
		"issuers": ["https://id.example.com"], "resource": "https://tools.example.com/mcp", "scopes": ["tools", "offline"], "toolScopes": {"delete_*": ["tools:admin"]}
	}`))
}

func jsonString(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(raw)
}
