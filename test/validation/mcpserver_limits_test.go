package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// mcpServerLimits has those that a table below cannot say.
var mcpServerLimits = map[string]limitRefusal{
	"spec required":       {says: `spec: Required value`},
	"spec.image required": {spec: `{port: 80}`, says: `spec.image: Required value`},
	"spec.mounts[].emptyDir.sizeLimit pattern": {
		spec: mcpServer(`mounts: [{name: a, mountPath: /a, emptyDir: {sizeLimit: 1 GB}}]`),
		says: `spec.mounts[0].emptyDir.sizeLimit: Invalid value: "1 GB": spec.mounts[0].emptyDir.sizeLimit in body should match '^(\+|-)?(([0-9]{1,32}(\.[0-9]{0,32})?)|(\.[0-9]{1,32}))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$'`},

	// The controller keeps the status within these; a test of them shows that it has to.
	"status.endpoint maxLength":         tooLongStatus("endpoint", 2048),
	"status.externalEndpoint maxLength": tooLongStatus("externalEndpoint", 4096),
	"status.lastHandledReconcileAt maxLength": {
		status: fmt.Sprintf(`{lastHandledReconcileAt: %s}`, strings.Repeat("a", 65)),
		says:   `status.lastHandledReconcileAt: Too long: may not be more than 64 bytes`},
	"status.probedVersions maxItems": {
		status: fmt.Sprintf(`{probedVersions: [%s]}`, repeated(17, "a%d")),
		says:   `status.probedVersions: Too many: 17: must have at most 16 items`},
	"status.probedVersions[] maxLength": {
		status: fmt.Sprintf(`{probedVersions: [%s]}`, strings.Repeat("a", 254)),
		says:   `status.probedVersions[0]: Too long: may not be more than 253 bytes`},
	"status.server.name maxLength":            tooLongServer("name", 256),
	"status.server.version maxLength":         tooLongServer("version", 128),
	"status.server.protocolVersion maxLength": tooLongServer("protocolVersion", 128),
	"status.server.capabilities maxItems": {
		status: fmt.Sprintf(`{server: {tools: 0, prompts: 0, resources: 0, capabilities: [%s]}}`, repeated(33, "c%d")),
		says:   `status.server.capabilities: Too many: 33: must have at most 32 items`},
	"status.server.capabilities[] maxLength": {
		status: fmt.Sprintf(`{server: {capabilities: [%s]}}`, strings.Repeat("a", 65)),
		says:   `status.server.capabilities[0]: Too long: may not be more than 64 bytes`},
}

func tooLongServer(field string, limit int) limitRefusal {
	return limitRefusal{
		status: fmt.Sprintf("server: {%s: %s}", field, strings.Repeat("a", limit+1)),
		says:   fmt.Sprintf("status.server.%s: Too long: may not be more than %d bytes", field, limit)}
}

// Good values of what a limit stands in; the last one of a name wins.
const (
	goodMounts    = `mounts: [{name: a, mountPath: /a, configMap: {name: a, items: [{key: a, path: a}]}}]`
	goodSecret    = `mounts: [{name: a, mountPath: /a, secret: {name: a, items: [{key: a, path: a}]}}]`
	goodEgress    = `networkPolicy: {egress: {rules: [{ports: [{port: 1, endPort: 65535}]}]}}`
	goodRoute     = `httpRoute: {parentRefs: [{name: a}], hostnames: [a.b]}`
	goodTokens    = `authorization: {issuers: [{issuer: "https://a.b", jwksConfigMapRef: {name: a}}], tools: [{name: a, scopes: [b]}], tokenExchange: {tokenURL: "https://a.b", clientSecretRef: {name: a}, audience: a}}`
	goodTelemetry = `telemetry: {otlp: {endpoint: "http://a:1", headersSecretRef: {name: a}}}`
	goodProbes    = `protocol: {scheme: HTTPS, caRef: {name: a}, credentialsSecretRef: {name: a}}`
)

// goodMCPServer has every list that a limit of the table stands in.
func goodMCPServer(field string) map[string]any {
	spec := read(mcpServer(goodEgress, goodRoute, goodProbes, `files: [{path: /f}]`, `command: [serve]`, `args: [x]`))
	switch {
	case strings.HasPrefix(field, "mounts[].secret"):
		merge(spec, read(goodSecret))
	case strings.HasPrefix(field, "mounts[].emptyDir"):
		merge(spec, read(`mounts: [{name: a, mountPath: /a, emptyDir: {}}]`))
	case strings.HasPrefix(field, "mounts[].persistentVolumeClaim"):
		merge(spec, read(`mounts: [{name: a, mountPath: /a, persistentVolumeClaim: {claimName: a}}]`))
	default:
		merge(spec, read(goodMounts))
	}
	if probe, isPort := strings.CutSuffix(field, ".port"); isPort && strings.HasPrefix(field, "probes.") {
		place(spec, strings.Split(probe+".type", "."), "TCP")
	}
	if strings.HasPrefix(field, "bridge") {
		merge(spec, read(stdio))
		delete(spec, "protocol")
	}
	if strings.HasPrefix(field, "authorization") {
		merge(spec, read(goodTokens))
		delete(spec, "protocol")
	}
	if strings.HasPrefix(field, "telemetry") {
		merge(spec, read(goodTelemetry))
		delete(spec, "protocol")
	}
	if strings.HasPrefix(field, "limits") || strings.HasPrefix(field, "contract") {
		delete(spec, "protocol")
	}
	if field == "authorization.issuers[].jwksURI" {
		place(spec, strings.Split("authorization.issuers[].jwksConfigMapRef", "."), nil)
	}
	return spec
}

// mcpServerWith is a good spec with a value at a path, in YAML; [] is the first of a list.
func mcpServerWith(path string, value any) string {
	spec := goodMCPServer(path)
	place(spec, strings.Split(path, "."), value)
	text, err := yaml.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("writing a spec: %v", err))
	}
	return string(text)
}

func place(into map[string]any, path []string, value any) {
	name, isList := strings.CutSuffix(path[0], "[]")
	list, _ := into[name].([]any)
	switch {
	case isList && len(path) == 1:
		into[name] = []any{value}
	case isList:
		element, ok := list[0].(map[string]any)
		if !ok {
			panic(name + " is no list of objects")
		}
		place(element, path[1:], value)
	case len(path) == 1 && value == nil:
		delete(into, name)
	case len(path) == 1:
		into[name] = value
	default:
		nested, ok := into[name].(map[string]any)
		if !ok {
			nested = map[string]any{}
			into[name] = nested
		}
		place(nested, path[1:], value)
	}
}

// limitOf is a spec that breaks a limit by a value.
func limitOf(field, keyword string, value any, says string) {
	path := strings.ReplaceAll("spec."+field, "[]", "[0]")
	mcpServerLimits["spec."+field+" "+keyword] = limitRefusal{
		spec: mcpServerWith(field, value), says: path + ": " + strings.ReplaceAll(says, "PATH", path)}
}

func init() {
	for field, limit := range map[string]int{
		"args[]": 16384, "command[]": 4096, "files[].content": 131072, "files[].path": 512, "path": 1024, "image": 512,
		"bridge.drainTimeout": 32, "bridge.idleTimeout": 32, "protocol.interval": 32, "protocol.timeout": 32,
		"httpRoute.hostnames[]": 253, "bridge.allowedHosts[]": 253, "bridge.allowedOrigins[]": 261, "httpRoute.path": 1024,
		"httpRoute.parentRefs[].name": 253, "httpRoute.parentRefs[].namespace": 63, "httpRoute.parentRefs[].sectionName": 253,
		"mounts[].name": 63, "mounts[].mountPath": 512, "mounts[].subPath": 512, "mounts[].persistentVolumeClaim.claimName": 253,
		"mounts[].configMap.name": 253, "mounts[].configMap.items[].key": 253, "mounts[].configMap.items[].path": 253,
		"mounts[].secret.name": 253, "mounts[].secret.items[].key": 253, "mounts[].secret.items[].path": 253,
		"probes.readiness.path": 1024, "probes.liveness.path": 1024, "probes.startup.path": 1024,
		"protocol.caRef.name": 253, "protocol.caRef.key": 253,
		"protocol.credentialsSecretRef.name": 253, "protocol.credentialsSecretRef.key": 253,
		"scheduling.priorityClassName": 253, "serviceAccount.name": 253,
		"authorization.resource": 2048, "authorization.scopes[]": 128, "authorization.issuers[].issuer": 1024, "authorization.issuers[].jwksURI": 2048,
		"authorization.issuers[].jwksConfigMapRef.name": 253, "authorization.issuers[].jwksConfigMapRef.key": 253,
		"authorization.tools[].name": 128, "authorization.tools[].scopes[]": 128,
		"authorization.tokenExchange.tokenURL": 1024, "authorization.tokenExchange.clientSecretRef.name": 253,
		"authorization.tokenExchange.audience": 1024, "authorization.tokenExchange.resource": 1024, "authorization.tokenExchange.scopes[]": 128,
		"contract.allow[]": 128, "contract.deny[]": 128,
		"telemetry.otlp.endpoint": 512, "telemetry.otlp.headersSecretRef.name": 253, "telemetry.otlp.headersSecretRef.key": 253,
	} {
		limitOf(field, "maxLength", strings.Repeat("a", limit+1), fmt.Sprintf("Too long: may not be more than %d bytes", limit))
	}
	for _, field := range []string{
		"autoscaling.maxReplicas", "files[].path", "httpRoute.parentRefs", "httpRoute.parentRefs[].name",
		"mounts[].name", "mounts[].mountPath", "mounts[].persistentVolumeClaim.claimName",
		"mounts[].configMap.name", "mounts[].configMap.items[].key", "mounts[].configMap.items[].path",
		"mounts[].secret.name", "mounts[].secret.items[].key", "mounts[].secret.items[].path",
		"networkPolicy.egress.rules[].ports[].port", "networkPolicy.ingress.from",
		"protocol.caRef.name", "protocol.credentialsSecretRef.name",
		"authorization.issuers", "authorization.issuers[].issuer", "authorization.issuers[].jwksConfigMapRef.name",
		"authorization.tools[].name", "authorization.tools[].scopes", "telemetry.otlp.endpoint", "telemetry.otlp.headersSecretRef.name",
		"authorization.tokenExchange.tokenURL", "authorization.tokenExchange.clientSecretRef", "authorization.tokenExchange.clientSecretRef.name",
	} {
		limitOf(field, "required", nil, "Required value")
	}
	for field, bounds := range map[string][2]int{
		"port": {1, 65535}, "drainSeconds": {0, 86399}, "terminationGracePeriodSeconds": {1, 86400},
		"progressDeadlineSeconds": {10, 86400}, "driftHistoryLimit": {0, 50}, "sessionAffinityTimeoutSeconds": {1, 86400},
		"bridge.maxMessageBytes": {1024, 268435456}, "bridge.maxSessions": {1, 10000}, "bridge.firstSessionUser": {10000, 2147000000},
		"limits.requestsPerMinute": {60, 1000000}, "limits.maxBodyBytes": {1024, 33554432}, "limits.callTimeoutSeconds": {1, 86400},
		"telemetry.otlp.samplePercent":              {0, 100},
		"networkPolicy.egress.rules[].ports[].port": {1, 65535}, "networkPolicy.egress.rules[].ports[].endPort": {1, 65535},
	} {
		numbers(field, bounds[0], bounds[1])
	}
	limitOf("limits.callsPerMinute", "maxProperties", read("{"+repeated(17, "a%d: 1")+"}"), "Too many: 17: must have at most 16 items")
	limitOf("limits.maxConcurrentCalls", "minimum", 0, "Invalid value: 0: PATH in body should be greater than or equal to 1")
	for keyword, value := range map[string]int{"minimum": 0, "maximum": 1000001} {
		than := map[string]string{"minimum": "greater than or equal to 1", "maximum": "less than or equal to 1000000"}[keyword]
		mcpServerLimits["spec.limits.callsPerMinute{} "+keyword] = limitRefusal{
			spec: mcpServerWith("limits.callsPerMinute", map[string]any{"a": value}),
			says: fmt.Sprintf("spec.limits.callsPerMinute.a: Invalid value: %d: spec.limits.callsPerMinute.a in body should be %s", value, than)}
	}
	for field, values := range map[string]string{
		"networkPolicy.egress.dns": `"Allowed", "Denied"`, "protocol.probe": `"Periodic", "Disabled"`, "protocol.scheme": `"HTTP", "HTTPS"`,
		"adoptionPolicy": `"Never", "IfUnowned"`, "driftPolicy": `"Correct", "Report"`,
		"imagePullPolicy": `"Always", "IfNotPresent", "Never"`, "sessionRouting": `"Forward", "None"`, "mounts[].emptyDir.medium": `"Memory"`,
		"networkPolicy.egress.rules[].ports[].protocol": `"TCP", "UDP", "SCTP"`,
		"probes.readiness.type":                         `"HTTP", "TCP", "None"`, "probes.liveness.type": `"HTTP", "TCP", "None"`, "probes.startup.type": `"HTTP", "TCP", "None"`,
		"protocol.caRef.kind": `"ConfigMap", "Secret"`, "sessionAffinity": `"Auto", "ClientIP", "None"`,
		"strategy": `"RollingUpdate", "Recreate"`, "transport": `"streamable-http", "sse", "stdio"`,
		"telemetry.audit.arguments": `"Digest", "Full", "None"`,
	} {
		limitOf(field, "enum", "Other", `Unsupported value: "Other": supported values: `+values)
	}
	fromAppService()
	lists()
	for _, probe := range []string{"readiness", "liveness", "startup"} {
		numbers("probes."+probe+".port", 1, 65535)
	}
}

// numbers are the limits of how small and how large a number may be.
func numbers(field string, least, most int) {
	limitOf(field, "minimum", least-1, fmt.Sprintf("Invalid value: %d: PATH in body should be greater than or equal to %d", least-1, least))
	limitOf(field, "maximum", most+1, fmt.Sprintf("Invalid value: %d: PATH in body should be less than or equal to %d", most+1, most))
}

// lists are the limits of how many there may be.
func lists() {
	for field, list := range map[string]struct {
		limit int
		item  string
	}{
		"args": {256, "a%d"}, "command": {64, "a%d"}, "env": {128, "{name: A%d}"}, "envFrom": {32, "{secretRef: {name: a%d}}"},
		"files": {32, "{path: /f%d}"}, "mounts": {24, "{name: m%[1]d, mountPath: /m%[1]d, emptyDir: {}}"},
		"imagePullSecrets": {16, "{name: a%d}"}, "httpRoute.hostnames": {16, "a%d.b"}, "bridge.allowedHosts": {32, "a%d.b"}, "bridge.allowedOrigins": {32, "https://a%d.b"}, "httpRoute.parentRefs": {16, "{name: a%d}"},
		"mounts[].configMap.items": {32, "{key: a%d, path: a}"}, "mounts[].secret.items": {32, "{key: a%d, path: a}"},
		"networkPolicy.egress.rules": {32, "{ports: [{port: 1%02d}]}"}, "networkPolicy.egress.rules[].ports": {32, "{port: 1%02d}"},
		"networkPolicy.egress.rules[].to": {32, "{podSelector: {matchLabels: {a: b%d}}}"}, "networkPolicy.ingress.from": {32, "{podSelector: {matchLabels: {a: b%d}}}"},
		"authorization.issuers": {8, `{issuer: "https://a%d.b"}`}, "authorization.scopes": {16, "a%d"},
		"authorization.tools": {64, "{name: a%d, scopes: [b]}"}, "authorization.tools[].scopes": {16, "a%d"},
		"authorization.tokenExchange.scopes": {16, "a%d"},
		"contract.allow":                     {64, "a%d"}, "contract.deny": {64, "a%d"},
		"scheduling.tolerations":               {32, "{key: a%d}"},
		"scheduling.topologySpreadConstraints": {16, "{maxSkew: 1, topologyKey: a%d, whenUnsatisfiable: DoNotSchedule}"},
	} {
		items := read("items: [" + repeated(list.limit+1, list.item) + "]")["items"]
		limitOf(field, "maxItems", items, fmt.Sprintf("Too many: %d: must have at most %d items", list.limit+1, list.limit))
	}
	for _, field := range []string{"command", "httpRoute.parentRefs", "networkPolicy.ingress.from",
		"networkPolicy.egress.rules[].to", "networkPolicy.egress.rules[].ports",
		"authorization.issuers", "authorization.tools[].scopes", "contract.allow"} {
		limitOf(field, "minItems", []any{}, "Invalid value: 0: PATH in body should have at least 1 items")
	}
	for field, limit := range map[string]int{
		"podOverrides.metadata.annotations": 64, "podOverrides.metadata.labels": 64,
		"scheduling.nodeSelector": 32, "serviceAccount.annotations": 32,
	} {
		limitOf(field, "maxProperties", read("{"+entries("a", limit+1)+"}"), fmt.Sprintf("Too many: %d: must have at most %d items", limit+1, limit))
	}
}

// fromAppService takes the limits of the fields whose types are the same.
func fromAppService() {
	shares := func(limit string) bool {
		return slices.ContainsFunc([]string{"spec.ingress.", "spec.disruptionBudget.", "spec.autoscaling.",
			"status.conditions", "status.phase", "status.selector", "status.drifts"},
			func(prefix string) bool { return strings.HasPrefix(limit, prefix) })
	}
	for limit, c := range limitRefusals {
		if shares(limit) {
			mcpServerLimits[limit] = c
		}
	}
	for _, probe := range []string{"readiness", "liveness", "startup"} {
		maps.Copy(mcpServerLimits, probeLimits("spec.probes."+probe, probe))
	}
}
