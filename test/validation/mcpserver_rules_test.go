package validation

import (
	"fmt"
	"strings"
)

const (
	anyName         = "use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	mcpImageMessage = "image must be an OCI image reference: use the form [registry[:port]/]path[:tag][@digest] with a lower-case path and without a scheme, for example ghcr.io/acme/tools:1.4.2"

	transportChanged    = "transport is immutable, because clients are configured for it: restore the previous value, and create a new MCPServer with the other transport"
	mcpReplicasMessage  = "replicas must be at least 1, because the server needs at least one pod: set 1 or more, or omit replicas to let an autoscaler set the number of pods"
	mcpMinMessage       = "minReplicas must be at least 1, because metrics need at least one pod: set 1 or more"
	routesMessage       = "httpRoute and ingress are mutually exclusive: remove ingress to expose the server through a Gateway, or remove httpRoute to expose it through an Ingress"
	commandMessage      = "command is required with transport stdio, because the bridge starts the server and cannot read the entrypoint of the image: set command to the entrypoint of the image"
	programMessage      = "command must start with the program to run: use a value such as [npx, -y, '@acme/tools']"
	bridgeMessage       = "bridge requires transport stdio, because the other transports do not use a bridge: remove bridge"
	bridgeHostsMessage  = "allowedHosts must be DNS names in lower case, without scheme, port, path or wildcard: use a value such as tools.example.com, or '*' for all hosts"
	bridgeOriginMessage = "allowedOrigins must be origins in lower case, without a path: use a value such as https://app.example.com, or '*' for all origins"
	bridgeUsersMessage  = "firstSessionUser and the maxSessions + 1 IDs after it must not be from 60000 to 65535, which the system uses: use a value such as 100000"
	bridgeEnvMessage    = "env must not have FIXPOINT_POD_IP with transport stdio and sessionRouting Forward, which sets it to the address of the pod: rename the variable"
	bridgeTLSMessage    = "protocol.scheme HTTPS is not supported with transport stdio, because the bridge serves plain HTTP: remove protocol.scheme, and terminate TLS at the Ingress or the Gateway"
	affinityMessage     = "sessionAffinity None with transport sse requires a single replica, because pods do not share sessions: set Auto or ClientIP, or run a single replica"
	drainMessage        = "drainSeconds must be less than terminationGracePeriodSeconds, because the pod is killed at the end of the grace period: lower drainSeconds or raise terminationGracePeriodSeconds"
	ssePrefixMessage    = "httpRoute.path must be a prefix of path with transport sse, because the server tells clients where to send messages and does not know the prefix of the route: set path to a path below httpRoute.path, or remove httpRoute.path"
	bridgeDrainMessage  = "bridge.drainTimeout plus drainSeconds must not exceed terminationGracePeriodSeconds, because the pod is killed at the end of the grace period: lower drainTimeout or raise terminationGracePeriodSeconds"
	envBothMessage      = "env must not have both value and valueFrom in one variable: remove one of them"
	envSourceMessage    = "env must have exactly one source in each valueFrom: keep one of configMapKeyRef, secretKeyRef, fieldRef, resourceFieldRef and fileKeyRef"
	envNamelessMessage  = "env must name the Secret or ConfigMap in each reference: set name and key"
	fromSourceMessage   = "envFrom needs exactly one of configMapRef and secretRef in each entry: set one and remove the other"
	fromNamelessMessage = "envFrom must name the Secret or ConfigMap of each entry: set name"

	requestsMessage = "resources must not request more than the limit of cpu, memory or ephemeral-storage: lower the request or raise the limit"
	quantityMessage = ` in body should match '^(\+|-)?(([0-9]{1,32}(\.[0-9]{0,32})?)|(\.[0-9]{1,32}))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$'`
	negativeMessage = "resources must not be negative: use a value such as {requests: {cpu: 100m, memory: 64Mi}}"
	urlPathMessage  = "path must be a URL path that starts with '/', without query, fragment, '.', '..' and empty segments: use a value such as /mcp"

	filesSizeMessage   = "files must not exceed 524288 bytes of content in total, because they are stored in one ConfigMap: shorten them, or mount larger data as a volume"
	filesNestedMessage = "files must not have a path below another file, because a file is not a directory: change one of the paths"
	filesMountsMessage = "files must not be at, below or above the mountPath of a mount: change the path of the file, or add the file to the mounted volume"
	filePathMessage    = "path must be the absolute path of a file, without ':', control characters, '.', '..' and empty segments, and not in /.fixpoint, which is reserved for Fixpoint: use a value such as /etc/tools/config.json"

	mountsTwiceMessage     = "mounts must have unique mountPaths: change one of the duplicates"
	mountsSourceMessage    = "mounts must each have exactly one of configMap, secret, persistentVolumeClaim and emptyDir: set one and remove the others"
	mountsReadOnlyMessage  = "readOnly is not supported for an emptyDir, which would stay empty: remove readOnly, or mount another volume"
	mountNameMessage       = "name must consist of lower-case letters, digits and '-', starting and ending with a letter or digit, and must not start with 'fixpoint-', which is reserved for Fixpoint: use a value such as data"
	mcpMountMessage        = "mountPath must be an absolute path other than '/', without ':', control characters, '.', '..' and empty segments, not ending with '/', and not in /.fixpoint, which is reserved for Fixpoint: use a value such as /data"
	subPathMessage         = "subPath must be a path within the volume, neither starting nor ending with '/', without ':', control characters, '.', '..' and empty segments: use a value such as tools/data"
	mountedMessage         = "name must be the name of an object of this namespace: " + anyName
	mountedKeyMessage      = "key must be a key of a ConfigMap or a Secret: use letters, digits, '-', '_' and '.'"
	mountedPathMessage     = "path must be a path within the mount, neither starting nor ending with '/', without ':', control characters, '.', '..' and empty segments, and not starting with '..': use a value such as tools.json"
	claimMessage           = "claimName must be the name of a PersistentVolumeClaim of this namespace: " + anyName
	sizeLimitMessage       = "sizeLimit must not be negative: use a value such as 256Mi, or omit it"
	ownAnnotationsMessage  = "annotations require create, because Fixpoint does not change an existing ServiceAccount: set create to true, or annotate the ServiceAccount directly"
	ownAccountMessage      = "name must be the name of a ServiceAccount: " + anyName + ", or omit it for the default ServiceAccount"
	createdNameMessage     = "name must not be set together with create, because Fixpoint creates a ServiceAccount with the name of the MCPServer: remove name, or set create to false"
	probeTypeMessage       = "path is required with type HTTP and must not be set with other types: set type to HTTP and path to a value such as /healthz, or remove path"
	probePortMessage       = "port requires type HTTP or TCP: set type, or remove port"
	priorityMessage        = "priorityClassName must be the name of a PriorityClass: " + anyName + ", or omit it for the default of the cluster"
	noPolicyMessage        = "networkPolicy needs at least one of ingress and egress: set ingress to restrict connections to the pods, egress to restrict connections from the pods, or both, or remove networkPolicy"
	peersMessage           = " must have either an ipBlock or selectors (podSelector, namespaceSelector or both) in each peer: remove one of them, or split the peer in two"
	emptyRuleMessage       = "rules must each have to, ports or both, because an empty rule allows all connections: set at least one of them, or remove egress to allow all connections"
	endPortMessage         = "endPort must not be less than port: raise endPort, or omit it for a single port"
	parentsMessage         = "parentRefs must not name the same listener twice: remove one of them, or set different sectionNames"
	parentsBothMessage     = "parentRefs must not name both a Gateway and a listener of it: set sectionName in each reference to the Gateway, or keep one without it"
	hostnamesMessage       = "hostnames must be DNS names in lower case, without scheme, port, path or wildcard: use a value such as tools.example.com"
	routePathMessage       = "path must be a URL path that starts with '/', without query, fragment, '.', '..' and empty segments and '%2F': use a value such as /tools"
	gatewayMessage         = "name must be the name of a Gateway: " + anyName
	gatewayNSMessage       = "namespace must be the name of a namespace: use lower-case letters, digits and '-', starting and ending with a letter or digit, or omit it for the namespace of the MCPServer"
	listenerMessage        = "sectionName must be the name of a listener: " + anyName + ", or omit it for all listeners"
	podLabelsMessage       = "labels must not be app.kubernetes.io/name or app.kubernetes.io/managed-by or start with 'fixpoint.dev/', which are reserved for Fixpoint: rename the label"
	podAnnotationsMessage  = "annotations must not start with 'fixpoint.dev/', which is reserved for Fixpoint: rename the annotation"
	timeoutTooLongMessage  = "timeout must not exceed interval: lower timeout or raise interval"
	caWithoutTLSMessage    = "caRef requires scheme HTTPS: set scheme to HTTPS if the server serves TLS, or remove caRef"
	intervalMessage        = "interval must be a duration from 5s to 1h, in hours, minutes and seconds: use a value such as 30s or 1m30s"
	timeoutMessage         = "timeout must be a duration from 1s to 30s, in hours, minutes and seconds: use a value such as 5s"
	caKeyMessage           = "key must be a key of a ConfigMap or a Secret: use letters, digits, '-', '_' and '.', or omit it for ca.crt"
	tokenSecretMessage     = "name must be the name of a Secret of this namespace: " + anyName
	tokenKeyMessage        = "key must be a key of a Secret: use letters, digits, '-', '_' and '.', or omit it for token"
	idleTimeoutMessage     = "idleTimeout must be a duration from 1s to 24h, in hours, minutes and seconds: use a value such as 30m"
	bridgeDurationsMessage = "drainTimeout must be a duration from 1s to 24h, in hours, minutes and seconds: use a value such as 25s"

	tokensSSEMessage      = "authorization is not supported with the deprecated transport sse: create an MCPServer with transport streamable-http, or remove authorization"
	tokensTLSMessage      = "protocol.scheme HTTPS is not supported with authorization, limits, telemetry, contract.allow, contract.deny and sessionRouting Forward, because their proxy serves plain HTTP: remove protocol.scheme and serve plain HTTP, and terminate TLS at the Ingress or the Gateway"
	resourceMessage       = "resource must be the URL of the server, without user, query and fragment: use a value such as https://tools.example.com/mcp"
	scopesMessage         = "scopes must not be empty or contain spaces, quotes, backslashes, '$', '`', '[' and ']': use values such as tools:call"
	keysTwiceMessage      = "jwksURI and jwksConfigMapRef are mutually exclusive: remove one of them"
	discoveryMessage      = "issuer must use https if its keys are discovered, because who can change the response can sign tokens: use https, or set jwksURI or jwksConfigMapRef"
	issuerMessage         = "issuer must be the URL of the authorization server, without user, query and fragment: use a value such as https://id.example.com"
	keysURLMessage        = "jwksURI must be an https URL, because who can change the response can sign tokens: use a value such as https://id.example.com/keys"
	keysObjectMessage     = "name must be the name of a ConfigMap of this namespace: " + anyName
	keysKeyMessage        = "key must be a key of a ConfigMap: use letters, digits, '-', '_' and '.', or omit it for jwks.json"
	limitsSSEMessage      = "limits, telemetry, contract.allow and contract.deny are not supported with the deprecated transport sse: create an MCPServer with transport streamable-http, or remove them"
	routingSSEMessage     = "sessionRouting Forward is not supported with the deprecated transport sse: create an MCPServer with transport streamable-http, or remove sessionRouting"
	telemetryMessage      = "telemetry must have audit or otlp: set one, for example {audit: {}}"
	collectorMessage      = "endpoint must be an http or https URL without user and query: use a value such as http://collector.observability:4318"
	headersMessage        = "name must be the name of a Secret: use lower-case letters, digits, '-' and '.'"
	headersKeyMessage     = "key must be a key of a Secret: use letters, digits, '-', '_' and '.'"
	limitNamesMessage     = "callsPerMinute must have names of tools: use a value such as {get_*: 10}"
	allowMessage          = "allow must have names of tools: use values such as get_*"
	digestMessage         = "digest must have 32 hexadecimal digits: use that of status.contract or status.pendingContract"
	pinDigestMessage      = "digest requires policy Pin: set policy to Pin, or remove digest"
	pinProbeMessage       = "contract.policy Pin requires the probe, which reads the contracts of pods: remove protocol.probe, or set contract.policy to Disabled"
	denyMessage           = "deny must have names of tools: use values such as delete_*"
	toolNameMessage       = "name must be the name of a tool: use a value such as delete_*"
	exchangeStdioMessage  = "authorization.tokenExchange is not supported with transport stdio, which has no header for the token: remove it"
	exchangeTargetMessage = "tokenExchange needs audience or resource: set what the server calls"
	tokenURLMessage       = "tokenURL must be an https URL, because it gets tokens: use a value such as https://id.example.com/token"
	audienceMessage       = "audience must not have spaces: use a value such as orders"
	targetURLMessage      = "resource must be a URL: use a value such as https://orders.example.com"
	wantedScopesMessage   = "scopes must not have spaces and quotes: use values such as orders:read"
	clientSecretMessage   = "name must be that of a Secret: use lower-case letters, digits, '-' and '.'"
)

var mcpServerRefusals = map[string]refusal{
	"transport that changes": {was: mcpServer(), spec: mcpServer(`transport: sse`),
		field: "spec.transport", message: transportChanged},
	"transport that becomes stdio": {was: mcpServer(`command: [serve]`), spec: mcpServer(stdio),
		field: "spec.transport", message: transportChanged},

	"command that is missing":               badServer(`transport: stdio`, "command", commandMessage),
	"command that is empty":                 badServer(`command: [""]`, "command", programMessage),
	"bridge for streamable-http":            badServer(`bridge: {}`, "bridge", bridgeMessage),
	"bridge for sse":                        badServer(`{transport: sse, bridge: {}}`, "bridge", bridgeMessage),
	"hosts of the bridge with a wildcard":   badServer(`{transport: stdio, command: [serve], bridge: {allowedHosts: ["*.example.com"]}}`, "bridge.allowedHosts", bridgeHostsMessage),
	"hosts of the bridge with a port":       badServer(`{transport: stdio, command: [serve], bridge: {allowedHosts: ["a.example.com:80"]}}`, "bridge.allowedHosts", bridgeHostsMessage),
	"origins of the bridge with a path":     badServer(`{transport: stdio, command: [serve], bridge: {allowedOrigins: ["https://a.example.com/"]}}`, "bridge.allowedOrigins", bridgeOriginMessage),
	"origins of the bridge without scheme":  badServer(`{transport: stdio, command: [serve], bridge: {allowedOrigins: [a.example.com]}}`, "bridge.allowedOrigins", bridgeOriginMessage),
	"origins of the bridge with expansions": badServer(`{transport: stdio, command: [serve], bridge: {allowedOrigins: ["https://$(A)"]}}`, "bridge.allowedOrigins", bridgeOriginMessage),
	"last user of the bridge of systemd":    badServer(`{transport: stdio, command: [serve], bridge: {firstSessionUser: 59899}}`, "bridge.firstSessionUser", bridgeUsersMessage),
	"users of the bridge with nobody":       badServer(`{transport: stdio, command: [serve], bridge: {firstSessionUser: 65535, maxSessions: 1}}`, "bridge.firstSessionUser", bridgeUsersMessage),
	"session routing for sse":               badServer(`{transport: sse, sessionRouting: Forward}`, "sessionRouting", routingSSEMessage),
	"session routing in front of TLS":       badServer(`{protocol: {scheme: HTTPS}, sessionRouting: Forward}`, "protocol.scheme", tokensTLSMessage),
	"variable that session routing sets":    badServer(`{transport: stdio, command: [serve], sessionRouting: Forward, env: [{name: A, value: b}, {name: FIXPOINT_POD_IP, value: a}]}`, "env", bridgeEnvMessage),
	"TLS of the bridge":                     badServer(`{transport: stdio, command: [serve], protocol: {scheme: HTTPS}}`, "protocol.scheme", bridgeTLSMessage),
	"sessions of sse lost by hand":          badServer(`{transport: sse, sessionAffinity: None, replicas: 2}`, "sessionAffinity", affinityMessage),
	"sessions of sse lost by itself":        badServer(`{transport: sse, sessionAffinity: None, autoscaling: {maxReplicas: 2, targetCPUUtilizationPercent: 80}}`, "sessionAffinity", affinityMessage),
	"drain as long as the grace":            badServer(`{terminationGracePeriodSeconds: 10}`, "drainSeconds", drainMessage),
	"drain longer than the grace":           badServer(`{drainSeconds: 61}`, "drainSeconds", drainMessage),
	"drain of the bridge longer than the grace": badServer(`{transport: stdio, command: [serve], bridge: {drainTimeout: 51s}}`,
		"bridge.drainTimeout", bridgeDrainMessage),
	"drain of the bridge longer than a short grace": badServer(`{transport: stdio, command: [serve], terminationGracePeriodSeconds: 30, bridge: {drainTimeout: 25s}}`,
		"bridge.drainTimeout", bridgeDrainMessage),
	"sse behind a prefix": badServer(`{transport: sse, httpRoute: {parentRefs: [{name: a}], path: /tools}}`, "httpRoute.path", ssePrefixMessage),
	"sse behind a prefix that its path only begins with": badServer(`{transport: sse, path: /toolsets/sse, httpRoute: {parentRefs: [{name: a}], path: /tools}}`,
		"httpRoute.path", ssePrefixMessage),
	"ingress and route": badServer(`{ingress: {host: a.b}, httpRoute: {parentRefs: [{name: a}]}}`, "httpRoute", routesMessage),

	"tokens for sse":                      badServer(`{transport: sse, authorization: {issuers: [{issuer: "https://a.b"}]}}`, "authorization", tokensSSEMessage),
	"tokens in front of TLS":              badServer(`{protocol: {scheme: HTTPS}, authorization: {issuers: [{issuer: "https://a.b"}]}}`, "protocol.scheme", tokensTLSMessage),
	"limits for sse":                      badServer(`{transport: sse, limits: {maxConcurrentCalls: 1}}`, "transport", limitsSSEMessage),
	"allowed tools for sse":               badServer(`{transport: sse, contract: {allow: [a]}}`, "transport", limitsSSEMessage),
	"denied tools for sse":                badServer(`{transport: sse, contract: {deny: [a]}}`, "transport", limitsSSEMessage),
	"limits in front of TLS":              badServer(`{protocol: {scheme: HTTPS}, limits: {maxConcurrentCalls: 1}}`, "protocol.scheme", tokensTLSMessage),
	"allowed tools in front of TLS":       badServer(`{protocol: {scheme: HTTPS}, contract: {allow: [a]}}`, "protocol.scheme", tokensTLSMessage),
	"denied tools in front of TLS":        badServer(`{protocol: {scheme: HTTPS}, contract: {deny: [a]}}`, "protocol.scheme", tokensTLSMessage),
	"telemetry for sse":                   badServer(`{transport: sse, telemetry: {audit: {}}}`, "transport", limitsSSEMessage),
	"telemetry in front of TLS":           badServer(`{protocol: {scheme: HTTPS}, telemetry: {audit: {}}}`, "protocol.scheme", tokensTLSMessage),
	"telemetry of nothing":                badServer(`telemetry: {}`, "telemetry", telemetryMessage),
	"collector with a user":               badServer(`telemetry: {otlp: {endpoint: "http://a:b@c"}}`, "telemetry.otlp.endpoint", collectorMessage),
	"collector with a query":              badServer(`telemetry: {otlp: {endpoint: "http://a/?b"}}`, "telemetry.otlp.endpoint", collectorMessage),
	"collector of gRPC":                   badServer(`telemetry: {otlp: {endpoint: "grpc://a:4317"}}`, "telemetry.otlp.endpoint", collectorMessage),
	"collector with an expansion":         badServer(`telemetry: {otlp: {endpoint: "http://a/$(B)"}}`, "telemetry.otlp.endpoint", collectorMessage),
	"headers of no good name":             badServer(`telemetry: {otlp: {endpoint: "http://a", headersSecretRef: {name: A}}}`, "telemetry.otlp.headersSecretRef.name", headersMessage),
	"headers of no good key":              badServer(`telemetry: {otlp: {endpoint: "http://a", headersSecretRef: {name: a, key: b/c}}}`, "telemetry.otlp.headersSecretRef.key", headersKeyMessage),
	"limit of calls of a tool with space": badServer(`limits: {callsPerMinute: {"a b": 1}}`, "limits.callsPerMinute", limitNamesMessage),
	"limit of calls of no tool":           badServer(`limits: {callsPerMinute: {"": 1}}`, "limits.callsPerMinute", limitNamesMessage),
	"limit of calls of a long name":       badServer(`limits: {callsPerMinute: {`+strings.Repeat("a", 129)+`: 1}}`, "limits.callsPerMinute", limitNamesMessage),
	"limit of calls of an expansion":      badServer(`limits: {callsPerMinute: {$(A): 1}}`, "limits.callsPerMinute", limitNamesMessage),
	"allowed tool without a name":         badServer(`contract: {allow: [""]}`, "contract.allow", allowMessage),
	"allowed tools in one":                badServer(`contract: {allow: ["a,b"]}`, "contract.allow", allowMessage),
	"denied tool with an expansion":       badServer(`contract: {deny: ["$(A)"]}`, "contract.deny", denyMessage),
	"contract that is no digest":          badServer(`contract: {policy: Pin, digest: latest}`, "contract.digest", digestMessage),
	"approved contract without a policy":  badServer(`contract: {digest: 3f786850e387550fdab836ed7e6dc881}`, "contract.digest", pinDigestMessage),
	"approved contract that is observed":  badServer(`contract: {policy: Observe, digest: 3f786850e387550fdab836ed7e6dc881}`, "contract.digest", pinDigestMessage),
	"pinned contract without a probe":     badServer(`{contract: {policy: Pin}, protocol: {probe: Disabled}}`, "contract.policy", pinProbeMessage),
	"tokens for no URL":                   badTokens(`resource: tools`, "resource", resourceMessage),
	"tokens for a URL with a query":       badTokens(`resource: "https://a.b/mcp?a=b"`, "resource", resourceMessage),
	"tokens for a URL with a user":        badTokens(`resource: "https://a@b/mcp"`, "resource", resourceMessage),
	"tokens for an expansion":             badTokens(`resource: "https://a.b/$(A)"`, "resource", resourceMessage),
	"tokens with an empty scope":          badTokens(`scopes: [""]`, "scopes", scopesMessage),
	"tokens with two scopes in one":       badTokens(`scopes: ["a b"]`, "scopes", scopesMessage),
	"tokens with a quoted scope":          badTokens(`scopes: ['a"']`, "scopes", scopesMessage),
	"tokens with an expanded scope":       badTokens(`scopes: ["$(A)"]`, "scopes", scopesMessage),
	"issuer with two sources of keys":     badIssuer(`{jwksURI: "https://a.b/keys", jwksConfigMapRef: {name: a}}`, "jwksURI", keysTwiceMessage),
	"issuer that anyone may answer for":   badIssuer(`{issuer: "http://a.b"}`, "issuer", discoveryMessage),
	"issuer that is no URL":               badIssuer(`{issuer: a.b}`, "issuer", issuerMessage),
	"issuer with a query":                 badIssuer(`{issuer: "https://a.b?c=d"}`, "issuer", issuerMessage),
	"issuer with a bad escape":            badIssuer(`{issuer: "https://a.b/%zz"}`, "issuer", issuerMessage),
	"issuer with a space":                 badIssuer(`{issuer: "https://a.b /etc/keys"}`, "issuer", issuerMessage),
	"issuer with a newline":               badIssuer(`{issuer: "https://a.b\nx"}`, "issuer", issuerMessage),
	"keys over plain HTTP":                badIssuer(`{jwksURI: "http://a.b/keys"}`, "jwksURI", keysURLMessage),
	"keys in a file":                      badIssuer(`{jwksURI: "file:///etc/keys"}`, "jwksURI", keysURLMessage),
	"keys in no good ConfigMap":           badIssuer(`{jwksConfigMapRef: {name: ns/a}}`, "jwksConfigMapRef.name", keysObjectMessage),
	"keys under no good key":              badIssuer(`{jwksConfigMapRef: {name: a, key: a/b}}`, "jwksConfigMapRef.key", keysKeyMessage),
	"exchanged tokens with stdio": badServer(`{transport: stdio, command: [a], authorization: {issuers: [{issuer: "https://a.b"}],
 tokenExchange: {tokenURL: "https://a.b/token", clientSecretRef: {name: a}, audience: a}}}`, "authorization.tokenExchange", exchangeStdioMessage),
	"exchanged tokens for anything":           badExchange(`audience: null`, "", exchangeTargetMessage),
	"exchanged tokens over plain HTTP":        badExchange(`tokenURL: "http://a.b/token"`, ".tokenURL", tokenURLMessage),
	"exchanged tokens from no URL":            badExchange(`tokenURL: "https://a b"`, ".tokenURL", tokenURLMessage),
	"exchanged tokens with a user":            badExchange(`tokenURL: "https://a@b/token"`, ".tokenURL", tokenURLMessage),
	"exchanged tokens for two audiences":      badExchange(`audience: "a b"`, ".audience", audienceMessage),
	"exchanged tokens for no URL":             badExchange(`resource: orders`, ".resource", targetURLMessage),
	"exchanged tokens for a part of a page":   badExchange(`resource: "https://a.b/#c"`, ".resource", targetURLMessage),
	"exchanged tokens with two scopes in one": badExchange(`scopes: ["a b"]`, ".scopes", wantedScopesMessage),
	"exchanged tokens with an empty scope":    badExchange(`scopes: [""]`, ".scopes", wantedScopesMessage),
	"exchanged tokens with no good Secret":    badExchange(`clientSecretRef: {name: ns/a}`, ".clientSecretRef.name", clientSecretMessage),
	"scopes of a tool with an expansion":      badTokens(`tools: [{name: "$(A)", scopes: [b]}]`, "tools[0].name", toolNameMessage),
	"scopes of a tool with a space":           badTokens(`tools: [{name: "a b", scopes: [b]}]`, "tools[0].name", toolNameMessage),
	"scopes of a tool that are not good":      badTokens(`tools: [{name: a, scopes: ["b c"]}]`, "tools[0].scopes", scopesMessage),

	"variable with two values":           badServer(`env: [{name: A, value: x, valueFrom: {secretKeyRef: {name: a, key: b}}}]`, "env", envBothMessage),
	"variable from two sources":          badServer(`env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: b}, fieldRef: {fieldPath: metadata.name}}}]`, "env", envSourceMessage),
	"variable from nowhere":              badServer(`env: [{name: A, valueFrom: {}}]`, "env", envSourceMessage),
	"variable from a nameless Secret":    badServer(`env: [{name: A, valueFrom: {secretKeyRef: {key: b}}}]`, "env", envNamelessMessage),
	"variable from a nameless ConfigMap": badServer(`env: [{name: A, valueFrom: {configMapKeyRef: {name: "", key: b}}}]`, "env", envNamelessMessage),
	"environment from nowhere":           badServer(`envFrom: [{prefix: A_}]`, "envFrom", fromSourceMessage),
	"environment from two objects":       badServer(`envFrom: [{secretRef: {name: a}, configMapRef: {name: a}}]`, "envFrom", fromSourceMessage),
	"environment from a nameless Secret": badServer(`envFrom: [{secretRef: {}}]`, "envFrom", fromNamelessMessage),
	"environment from a nameless ConfigMap": badServer(`envFrom: [{configMapRef: {name: ""}}]`,
		"envFrom", fromNamelessMessage),

	"files that are too much": badServer(fmt.Sprintf(`files: [%s, {path: /last, content: x}]`,
		repeated(4, `{path: /%d, content: `+strings.Repeat("a", 131072)+`}`)), "files", filesSizeMessage),
	"files that are too much in bytes": badServer(fmt.Sprintf(`files: [%s]`,
		repeated(3, `{path: /%d, content: `+strings.Repeat("ä", 100000)+`}`)), "files", filesSizeMessage),
	"files below one another": badServer(`files: [{path: /a/b}, {path: /a}]`, "files", filesNestedMessage),
	"files in place of a mount": badServer(`{files: [{path: /data}], mounts: [{name: a, mountPath: /data, emptyDir: {}}]}`,
		"files", filesMountsMessage),
	"files in a mount": badServer(`{files: [{path: /data/x/y}], mounts: [{name: a, mountPath: /data, emptyDir: {}}]}`,
		"files", filesMountsMessage),
	"files above a mount": badServer(`{files: [{path: /data}], mounts: [{name: a, mountPath: /data/x, emptyDir: {}}]}`,
		"files", filesMountsMessage),

	"mounts at the same place": badServer(`mounts: [{name: a, mountPath: /data, emptyDir: {}}, {name: b, mountPath: /data, emptyDir: {}}]`,
		"mounts", mountsTwiceMessage),
	"mount of nothing":               badMount(`{}`, "", mountsSourceMessage),
	"mount of two things":            badMount(`{emptyDir: {}, configMap: {name: a}}`, "", mountsSourceMessage),
	"mount of a read-only emptyDir":  badMount(`{emptyDir: {}, readOnly: true}`, ".readOnly", mountsReadOnlyMessage),
	"mount in upper case":            badMount(`{emptyDir: {}, name: Data}`, ".name", mountNameMessage),
	"mount of a Fixpoint name":       badMount(`{emptyDir: {}, name: fixpoint-files}`, ".name", mountNameMessage),
	"mount without a name":           badMount(`{emptyDir: {}, name: ""}`, ".name", mountNameMessage),
	"mount over everything":          badMount(`{emptyDir: {}, mountPath: /}`, ".mountPath", mcpMountMessage),
	"mount at a relative path":       badMount(`{emptyDir: {}, mountPath: data}`, ".mountPath", mcpMountMessage),
	"mount at a path with a colon":   badMount(`{emptyDir: {}, mountPath: "/data:ro"}`, ".mountPath", mcpMountMessage),
	"mount at a path that goes up":   badMount(`{emptyDir: {}, mountPath: /data/../etc}`, ".mountPath", mcpMountMessage),
	"mount at a path of two names":   badMount(`{emptyDir: {}, mountPath: /data/}`, ".mountPath", mcpMountMessage),
	"mount over the bridge":          badMount(`{emptyDir: {}, mountPath: /.fixpoint}`, ".mountPath", mcpMountMessage),
	"mount at a path with a newline": badMount(`{emptyDir: {}, mountPath: "/a\nb"}`, ".mountPath", mcpMountMessage),
	"mount of a path that is absolute": badMount(`{emptyDir: {}, subPath: /data}`,
		".subPath", subPathMessage),
	"mount of a path that goes up":     badMount(`{emptyDir: {}, subPath: a/..}`, ".subPath", subPathMessage),
	"mount of a path of nothing":       badMount(`{emptyDir: {}, subPath: ""}`, ".subPath", subPathMessage),
	"mount of a nameless ConfigMap":    badMount(`{configMap: {name: ""}}`, ".configMap.name", mountedMessage),
	"mount of a Secret elsewhere":      badMount(`{secret: {name: ns/a}}`, ".secret.name", mountedMessage),
	"mount of no good key":             badMount(`{configMap: {name: a, items: [{key: a/b, path: x}]}}`, ".configMap.items[0].key", mountedKeyMessage),
	"mount of no good key of a Secret": badMount(`{secret: {name: a, items: [{key: "", path: x}]}}`, ".secret.items[0].key", mountedKeyMessage),
	"mount of a key at a path that goes up": badMount(`{configMap: {name: a, items: [{key: a, path: x/../../y}]}}`,
		".configMap.items[0].path", mountedPathMessage),
	"mount of a key at a reserved path": badMount(`{secret: {name: a, items: [{key: a, path: ..data}]}}`,
		".secret.items[0].path", mountedPathMessage),
	"mount of no good claim":      badMount(`{persistentVolumeClaim: {claimName: My_Claim}}`, ".persistentVolumeClaim.claimName", claimMessage),
	"mount of less than nothing":  badMount(`{emptyDir: {sizeLimit: -1Mi}}`, ".emptyDir.sizeLimit", sizeLimitMessage),
	"mount of less than no bytes": badMount(`{emptyDir: {sizeLimit: -1}}`, ".emptyDir.sizeLimit", sizeLimitMessage),
	"replicas of none":            badServer(`replicas: 0`, "replicas", mcpReplicasMessage),
	"replicas beside autoscaling": badServer(`{replicas: 1, autoscaling: {maxReplicas: 3, targetCPUUtilizationPercent: 80}}`, "replicas", exclusive),
	"autoscaling down to none":    badServer(`autoscaling: {minReplicas: 0, maxReplicas: 3, targetCPUUtilizationPercent: 80}`, "autoscaling.minReplicas", mcpMinMessage),
	"autoscaling, its bounds swapped": badServer(`autoscaling: {minReplicas: 4, maxReplicas: 3, targetCPUUtilizationPercent: 80}`,
		"autoscaling.maxReplicas", maxMessage),
	"autoscaling by nothing": badServer(`autoscaling: {maxReplicas: 3}`, "autoscaling", targetMessage),

	"requests above the limits":    badServer(`resources: {requests: {memory: 1Gi}, limits: {memory: 1023Mi}}`, "resources", requestsMessage),
	"requests of CPU above limits": badServer(`resources: {requests: {cpu: 2}, limits: {cpu: 1500m}}`, "resources", requestsMessage),
	// A quantity as small as this takes the API server a day to compare.
	"requests of no sensible size": badServer(`resources: {requests: {cpu: "1e-999999999"}, limits: {cpu: 1}}`, "resources.requests.cpu", "spec.resources.requests.cpu"+quantityMessage),
	"limits of no sensible size":   badServer(`resources: {requests: {cpu: 1}, limits: {cpu: "1e-999999999"}}`, "resources.limits.cpu", "spec.resources.limits.cpu"+quantityMessage),
	"requests that are negative":   badServer(`resources: {requests: {cpu: -100m}}`, "resources", negativeMessage),
	"limits that are negative":     badServer(`resources: {limits: {memory: -1}}`, "resources", negativeMessage),

	"annotations on an existing account":   badServer(`serviceAccount: {name: a, annotations: {a: b}}`, "serviceAccount.annotations", ownAnnotationsMessage),
	"account that is no name":              badServer(`serviceAccount: {name: My_Account}`, "serviceAccount.name", ownAccountMessage),
	"account of an empty name":             badServer(`serviceAccount: {name: ""}`, "serviceAccount.name", ownAccountMessage),
	"account that is created under a name": badServer(`serviceAccount: {create: true, name: a}`, "serviceAccount.name", createdNameMessage),
	"priority class that is no name":       badServer(`scheduling: {priorityClassName: Very High}`, "scheduling.priorityClassName", priorityMessage),

	"network policy of nothing":        badServer(`networkPolicy: {}`, "networkPolicy", noPolicyMessage),
	"network policy for nobody":        badServer(`networkPolicy: {ingress: {from: [{}]}}`, "networkPolicy.ingress.from", "from"+peersMessage),
	"network policy for both":          badServer(`networkPolicy: {ingress: {from: [{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}}`, "networkPolicy.ingress.from", "from"+peersMessage),
	"network policy to nobody":         badServer(`networkPolicy: {egress: {rules: [{to: [{}]}]}}`, "networkPolicy.egress.rules[0].to", "to"+peersMessage),
	"network policy that allows all":   badServer(`networkPolicy: {egress: {rules: [{}]}}`, "networkPolicy.egress.rules[0]", emptyRuleMessage),
	"network policy to ports of wrong": badServer(`networkPolicy: {egress: {rules: [{ports: [{port: 443, endPort: 442}]}]}}`, "networkPolicy.egress.rules[0].ports[0].endPort", endPortMessage),

	"route through the same Gateway twice": badServer(`httpRoute: {parentRefs: [{name: a}, {name: a}]}`, "httpRoute.parentRefs", parentsMessage),
	"route through the same listener twice": badServer(`httpRoute: {parentRefs: [{name: a, namespace: b, sectionName: c}, {name: a, namespace: b, sectionName: c}]}`,
		"httpRoute.parentRefs", parentsMessage),
	"route through a Gateway and a listener of it": badServer(`httpRoute: {parentRefs: [{name: a, namespace: b}, {name: a, namespace: b, sectionName: c}]}`,
		"httpRoute.parentRefs", parentsBothMessage),
	"route of a wildcard":             badServer(`httpRoute: {parentRefs: [{name: a}], hostnames: ["*.example.com"]}`, "httpRoute.hostnames", hostnamesMessage),
	"route without a slash":           badServer(`httpRoute: {parentRefs: [{name: a}], path: tools}`, "httpRoute.path", routePathMessage),
	"route through no good name":      badServer(`httpRoute: {parentRefs: [{name: My_Gateway}]}`, "httpRoute.parentRefs[0].name", gatewayMessage),
	"route through no good namespace": badServer(`httpRoute: {parentRefs: [{name: a, namespace: a.b}]}`, "httpRoute.parentRefs[0].namespace", gatewayNSMessage),
	"route through no good listener":  badServer(`httpRoute: {parentRefs: [{name: a, sectionName: HTTPS}]}`, "httpRoute.parentRefs[0].sectionName", listenerMessage),

	"label that finds the pods": badServer(`podOverrides: {metadata: {labels: {app.kubernetes.io/name: x}}}`, "podOverrides.metadata.labels", podLabelsMessage),
	"label of Fixpoint's own":   badServer(`podOverrides: {metadata: {labels: {fixpoint.dev/x: x}}}`, "podOverrides.metadata.labels", podLabelsMessage),
	"annotation of Fixpoint's own": badServer(`podOverrides: {metadata: {annotations: {fixpoint.dev/config-hash: x}}}`,
		"podOverrides.metadata.annotations", podAnnotationsMessage),

	"timeout of more than the interval": badServer(`protocol: {interval: 10s, timeout: 10.5s}`, "protocol.timeout", timeoutTooLongMessage),
	"authorities without TLS":           badServer(`protocol: {caRef: {name: a}}`, "protocol.caRef", caWithoutTLSMessage),
	"authorities of no good name":       badServer(`protocol: {scheme: HTTPS, caRef: {name: A}}`, "protocol.caRef.name", mountedMessage),
	"authorities of no good key":        badServer(`protocol: {scheme: HTTPS, caRef: {name: a, key: ""}}`, "protocol.caRef.key", caKeyMessage),
	"token of no good name":             badServer(`protocol: {credentialsSecretRef: {name: ""}}`, "protocol.credentialsSecretRef.name", tokenSecretMessage),
	"token of no good key":              badServer(`protocol: {credentialsSecretRef: {name: a, key: b/c}}`, "protocol.credentialsSecretRef.key", tokenKeyMessage),
}

func init() {
	for label, c := range ruleRefusals {
		switch {
		case c.field == "spec.image":
			c.message = mcpImageMessage
			fallthrough
		case bothKinds(c.field):
			mcpServerRefusals["as of an AppService: "+label] = c
		}
	}
	for _, probe := range []string{"readiness", "liveness", "startup"} {
		bad := func(fields, field, message string) refusal {
			return badServer(fmt.Sprintf(`probes: {%s: {%s}}`, probe, fields), "probes."+probe+"."+field, message)
		}
		mcpServerRefusals[probe+" by HTTP without a path"] = bad(`type: HTTP`, "path", probeTypeMessage)
		mcpServerRefusals[probe+" by TCP with a path"] = bad(`type: TCP, path: /healthz`, "path", probeTypeMessage)
		mcpServerRefusals[probe+" by a path and no type"] = bad(`path: /healthz`, "path", probeTypeMessage)
		mcpServerRefusals[probe+" by a path without a slash"] = bad(`type: HTTP, path: healthz`, "path", probeMessage)
		mcpServerRefusals[probe+" by an empty path"] = bad(`type: HTTP, path: ""`, "path", probeMessage)
		mcpServerRefusals[probe+" at a port, and none"] = bad(`type: None, port: 80`, "port", probePortMessage)
		mcpServerRefusals[probe+" at a port, by no type"] = bad(`port: 80`, "port", probePortMessage)
	}
	for _, path := range []string{"", "mcp", "/mcp?x=y", "/mcp#x", "//mcp", "/a/../mcp", "/.", "/m cp", "/%zz", "/mcp\n"} {
		mcpServerRefusals[fmt.Sprintf("path of %q", path)] = badServer(fmt.Sprintf("path: %q", path), "path", urlPathMessage)
	}
	for _, path := range []string{"", "//", "/a//b", "/a/../b", "/a/..", "/./a", "/a%2Fb", "/a%2fb", "/a#b", "/a?b", "/a b", "/ä", "/%zz"} {
		mcpServerRefusals[fmt.Sprintf("route path of %q", path)] = badServer(fmt.Sprintf("httpRoute: {parentRefs: [{name: a}], path: %q}", path), "httpRoute.path", routePathMessage)
	}
	for _, path := range []string{"", "/", "etc/x", "/etc/", "/etc//x", "/etc/../x", "/./x", "/a:b", "/a\tb", "/.fixpoint/bridge"} {
		mcpServerRefusals[fmt.Sprintf("file at %q", path)] = badServer(fmt.Sprintf("files: [{path: %q}]", path), "files[0].path", filePathMessage)
	}
	for field, bad := range map[string]struct {
		message   string
		durations []string
		beside    string
	}{
		"protocol.interval":   {intervalMessage, []string{"4.999s", "1h0.1s", "0s"}, `{}`},
		"protocol.timeout":    {timeoutMessage, []string{"0.999s", "30.001s", "1h", "0s"}, `{}`},
		"bridge.idleTimeout":  {idleTimeoutMessage, []string{"0.999s", "24h0.1s", "0s"}, stdio},
		"bridge.drainTimeout": {bridgeDurationsMessage, []string{"0.999s", "24h0.1s", "0s"}, stdio},
	} {
		group, name, _ := strings.Cut(field, ".")
		common := []string{"", "soon", "5", "-5m", "5 minutes", "PT5M", "1d", "5m1h", "500ms", "99999h", "9999999999999999999h", ".5h"}
		for _, duration := range append(common, bad.durations...) {
			mcpServerRefusals[fmt.Sprintf("%s of %q", field, duration)] = refusal{
				spec:  mcpServer(bad.beside, fmt.Sprintf("%s: {%s: %q}", group, name, duration)),
				field: "spec." + field, message: bad.message}
		}
	}
}
