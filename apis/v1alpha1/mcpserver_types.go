package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// MCPServerPhase is a one-word summary of an MCPServer for users. Programs
// should use the conditions.
// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Degraded;Failed;Suspended;Deleting
type MCPServerPhase string

// MCPServerSpec is the desired state of a Model Context Protocol server.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",fieldPath=".replicas",message="replicas and autoscaling are mutually exclusive: remove replicas to let the autoscaler set the number of pods, or remove autoscaling to set a fixed number"
// +kubebuilder:validation:XValidation:rule="!(has(self.ingress) && has(self.httpRoute))",fieldPath=".httpRoute",message="httpRoute and ingress are mutually exclusive: remove ingress to expose the server through a Gateway, or remove httpRoute to expose it through an Ingress"
// +kubebuilder:validation:XValidation:rule="self.transport != 'stdio' || has(self.command)",fieldPath=".command",message="command is required with transport stdio, because the bridge starts the server and cannot read the entrypoint of the image: set command to the entrypoint of the image"
// +kubebuilder:validation:XValidation:rule="!has(self.bridge) || self.transport == 'stdio'",fieldPath=".bridge",message="bridge requires transport stdio, because the other transports do not use a bridge: remove bridge"
// +kubebuilder:validation:XValidation:rule="!has(self.sessionRouting) || self.sessionRouting != 'Forward' || self.transport != 'stdio' || !has(self.env) || self.env.all(variable, variable.name != 'FIXPOINT_POD_IP')",fieldPath=".env",message="env must not have FIXPOINT_POD_IP with transport stdio and sessionRouting Forward, which sets it to the address of the pod: rename the variable"
// +kubebuilder:validation:XValidation:rule="!has(self.sessionRouting) || self.sessionRouting != 'Forward' || self.transport != 'sse'",fieldPath=".sessionRouting",message="sessionRouting Forward is not supported with the deprecated transport sse: create an MCPServer with transport streamable-http, or remove sessionRouting"
// +kubebuilder:validation:XValidation:rule="self.transport != 'stdio' || !has(self.protocol.tls) || !self.protocol.tls",fieldPath=".protocol.tls",message="protocol.tls is not supported with transport stdio, because the bridge serves plain HTTP: remove protocol.tls, and terminate TLS at the Ingress or the Gateway"
// +kubebuilder:validation:XValidation:rule="self.transport != 'sse' || self.sessionAffinity != 'None' || ((!has(self.replicas) || self.replicas <= 1) && (!has(self.autoscaling) || self.autoscaling.maxReplicas <= 1))",fieldPath=".sessionAffinity",message="sessionAffinity None with transport sse requires a single replica, because pods do not share sessions: set Auto or ClientIP, or run a single replica"
// +kubebuilder:validation:XValidation:rule="self.transport != 'sse' || !has(self.httpRoute) || !has(self.httpRoute.path) || ((has(self.path) ? self.path : '/sse') + '/').startsWith(self.httpRoute.path.endsWith('/') ? self.httpRoute.path : self.httpRoute.path + '/')",fieldPath=".httpRoute.path",message="httpRoute.path must be a prefix of path with transport sse, because the server tells clients where to send messages and does not know the prefix of the route: set path to a path below httpRoute.path, or remove httpRoute.path"
// +kubebuilder:validation:XValidation:rule="self.drainSeconds < self.terminationGracePeriodSeconds || self.drainSeconds > 86399 || self.terminationGracePeriodSeconds < 1",fieldPath=".drainSeconds",message="drainSeconds must be less than terminationGracePeriodSeconds, because the pod is killed at the end of the grace period: lower drainSeconds or raise terminationGracePeriodSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.bridge) || !has(self.bridge.drainTimeout) || !self.bridge.drainTimeout.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') || self.bridge.drainTimeout.size() == 0 || duration(self.bridge.drainTimeout) > duration('24h') || self.drainSeconds >= self.terminationGracePeriodSeconds || duration(self.bridge.drainTimeout).getSeconds() + self.drainSeconds <= self.terminationGracePeriodSeconds",fieldPath=".bridge.drainTimeout",message="bridge.drainTimeout plus drainSeconds must not exceed terminationGracePeriodSeconds, because the pod is killed at the end of the grace period: lower drainTimeout or raise terminationGracePeriodSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.files) || !has(self.mounts) || self.files.all(file, self.mounts.all(mount, file.path != mount.mountPath && !file.path.startsWith(mount.mountPath + '/') && !mount.mountPath.startsWith(file.path + '/')))",fieldPath=".files",message="files must not be at, below or above the mountPath of a mount: change the path of the file, or add the file to the mounted volume"
// +kubebuilder:validation:XValidation:rule="!has(self.authorization) || self.transport != 'sse'",fieldPath=".authorization",message="authorization is not supported with the deprecated transport sse: create an MCPServer with transport streamable-http, or remove authorization"
// +kubebuilder:validation:XValidation:rule="!has(self.authorization) || !has(self.authorization.tokenExchange) || self.transport != 'stdio'",fieldPath=".authorization.tokenExchange",message="authorization.tokenExchange is not supported with transport stdio, which has no header for the token: remove it"
// +kubebuilder:validation:XValidation:rule="!(has(self.authorization) || has(self.limits) || has(self.telemetry) || has(self.contract) && (has(self.contract.allow) || has(self.contract.deny)) || has(self.sessionRouting) && self.sessionRouting == 'Forward') || !(has(self.protocol.tls) && self.protocol.tls)",fieldPath=".protocol.tls",message="protocol.tls is not supported with authorization, limits, telemetry, contract.allow, contract.deny and sessionRouting Forward, because their proxy serves plain HTTP: remove protocol.tls and serve plain HTTP, and terminate TLS at the Ingress or the Gateway"
// +kubebuilder:validation:XValidation:rule="self.transport != 'sse' || !(has(self.limits) || has(self.telemetry) || has(self.contract) && (has(self.contract.allow) || has(self.contract.deny)))",fieldPath=".transport",message="limits, telemetry, contract.allow and contract.deny are not supported with the deprecated transport sse: create an MCPServer with transport streamable-http, or remove them"
// +kubebuilder:validation:XValidation:rule="!(has(self.contract) && has(self.contract.policy) && self.contract.policy == 'Pin') || !(has(self.protocol.disabled) && self.protocol.disabled)",fieldPath=".contract.policy",message="contract.policy Pin requires the probe, which reads the contracts of pods: remove protocol.disabled, or set contract.policy to Disabled"
type MCPServerSpec struct {
	// transport is the transport of the server: streamable-http, sse (the
	// deprecated transport over HTTP), or stdio (standard input and output,
	// which a bridge in the pod exposes as streamable HTTP). It is immutable.
	// +optional
	// +kubebuilder:default=streamable-http
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="transport is immutable, because clients are configured for it: restore the previous value, and create a new MCPServer with the other transport"
	Transport v1beta1.MCPServerTransport `json:"transport,omitempty"`

	// image is the OCI image to run, in the form
	// [registry[:port]/]path[:tag][@digest], for example
	// ghcr.io/acme/tools:1.4.2. Fixpoint does not watch mutable tags: change
	// the image to roll out a new version.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?|\\\\[[0-9a-fA-F:.]+\\\\])(:[0-9]+)?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-+._][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$')",message="image must be an OCI image reference: use the form [registry[:port]/]path[:tag][@digest] with a lower-case path and without a scheme, for example ghcr.io/acme/tools:1.4.2"
	Image string `json:"image"`

	// imagePullPolicy is when the kubelet pulls the image: Always, IfNotPresent
	// or Never. Defaults to Always for the tag latest and for no tag, and to
	// IfNotPresent otherwise. With transport stdio, Always also applies to the
	// image of the bridge.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets are the Secrets in the same namespace to pull the image
	// with.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// command is the program to run instead of the entrypoint of the image,
	// with its first arguments, without a shell. It is required with transport
	// stdio. At most 64 elements of up to 4096 characters each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self[0] != ''",message="command must start with the program to run: use a value such as [npx, -y, '@acme/tools']"
	Command []string `json:"command,omitempty"`

	// args are the arguments of command, or of the entrypoint of the image. At
	// most 256 elements of up to 16384 characters each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=16384
	Args []string `json:"args,omitempty"`

	// env are environment variables of the container. A variable in env
	// overrides the variable with the same name from envFrom. Fixpoint waits
	// until the referenced Secrets and ConfigMaps exist, unless they are
	// optional, and rolls the pods when their data changes.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(variable, !has(variable.valueFrom) || !has(variable.value) || variable.value == '')",message="env must not have both value and valueFrom in one variable: remove one of them"
	// +kubebuilder:validation:XValidation:rule="self.all(variable, !has(variable.valueFrom) || (has(variable.valueFrom.configMapKeyRef) ? 1 : 0) + (has(variable.valueFrom.secretKeyRef) ? 1 : 0) + (has(variable.valueFrom.fieldRef) ? 1 : 0) + (has(variable.valueFrom.resourceFieldRef) ? 1 : 0) + (has(variable.valueFrom.fileKeyRef) ? 1 : 0) == 1)",message="env must have exactly one source in each valueFrom: keep one of configMapKeyRef, secretKeyRef, fieldRef, resourceFieldRef and fileKeyRef"
	// +kubebuilder:validation:XValidation:rule="self.all(variable, !has(variable.valueFrom) || (!has(variable.valueFrom.configMapKeyRef) || (has(variable.valueFrom.configMapKeyRef.name) && variable.valueFrom.configMapKeyRef.name != '')) && (!has(variable.valueFrom.secretKeyRef) || (has(variable.valueFrom.secretKeyRef.name) && variable.valueFrom.secretKeyRef.name != '')))",message="env must name the Secret or ConfigMap in each reference: set name and key"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// envFrom adds all keys of Secrets and ConfigMaps to the environment; later
	// sources override earlier ones. Fixpoint waits until they exist, unless
	// they are optional, and rolls the pods when their data changes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(source, has(source.configMapRef) != has(source.secretRef))",message="envFrom needs exactly one of configMapRef and secretRef in each entry: set one and remove the other"
	// +kubebuilder:validation:XValidation:rule="self.all(source, (!has(source.configMapRef) || (has(source.configMapRef.name) && source.configMapRef.name != '')) && (!has(source.secretRef) || (has(source.secretRef.name) && source.secretRef.name != '')))",message="envFrom must name the Secret or ConfigMap of each entry: set name"
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// files are mounted into the container, read-only. Fixpoint stores them in
	// a ConfigMap, and a change rolls the pods. At most 32 files and 524288
	// bytes in total. For secret data, use mounts with a Secret.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.map(file, bytes(file.content).size()).sum() <= 524288",message="files must not exceed 524288 bytes of content in total, because they are stored in one ConfigMap: shorten them, or mount larger data as a volume"
	// +kubebuilder:validation:XValidation:rule="!self.exists(file, self.exists(other, other.path.startsWith(file.path + '/')))",message="files must not have a path below another file, because a file is not a directory: change one of the paths"
	Files []v1beta1.MCPServerFile `json:"files,omitempty"`

	// mounts are ConfigMaps, Secrets, PersistentVolumeClaims and emptyDirs to
	// mount into the container. Fixpoint waits until the referenced objects
	// exist, unless they are optional, and rolls the pods when the data of a
	// ConfigMap or Secret changes. At most 24.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=24
	// +kubebuilder:validation:XValidation:rule="self.all(mount, self.exists_one(other, other.mountPath == mount.mountPath))",message="mounts must have unique mountPaths: change one of the duplicates"
	Mounts []v1beta1.MCPServerMount `json:"mounts,omitempty"`

	// port is the HTTP port of the container (1 to 65535); with transport
	// stdio, the port of the bridge. The Service uses the same port.
	// +optional
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// path is the URL path of the Model Context Protocol. Defaults to /mcp, and
	// to /sse with transport sse. With transport stdio, the bridge serves this
	// path; with other transports, it must match the path of the server.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/([-A-Za-z0-9._~!$&()*+,;=:@]|%[0-9A-Fa-f]{2})+)*/?$') && self != '' && !self.matches('/[.]{1,2}(/|$)')",message="path must be a URL path that starts with '/', without query, fragment, '.', '..' and empty segments: use a value such as /mcp"
	Path string `json:"path,omitempty"`

	// replicas is the number of pods, at least 1. If omitted, Fixpoint does not
	// manage the number of pods, and an autoscaler can set it. replicas and
	// autoscaling are mutually exclusive. `kubectl scale`, and an autoscaler
	// that targets the MCPServer, require replicas.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="replicas must be at least 1, because the server needs at least one pod: set 1 or more, or omit replicas to let an autoscaler set the number of pods"
	Replicas *int32 `json:"replicas,omitempty"`

	// autoscaling creates a HorizontalPodAutoscaler that sets the number of
	// pods.
	// +optional
	Autoscaling *v1beta1.MCPServerAutoscaling `json:"autoscaling,omitempty"`

	// strategy is how running pods are replaced: RollingUpdate without an
	// outage, or Recreate, which stops the old pods first, for example for a
	// volume that only one pod can mount.
	// +optional
	// +kubebuilder:default=RollingUpdate
	Strategy v1beta1.Strategy `json:"strategy,omitempty"`

	// resources are the resource requests and limits of the container. An
	// autoscaler with a utilization target requires the matching request. With
	// transport stdio, they apply to the bridge and all sessions of the pod
	// together.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(name, !(name in self.requests) || !(name in self.limits) || ![string(self.requests[name]), string(self.limits[name])].all(text, text.matches('^[-+]?[0-9.]{1,66}([a-zA-Z]{0,2}|[eE][-+]?[0-9]{1,2})$')) || quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",message="resources must not request more than the limit of cpu, memory or ephemeral-storage: lower the request or raise the limit"
	// +kubebuilder:validation:XValidation:rule="['cpu', 'memory', 'ephemeral-storage'].all(name, (!has(self.requests) || !(name in self.requests) || (type(self.requests[name]) == int ? self.requests[name] >= 0 : !self.requests[name].startsWith('-'))) && (!has(self.limits) || !(name in self.limits) || (type(self.limits[name]) == int ? self.limits[name] >= 0 : !self.limits[name].startsWith('-'))))",message="resources must not be negative: use a value such as {requests: {cpu: 100m, memory: 64Mi}}"
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// serviceAccount is the ServiceAccount of the pods. Defaults to the default
	// ServiceAccount of the namespace, without a token.
	// +optional
	ServiceAccount *v1beta1.MCPServerServiceAccount `json:"serviceAccount,omitempty"`

	// podSecurityContext is merged over the default security context of the
	// pod, which satisfies the restricted Pod Security Standard. Fields that
	// are set here override the default. An image that runs as root needs
	// runAsUser. Settings that the restricted standard forbids are refused,
	// unless the manager runs with --pod-overrides=all.
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`

	// containerSecurityContext is merged over the default security context of
	// the container, which satisfies the restricted Pod Security Standard.
	// Fields that are set here override the default. Settings that the
	// restricted standard forbids are refused, unless the manager runs with
	// --pod-overrides=all.
	// +optional
	ContainerSecurityContext *corev1.SecurityContext `json:"containerSecurityContext,omitempty"`

	// probes are the probes of the container. Probes that are omitted default
	// to the probes of the transport.
	// +optional
	Probes *v1beta1.MCPServerProbes `json:"probes,omitempty"`

	// scheduling restricts the nodes that the pods can run on.
	// +optional
	Scheduling *v1beta1.MCPServerScheduling `json:"scheduling,omitempty"`

	// terminationGracePeriodSeconds is the time in seconds that a pod has to
	// shut down before it is killed with its remaining sessions (1 to 86400).
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TerminationGracePeriodSeconds int64 `json:"terminationGracePeriodSeconds,omitempty"`

	// drainSeconds is the time in seconds that a terminating pod keeps serving
	// before it receives SIGTERM (0 to 86399), while new sessions are sent to
	// other pods. It is part of terminationGracePeriodSeconds.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86399
	DrainSeconds *int64 `json:"drainSeconds,omitempty"`

	// progressDeadlineSeconds is the time in seconds without progress after
	// which a rollout is stalled (10 to 86400).
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`

	// sessionAffinity is whether the Service sends all connections of a client
	// to the same pod: Auto and ClientIP do, by IP address, None does not. None
	// is for servers without sessions.
	// +optional
	// +kubebuilder:default=Auto
	SessionAffinity v1beta1.MCPServerSessionAffinity `json:"sessionAffinity,omitempty"`

	// sessionAffinityTimeoutSeconds is the time in seconds without a connection
	// after which a client can be sent to another pod (1 to 86400).
	// +optional
	// +kubebuilder:default=10800
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	SessionAffinityTimeoutSeconds int32 `json:"sessionAffinityTimeoutSeconds,omitempty"`

	// sessionRouting is whether every pod serves the sessions of all pods. With
	// Forward, a pod forwards requests of a session to the pod that has it, and
	// clients need no affinity. A proxy in the pod does so, or the bridge. The
	// manager needs the permission to write Secrets. Defaults to None.
	// +optional
	SessionRouting v1beta1.MCPServerSessionRouting `json:"sessionRouting,omitempty"`

	// disruptionBudget creates a PodDisruptionBudget that limits voluntary
	// disruptions, such as a node drain. Defaults to maxUnavailable 1 if
	// replicas or autoscaling.maxReplicas is greater than 1, and to no
	// PodDisruptionBudget otherwise.
	// +optional
	DisruptionBudget *v1beta1.DisruptionBudget `json:"disruptionBudget,omitempty"`

	// networkPolicy creates a NetworkPolicy that restricts connections to and
	// from the pods. It requires a network plugin that enforces
	// NetworkPolicies.
	// +optional
	NetworkPolicy *MCPServerNetworkPolicy `json:"networkPolicy,omitempty"`

	// ingress creates an Ingress that exposes the server outside of the
	// cluster.
	// +optional
	Ingress *v1beta1.Ingress `json:"ingress,omitempty"`

	// httpRoute creates an HTTPRoute that exposes the server through a Gateway.
	// +optional
	HTTPRoute *v1beta1.MCPServerHTTPRoute `json:"httpRoute,omitempty"`

	// authorization requires an OAuth 2.1 access token in each request, as the
	// authorization chapter of the Model Context Protocol specifies. A proxy in
	// the pod, or the bridge with transport stdio, checks the tokens. Not
	// supported with transport sse.
	// +optional
	Authorization *v1beta1.MCPServerAuthorization `json:"authorization,omitempty"`

	// limits limit what clients may send. Each pod counts on its own.
	// +optional
	Limits *v1beta1.MCPServerLimits `json:"limits,omitempty"`

	// telemetry records requests. A proxy in the pod, or the bridge with
	// transport stdio, writes the records.
	// +optional
	Telemetry *v1beta1.MCPServerTelemetry `json:"telemetry,omitempty"`

	// podOverrides is merged over the pod template, for fields that the spec
	// does not have. The merge follows Server-Side Apply: list items are merged
	// by key, so that a container named server is the container of the MCP
	// server. The pods must satisfy the restricted Pod Security Standard, and
	// neither nodeName nor a ServiceAccount can be set, unless the manager runs
	// with --pod-overrides=all.
	// +optional
	PodOverrides *v1beta1.MCPServerPodOverrides `json:"podOverrides,omitempty"`

	// protocol configures the probe of the Model Context Protocol.
	// +optional
	// +kubebuilder:default={interval: "30s", timeout: "5s"}
	Protocol MCPServerProtocol `json:"protocol,omitzero"`

	// contract configures what happens with the contract of the server: its
	// tools, prompts and resource templates.
	// +optional
	Contract *v1beta1.MCPServerContract `json:"contract,omitempty"`

	// bridge configures the bridge of the transport stdio.
	// +optional
	Bridge *v1beta1.MCPServerBridge `json:"bridge,omitempty"`

	// adoptionPolicy is what happens to an existing object with the name of a
	// child: Never does not change it and reports the reason NotOwned,
	// IfUnowned adopts it if it has no controller.
	// +optional
	// +kubebuilder:default=Never
	AdoptionPolicy v1beta1.AdoptionPolicy `json:"adoptionPolicy,omitempty"`

	// driftPolicy is what happens when another field manager changes a field
	// that the spec declares: Correct reverts the change, Report only reports
	// it.
	// +optional
	// +kubebuilder:default=Correct
	DriftPolicy v1beta1.DriftPolicy `json:"driftPolicy,omitempty"`

	// driftHistoryLimit is the maximum number of drifts in status.drifts (0 to
	// 50); the oldest are dropped. Defaults to 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	DriftHistoryLimit *int32 `json:"driftHistoryLimit,omitempty"`

	// suspend suspends reconciliation: while it is true, nothing is created,
	// reverted, pruned or probed. Deletion still works.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// MCPServerNetworkPolicy configures a NetworkPolicy for the pods. A direction
// that is omitted is not restricted.
//
// +kubebuilder:validation:XValidation:rule="has(self.ingress) || has(self.egress)",message="networkPolicy needs at least one of ingress and egress: set ingress to restrict connections to the pods, egress to restrict connections from the pods, or both, or remove networkPolicy"
type MCPServerNetworkPolicy struct {
	// ingress restricts connections to the pods.
	// +optional
	Ingress *v1beta1.MCPServerNetworkIngress `json:"ingress,omitempty"`

	// egress restricts connections from the pods.
	// +optional
	Egress *MCPServerNetworkEgress `json:"egress,omitempty"`
}

// MCPServerNetworkEgress restricts connections from the pods. If empty, only
// DNS is allowed.
type MCPServerNetworkEgress struct {
	// allowDNS allows DNS queries, on port 53 of any peer.
	// +optional
	// +kubebuilder:default=true
	AllowDNS *bool `json:"allowDNS,omitempty"`

	// rules are the allowed connections. Defaults to none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Rules []v1beta1.MCPServerNetworkEgressRule `json:"rules,omitempty"`
}

// MCPServerProtocol configures the probe of the Model Context Protocol: one
// handshake with each serving pod, after every rollout and then at an interval.
//
// +kubebuilder:validation:XValidation:rule="![self.interval, self.timeout].all(text, text.size() > 0 && text.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$')) || duration(self.timeout) <= duration(self.interval) || duration(self.timeout) > duration('30s') || duration(self.interval) < duration('5s')",fieldPath=".timeout",message="timeout must not exceed interval: lower timeout or raise interval"
// +kubebuilder:validation:XValidation:rule="!has(self.caRef) || (has(self.tls) && self.tls)",fieldPath=".caRef",message="caRef requires tls: set tls to true if the server serves TLS, or remove caRef"
type MCPServerProtocol struct {
	// disabled disables the probe. The server is then ready when its pods are
	// ready, and status.server is empty.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// interval is the interval between probes (5s to 1h), with a small jitter.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="interval must be a duration from 5s to 1h, in hours, minutes and seconds: use a value such as 30s or 1m30s"
	Interval metav1.Duration `json:"interval,omitzero"`

	// timeout is the timeout of a probe (1s to 30s, not more than interval).
	// Greater values that were stored before this limit count as 30s.
	// +optional
	// +kubebuilder:default="5s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('1s') && duration(self) <= duration('30s')",message="timeout must be a duration from 1s to 30s, in hours, minutes and seconds: use a value such as 5s"
	Timeout metav1.Duration `json:"timeout,omitzero"`

	// tls must be true if the server serves TLS on its port. The endpoint and
	// the probes then use https. The certificate must be valid for
	// <name>.<namespace>.svc.
	// +optional
	TLS bool `json:"tls,omitempty"`

	// caRef is the object with the CA certificates to verify the certificate of
	// the server. Defaults to the CA certificates of the system.
	// +optional
	CARef *v1beta1.MCPServerCARef `json:"caRef,omitempty"`

	// credentialsSecretRef is a key of a Secret in the same namespace with a
	// bearer token for the probe. If omitted, the probe sends no token. Without
	// tls the token is sent unencrypted, which the condition ProtocolReady says.
	// +optional
	CredentialsSecretRef *v1beta1.MCPServerCredentialsSecretRef `json:"credentialsSecretRef,omitempty"`
}

// MCPServerStatus is the observed state of an MCPServer. The controller
// computes it on every reconcile, and reads back only what it cannot observe
// again. replicas and readyReplicas have no omitempty, because zero must be
// stored and shown.
type MCPServerStatus struct {
	// observedGeneration is the metadata.generation that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastHandledReconcileAt is the value of the annotation
	// fixpoint.dev/reconcile-requested-at that the last reconcile observed.
	// kubectl fixpoint reconcile waits for it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`

	// phase is a one-word summary for users.
	// +optional
	Phase MCPServerPhase `json:"phase,omitempty"`

	// conditions are Ready, the summary, and one condition for each phase that
	// the spec configures.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// endpoint is the URL of the server for clients in the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Endpoint string `json:"endpoint,omitempty"`

	// externalEndpoint is the URL of the server for clients outside of the
	// cluster, through the HTTPRoute or the Ingress. It is empty if neither is
	// configured, or if the URL cannot be determined; the condition RouteReady
	// or IngressReady then reports why.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ExternalEndpoint string `json:"externalEndpoint,omitempty"`

	// replicas is the number of pods.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of ready pods.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// selector is the label selector of the pods in string form. Autoscalers
	// that target the MCPServer use it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Selector string `json:"selector,omitempty"`

	// server is the information that the server returned in the last successful
	// handshake. It is empty until then.
	// +optional
	Server *v1beta1.MCPServerInfo `json:"server,omitempty"`

	// contract is what the server offers to clients. It is empty until all
	// serving pods offer the same, and with spec.contract.policy Disabled.
	// +optional
	Contract *v1beta1.MCPServerContractStatus `json:"contract,omitempty"`

	// pendingContract is a contract that pods offer and that waits for approval,
	// with spec.contract.policy Pin. Such pods take no traffic.
	// +optional
	PendingContract *v1beta1.MCPServerPendingContract `json:"pendingContract,omitempty"`

	// askedVersions are the ReplicaSets whose pods were serving when the last
	// handshake decided the condition ProtocolReady, sorted. Pods of other
	// ReplicaSets have not been probed yet.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	AskedVersions []string `json:"askedVersions,omitempty"`

	// drifts are the most recent changes of other field managers to fields that
	// the spec declares, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Drifts []AppServiceDrift `json:"drifts,omitempty"`
}

// MCPServer runs a Model Context Protocol server as a Deployment and a Service,
// with a bridge for servers with transport stdio. It is ready when the server
// completes the protocol handshake. The controller reverts changes of other
// field managers, and reports them in the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:deprecatedversion:warning="fixpoint.dev/v1alpha1 MCPServer is deprecated; use fixpoint.dev/v1beta1 MCPServer"
// +kubebuilder:resource:path=mcpservers,singular=mcpserver,scope=Namespaced,shortName=mcp,categories=fixpoint
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the object is ready"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="The reason of the Ready condition"
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`,description="The URL for clients in the cluster"
// +kubebuilder:printcolumn:name="Tools",type=integer,JSONPath=`.status.server.tools`,description="The number of tools that the server lists"
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.readyReplicas`,description="The number of ready pods"
// +kubebuilder:printcolumn:name="Transport",type=string,priority=1,JSONPath=`.spec.transport`,description="The transport of the server"
// +kubebuilder:printcolumn:name="External",type=string,priority=1,JSONPath=`.status.externalEndpoint`,description="The URL for clients outside of the cluster"
// +kubebuilder:printcolumn:name="Phase",type=string,priority=1,JSONPath=`.status.phase`,description="A one-word summary"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.image`,description="The image in the spec"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 57 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name is also the name of the Service and must consist of at most 57 lower-case letters, digits and '-', starting with a letter and ending with a letter or digit: rename the object"
type MCPServer struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state of the server.
	// +required
	Spec MCPServerSpec `json:"spec"`

	// status is the observed state. Only the controller writes it.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1,"phase":"Pending"}
	Status MCPServerStatus `json:"status,omitzero"`
}

// MCPServerList is a list of MCPServers.
//
// +kubebuilder:object:root=true
type MCPServerList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	// items is the list of MCPServers.
	Items []MCPServer `json:"items"`
}
