package validation

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// The everything... cases together set every field that a spec has; there are
// some because fields exclude each other. A test keeps it so.
var mcpServerAcceptances = map[string]acceptance{
	"the least": {spec: `{image: tools}`, stored: mcpServer(mcpServerDefaults)},
	"defaults of nested fields": {
		spec: mcpServer(stdio, `{bridge: {}, protocol: {scheme: HTTP, credentialsSecretRef: {name: a}},
			files: [{path: /a}], autoscaling: {maxReplicas: 1, targetCPUUtilizationPercent: 80},
			networkPolicy: {egress: {rules: [{ports: [{port: 1}]}]}}, httpRoute: {parentRefs: [{name: a}]}, probes: {readiness: {}}}`),
		stored: mcpServer(mcpServerDefaults, stdio, `{bridge: {maxSessions: 100, idleTimeout: 30m, maxMessageBytes: 4194304},
			protocol: {scheme: HTTP, credentialsSecretRef: {name: a, key: token}},
			files: [{path: /a, content: ""}], autoscaling: {minReplicas: 1, maxReplicas: 1, targetCPUUtilizationPercent: 80},
			networkPolicy: {egress: {dns: Allowed, rules: [{ports: [{protocol: TCP, port: 1}]}]}},
			httpRoute: {parentRefs: [{name: a}], path: /}, probes: {readiness: {}}}`)},
	"defaults of the authorities": {
		spec:   mcpServer(`protocol: {scheme: HTTPS, caRef: {name: a}}`),
		stored: mcpServer(mcpServerDefaults, `protocol: {scheme: HTTPS, caRef: {kind: ConfigMap, name: a, key: ca.crt}}`)},
	"everything, over streamable HTTP": {
		name: "a23456789-123456789-123456789-123456789-123456789-1234567",
		spec: `
transport: streamable-http
image: registry.example.com:5000/team/tools_app/web--ui:1.4.2-rc.1@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
imagePullPolicy: IfNotPresent
imagePullSecrets: [{name: one}, {name: two}]
command: [/bin/tools, ""]
args: [--verbose, ""]
env:
- {name: PLAIN, value: x}
- {name: SECRET, valueFrom: {secretKeyRef: {name: tools, key: token, optional: true}}}
- {name: POD, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}
envFrom:
- {secretRef: {name: tools}, prefix: TOOLS_}
- {configMapRef: {name: tools, optional: true}}
files:
- {path: /etc/tools/config.json, content: "{}\n"}
- {path: "/etc/tools/with space", content: ""}
mounts:
- {name: config, mountPath: /config, configMap: {name: tools, optional: true, items: [{key: a.json, path: sub/a.json}, {key: b, path: .b..c}]}}
- {name: secret, mountPath: /secret, secret: {name: tools.secret-1, optional: false, items: [{key: a, path: a}]}}
- {name: data, mountPath: /data/..x, subPath: tools/data, readOnly: true, persistentVolumeClaim: {claimName: tools}}
- {name: tmp, mountPath: /tmp, emptyDir: {sizeLimit: 64Mi, medium: Memory}}
port: 65535
path: /a.b/~c%20d:@&=+$,;(*)!/mcp/
replicas: 1
strategy: Recreate
resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 1, memory: 64Mi}}
serviceAccount: {create: true, annotations: {eks.amazonaws.com/role-arn: "arn:x"}, automountToken: true}
podSecurityContext: {runAsUser: 1000, fsGroup: 1000}
containerSecurityContext: {readOnlyRootFilesystem: true}
probes:
  readiness: {type: HTTP, path: /ready, port: 1, initialDelaySeconds: 0, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 1}
  liveness: {type: HTTP, path: /live, port: 65535, initialDelaySeconds: 3600, periodSeconds: 3600, timeoutSeconds: 3600, failureThreshold: 1000}
  startup: {type: HTTP, path: /started, port: 8081, initialDelaySeconds: 5, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 30}
scheduling:
  nodeSelector: {kubernetes.io/arch: arm64}
  tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]
  affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname}}]}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}]
  priorityClassName: high
terminationGracePeriodSeconds: 86400
drainSeconds: 0
progressDeadlineSeconds: 10
sessionAffinity: None
sessionAffinityTimeoutSeconds: 1
disruptionBudget: {maxUnavailable: 25%}
networkPolicy:
  ingress: {from: [{podSelector: {matchLabels: {app: agent}}, namespaceSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]}
  egress:
    dns: Denied
    rules:
    - {to: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{protocol: TCP, port: 443}, {protocol: UDP, port: 1, endPort: 1}]}
    - {to: [{podSelector: {}}]}
    - {ports: [{protocol: SCTP, port: 65535}]}
ingress:
  host: tools.example.com
  path: /tools
  ingressClassName: nginx
  tlsSecretName: tools-tls
  annotations: {nginx.ingress.kubernetes.io/proxy-read-timeout: "3600"}
podOverrides:
  metadata:
    labels: {team: tools, app.kubernetes.io/version: "1"}
    annotations: {sidecar.istio.io/inject: "false"}
  spec:
    hostAliases: [{ip: 10.0.0.1, hostnames: [db]}]
    containers: [{name: server, lifecycle: {postStart: {exec: {command: [warm-up]}}}}]
protocol:
  probe: Disabled
  interval: 5s
  timeout: 1s
  scheme: HTTPS
  caRef: {kind: Secret, name: tools-ca, key: tls.crt}
  credentialsSecretRef: {name: tools, key: token}
adoptionPolicy: IfUnowned
contract: {policy: Observe}
driftPolicy: Report
driftHistoryLimit: 50
suspend: true`},
	"everything, over stdio": {
		name: "a",
		spec: `
transport: stdio
image: localhost/tools
authorization:
  issuers:
  - {issuer: "https://id.example.com/realms/a"}
  - {issuer: "http://keycloak.id.svc:8080/realms/b/", jwksURI: "https://id.example.com:8443/keys?appid=a&b=c"}
  - {issuer: "https://[fd00::1]:443", jwksConfigMapRef: {name: keys, key: a.json}}
  resource: https://tools.example.com/mcp
  scopes: [mcp, "api://tools/.default", "tools:call"]
  tools: [{name: delete_*, scopes: [admin]}, {name: "*", scopes: [any]}, {name: "*_secret*", scopes: [s]}, {name: a/b.c-d:e, scopes: [x, z]}]
limits:
  requestsPerMinute: 1000000
  callsPerMinute: {"*": 1000000, "a*b/c.d-e:f_*": 1, Get: 2}
  maxConcurrentCalls: 1
  maxBodyBytes: 33554432
  callTimeoutSeconds: 86400
telemetry:
  audit: {arguments: Full}
  otlp: {endpoint: "https://[fd00::1]:4318/otlp/v1~a", headersSecretRef: {name: otlp, key: a.b}, samplePercent: 0}
contract:
  allow: ["*", "a*b/c.d-e:f_*", Get]
  deny: [delete_*]
  policy: Pin
  digest: 3f786850e387550fdab836ed7e6dc881
command: [npx, -y, "@acme/tools"]
port: 1
path: /
autoscaling: {minReplicas: 1, maxReplicas: 1, targetCPUUtilizationPercent: 1000, targetMemoryUtilizationPercent: 1}
strategy: RollingUpdate
serviceAccount: {create: false, name: tools.account-1, automountToken: false}
probes: {readiness: {periodSeconds: 1}, liveness: {type: None}, startup: {type: TCP}}
terminationGracePeriodSeconds: 61
drainSeconds: 60
progressDeadlineSeconds: 86400
sessionAffinity: ClientIP
sessionAffinityTimeoutSeconds: 86400
disruptionBudget: {minAvailable: 0}
httpRoute:
  parentRefs: [{name: public}, {name: public, namespace: gateways, sectionName: http}, {name: public, namespace: gateways, sectionName: https}]
  hostnames: [tools.example.com, a]
  path: /tools
protocol: {probe: Periodic, interval: 59m60s, timeout: 0m30s}
bridge: {maxSessions: 10000, idleTimeout: 24h, maxMessageBytes: 268435456, drainTimeout: 1s, allowedHosts: [proxy.example.com, "*", a],
  allowedOrigins: ["https://app.example.com", "http://localhost:6274", "http://[::1]:80", "vscode-webview://1b-2c", "*"], firstSessionUser: 2147000000}
sessionRouting: Forward
adoptionPolicy: Never
driftPolicy: Correct
suspend: false`},
	"exchanged tokens": {
		spec: mcpServer(mcpServerDefaults, `
authorization:
  issuers: [{issuer: "https://id.example.com"}]
  tokenExchange:
    tokenURL: https://id.example.com:8443/realms/a/token?tenant=b
    clientSecretRef: {name: tools.client-1}
    audience: "api://orders/$(A)"
    resource: https://orders.example.com/v1
    scopes: [read, "api://orders/.default"]`)},
	"sse with one pod that anybody may reach": {
		spec: mcpServer(mcpServerDefaults, `{transport: sse, sessionAffinity: None, replicas: 1}`)},
	"sse behind a prefix of its own": {
		spec: mcpServer(mcpServerDefaults, `{transport: sse, path: /tools/sse, httpRoute: {parentRefs: [{name: a}], path: /tools/}}`)},
	"sse behind no prefix": {
		spec: mcpServer(mcpServerDefaults, `{transport: sse, httpRoute: {parentRefs: [{name: a}], path: /}}`)},
	"the bridge's own limits with a short grace": {
		spec: mcpServer(mcpServerDefaults, stdio, `{terminationGracePeriodSeconds: 11, bridge: {maxSessions: 100, idleTimeout: 30m, maxMessageBytes: 4194304}}`)},
	"a variable of the name that session routing sets, without it": {
		spec: mcpServer(mcpServerDefaults, stdio, `{env: [{name: FIXPOINT_POD_IP, value: a}], sessionRouting: None}`)},
	"a variable of the name that session routing sets, for a server that serves HTTP": {
		spec: mcpServer(mcpServerDefaults, `{env: [{name: FIXPOINT_POD_IP, value: a}], sessionRouting: Forward}`)},
	"sse without session routing": {
		spec: mcpServer(mcpServerDefaults, `{transport: sse, sessionRouting: None}`)},
	"the highest users of the bridge below those of the system": {
		spec: mcpServer(mcpServerDefaults, stdio, `{bridge: {firstSessionUser: 59898, maxSessions: 100, idleTimeout: 30m, maxMessageBytes: 4194304}}`)},
	"the lowest users of the bridge above those of the system": {
		spec: mcpServer(mcpServerDefaults, stdio, `{bridge: {firstSessionUser: 65536, maxSessions: 100, idleTimeout: 30m, maxMessageBytes: 4194304}}`)},
	"sse with many pods": {
		spec: mcpServer(mcpServerDefaults, `{transport: sse, replicas: 100}`)},
	"a health path of its own": {
		spec: mcpServer(mcpServerDefaults, `path: /healthz`)},
	"empty folder without a limit": {
		spec: mcpServer(mcpServerDefaults, `mounts: [{name: a, mountPath: /a, emptyDir: {}}, {name: b, mountPath: /a/b, emptyDir: {sizeLimit: 0}}]`)},
	"files beside mounts whose names begin alike": {
		spec: mcpServer(mcpServerDefaults, `{files: [{path: /data.json, content: x}, {path: /data.json.bak, content: x}], mounts: [{name: a, mountPath: /data, emptyDir: {}}]}`)},
	"no traffic out but DNS": {
		spec: mcpServer(mcpServerDefaults, `networkPolicy: {egress: {dns: Allowed}}`)},

	// Rules cost the API server time, and it gives up on one that costs too much.
	"files as large as they may be": {
		spec: mcpServer(mcpServerDefaults, fmt.Sprintf(`{files: [%s], mounts: [%s]}`,
			repeated(32, `{path: /f%02d/`+longPath+`, content: `+strings.Repeat("a", 16384)+`}`),
			repeated(24, `{name: m%[1]d, mountPath: /m%02[1]d/`+longPath+`, emptyDir: {}}`)))},
	"mounts as large as they may be": {
		spec: mcpServer(mcpServerDefaults, fmt.Sprintf(`mounts: [%s]`,
			repeated(24, `{name: m%[1]d, mountPath: /m%02[1]d/`+longPath+`, secret: {name: a, items: [`+
				strings.ReplaceAll(repeated(32, `{key: `+strings.Repeat("k", 250)+`%02d, path: `+strings.Repeat("a/", 126)+`b}`), "%", "%%")+`]}}`)))},
	"route path of all characters": {
		spec: mcpServer(mcpServerDefaults, `{httpRoute: {parentRefs: [{name: a}], path: "/.a/..b/-._~!$&'()*+,;=:@%20%2E/"}}`)},
	"text as large as it may be": {
		spec: mcpServer(mcpServerDefaults, fmt.Sprintf(`{command: [%s], args: [%s], env: [%s]}`,
			repeated(64, strings.Repeat("c", 4090)+"%d"), repeated(32, strings.Repeat("a", 16380)+"%d"),
			repeated(128, `{name: A%d, value: `+strings.Repeat("v", 1000)+`}`)))},
	"peers as many as there may be": {
		spec: mcpServer(mcpServerDefaults, fmt.Sprintf(`{networkPolicy: {ingress: {from: [%[1]s]}, egress: {dns: Allowed, rules: [%[2]s]}}, httpRoute: {parentRefs: [%[3]s], hostnames: [%[4]s], path: /}}`,
			repeated(32, `{ipBlock: {cidr: 10.0.%d.0/24}}`),
			repeated(32, `{to: [{podSelector: {}}], ports: [{protocol: TCP, port: 1%02d}]}`),
			repeated(16, `{name: `+strings.Repeat("a", 251)+`%02[1]d, namespace: `+strings.Repeat("n", 63)+`, sectionName: `+strings.Repeat("s", 253)+`}`),
			repeated(16, strings.Repeat("a", 251)+`%02d`)))},
}

// longPath is of 505 characters.
var longPath = strings.Repeat("a/", 252) + "b"

func TestWhatMayChangeOfAnMCPServer(t *testing.T) {
	for given, c := range map[string]struct{ was, is string }{
		"nothing":                              {`transport: sse`, `transport: sse`},
		"the transport, to what it is":         {`{}`, `transport: streamable-http`},
		"the image":                            {`{}`, `image: other`},
		"the port and the path":                {`{}`, `{port: 9090, path: /other}`},
		"the command of stdio":                 {stdio, `{transport: stdio, command: [other]}`},
		"from a fixed number to an autoscaler": {`replicas: 2`, `autoscaling: {maxReplicas: 3, targetCPUUtilizationPercent: 80}`},
		"from an Ingress to an HTTPRoute":      {`ingress: {host: a.b}`, `httpRoute: {parentRefs: [{name: a}]}`},
	} {
		t.Run(given, func(t *testing.T) {
			g := NewWithT(t)

			g.Expect(refusal{was: mcpServer(c.was), spec: mcpServer(c.is)}.try(t, "MCPServer")).To(Succeed())
		})
	}
}
