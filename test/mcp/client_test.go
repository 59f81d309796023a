package mcp

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
)

// issuerAt is what the identity provider prints.
var issuerAt = regexp.MustCompile(`Issuer (http://\S+)`)

// The official client for TypeScript discovers the authorization server from the challenge of the proxy, and gets a token
// with the authorization code and PKCE. The provider is that of test/identity.
func TestTypeScriptClientDiscoversTheProvider(t *testing.T) {
	g, b := given(t)
	program := filepath.Join(folder, "identity-provider")
	g.Expect(build("../identity", program, "./cmd/provider")).To(Succeed())
	out := serve(t, g, exec.Command(program))
	var found []string
	g.Eventually(func() []string {
		found = issuerAt.FindStringSubmatch(string(out.Contents()))
		return found
	}).ShouldNot(BeEmpty())
	address := everything(t, g, b, "-stateless=false")
	protected := func() string {
		at := freeAddress(t, g)
		return proxied(t, g, b, address, "-listen", at, "-issuer", found[1], "-resource", "http://"+at+"/", "-scopes", "openid")
	}
	endpoint, other := protected(), protected()

	client := exec.CommandContext(t.Context(), node(), "client.mjs", endpoint, other)
	stdout, err := client.Output()

	g.Expect(err).NotTo(HaveOccurred(), "%s", stderrOf(err))
	var got struct {
		Unauthorized                              bool
		Challenge, Resource, Scope, Text, Refused string
		Tools                                     []string
	}
	g.Expect(json.Unmarshal(stdout, &got)).To(Succeed(), string(stdout))
	g.Expect(got.Unauthorized).To(BeTrue())
	g.Expect(got.Challenge).To(Equal("S256"))
	g.Expect(got.Resource).To(Equal(endpoint))
	g.Expect(got.Scope).To(ContainSubstring("openid"))
	g.Expect(got.Tools).To(ContainElement("test_simple_text"))
	g.Expect(got.Text).To(ContainSubstring("simple text"))
	g.Expect(got.Refused).To(ContainSubstring("the token is for another resource"))
}

func stderrOf(err error) string {
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // it is the error of Output
		return string(exit.Stderr)
	}
	return ""
}
