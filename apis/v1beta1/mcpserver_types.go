package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Default URL paths of a server if spec.path is omitted. A schema default
// cannot depend on another field, so the controller sets the default.
const (
	// MCPPathDefault is the default path of the transports streamable-http and
	// stdio.
	MCPPathDefault = "/mcp"

	// MCPPathDefaultSSE is the default path of the transport sse.
	MCPPathDefaultSSE = "/sse"
)

// MCPReservedPath is the directory of the container that is reserved for
// Fixpoint and contains the bridge. Files and mounts must not use it.
const MCPReservedPath = "/.fixpoint"

// MCPReservedPrefix is the prefix of the names of volumes and containers that
// are reserved for Fixpoint in the pods of an MCPServer.
const MCPReservedPrefix = "fixpoint-"

// MCPServerTransport is the transport of the Model Context Protocol.
// +kubebuilder:validation:Enum=streamable-http;sse;stdio
type MCPServerTransport string

const (
	// TransportStreamableHTTP is the current transport over HTTP.
	TransportStreamableHTTP MCPServerTransport = "streamable-http"

	// TransportSSE is the deprecated transport over HTTP with server-sent
	// events.
	TransportSSE MCPServerTransport = "sse"

	// TransportStdio is the transport over standard input and output. A bridge
	// in the pod exposes it as streamable HTTP.
	TransportStdio MCPServerTransport = "stdio"
)

// MCPServerSessionAffinity is whether the Service sends all connections of a
// client to the same pod.
// +kubebuilder:validation:Enum=Auto;ClientIP;None
type MCPServerSessionAffinity string

const (
	// SessionAffinityAuto uses session affinity, because sessions live in pods.
	SessionAffinityAuto MCPServerSessionAffinity = "Auto"

	// SessionAffinityClientIP uses session affinity by client IP address.
	SessionAffinityClientIP MCPServerSessionAffinity = "ClientIP"

	// SessionAffinityNone distributes connections over all pods.
	SessionAffinityNone MCPServerSessionAffinity = "None"
)

// MCPServerProbeType is the type of a container probe.
// +kubebuilder:validation:Enum=HTTP;TCP;None
type MCPServerProbeType string

const (
	// ProbeHTTP is an HTTP GET request that succeeds with a status from 200 to
	// 399.
	ProbeHTTP MCPServerProbeType = "HTTP"

	// ProbeTCP is a TCP connection that succeeds when it is accepted.
	ProbeTCP MCPServerProbeType = "TCP"

	// ProbeOff disables the probe. Its value is None, because Off is a boolean
	// in YAML.
	ProbeOff MCPServerProbeType = "None"
)

// MCPServerMedium is the storage medium of an emptyDir.
// +kubebuilder:validation:Enum=Memory
type MCPServerMedium string

// MediumMemory stores an emptyDir in the memory of the node, where it counts
// towards the memory limit of the container.
const MediumMemory MCPServerMedium = "Memory"

// MCPServerPortProtocol is a protocol with ports.
// +kubebuilder:validation:Enum=TCP;UDP;SCTP
type MCPServerPortProtocol string

// MCPServerProbePolicy is when the Model Context Protocol is probed.
// +kubebuilder:validation:Enum=Periodic;Disabled
type MCPServerProbePolicy string

const (
	// ProbePeriodic probes the server after every rollout and then at an
	// interval.
	ProbePeriodic MCPServerProbePolicy = "Periodic"

	// ProbeDisabled does not probe the server.
	ProbeDisabled MCPServerProbePolicy = "Disabled"
)

// MCPServerScheme is the scheme of the URL of a server.
// +kubebuilder:validation:Enum=HTTP;HTTPS
type MCPServerScheme string

const (
	// SchemeHTTP is plain HTTP.
	SchemeHTTP MCPServerScheme = "HTTP"

	// SchemeHTTPS is HTTP over TLS.
	SchemeHTTPS MCPServerScheme = "HTTPS"
)

// MCPServerDNSPolicy is whether pods may send DNS queries.
// +kubebuilder:validation:Enum=Allowed;Denied
type MCPServerDNSPolicy string

const (
	// DNSAllowed allows DNS queries to any peer.
	DNSAllowed MCPServerDNSPolicy = "Allowed"

	// DNSDenied denies DNS queries, except to peers that a rule allows.
	DNSDenied MCPServerDNSPolicy = "Denied"
)

// MCPServerCAKind is the kind of an object with CA certificates.
// +kubebuilder:validation:Enum=ConfigMap;Secret
type MCPServerCAKind string

const (
	// CAKindConfigMap is a ConfigMap in the same namespace.
	CAKindConfigMap MCPServerCAKind = "ConfigMap"

	// CAKindSecret is a Secret in the same namespace.
	CAKindSecret MCPServerCAKind = "Secret"
)

// MCPServerSpec is the desired state of a Model Context Protocol server.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",fieldPath=".replicas",message="replicas and autoscaling are mutually exclusive: remove replicas to let the autoscaler set the number of pods, or remove autoscaling to set a fixed number"
// +kubebuilder:validation:XValidation:rule="!(has(self.ingress) && has(self.httpRoute))",fieldPath=".httpRoute",message="httpRoute and ingress are mutually exclusive: remove ingress to expose the server through a Gateway, or remove httpRoute to expose it through an Ingress"
// +kubebuilder:validation:XValidation:rule="self.transport != 'stdio' || has(self.command)",fieldPath=".command",message="command is required with transport stdio, because the bridge starts the server and cannot read the entrypoint of the image: set command to the entrypoint of the image"
// +kubebuilder:validation:XValidation:rule="!has(self.bridge) || self.transport == 'stdio'",fieldPath=".bridge",message="bridge requires transport stdio, because the other transports do not use a bridge: remove bridge"
// +kubebuilder:validation:XValidation:rule="!has(self.sessionRouting) || self.sessionRouting != 'Forward' || self.transport != 'stdio' || !has(self.env) || self.env.all(variable, variable.name != 'FIXPOINT_POD_IP')",fieldPath=".env",message="env must not have FIXPOINT_POD_IP with transport stdio and sessionRouting Forward, which sets it to the address of the pod: rename the variable"
// +kubebuilder:validation:XValidation:rule="!has(self.sessionRouting) || self.sessionRouting != 'Forward' || self.transport != 'sse'",fieldPath=".sessionRouting",message="sessionRouting Forward is not supported with the deprecated transport sse: create an MCPServer with transport streamable-http, or remove sessionRouting"
// +kubebuilder:validation:XValidation:rule="self.transport != 'stdio' || !has(self.protocol.scheme) || self.protocol.scheme != 'HTTPS'",fieldPath=".protocol.scheme",message="protocol.scheme HTTPS is not supported with transport stdio, because the bridge serves plain HTTP: remove protocol.scheme, and terminate TLS at the Ingress or the Gateway"
// +kubebuilder:validation:XValidation:rule="self.transport != 'sse' || self.sessionAffinity != 'None' || ((!has(self.replicas) || self.replicas <= 1) && (!has(self.autoscaling) || self.autoscaling.maxReplicas <= 1))",fieldPath=".sessionAffinity",message="sessionAffinity None with transport sse requires a single replica, because pods do not share sessions: set Auto or ClientIP, or run a single replica"
// +kubebuilder:validation:XValidation:rule="self.transport != 'sse' || !has(self.httpRoute) || !has(self.httpRoute.path) || ((has(self.path) ? self.path : '/sse') + '/').startsWith(self.httpRoute.path.endsWith('/') ? self.httpRoute.path : self.httpRoute.path + '/')",fieldPath=".httpRoute.path",message="httpRoute.path must be a prefix of path with transport sse, because the server tells clients where to send messages and does not know the prefix of the route: set path to a path below httpRoute.path, or remove httpRoute.path"
// +kubebuilder:validation:XValidation:rule="self.drainSeconds < self.terminationGracePeriodSeconds || self.drainSeconds > 86399 || self.terminationGracePeriodSeconds < 1",fieldPath=".drainSeconds",message="drainSeconds must be less than terminationGracePeriodSeconds, because the pod is killed at the end of the grace period: lower drainSeconds or raise terminationGracePeriodSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.bridge) || !has(self.bridge.drainTimeout) || !self.bridge.drainTimeout.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') || self.bridge.drainTimeout.size() == 0 || duration(self.bridge.drainTimeout) > duration('24h') || self.drainSeconds >= self.terminationGracePeriodSeconds || duration(self.bridge.drainTimeout).getSeconds() + self.drainSeconds <= self.terminationGracePeriodSeconds",fieldPath=".bridge.drainTimeout",message="bridge.drainTimeout plus drainSeconds must not exceed terminationGracePeriodSeconds, because the pod is killed at the end of the grace period: lower drainTimeout or raise terminationGracePeriodSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.files) || !has(self.mounts) || self.files.all(file, self.mounts.all(mount, file.path != mount.mountPath && !file.path.startsWith(mount.mountPath + '/') && !mount.mountPath.startsWith(file.path + '/')))",fieldPath=".files",message="files must not be at, below or above the mountPath of a mount: change the path of the file, or add the file to the mounted volume"
// +kubebuilder:validation:XValidation:rule="!has(self.authorization) || self.transport != 'sse'",fieldPath=".authorization",message="authorization is not supported with the deprecated transport sse: create an MCPServer with transport streamable-http, or remove authorization"
// +kubebuilder:validation:XValidation:rule="!has(self.authorization) || !has(self.authorization.tokenExchange) || self.transport != 'stdio'",fieldPath=".authorization.tokenExchange",message="authorization.tokenExchange is not supported with transport stdio, which has no header for the token: remove it"
// +kubebuilder:validation:XValidation:rule="!(has(self.authorization) || has(self.limits) || has(self.telemetry) || has(self.contract) && (has(self.contract.allow) || has(self.contract.deny)) || has(self.sessionRouting) && self.sessionRouting == 'Forward') || !(has(self.protocol.scheme) && self.protocol.scheme == 'HTTPS')",fieldPath=".protocol.scheme",message="protocol.scheme HTTPS is not supported with authorization, limits, telemetry, contract.allow, contract.deny and sessionRouting Forward, because their proxy serves plain HTTP: remove protocol.scheme and serve plain HTTP, and terminate TLS at the Ingress or the Gateway"
// +kubebuilder:validation:XValidation:rule="self.transport != 'sse' || !(has(self.limits) || has(self.telemetry) || has(self.contract) && (has(self.contract.allow) || has(self.contract.deny)))",fieldPath=".transport",message="limits, telemetry, contract.allow and contract.deny are not supported with the deprecated transport sse: create an MCPServer with transport streamable-http, or remove them"
// +kubebuilder:validation:XValidation:rule="!(has(self.contract) && has(self.contract.policy) && self.contract.policy == 'Pin') || !(has(self.protocol.probe) && self.protocol.probe == 'Disabled')",fieldPath=".contract.policy",message="contract.policy Pin requires the probe, which reads the contracts of pods: remove protocol.probe, or set contract.policy to Disabled"
type MCPServerSpec struct {
	// transport is the transport of the server: streamable-http, sse (the
	// deprecated transport over HTTP), or stdio (standard input and output,
	// which a bridge in the pod exposes as streamable HTTP). It is immutable.
	// +optional
	// +kubebuilder:default=streamable-http
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="transport is immutable, because clients are configured for it: restore the previous value, and create a new MCPServer with the other transport"
	Transport MCPServerTransport `json:"transport,omitempty"`

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
	Files []MCPServerFile `json:"files,omitempty"`

	// mounts are ConfigMaps, Secrets, PersistentVolumeClaims and emptyDirs to
	// mount into the container. Fixpoint waits until the referenced objects
	// exist, unless they are optional, and rolls the pods when the data of a
	// ConfigMap or Secret changes. At most 24.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=24
	// +kubebuilder:validation:XValidation:rule="self.all(mount, self.exists_one(other, other.mountPath == mount.mountPath))",message="mounts must have unique mountPaths: change one of the duplicates"
	Mounts []MCPServerMount `json:"mounts,omitempty"`

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
	Autoscaling *MCPServerAutoscaling `json:"autoscaling,omitempty"`

	// strategy is how running pods are replaced: RollingUpdate without an
	// outage, or Recreate, which stops the old pods first, for example for a
	// volume that only one pod can mount.
	// +optional
	// +kubebuilder:default=RollingUpdate
	Strategy Strategy `json:"strategy,omitempty"`

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
	ServiceAccount *MCPServerServiceAccount `json:"serviceAccount,omitempty"`

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
	Probes *MCPServerProbes `json:"probes,omitempty"`

	// scheduling restricts the nodes that the pods can run on.
	// +optional
	Scheduling *MCPServerScheduling `json:"scheduling,omitempty"`

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
	SessionAffinity MCPServerSessionAffinity `json:"sessionAffinity,omitempty"`

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
	SessionRouting MCPServerSessionRouting `json:"sessionRouting,omitempty"`

	// disruptionBudget creates a PodDisruptionBudget that limits voluntary
	// disruptions, such as a node drain. Defaults to maxUnavailable 1 if
	// replicas or autoscaling.maxReplicas is greater than 1, and to no
	// PodDisruptionBudget otherwise.
	// +optional
	DisruptionBudget *DisruptionBudget `json:"disruptionBudget,omitempty"`

	// networkPolicy creates a NetworkPolicy that restricts connections to and
	// from the pods. It requires a network plugin that enforces
	// NetworkPolicies.
	// +optional
	NetworkPolicy *MCPServerNetworkPolicy `json:"networkPolicy,omitempty"`

	// ingress creates an Ingress that exposes the server outside of the
	// cluster.
	// +optional
	Ingress *Ingress `json:"ingress,omitempty"`

	// httpRoute creates an HTTPRoute that exposes the server through a Gateway.
	// +optional
	HTTPRoute *MCPServerHTTPRoute `json:"httpRoute,omitempty"`

	// authorization requires an OAuth 2.1 access token in each request, as the
	// authorization chapter of the Model Context Protocol specifies. A proxy in
	// the pod, or the bridge with transport stdio, checks the tokens. Not
	// supported with transport sse.
	// +optional
	Authorization *MCPServerAuthorization `json:"authorization,omitempty"`

	// limits limit what clients may send. Each pod counts on its own.
	// +optional
	Limits *MCPServerLimits `json:"limits,omitempty"`

	// telemetry records requests. A proxy in the pod, or the bridge with
	// transport stdio, writes the records.
	// +optional
	Telemetry *MCPServerTelemetry `json:"telemetry,omitempty"`

	// podOverrides is merged over the pod template, for fields that the spec
	// does not have. The merge follows Server-Side Apply: list items are merged
	// by key, so that a container named server is the container of the MCP
	// server. The pods must satisfy the restricted Pod Security Standard, and
	// neither nodeName nor a ServiceAccount can be set, unless the manager runs
	// with --pod-overrides=all.
	// +optional
	PodOverrides *MCPServerPodOverrides `json:"podOverrides,omitempty"`

	// protocol configures the probe of the Model Context Protocol.
	// +optional
	// +kubebuilder:default={interval: "30s", timeout: "5s"}
	Protocol MCPServerProtocol `json:"protocol,omitzero"`

	// contract configures what happens with the contract of the server: its
	// tools, prompts and resource templates.
	// +optional
	Contract *MCPServerContract `json:"contract,omitempty"`

	// bridge configures the bridge of the transport stdio.
	// +optional
	Bridge *MCPServerBridge `json:"bridge,omitempty"`

	// adoptionPolicy is what happens to an existing object with the name of a
	// child: Never does not change it and reports the reason NotOwned,
	// IfUnowned adopts it if it has no controller.
	// +optional
	// +kubebuilder:default=Never
	AdoptionPolicy AdoptionPolicy `json:"adoptionPolicy,omitempty"`

	// driftPolicy is what happens when another field manager changes a field
	// that the spec declares: Correct reverts the change, Report only reports
	// it.
	// +optional
	// +kubebuilder:default=Correct
	DriftPolicy DriftPolicy `json:"driftPolicy,omitempty"`

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

// MCPServerFile is a text file in the container.
type MCPServerFile struct {
	// path is the path of the file in the container.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/:[:cntrl:]]+)+$') && !self.matches('/[.]{1,2}(/|$)') && !self.matches('^/[.]fixpoint(/|$)')",message="path must be the absolute path of a file, without ':', control characters, '.', '..' and empty segments, and not in /.fixpoint, which is reserved for Fixpoint: use a value such as /etc/tools/config.json"
	Path string `json:"path"`

	// content is the content of the file, at most 131072 characters.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=131072
	Content string `json:"content"`
}

// MCPServerMount is a volume and its mount path. Exactly one of configMap,
// secret, persistentVolumeClaim and emptyDir is set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.configMap) ? 1 : 0) + (has(self.secret) ? 1 : 0) + (has(self.persistentVolumeClaim) ? 1 : 0) + (has(self.emptyDir) ? 1 : 0) == 1",message="mounts must each have exactly one of configMap, secret, persistentVolumeClaim and emptyDir: set one and remove the others"
// +kubebuilder:validation:XValidation:rule="!has(self.emptyDir) || !has(self.readOnly) || !self.readOnly",fieldPath=".readOnly",message="readOnly is not supported for an emptyDir, which would stay empty: remove readOnly, or mount another volume"
type MCPServerMount struct {
	// name is the name of the volume in the pod.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && !self.startsWith('fixpoint-')",message="name must consist of lower-case letters, digits and '-', starting and ending with a letter or digit, and must not start with 'fixpoint-', which is reserved for Fixpoint: use a value such as data"
	Name string `json:"name"`

	// mountPath is the directory of the container to mount the volume in.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/:[:cntrl:]]+)+$') && !self.matches('/[.]{1,2}(/|$)') && !self.matches('^/[.]fixpoint(/|$)')",message="mountPath must be an absolute path other than '/', without ':', control characters, '.', '..' and empty segments, not ending with '/', and not in /.fixpoint, which is reserved for Fixpoint: use a value such as /data"
	MountPath string `json:"mountPath"`

	// readOnly mounts the volume read-only. ConfigMaps and Secrets are always
	// read-only.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`

	// subPath is the file or directory of the volume to mount. Defaults to the
	// whole volume.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^/:[:cntrl:]]+(/[^/:[:cntrl:]]+)*$') && !self.matches('(^|/)[.]{1,2}(/|$)')",message="subPath must be a path within the volume, neither starting nor ending with '/', without ':', control characters, '.', '..' and empty segments: use a value such as tools/data"
	SubPath string `json:"subPath,omitempty"`

	// configMap is a ConfigMap in the same namespace.
	// +optional
	ConfigMap *MCPServerMountedObject `json:"configMap,omitempty"`

	// secret is a Secret in the same namespace.
	// +optional
	Secret *MCPServerMountedObject `json:"secret,omitempty"`

	// persistentVolumeClaim is a PersistentVolumeClaim in the same namespace.
	// +optional
	PersistentVolumeClaim *MCPServerMountedClaim `json:"persistentVolumeClaim,omitempty"`

	// emptyDir is a directory that is empty when the pod starts and is deleted
	// with the pod.
	// +optional
	EmptyDir *MCPServerEmptyDir `json:"emptyDir,omitempty"`
}

// MCPServerMountedObject is a ConfigMap or a Secret to mount.
type MCPServerMountedObject struct {
	// name is the name of the ConfigMap or Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of an object of this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`

	// items are the keys to mount and their file paths. Defaults to all keys,
	// with the key as the file name.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=32
	Items []MCPServerMountedKey `json:"items,omitempty"`

	// optional allows the pods to start while the object, or one of its keys,
	// does not exist.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// MCPServerMountedKey is a key of a ConfigMap or Secret to mount as a file.
type MCPServerMountedKey struct {
	// key is the key in the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="key must be a key of a ConfigMap or a Secret: use letters, digits, '-', '_' and '.'"
	Key string `json:"key"`

	// path is the path of the file in the mount.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^/:[:cntrl:]]+(/[^/:[:cntrl:]]+)*$') && !self.matches('(^|/)[.]{1,2}(/|$)') && !self.startsWith('..')",message="path must be a path within the mount, neither starting nor ending with '/', without ':', control characters, '.', '..' and empty segments, and not starting with '..': use a value such as tools.json"
	Path string `json:"path"`
}

// MCPServerMountedClaim is a PersistentVolumeClaim to mount.
type MCPServerMountedClaim struct {
	// claimName is the name of the PersistentVolumeClaim.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="claimName must be the name of a PersistentVolumeClaim of this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	ClaimName string `json:"claimName"`
}

// MCPServerEmptyDir is a directory that is empty when the pod starts.
type MCPServerEmptyDir struct {
	// sizeLimit is the maximum size; a pod that exceeds it is evicted. Defaults
	// to the limit of the node.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : !self.startsWith('-')",message="sizeLimit must not be negative: use a value such as 256Mi, or omit it"
	SizeLimit *resource.Quantity `json:"sizeLimit,omitempty"`

	// medium is the storage medium. Memory stores the directory in the memory
	// of the node, where it counts towards the memory limit. Defaults to the
	// disk of the node.
	// +optional
	Medium MCPServerMedium `json:"medium,omitempty"`
}

// MCPServerAutoscaling configures a HorizontalPodAutoscaler.
//
// +kubebuilder:validation:XValidation:rule="self.maxReplicas >= self.minReplicas",fieldPath=".maxReplicas",message="maxReplicas must not be less than minReplicas: raise maxReplicas or lower minReplicas"
// +kubebuilder:validation:XValidation:rule="has(self.targetCPUUtilizationPercent) || has(self.targetMemoryUtilizationPercent)",message="autoscaling needs at least one target: set targetCPUUtilizationPercent (80 is usual), targetMemoryUtilizationPercent, or both"
type MCPServerAutoscaling struct {
	// minReplicas is the minimum number of pods, at least 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="minReplicas must be at least 1, because metrics need at least one pod: set 1 or more"
	MinReplicas int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the maximum number of pods, not less than minReplicas.
	// +required
	MaxReplicas int32 `json:"maxReplicas"`

	// targetCPUUtilizationPercent is the target CPU utilization, averaged over
	// the pods, in percent of the requests (1 to 1000).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	TargetCPUUtilizationPercent *int32 `json:"targetCPUUtilizationPercent,omitempty"`

	// targetMemoryUtilizationPercent is the target memory utilization, averaged
	// over the pods, in percent of the requests (1 to 1000).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	TargetMemoryUtilizationPercent *int32 `json:"targetMemoryUtilizationPercent,omitempty"`
}

// MCPServerServiceAccount is the ServiceAccount of the pods.
//
// +kubebuilder:validation:XValidation:rule="!has(self.name) || !has(self.create) || !self.create",fieldPath=".name",message="name must not be set together with create, because Fixpoint creates a ServiceAccount with the name of the MCPServer: remove name, or set create to false"
// +kubebuilder:validation:XValidation:rule="!has(self.annotations) || (has(self.create) && self.create)",fieldPath=".annotations",message="annotations require create, because Fixpoint does not change an existing ServiceAccount: set create to true, or annotate the ServiceAccount directly"
type MCPServerServiceAccount struct {
	// create creates a ServiceAccount for this server, with the name of the
	// MCPServer. Otherwise, the pods use an existing ServiceAccount.
	// +optional
	Create bool `json:"create,omitempty"`

	// name is the name of an existing ServiceAccount. Fixpoint waits until it
	// exists. Defaults to the default ServiceAccount of the namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a ServiceAccount: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or omit it for the default ServiceAccount"
	Name string `json:"name,omitempty"`

	// annotations are added to the ServiceAccount that Fixpoint creates, for
	// example to assign a cloud identity to it.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`

	// automountToken mounts a token for the Kubernetes API into the container.
	// +optional
	AutomountToken bool `json:"automountToken,omitempty"`
}

// MCPServerProbes are the probes of the container. Probes that are omitted
// default to the probes of the transport: with stdio, HTTP probes of the
// bridge; with other transports, TCP probes of the port for readiness and
// startup, and no liveness probe, because a busy server is not a failed one.
type MCPServerProbes struct {
	// readiness determines whether a pod receives traffic.
	// +optional
	Readiness *MCPServerProbe `json:"readiness,omitempty"`

	// liveness determines whether the container is restarted.
	// +optional
	Liveness *MCPServerProbe `json:"liveness,omitempty"`

	// startup delays the other probes until it has succeeded once.
	// +optional
	Startup *MCPServerProbe `json:"startup,omitempty"`
}

// MCPServerProbe configures a container probe. Fields that are omitted default
// to those of the default probe.
//
// +kubebuilder:validation:XValidation:rule="has(self.path) == (has(self.type) && self.type == 'HTTP')",fieldPath=".path",message="path is required with type HTTP and must not be set with other types: set type to HTTP and path to a value such as /healthz, or remove path"
// +kubebuilder:validation:XValidation:rule="!has(self.port) || has(self.type) && self.type != 'None'",fieldPath=".port",message="port requires type HTTP or TCP: set type, or remove port"
type MCPServerProbe struct {
	// type is the type of the probe: HTTP (a GET request), TCP (a connection),
	// or None. Defaults to the type of the default probe.
	// +optional
	Type MCPServerProbeType `json:"type,omitempty"`

	// path is the path of the HTTP request, with type HTTP. Do not use the path
	// of the protocol, because it requires a session.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must start with '/': use a value such as /healthz"
	Path string `json:"path,omitempty"`

	// port is the port to probe (1 to 65535). Defaults to the port of the
	// server.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// initialDelaySeconds is the delay in seconds between the start of the
	// container and the first probe (0 to 3600). Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	InitialDelaySeconds *int32 `json:"initialDelaySeconds,omitempty"`

	// periodSeconds is the interval between probes in seconds (1 to 3600).
	// Defaults to 10, and to 2 for startup.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	PeriodSeconds *int32 `json:"periodSeconds,omitempty"`

	// timeoutSeconds is the timeout of a probe in seconds (1 to 3600). Defaults
	// to 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// failureThreshold is the number of consecutive failures after which the
	// probe fails (1 to 1000). Defaults to 3, and to 60 for startup.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`
}

// MCPServerScheduling restricts the nodes of the pods. Its fields are those of
// a pod.
type MCPServerScheduling struct {
	// nodeSelector restricts the pods to nodes with these labels.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations allow the pods to run on nodes with matching taints.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity are the node affinity, pod affinity and pod anti-affinity of the
	// pods.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// topologySpreadConstraints spread the pods across zones or nodes.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	// +kubebuilder:validation:MaxItems=16
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// priorityClassName is the PriorityClass of the pods. Defaults to the
	// default PriorityClass of the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="priorityClassName must be the name of a PriorityClass: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or omit it for the default of the cluster"
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// MCPServerNetworkPolicy configures a NetworkPolicy for the pods. A direction
// that is omitted is not restricted.
//
// +kubebuilder:validation:XValidation:rule="has(self.ingress) || has(self.egress)",message="networkPolicy needs at least one of ingress and egress: set ingress to restrict connections to the pods, egress to restrict connections from the pods, or both, or remove networkPolicy"
type MCPServerNetworkPolicy struct {
	// ingress restricts connections to the pods.
	// +optional
	Ingress *MCPServerNetworkIngress `json:"ingress,omitempty"`

	// egress restricts connections from the pods.
	// +optional
	Egress *MCPServerNetworkEgress `json:"egress,omitempty"`
}

// MCPServerNetworkIngress restricts connections to the port of the server.
// Connections from the manager, which probes the pods, are allowed in addition,
// unless protocol.probe is Disabled.
type MCPServerNetworkIngress struct {
	// from are the peers that can connect.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(peer, has(peer.ipBlock) != (has(peer.podSelector) || has(peer.namespaceSelector)))",message="from must have either an ipBlock or selectors (podSelector, namespaceSelector or both) in each peer: remove one of them, or split the peer in two"
	From []networkingv1.NetworkPolicyPeer `json:"from"`
}

// MCPServerNetworkEgress restricts connections from the pods. If empty, only
// DNS is allowed.
type MCPServerNetworkEgress struct {
	// dns is whether DNS queries, on port 53 of any peer, are Allowed or Denied.
	// +optional
	// +kubebuilder:default=Allowed
	DNS MCPServerDNSPolicy `json:"dns,omitempty"`

	// rules are the allowed connections. Defaults to none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Rules []MCPServerNetworkEgressRule `json:"rules,omitempty"`
}

// MCPServerNetworkEgressRule allows connections to peers on ports.
//
// +kubebuilder:validation:XValidation:rule="has(self.to) || has(self.ports)",message="rules must each have to, ports or both, because an empty rule allows all connections: set at least one of them, or remove egress to allow all connections"
type MCPServerNetworkEgressRule struct {
	// to are the peers. Defaults to all peers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(peer, has(peer.ipBlock) != (has(peer.podSelector) || has(peer.namespaceSelector)))",message="to must have either an ipBlock or selectors (podSelector, namespaceSelector or both) in each peer: remove one of them, or split the peer in two"
	To []networkingv1.NetworkPolicyPeer `json:"to,omitempty"`

	// ports are the ports of the peers. Defaults to all ports.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Ports []MCPServerNetworkPort `json:"ports,omitempty"`
}

// MCPServerNetworkPort is a port or a range of ports.
//
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || self.endPort >= self.port || self.endPort < 1 || self.port > 65535",fieldPath=".endPort",message="endPort must not be less than port: raise endPort, or omit it for a single port"
type MCPServerNetworkPort struct {
	// protocol is the protocol of the port: TCP, UDP or SCTP.
	// +optional
	// +kubebuilder:default=TCP
	Protocol MCPServerPortProtocol `json:"protocol,omitempty"`

	// port is the port, or the first port of a range (1 to 65535).
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// endPort is the last port of a range (1 to 65535). If omitted, only port
	// is allowed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	EndPort *int32 `json:"endPort,omitempty"`
}

// MCPServerHTTPRoute configures an HTTPRoute of the Gateway API.
type MCPServerHTTPRoute struct {
	// parentRefs are the Gateways of the route.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(ref, self.exists_one(other, other.name == ref.name && has(other.__namespace__) == has(ref.__namespace__) && (!has(ref.__namespace__) || other.__namespace__ == ref.__namespace__) && has(other.sectionName) == has(ref.sectionName) && (!has(ref.sectionName) || other.sectionName == ref.sectionName)))",message="parentRefs must not name the same listener twice: remove one of them, or set different sectionNames"
	// +kubebuilder:validation:XValidation:rule="self.all(ref, self.all(other, other.name != ref.name || has(other.__namespace__) != has(ref.__namespace__) || (has(ref.__namespace__) && other.__namespace__ != ref.__namespace__) || has(other.sectionName) == has(ref.sectionName)))",message="parentRefs must not name both a Gateway and a listener of it: set sectionName in each reference to the Gateway, or keep one without it"
	ParentRefs []MCPServerParentRef `json:"parentRefs"`

	// hostnames are the DNS names of the route, without a scheme, port or
	// wildcard. status.externalEndpoint uses the first one that a listener of
	// the Gateway serves. Defaults to the hostnames of the listener.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(host, host.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))",message="hostnames must be DNS names in lower case, without scheme, port, path or wildcard: use a value such as tools.example.com"
	Hostnames []string `json:"hostnames,omitempty"`

	// path is the URL path prefix of the server. If the path of the server is
	// not below it, the Gateway removes the prefix: a request for /tools/mcp is
	// sent to /mcp. With transport sse, the path of the server must be below
	// it.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^/([-A-Za-z0-9/._~!$&()*+,;=:@\\']|%[0-9a-fA-F]{2})*$') && !self.matches('//|/[.]{1,2}(/|$)|%2[fF]')",message="path must be a URL path that starts with '/', without query, fragment, '.', '..' and empty segments and '%2F': use a value such as /tools"
	Path string `json:"path,omitempty"`
}

// MCPServerParentRef is a Gateway, or a listener of a Gateway.
type MCPServerParentRef struct {
	// name is the name of the Gateway.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a Gateway: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`

	// namespace is the namespace of the Gateway. Defaults to the namespace of
	// the MCPServer.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="namespace must be the name of a namespace: use lower-case letters, digits and '-', starting and ending with a letter or digit, or omit it for the namespace of the MCPServer"
	Namespace string `json:"namespace,omitempty"`

	// sectionName is the name of a listener of the Gateway. Defaults to all
	// listeners.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="sectionName must be the name of a listener: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or omit it for all listeners"
	SectionName string `json:"sectionName,omitempty"`
}

// MCPServerAuthorization requires OAuth 2.1 access tokens.
type MCPServerAuthorization struct {
	// issuers are the authorization servers whose tokens are accepted (1 to 8).
	// +required
	// +listType=map
	// +listMapKey=issuer
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Issuers []MCPServerIssuer `json:"issuers"`

	// resource is the URL of the server for clients, which must be an audience
	// of each token. Defaults to status.externalEndpoint and status.endpoint; a
	// token for either is accepted.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?|[[][0-9a-fA-F:.]+[]])(:[0-9]{1,5})?(/([-A-Za-z0-9._~!&()*+,;=:@/]|%[0-9A-Fa-f]{2})*)?$')",message="resource must be the URL of the server, without user, query and fragment: use a value such as https://tools.example.com/mcp"
	Resource string `json:"resource,omitempty"`

	// scopes are the scopes that every request needs. At most 16.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.all(scope, scope.matches('^[-A-Za-z0-9!#%&()*+,./:;<=>?@^_{|}~]+$'))",message="scopes must not be empty or contain spaces, quotes, backslashes, '$', '`', '[' and ']': use values such as tools:call"
	Scopes []string `json:"scopes,omitempty"`

	// tools are further scopes that calls of single tools need. If several
	// entries match a tool, the scopes of all are needed. At most 64.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Tools []MCPServerToolScopes `json:"tools,omitempty"`

	// tokenExchange gives the server another token of the caller. Defaults to
	// none.
	// +optional
	TokenExchange *MCPServerTokenExchange `json:"tokenExchange,omitempty"`
}

// MCPServerIssuer is an authorization server.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.jwksURI) && has(self.jwksConfigMapRef))",fieldPath=".jwksURI",message="jwksURI and jwksConfigMapRef are mutually exclusive: remove one of them"
// +kubebuilder:validation:XValidation:rule="!self.issuer.startsWith('http:') || has(self.jwksURI) || has(self.jwksConfigMapRef)",fieldPath=".issuer",message="issuer must use https if its keys are discovered, because who can change the response can sign tokens: use https, or set jwksURI or jwksConfigMapRef"
type MCPServerIssuer struct {
	// issuer is the URL of the authorization server, as in the claim iss of its
	// tokens.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?|[[][0-9a-fA-F:.]+[]])(:[0-9]{1,5})?(/([-A-Za-z0-9._~!&()*+,;=:@/]|%[0-9A-Fa-f]{2})*)?$')",message="issuer must be the URL of the authorization server, without user, query and fragment: use a value such as https://id.example.com"
	Issuer string `json:"issuer"`

	// jwksURI is the https URL of its public keys, a JSON Web Key Set. Defaults
	// to that in the metadata of the issuer (RFC 8414 or OpenID Connect
	// Discovery).
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https://([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?|[[][0-9a-fA-F:.]+[]])(:[0-9]{1,5})?(/([-A-Za-z0-9._~!&()*+,;=:@/]|%[0-9A-Fa-f]{2})*)?([?][-A-Za-z0-9._~!&()*+,;=:@%/?]*)?$')",message="jwksURI must be an https URL, because who can change the response can sign tokens: use a value such as https://id.example.com/keys"
	JWKSURI string `json:"jwksURI,omitempty"`

	// jwksConfigMapRef is a ConfigMap with its public keys, for an issuer that
	// the pods cannot reach. Changes take effect without a rollout.
	// +optional
	JWKSConfigMapRef *MCPServerJWKSConfigMapRef `json:"jwksConfigMapRef,omitempty"`
}

// MCPServerJWKSConfigMapRef is a JSON Web Key Set in a ConfigMap.
type MCPServerJWKSConfigMapRef struct {
	// name is the name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a ConfigMap of this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`

	// key is the key in the ConfigMap. Defaults to jwks.json.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="key must be a key of a ConfigMap: use letters, digits, '-', '_' and '.', or omit it for jwks.json"
	Key string `json:"key,omitempty"`
}

// MCPServerToolScopes are the scopes that calls of some tools need.
type MCPServerToolScopes struct {
	// name is the name of a tool; * stands for any characters.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-\\\\w./:*]+$')",message="name must be the name of a tool: use a value such as delete_*"
	Name string `json:"name"`

	// scopes are the scopes, at least one and at most 16.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.all(scope, scope.matches('^[-A-Za-z0-9!#%&()*+,./:;<=>?@^_{|}~]+$'))",message="scopes must not be empty or contain spaces, quotes, backslashes, '$', '`', '[' and ']': use values such as tools:call"
	Scopes []string `json:"scopes"`
}

// MCPServerPodOverrides is a partial PodTemplateSpec, in the JSON format of its
// apply configuration.
type MCPServerPodOverrides struct {
	// metadata are additional labels and annotations of the pods.
	// +optional
	Metadata *MCPServerPodMetadata `json:"metadata,omitempty"`

	// spec is a partial PodSpec. It is validated when the Deployment is
	// applied, and the condition DeploymentReady reports errors.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec *runtime.RawExtension `json:"spec,omitempty"`
}

// MCPServerPodMetadata is the metadata of the pods that can be overridden.
type MCPServerPodMetadata struct {
	// labels are additional labels of the pods.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, key in ['app.kubernetes.io/name', 'app.kubernetes.io/managed-by'] || key.startsWith('fixpoint.dev/'))",message="labels must not be app.kubernetes.io/name or app.kubernetes.io/managed-by or start with 'fixpoint.dev/', which are reserved for Fixpoint: rename the label"
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are additional annotations of the pods.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, key.startsWith('fixpoint.dev/'))",message="annotations must not start with 'fixpoint.dev/', which is reserved for Fixpoint: rename the annotation"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// MCPServerProtocol configures the probe of the Model Context Protocol: one
// handshake with each serving pod, after every rollout and then at an interval.
//
// +kubebuilder:validation:XValidation:rule="![self.interval, self.timeout].all(text, text.size() > 0 && text.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$')) || duration(self.timeout) <= duration(self.interval) || duration(self.timeout) > duration('30s') || duration(self.interval) < duration('5s')",fieldPath=".timeout",message="timeout must not exceed interval: lower timeout or raise interval"
// +kubebuilder:validation:XValidation:rule="!has(self.caRef) || (has(self.scheme) && self.scheme == 'HTTPS')",fieldPath=".caRef",message="caRef requires scheme HTTPS: set scheme to HTTPS if the server serves TLS, or remove caRef"
type MCPServerProtocol struct {
	// probe is when the server is probed: Periodic, after every rollout and then
	// at an interval, or Disabled. A server that is not probed is ready when its
	// pods are ready, and status.server is empty. Defaults to Periodic.
	// +optional
	Probe MCPServerProbePolicy `json:"probe,omitempty"`

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

	// scheme is the scheme of the server: HTTP, or HTTPS if it serves TLS on its
	// port. The endpoint and the probes then use https. The certificate must be
	// valid for <name>.<namespace>.svc. Defaults to HTTP.
	// +optional
	Scheme MCPServerScheme `json:"scheme,omitempty"`

	// caRef is the object with the CA certificates to verify the certificate of
	// the server. Defaults to the CA certificates of the system.
	// +optional
	CARef *MCPServerCARef `json:"caRef,omitempty"`

	// credentialsSecretRef is a key of a Secret in the same namespace with a
	// bearer token for the probe. If omitted, the probe sends no token. With
	// scheme HTTP the token is sent unencrypted, which the condition ProtocolReady
	// says.
	// +optional
	CredentialsSecretRef *MCPServerCredentialsSecretRef `json:"credentialsSecretRef,omitempty"`
}

// MCPServerCARef is an object with PEM-encoded CA certificates.
type MCPServerCARef struct {
	// kind is the kind of the object: ConfigMap or Secret.
	// +optional
	// +kubebuilder:default=ConfigMap
	Kind MCPServerCAKind `json:"kind,omitempty"`

	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of an object of this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`

	// key is the key in the object.
	// +optional
	// +kubebuilder:default=ca.crt
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="key must be a key of a ConfigMap or a Secret: use letters, digits, '-', '_' and '.', or omit it for ca.crt"
	Key string `json:"key,omitempty"`
}

// MCPServerCredentialsSecretRef is a bearer token in a Secret.
type MCPServerCredentialsSecretRef struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a Secret of this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`

	// key is the key in the Secret.
	// +optional
	// +kubebuilder:default=token
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="key must be a key of a Secret: use letters, digits, '-', '_' and '.', or omit it for token"
	Key string `json:"key,omitempty"`
}

// MCPServerBridge configures the bridge, which runs a child process for each
// session of a server with transport stdio. The limits apply to each pod.
// +kubebuilder:validation:XValidation:rule="!has(self.firstSessionUser) || self.firstSessionUser > 65535 || self.firstSessionUser + self.maxSessions + 1 < 60000",fieldPath=".firstSessionUser",message="firstSessionUser and the maxSessions + 1 IDs after it must not be from 60000 to 65535, which the system uses: use a value such as 100000"
type MCPServerBridge struct {
	// maxSessions is the maximum number of sessions in a pod (1 to 10000). At
	// the maximum, a new session ends an idle one, or is rejected with a request
	// to retry later.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxSessions int32 `json:"maxSessions,omitempty"`

	// idleTimeout is the time without a message after which a session is closed
	// (1s to 24h).
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="idleTimeout must be a duration from 1s to 24h, in hours, minutes and seconds: use a value such as 30m"
	IdleTimeout metav1.Duration `json:"idleTimeout,omitzero"`

	// maxMessageBytes is the maximum size of a message in bytes, in both
	// directions (1024 to 268435456).
	// +optional
	// +kubebuilder:default=4194304
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=268435456
	MaxMessageBytes int64 `json:"maxMessageBytes,omitempty"`

	// allowedHosts are further host names under which clients reach the server,
	// for example that of a proxy. Requests with another Host header get 403,
	// against DNS rebinding. Always allowed are the names of the Service, the
	// Ingress and the HTTPRoute, IP addresses and localhost. An HTTPRoute without
	// hostnames, or the value *, allows all hosts.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(host, host == '*' || host.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))",message="allowedHosts must be DNS names in lower case, without scheme, port, path or wildcard: use a value such as tools.example.com, or '*' for all hosts"
	AllowedHosts []string `json:"allowedHosts,omitempty"`

	// allowedOrigins are the origins of web pages that may send requests, in
	// the form of the Origin header. Requests from other origins get 403.
	// Always allowed are requests without an Origin header, which do not come
	// from web pages, and pages of an allowed host name of the server. The
	// value * allows all origins.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=261
	// +kubebuilder:validation:XValidation:rule="self.all(origin, origin == '*' || origin.matches('^[a-z][-+.a-z0-9]*://([a-z0-9]([-._a-z0-9]*[a-z0-9])?|[[][0-9a-f:.]+[]])(:[0-9]{1,5})?$'))",message="allowedOrigins must be origins in lower case, without a path: use a value such as https://app.example.com, or '*' for all origins"
	AllowedOrigins []string `json:"allowedOrigins,omitempty"`

	// drainTimeout is the time that running sessions have to complete after the
	// pod receives SIGTERM (1s to 24h). The sum of drainTimeout and
	// drainSeconds must not exceed terminationGracePeriodSeconds. Defaults to
	// terminationGracePeriodSeconds less drainSeconds and two seconds, or a
	// quarter of the rest if that is less.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="drainTimeout must be a duration from 1s to 24h, in hours, minutes and seconds: use a value such as 25s"
	DrainTimeout metav1.Duration `json:"drainTimeout,omitzero"`

	// firstSessionUser makes the bridge run each session as a user and group of
	// its own, with a private directory as HOME and TMPDIR, so that sessions
	// cannot read the files and the environment of each other, or signal each
	// other. It is the first ID of maxSessions + 2 that nothing else in the pod
	// uses (10000 to 2147000000). The container then runs as root with the
	// capabilities CHOWN, KILL, SETGID and SETUID, which is permitted only if the
	// manager runs with --pod-overrides=all. Defaults to the user of the
	// container for all sessions.
	// +optional
	// +kubebuilder:validation:Minimum=10000
	// +kubebuilder:validation:Maximum=2147000000
	FirstSessionUser *int64 `json:"firstSessionUser,omitempty"`
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
	// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Degraded;Failed;Suspended;Deleting
	Phase Phase `json:"phase,omitempty"`

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
	Server *MCPServerInfo `json:"server,omitempty"`

	// contract is what the server offers to clients. It is empty until all
	// serving pods offer the same, and with spec.contract.policy Disabled.
	// +optional
	Contract *MCPServerContractStatus `json:"contract,omitempty"`

	// pendingContract is a contract that pods offer and that waits for approval,
	// with spec.contract.policy Pin. Such pods take no traffic.
	// +optional
	PendingContract *MCPServerPendingContract `json:"pendingContract,omitempty"`

	// probedVersions are the ReplicaSets whose pods were serving when the last
	// handshake decided the condition ProtocolReady, sorted. Pods of other
	// ReplicaSets have not been probed yet.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	ProbedVersions []string `json:"probedVersions,omitempty"`

	// drifts are the most recent changes of other field managers to fields that
	// the spec declares, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Drifts []Drift `json:"drifts,omitempty"`
}

// MCPServerInfo is the information that a server returns in the handshake,
// truncated to the limits of the schema. tools, prompts and resources have no
// omitempty, because zero must be stored and shown.
type MCPServerInfo struct {
	// name is the name of the server.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`

	// version is the version of the server.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// protocolVersion is the negotiated version of the Model Context Protocol,
	// for example 2025-11-25.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ProtocolVersion string `json:"protocolVersion,omitempty"`

	// capabilities are the names of the capabilities of the server, sorted, for
	// example tools.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	Capabilities []string `json:"capabilities,omitempty"`

	// tools is the number of tools that the server lists.
	// +optional
	Tools int32 `json:"tools"`

	// prompts is the number of prompts that the server lists.
	// +optional
	Prompts int32 `json:"prompts"`

	// resources is the number of resources that the server lists.
	// +optional
	Resources int32 `json:"resources"`
}

// MCPServer runs a Model Context Protocol server as a Deployment and a Service,
// with a bridge for servers with transport stdio. It is ready when the server
// completes the protocol handshake. The controller reverts changes of other
// field managers, and reports them in the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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
