package validation

import (
	"fmt"
	"strings"
)

const (
	anyName         = "use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	mcpImageMessage = "image must be an OCI image reference: write it as [registry[:port]/]path[:tag][@digest], the path in lower case and without a scheme, for example ghcr.io/acme/tools:1.4.2"

	transportChanged    = "transport cannot be changed, because clients are configured for it and would all break at once: put it back as it was, and create a new MCPServer for the other transport"
	mcpReplicasMessage  = "replicas must be at least 1, because with none nobody would answer: set 1 or more, or leave replicas out to let an autoscaler own the number"
	mcpMinMessage       = "minReplicas must be at least 1, because with no pod there is nothing to measure: set 1 or more"
	routesMessage       = "httpRoute and ingress exclude each other: remove ingress to be reached through a Gateway, or remove httpRoute to be reached through an Ingress"
	commandMessage      = "command is needed with transport stdio, because the bridge has to know what to run and cannot read it from the image: set command to what the image's entrypoint is"
	programMessage      = "command must begin with the program to run: write for example [npx, -y, '@acme/tools']"
	bridgeMessage       = "bridge is only for transport stdio, because the other transports have none: remove bridge"
	bridgePathMessage   = "path must not be /healthz, /readyz or /metrics with transport stdio, because the bridge tells there how it is: write for example /mcp, or leave it out"
	bridgeTLSMessage    = "protocol.tls is not for transport stdio, because the bridge speaks plain HTTP: remove it, and let the Ingress or the Gateway speak TLS"
	affinityMessage     = "sessionAffinity None would send the messages of an sse session to pods that do not know the session: set Auto or ClientIP, or have a single replica"
	drainMessage        = "drainSeconds must be less than terminationGracePeriodSeconds, because the pod is killed when that is over: lower drainSeconds or raise terminationGracePeriodSeconds"
	ssePrefixMessage    = "httpRoute.path must lead to the path of the server with transport sse, because clients are told by the server where to send messages, and it does not know of a prefix: set path to one below httpRoute.path, or remove httpRoute.path"
	bridgeDrainMessage  = "bridge.drainTimeout and drainSeconds together must not be more than terminationGracePeriodSeconds, because the pod is killed when that is over: lower drainTimeout or raise terminationGracePeriodSeconds"
	envBothMessage      = "env must not have both value and valueFrom in one variable: remove one of the two"
	envSourceMessage    = "env must have exactly one source in a valueFrom: keep one of configMapKeyRef, secretKeyRef, fieldRef, resourceFieldRef and fileKeyRef"
	envNamelessMessage  = "env must name the Secret or ConfigMap that a value comes from: set name beside key"
	fromSourceMessage   = "envFrom needs exactly one of configMapRef and secretRef in each entry: set one and remove the other"
	fromNamelessMessage = "envFrom must name the Secret or ConfigMap of each entry: set name"

	requestsMessage = "resources must not request more than the limit of cpu, memory or ephemeral-storage: lower the request or raise the limit"
	quantityMessage = ` in body should match '^(\+|-)?(([0-9]{1,32}(\.[0-9]{0,32})?)|(\.[0-9]{1,32}))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$'`
	negativeMessage = "resources must not be negative: write for example {requests: {cpu: 100m, memory: 64Mi}}"
	urlPathMessage  = "path must be the path of a URL, starting with '/', with neither query nor fragment and without '.', '..' and empty segments: write for example /mcp"

	filesSizeMessage   = "files must not have more than 524288 bytes of content in all, because they are kept in one ConfigMap: shorten them, or mount larger data from elsewhere"
	filesNestedMessage = "files must not lie below one another, because a file is no folder: move one of the two"
	filesMountsMessage = "files must not lie at or below the mountPath of a mount, nor above one: move the file, or put it into what is mounted there"
	filePathMessage    = "path must be the absolute path of a file, without ':', control characters, '.', '..' and empty segments, and not in /.fixpoint, which is Fixpoint's own: write for example /etc/tools/config.json"

	mountsTwiceMessage     = "mounts must each have a mountPath of their own: change one of the two that are alike"
	mountsSourceMessage    = "mounts need exactly one of configMap, secret, persistentVolumeClaim and emptyDir each: set one and remove the others"
	mountsReadOnlyMessage  = "readOnly makes no sense for an emptyDir, which would stay empty: remove readOnly, or mount something that has content"
	mountNameMessage       = "name must be lower-case letters, digits and '-', starting and ending with a letter or digit, and must not start with 'fixpoint-', as the volumes of Fixpoint do: choose such a name, for example data"
	mcpMountMessage        = "mountPath must be an absolute path other than '/', without ':', control characters, '.', '..' and empty segments, not ending with '/', and not in /.fixpoint, which is Fixpoint's own: write for example /data"
	subPathMessage         = "subPath must be a path within the volume, neither starting nor ending with '/', without ':', control characters, '.', '..' and empty segments: write for example tools/data"
	mountedMessage         = "name must be the name of an object of this namespace: " + anyName
	mountedKeyMessage      = "key must be a key of a ConfigMap or a Secret: use letters, digits, '-', '_' and '.'"
	mountedPathMessage     = "path must be a path within the mount, neither starting nor ending with '/', without ':', control characters, '.', '..' and empty segments, and not starting with '..': write for example tools.json"
	claimMessage           = "claimName must be the name of a PersistentVolumeClaim of this namespace: " + anyName
	sizeLimitMessage       = "sizeLimit must not be negative: write for example 256Mi, or leave it out"
	ownAnnotationsMessage  = "annotations can only be put on a ServiceAccount that Fixpoint creates: set create to true, or annotate the ServiceAccount yourself"
	ownAccountMessage      = "name must be the name of a ServiceAccount: " + anyName + ", or leave it out for the default one"
	createdNameMessage     = "name is only for a ServiceAccount that exists, because one that Fixpoint creates has the name of the MCPServer: remove name, or set create to false"
	probeTypeMessage       = "path is needed with type HTTP and is not for the others: set type HTTP together with a path, for example /healthz, or remove path"
	probePortMessage       = "port needs a type that asks a port: set type to HTTP or TCP, or remove port"
	priorityMessage        = "priorityClassName must be the name of a PriorityClass: " + anyName + ", or leave it out for the cluster's default"
	noPolicyMessage        = "networkPolicy needs something to restrict: set ingress to say who may connect, egress to say where the pods may connect to, or both, or remove networkPolicy"
	peersMessage           = " must have either an ipBlock, or a podSelector, a namespaceSelector or both, in each peer: remove what is too much, or split it into two peers"
	emptyRuleMessage       = "rules must each have to, ports or both, because an empty one would allow everything: set one of the two, or remove egress to restrict nothing"
	endPortMessage         = "endPort must not be less than port: raise endPort, or leave it out for a single port"
	parentsMessage         = "parentRefs must not name the same listener twice: remove one of the two, or tell them apart by sectionName"
	hostnamesMessage       = "hostnames must be DNS names in lower case, without scheme, port, path or wildcard: write for example tools.example.com"
	routePathMessage       = "path must start with '/': write for example /tools"
	gatewayMessage         = "name must be the name of a Gateway: " + anyName
	gatewayNSMessage       = "namespace must be the name of a namespace: use lower-case letters, digits and '-', starting and ending with a letter or digit, or leave it out for that of the MCPServer"
	listenerMessage        = "sectionName must be the name of a listener: " + anyName + ", or leave it out for all"
	podLabelsMessage       = "labels must neither be app.kubernetes.io/name or app.kubernetes.io/managed-by nor start with 'fixpoint.dev/', because those are Fixpoint's own: rename the label"
	podAnnotationsMessage  = "annotations must not start with 'fixpoint.dev/', because those are Fixpoint's own: rename the annotation"
	timeoutTooLongMessage  = "timeout must not be more than interval: lower timeout or raise interval"
	caWithoutTLSMessage    = "caRef is only used with tls: set tls to true if the server speaks TLS, or remove caRef"
	intervalMessage        = "interval must be a duration from 5s to 1h, in hours, minutes and seconds: write for example 30s or 1m30s"
	timeoutMessage         = "timeout must be a duration from 1s to 1h, in hours, minutes and seconds: write for example 5s"
	caKeyMessage           = "key must be a key of a ConfigMap or a Secret: use letters, digits, '-', '_' and '.', or leave it out for ca.crt"
	tokenSecretMessage     = "name must be the name of a Secret of this namespace: " + anyName
	tokenKeyMessage        = "key must be a key of a Secret: use letters, digits, '-', '_' and '.', or leave it out for token"
	idleTimeoutMessage     = "idleTimeout must be a duration from 1s to 24h, in hours, minutes and seconds: write for example 30m"
	bridgeDurationsMessage = "drainTimeout must be a duration from 1s to 24h, in hours, minutes and seconds: write for example 25s"
)

var mcpServerRefusals = map[string]refusal{
	"transport that changes": {was: mcpServer(), spec: mcpServer(`transport: sse`),
		field: "spec.transport", message: transportChanged},
	"transport that becomes stdio": {was: mcpServer(`command: [serve]`), spec: mcpServer(stdio),
		field: "spec.transport", message: transportChanged},

	"command that is missing":        badServer(`transport: stdio`, "command", commandMessage),
	"command that is empty":          badServer(`command: [""]`, "command", programMessage),
	"bridge for streamable-http":     badServer(`bridge: {}`, "bridge", bridgeMessage),
	"bridge for sse":                 badServer(`{transport: sse, bridge: {}}`, "bridge", bridgeMessage),
	"path of the bridge's health":    badServer(`{transport: stdio, command: [serve], path: /healthz}`, "path", bridgePathMessage),
	"path of the bridge's metrics":   badServer(`{transport: stdio, command: [serve], path: /metrics}`, "path", bridgePathMessage),
	"TLS of the bridge":              badServer(`{transport: stdio, command: [serve], protocol: {tls: true}}`, "protocol.tls", bridgeTLSMessage),
	"sessions of sse lost by hand":   badServer(`{transport: sse, sessionAffinity: None, replicas: 2}`, "sessionAffinity", affinityMessage),
	"sessions of sse lost by itself": badServer(`{transport: sse, sessionAffinity: None, autoscaling: {maxReplicas: 2, targetCPUUtilizationPercent: 80}}`, "sessionAffinity", affinityMessage),
	"drain as long as the grace":     badServer(`{terminationGracePeriodSeconds: 10}`, "drainSeconds", drainMessage),
	"drain longer than the grace":    badServer(`{drainSeconds: 61}`, "drainSeconds", drainMessage),
	"drain of the bridge longer than the grace": badServer(`{transport: stdio, command: [serve], bridge: {drainTimeout: 51s}}`,
		"bridge.drainTimeout", bridgeDrainMessage),
	"drain of the bridge longer than a short grace": badServer(`{transport: stdio, command: [serve], terminationGracePeriodSeconds: 30, bridge: {drainTimeout: 25s}}`,
		"bridge.drainTimeout", bridgeDrainMessage),
	"sse behind a prefix": badServer(`{transport: sse, httpRoute: {parentRefs: [{name: a}], path: /tools}}`, "httpRoute.path", ssePrefixMessage),
	"sse behind a prefix that its path only begins with": badServer(`{transport: sse, path: /toolsets/sse, httpRoute: {parentRefs: [{name: a}], path: /tools}}`,
		"httpRoute.path", ssePrefixMessage),
	"ingress and route": badServer(`{ingress: {host: a.b}, httpRoute: {parentRefs: [{name: a}]}}`, "httpRoute", routesMessage),

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

	"account that is not ours to annotate": badServer(`serviceAccount: {name: a, annotations: {a: b}}`, "serviceAccount.annotations", ownAnnotationsMessage),
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
	"authorities of no good name":       badServer(`protocol: {tls: true, caRef: {name: A}}`, "protocol.caRef.name", mountedMessage),
	"authorities of no good key":        badServer(`protocol: {tls: true, caRef: {name: a, key: ""}}`, "protocol.caRef.key", caKeyMessage),
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
	for _, path := range []string{"", "/", "etc/x", "/etc/", "/etc//x", "/etc/../x", "/./x", "/a:b", "/a\tb", "/.fixpoint/bridge"} {
		mcpServerRefusals[fmt.Sprintf("file at %q", path)] = badServer(fmt.Sprintf("files: [{path: %q}]", path), "files[0].path", filePathMessage)
	}
	for field, bad := range map[string]struct {
		message   string
		durations []string
		beside    string
	}{
		"protocol.interval":   {intervalMessage, []string{"4.999s", "1h0.1s", "0s"}, `{}`},
		"protocol.timeout":    {timeoutMessage, []string{"0.999s", "1h0.1s", "0s"}, `{}`},
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
