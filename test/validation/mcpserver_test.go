package validation

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// mcpServerDefaults are what the API server adds to the least MCPServer.
const mcpServerDefaults = `{transport: streamable-http, port: 8080, strategy: RollingUpdate, terminationGracePeriodSeconds: 60,
	drainSeconds: 10, progressDeadlineSeconds: 600, sessionAffinity: Auto, sessionAffinityTimeoutSeconds: 10800,
	protocol: {interval: 30s, timeout: 5s}, adoptionPolicy: Never, driftPolicy: Correct}`

// stdio makes of the least MCPServer one that speaks on its standard input and output.
const stdio = `{transport: stdio, command: [serve]}`

// mcpServer is the least spec with differences, in YAML. A null takes a field out.
func mcpServer(differences ...string) string {
	spec := read(`image: tools`)
	for _, difference := range differences {
		merge(spec, read(difference))
	}
	text, err := yaml.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("writing a spec: %v", err))
	}
	return string(text)
}

// badServer is refused at a field of its spec.
func badServer(difference, field, message string) refusal {
	return refusal{spec: mcpServer(difference), field: "spec." + field, message: message}
}

// badTokens is refused for its authorization, which differs from a good one.
func badTokens(difference, field, message string) refusal {
	tokens := read(`{issuers: [{issuer: "https://a.b"}]}`)
	merge(tokens, read(difference))
	text, err := yaml.Marshal(map[string]any{"authorization": tokens})
	if err != nil {
		panic(fmt.Sprintf("writing an authorization: %v", err))
	}
	return badServer(string(text), "authorization."+field, message)
}

// badExchange is refused for its exchange of tokens, which differs from a good one.
func badExchange(difference, field, message string) refusal {
	exchange := read(`{tokenURL: "https://a.b/token", clientSecretRef: {name: a}, audience: a}`)
	merge(exchange, read(difference))
	text, err := yaml.Marshal(map[string]any{"tokenExchange": exchange})
	if err != nil {
		panic(fmt.Sprintf("writing an exchange: %v", err))
	}
	return badTokens(string(text), "tokenExchange"+field, message)
}

// badIssuer is refused for its one issuer, which differs from a good one.
func badIssuer(difference, field, message string) refusal {
	issuer := read(`{issuer: "https://a.b"}`)
	merge(issuer, read(difference))
	text, err := yaml.Marshal(map[string]any{"issuers": []any{issuer}})
	if err != nil {
		panic(fmt.Sprintf("writing an issuer: %v", err))
	}
	return badTokens(string(text), "issuers[0]."+field, message)
}

// badMount is refused for its one mount, which differs from a good one.
func badMount(difference, field, message string) refusal {
	mount := read(`{name: data, mountPath: /data}`)
	merge(mount, read(difference))
	text, err := yaml.Marshal(map[string]any{"mounts": []any{mount}})
	if err != nil {
		panic(fmt.Sprintf("writing a mount: %v", err))
	}
	return badServer(string(text), "mounts[0]"+field, message)
}

// bothKinds keeps the cases of fields that MCPServer has in common with AppService.
func bothKinds(field string) bool {
	return field == "<nil>" || slices.ContainsFunc([]string{"spec.ingress", "spec.disruptionBudget"},
		func(prefix string) bool { return strings.HasPrefix(field, prefix) })
}

// A definition that embeds types of Kubernetes grows with them. kubectl apply without --server-side
// keeps all of it in an annotation, and those are limited.
func TestDefinitionsFitIntoAnAnnotation(t *testing.T) {
	const limit = 256 << 10
	for _, cases := range kinds {
		g := NewWithT(t)
		text, err := os.ReadFile(crdFolder + "/fixpoint.dev_" + plural(cases.kind) + ".yaml")
		g.Expect(err).NotTo(HaveOccurred())
		asJSON, err := yaml.YAMLToJSON(text)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(asJSON)).To(BeNumerically("<", limit), cases.kind)
	}
}
