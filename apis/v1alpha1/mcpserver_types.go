package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The URL path that a server is reached at when spec.path is left out. A schema
// cannot choose a default by another field, so the controller does.
const (
	// MCPPathDefault is that of the transports streamable-http and stdio.
	MCPPathDefault = "/mcp"

	// MCPPathDefaultSSE is that of the transport sse.
	MCPPathDefaultSSE = "/sse"
)

// MCPReservedPath is the folder of the container that is Fixpoint's own: the
// bridge lies there. Neither files nor mounts may.
const MCPReservedPath = "/.fixpoint"

// MCPReservedPrefix is how the names of volumes and containers start that are
// Fixpoint's own in the pods of an MCPServer.
const MCPReservedPrefix = "fixpoint-"

// MCPServerTransport says how a server speaks the Model Context Protocol.
// +kubebuilder:validation:Enum=streamable-http;sse;stdio
type MCPServerTransport string

const (
	// TransportStreamableHTTP is the current transport over HTTP.
	TransportStreamableHTTP MCPServerTransport = "streamable-http"

	// TransportSSE is the older transport over HTTP with server-sent events.
	TransportSSE MCPServerTransport = "sse"

	// TransportStdio is a program that speaks on its standard input and output.
	// A bridge in its pod makes streamable HTTP of it.
	TransportStdio MCPServerTransport = "stdio"
)

// MCPServerSessionAffinity says whether the connections of a client lead to one
// and the same pod.
// +kubebuilder:validation:Enum=Auto;ClientIP;None
type MCPServerSessionAffinity string

const (
	// SessionAffinityAuto keeps a client with a pod where sessions have state.
	SessionAffinityAuto MCPServerSessionAffinity = "Auto"

	// SessionAffinityClientIP keeps a client, told by its address, with a pod.
	SessionAffinityClientIP MCPServerSessionAffinity = "ClientIP"

	// SessionAffinityNone spreads connections over all pods.
	SessionAffinityNone MCPServerSessionAffinity = "None"
)

// MCPServerProbeType says how Kubernetes asks a container.
// +kubebuilder:validation:Enum=HTTP;TCP;None
type MCPServerProbeType string

const (
	// ProbeHTTP is a GET that succeeds with a status from 200 to 399.
	ProbeHTTP MCPServerProbeType = "HTTP"

	// ProbeTCP is a connection that succeeds when it is accepted.
	ProbeTCP MCPServerProbeType = "TCP"

	// ProbeOff asks nothing. It is written None, because Off is a boolean in YAML.
	ProbeOff MCPServerProbeType = "None"
)

// MCPServerMedium says what an emptyDir is kept in.
// +kubebuilder:validation:Enum=Memory
type MCPServerMedium string

// MediumMemory keeps an emptyDir in the memory of the node, where it counts
// against the memory limit of the container.
const MediumMemory MCPServerMedium = "Memory"

// MCPServerPortProtocol is a protocol that has ports.
// +kubebuilder:validation:Enum=TCP;UDP;SCTP
type MCPServerPortProtocol string

// MCPServerCAKind is a kind of object that may hold the certificates of
// authorities.
// +kubebuilder:validation:Enum=ConfigMap;Secret
type MCPServerCAKind string

const (
	// CAKindConfigMap is a ConfigMap of the namespace.
	CAKindConfigMap MCPServerCAKind = "ConfigMap"

	// CAKindSecret is a Secret of the namespace.
	CAKindSecret MCPServerCAKind = "Secret"
)

// MCPServerPhase sums an MCPServer up in one word, for people. Programs read
// the conditions.
// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Degraded;Failed;Suspended;Deleting
type MCPServerPhase string

const (
	// MCPServerPending has been accepted and not been worked on yet.
	MCPServerPending MCPServerPhase = "Pending"

	// MCPServerProvisioning is on its way to what the spec declares.
	MCPServerProvisioning MCPServerPhase = "Provisioning"

	// MCPServerRunning is as the spec declares, and answers.
	MCPServerRunning MCPServerPhase = "Running"

	// MCPServerDegraded serves, but not as the spec declares.
	MCPServerDegraded MCPServerPhase = "Degraded"

	// MCPServerFailed cannot go on until the spec or the cluster changes.
	MCPServerFailed MCPServerPhase = "Failed"

	// MCPServerSuspended is left alone, as spec.suspend asks.
	MCPServerSuspended MCPServerPhase = "Suspended"

	// MCPServerDeleting is being torn down.
	MCPServerDeleting MCPServerPhase = "Deleting"
)

// MCPServerSpec declares a server of the Model Context Protocol.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",fieldPath=".replicas",message="replicas and autoscaling exclude each other: remove replicas to let the autoscaler decide, or remove autoscaling to fix the number"
// +kubebuilder:validation:XValidation:rule="!(has(self.ingress) && has(self.httpRoute))",fieldPath=".httpRoute",message="httpRoute and ingress exclude each other: remove ingress to be reached through a Gateway, or remove httpRoute to be reached through an Ingress"
// +kubebuilder:validation:XValidation:rule="self.transport != 'stdio' || has(self.command)",fieldPath=".command",message="command is needed with transport stdio, because the bridge has to know what to run and cannot read it from the image: set command to what the image's entrypoint is"
// +kubebuilder:validation:XValidation:rule="!has(self.bridge) || self.transport == 'stdio'",fieldPath=".bridge",message="bridge is only for transport stdio, because the other transports have none: remove bridge"
// +kubebuilder:validation:XValidation:rule="self.transport != 'stdio' || !has(self.path) || !(self.path in ['/healthz', '/readyz', '/metrics'])",fieldPath=".path",message="path must not be /healthz, /readyz or /metrics with transport stdio, because the bridge tells there how it is: write for example /mcp, or leave it out"
// +kubebuilder:validation:XValidation:rule="self.transport != 'stdio' || !has(self.protocol.tls) || !self.protocol.tls",fieldPath=".protocol.tls",message="protocol.tls is not for transport stdio, because the bridge speaks plain HTTP: remove it, and let the Ingress or the Gateway speak TLS"
// +kubebuilder:validation:XValidation:rule="self.transport != 'sse' || self.sessionAffinity != 'None' || ((!has(self.replicas) || self.replicas <= 1) && (!has(self.autoscaling) || self.autoscaling.maxReplicas <= 1))",fieldPath=".sessionAffinity",message="sessionAffinity None would send the messages of an sse session to pods that do not know the session: set Auto or ClientIP, or have a single replica"
// +kubebuilder:validation:XValidation:rule="self.transport != 'sse' || !has(self.httpRoute) || !has(self.httpRoute.path) || ((has(self.path) ? self.path : '/sse') + '/').startsWith(self.httpRoute.path.endsWith('/') ? self.httpRoute.path : self.httpRoute.path + '/')",fieldPath=".httpRoute.path",message="httpRoute.path must lead to the path of the server with transport sse, because clients are told by the server where to send messages, and it does not know of a prefix: set path to one below httpRoute.path, or remove httpRoute.path"
// +kubebuilder:validation:XValidation:rule="self.drainSeconds < self.terminationGracePeriodSeconds || self.drainSeconds > 86399 || self.terminationGracePeriodSeconds < 1",fieldPath=".drainSeconds",message="drainSeconds must be less than terminationGracePeriodSeconds, because the pod is killed when that is over: lower drainSeconds or raise terminationGracePeriodSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.bridge) || !has(self.bridge.drainTimeout) || !self.bridge.drainTimeout.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') || self.bridge.drainTimeout.size() == 0 || duration(self.bridge.drainTimeout) > duration('24h') || self.drainSeconds >= self.terminationGracePeriodSeconds || duration(self.bridge.drainTimeout).getSeconds() + self.drainSeconds <= self.terminationGracePeriodSeconds",fieldPath=".bridge.drainTimeout",message="bridge.drainTimeout and drainSeconds together must not be more than terminationGracePeriodSeconds, because the pod is killed when that is over: lower drainTimeout or raise terminationGracePeriodSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.files) || !has(self.mounts) || self.files.all(file, self.mounts.all(mount, file.path != mount.mountPath && !file.path.startsWith(mount.mountPath + '/') && !mount.mountPath.startsWith(file.path + '/')))",fieldPath=".files",message="files must not lie at or below the mountPath of a mount, nor above one: move the file, or put it into what is mounted there"
type MCPServerSpec struct {
	// transport says how the server speaks: streamable-http, sse (the older
	// transport over HTTP), or stdio (on standard input and output; a bridge
	// that Fixpoint puts into the pod makes streamable HTTP of it). It cannot be
	// changed.
	// +optional
	// +kubebuilder:default=streamable-http
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="transport cannot be changed, because clients are configured for it and would all break at once: put it back as it was, and create a new MCPServer for the other transport"
	Transport MCPServerTransport `json:"transport,omitempty"`

	// image is the OCI image to run, as [registry[:port]/]path[:tag][@digest],
	// for example ghcr.io/acme/tools:1.4.2. A tag that moves is not followed:
	// change the image to roll out a new one.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?|\\\\[[0-9a-fA-F:.]+\\\\])(:[0-9]+)?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-+._][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$')",message="image must be an OCI image reference: write it as [registry[:port]/]path[:tag][@digest], the path in lower case and without a scheme, for example ghcr.io/acme/tools:1.4.2"
	Image string `json:"image"`

	// imagePullPolicy says when a node pulls the image: Always, IfNotPresent or
	// Never. Left out, it is Always for the tag latest and for no tag, and
	// IfNotPresent otherwise.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets are Secrets of the namespace to pull the image with.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// command is run in place of the image's entrypoint, without a shell: the
	// program and its first arguments. The transport stdio needs it. At most 64
	// of up to 4096 characters each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self[0] != ''",message="command must begin with the program to run: write for example [npx, -y, '@acme/tools']"
	Command []string `json:"command,omitempty"`

	// args are the arguments of command, or of the image's entrypoint. At most
	// 256 of up to 16384 characters each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=16384
	Args []string `json:"args,omitempty"`

	// env is the container's environment. It wins over a variable of the same
	// name that envFrom brings. A Secret or ConfigMap that is named here is
	// waited for, unless it is optional, and a change of its data rolls the pods.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(variable, !has(variable.valueFrom) || !has(variable.value) || variable.value == '')",message="env must not have both value and valueFrom in one variable: remove one of the two"
	// +kubebuilder:validation:XValidation:rule="self.all(variable, !has(variable.valueFrom) || (has(variable.valueFrom.configMapKeyRef) ? 1 : 0) + (has(variable.valueFrom.secretKeyRef) ? 1 : 0) + (has(variable.valueFrom.fieldRef) ? 1 : 0) + (has(variable.valueFrom.resourceFieldRef) ? 1 : 0) + (has(variable.valueFrom.fileKeyRef) ? 1 : 0) == 1)",message="env must have exactly one source in a valueFrom: keep one of configMapKeyRef, secretKeyRef, fieldRef, resourceFieldRef and fileKeyRef"
	// +kubebuilder:validation:XValidation:rule="self.all(variable, !has(variable.valueFrom) || (!has(variable.valueFrom.configMapKeyRef) || (has(variable.valueFrom.configMapKeyRef.name) && variable.valueFrom.configMapKeyRef.name != '')) && (!has(variable.valueFrom.secretKeyRef) || (has(variable.valueFrom.secretKeyRef.name) && variable.valueFrom.secretKeyRef.name != '')))",message="env must name the Secret or ConfigMap that a value comes from: set name beside key"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// envFrom takes all keys of Secrets and ConfigMaps into the environment; a
	// later one wins over an earlier one. They are waited for, unless they are
	// optional, and a change of their data rolls the pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(source, has(source.configMapRef) != has(source.secretRef))",message="envFrom needs exactly one of configMapRef and secretRef in each entry: set one and remove the other"
	// +kubebuilder:validation:XValidation:rule="self.all(source, (!has(source.configMapRef) || (has(source.configMapRef.name) && source.configMapRef.name != '')) && (!has(source.secretRef) || (has(source.secretRef.name) && source.secretRef.name != '')))",message="envFrom must name the Secret or ConfigMap of each entry: set name"
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// files are put into the container, read-only, each at its path. They become
	// a ConfigMap, and a change of one rolls the pods. At most 32, and 524288
	// bytes in all; for what is secret use mounts with a Secret.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.map(file, bytes(file.content).size()).sum() <= 524288",message="files must not have more than 524288 bytes of content in all, because they are kept in one ConfigMap: shorten them, or mount larger data from elsewhere"
	// +kubebuilder:validation:XValidation:rule="!self.exists(file, self.exists(other, other.path.startsWith(file.path + '/')))",message="files must not lie below one another, because a file is no folder: move one of the two"
	Files []MCPServerFile `json:"files,omitempty"`

	// mounts are ConfigMaps, Secrets, PersistentVolumeClaims and empty folders
	// that the container sees as folders. What is named here is waited for,
	// unless it is optional; a change of the data of a ConfigMap or a Secret
	// rolls the pods. At most 24.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=24
	// +kubebuilder:validation:XValidation:rule="self.all(mount, self.exists_one(other, other.mountPath == mount.mountPath))",message="mounts must each have a mountPath of their own: change one of the two that are alike"
	Mounts []MCPServerMount `json:"mounts,omitempty"`

	// port is where the container listens for HTTP (1 to 65535); with transport
	// stdio the bridge listens there. The Service listens on the same number.
	// +optional
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// path is the path of the URL that the protocol is spoken at. Left out, it is
	// /mcp, or /sse with transport sse. With transport stdio the bridge serves
	// it; otherwise it has to be what the server itself serves.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/([-A-Za-z0-9._~!$&()*+,;=:@]|%[0-9A-Fa-f]{2})+)*/?$') && self != '' && !self.matches('/[.]{1,2}(/|$)')",message="path must be the path of a URL, starting with '/', with neither query nor fragment and without '.', '..' and empty segments: write for example /mcp"
	Path string `json:"path,omitempty"`

	// replicas is the number of pods, at least 1. Left out, Fixpoint does not
	// touch the number, and an autoscaler may own it; setting both replicas and
	// autoscaling is refused. `kubectl scale`, and an autoscaler of your own
	// that targets the MCPServer, need it set.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="replicas must be at least 1, because with none nobody would answer: set 1 or more, or leave replicas out to let an autoscaler own the number"
	Replicas *int32 `json:"replicas,omitempty"`

	// autoscaling lets a HorizontalPodAutoscaler choose the number of pods.
	// +optional
	Autoscaling *MCPServerAutoscaling `json:"autoscaling,omitempty"`

	// strategy says how running pods are replaced: RollingUpdate without an
	// outage, or Recreate, which stops the old pods first; for a volume that
	// only one pod may hold.
	// +optional
	// +kubebuilder:default=RollingUpdate
	Strategy AppServiceStrategy `json:"strategy,omitempty"`

	// resources are the container's requests and limits. An autoscaler that
	// targets a share of CPU or memory needs the request for it. With transport
	// stdio they hold for the bridge and all sessions of the pod together.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(name, !(name in self.requests) || !(name in self.limits) || ![string(self.requests[name]), string(self.limits[name])].all(text, text.matches('^[-+]?[0-9.]{1,66}([a-zA-Z]{0,2}|[eE][-+]?[0-9]{1,2})$')) || quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",message="resources must not request more than the limit of cpu, memory or ephemeral-storage: lower the request or raise the limit"
	// +kubebuilder:validation:XValidation:rule="['cpu', 'memory', 'ephemeral-storage'].all(name, (!has(self.requests) || !(name in self.requests) || (type(self.requests[name]) == int ? self.requests[name] >= 0 : !self.requests[name].startsWith('-'))) && (!has(self.limits) || !(name in self.limits) || (type(self.limits[name]) == int ? self.limits[name] >= 0 : !self.limits[name].startsWith('-'))))",message="resources must not be negative: write for example {requests: {cpu: 100m, memory: 64Mi}}"
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// serviceAccount says as whom the pods run. Left out, it is the default
	// ServiceAccount of the namespace, without a token.
	// +optional
	ServiceAccount *MCPServerServiceAccount `json:"serviceAccount,omitempty"`

	// podSecurityContext is laid over the default one of the pod, which satisfies
	// the restricted Pod Security Standard: a field that is set here wins. An
	// image that runs as root needs runAsUser.
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`

	// containerSecurityContext is laid over the default one of the container,
	// which satisfies the restricted Pod Security Standard: a field that is set
	// here wins.
	// +optional
	ContainerSecurityContext *corev1.SecurityContext `json:"containerSecurityContext,omitempty"`

	// probes are the questions that Kubernetes asks the container. A probe that
	// is left out is the default one of the transport.
	// +optional
	Probes *MCPServerProbes `json:"probes,omitempty"`

	// scheduling says on which nodes the pods may run, and which they prefer.
	// +optional
	Scheduling *MCPServerScheduling `json:"scheduling,omitempty"`

	// terminationGracePeriodSeconds is how long a pod may take to end, in
	// seconds (1 to 86400). Then it is killed, with the sessions it still has.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TerminationGracePeriodSeconds int64 `json:"terminationGracePeriodSeconds,omitempty"`

	// drainSeconds is how long a pod that is to end goes on serving before it is
	// told so, in seconds (0 to 86399): new sessions go to other pods by then.
	// It is part of terminationGracePeriodSeconds.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86399
	DrainSeconds *int64 `json:"drainSeconds,omitempty"`

	// progressDeadlineSeconds is how many seconds a rollout may go without
	// progress before it counts as stalled (10 to 86400).
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`

	// sessionAffinity says whether the connections of a client lead to one and
	// the same pod: Auto does so where sessions have state, ClientIP always and
	// None never. None is for servers without sessions.
	// +optional
	// +kubebuilder:default=Auto
	SessionAffinity MCPServerSessionAffinity `json:"sessionAffinity,omitempty"`

	// sessionAffinityTimeoutSeconds is after how many seconds without a
	// connection a client may be sent to another pod (1 to 86400).
	// +optional
	// +kubebuilder:default=10800
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	SessionAffinityTimeoutSeconds int32 `json:"sessionAffinityTimeoutSeconds,omitempty"`

	// disruptionBudget limits how many pods a voluntary disruption, such as the
	// drain of a node, may take away at a time. Left out, it is one pod, if replicas
	// or autoscaling.maxReplicas is more than one, and no budget otherwise.
	// +optional
	DisruptionBudget *AppServiceDisruptionBudget `json:"disruptionBudget,omitempty"`

	// networkPolicy says who may connect to the pods, and where these may
	// connect to. It takes a network plugin that enforces NetworkPolicies.
	// +optional
	NetworkPolicy *MCPServerNetworkPolicy `json:"networkPolicy,omitempty"`

	// ingress makes the server reachable from outside of the cluster through an
	// Ingress.
	// +optional
	Ingress *AppServiceIngress `json:"ingress,omitempty"`

	// httpRoute makes the server reachable through a Gateway.
	// +optional
	HTTPRoute *MCPServerHTTPRoute `json:"httpRoute,omitempty"`

	// podOverrides is laid over the template of the pods, for what has no field
	// here. It is merged as the API server merges an apply: lists go by their
	// keys, so that a container named server is the one of the MCP server.
	// +optional
	PodOverrides *MCPServerPodOverrides `json:"podOverrides,omitempty"`

	// protocol says how the server is asked, in its own protocol, whether it
	// answers.
	// +optional
	// +kubebuilder:default={interval: "30s", timeout: "5s"}
	Protocol MCPServerProtocol `json:"protocol,omitzero"`

	// bridge limits the bridge of the transport stdio. Left out, it has the
	// limits that are the defaults here.
	// +optional
	Bridge *MCPServerBridge `json:"bridge,omitempty"`

	// adoptionPolicy says what becomes of an object that already exists under
	// the name of a child: Never leaves it alone and says so, IfUnowned takes it
	// over when no controller owns it.
	// +optional
	// +kubebuilder:default=Never
	AdoptionPolicy AdoptionPolicy `json:"adoptionPolicy,omitempty"`

	// driftPolicy says what happens when somebody else changes what is declared
	// here: Correct puts it back, Report only tells.
	// +optional
	// +kubebuilder:default=Correct
	DriftPolicy DriftPolicy `json:"driftPolicy,omitempty"`

	// suspend stops all work on this MCPServer: nothing is created, corrected,
	// pruned or probed until it is false again. Deletion still works.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// MCPServerFile is a text that the container sees as a file.
type MCPServerFile struct {
	// path of the file in the container.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/:[:cntrl:]]+)+$') && !self.matches('/[.]{1,2}(/|$)') && !self.matches('^/[.]fixpoint(/|$)')",message="path must be the absolute path of a file, without ':', control characters, '.', '..' and empty segments, and not in /.fixpoint, which is Fixpoint's own: write for example /etc/tools/config.json"
	Path string `json:"path"`

	// content of the file, at most 131072 characters.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=131072
	Content string `json:"content"`
}

// MCPServerMount is a volume and where the container sees it: exactly one of
// configMap, secret, persistentVolumeClaim and emptyDir is set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.configMap) ? 1 : 0) + (has(self.secret) ? 1 : 0) + (has(self.persistentVolumeClaim) ? 1 : 0) + (has(self.emptyDir) ? 1 : 0) == 1",message="mounts need exactly one of configMap, secret, persistentVolumeClaim and emptyDir each: set one and remove the others"
// +kubebuilder:validation:XValidation:rule="!has(self.emptyDir) || !has(self.readOnly) || !self.readOnly",fieldPath=".readOnly",message="readOnly makes no sense for an emptyDir, which would stay empty: remove readOnly, or mount something that has content"
type MCPServerMount struct {
	// name of the volume in the pod.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && !self.startsWith('fixpoint-')",message="name must be lower-case letters, digits and '-', starting and ending with a letter or digit, and must not start with 'fixpoint-', as the volumes of Fixpoint do: choose such a name, for example data"
	Name string `json:"name"`

	// mountPath is the folder in the container.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/:[:cntrl:]]+)+$') && !self.matches('/[.]{1,2}(/|$)') && !self.matches('^/[.]fixpoint(/|$)')",message="mountPath must be an absolute path other than '/', without ':', control characters, '.', '..' and empty segments, not ending with '/', and not in /.fixpoint, which is Fixpoint's own: write for example /data"
	MountPath string `json:"mountPath"`

	// readOnly keeps the container from writing. ConfigMaps and Secrets are
	// read-only in any case.
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`

	// subPath is the file or folder of the volume to mount. Left out, it is the
	// whole volume.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^/:[:cntrl:]]+(/[^/:[:cntrl:]]+)*$') && !self.matches('(^|/)[.]{1,2}(/|$)')",message="subPath must be a path within the volume, neither starting nor ending with '/', without ':', control characters, '.', '..' and empty segments: write for example tools/data"
	SubPath string `json:"subPath,omitempty"`

	// configMap is a ConfigMap of the namespace.
	// +optional
	ConfigMap *MCPServerMountedObject `json:"configMap,omitempty"`

	// secret is a Secret of the namespace.
	// +optional
	Secret *MCPServerMountedObject `json:"secret,omitempty"`

	// persistentVolumeClaim is a PersistentVolumeClaim of the namespace.
	// +optional
	PersistentVolumeClaim *MCPServerMountedClaim `json:"persistentVolumeClaim,omitempty"`

	// emptyDir is a folder that begins empty with each pod and goes with it.
	// +optional
	EmptyDir *MCPServerEmptyDir `json:"emptyDir,omitempty"`
}

// MCPServerMountedObject is a ConfigMap or a Secret that is mounted.
type MCPServerMountedObject struct {
	// name of the ConfigMap or the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of an object of this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`

	// items are the keys to mount, and the file that each becomes. Left out, all
	// keys become files of their names.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=32
	Items []MCPServerMountedKey `json:"items,omitempty"`

	// optional lets the pods start while the object, or a key of it, is missing.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// MCPServerMountedKey is a key of a ConfigMap or a Secret that becomes a file.
type MCPServerMountedKey struct {
	// key in the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="key must be a key of a ConfigMap or a Secret: use letters, digits, '-', '_' and '.'"
	Key string `json:"key"`

	// path of the file within the mount.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^/:[:cntrl:]]+(/[^/:[:cntrl:]]+)*$') && !self.matches('(^|/)[.]{1,2}(/|$)') && !self.startsWith('..')",message="path must be a path within the mount, neither starting nor ending with '/', without ':', control characters, '.', '..' and empty segments, and not starting with '..': write for example tools.json"
	Path string `json:"path"`
}

// MCPServerMountedClaim is a PersistentVolumeClaim that is mounted.
type MCPServerMountedClaim struct {
	// claimName is the name of the PersistentVolumeClaim.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="claimName must be the name of a PersistentVolumeClaim of this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	ClaimName string `json:"claimName"`
}

// MCPServerEmptyDir is a folder that begins empty with each pod.
type MCPServerEmptyDir struct {
	// sizeLimit is how much it may hold; a pod that holds more is evicted. Left
	// out, only the node limits it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : !self.startsWith('-')",message="sizeLimit must not be negative: write for example 256Mi, or leave it out"
	SizeLimit *resource.Quantity `json:"sizeLimit,omitempty"`

	// medium is Memory to keep it in the node's memory, where it counts against
	// the memory limit. Left out, it is on the node's disk.
	// +optional
	Medium MCPServerMedium `json:"medium,omitempty"`
}

// MCPServerAutoscaling bounds and steers a HorizontalPodAutoscaler.
//
// +kubebuilder:validation:XValidation:rule="self.maxReplicas >= self.minReplicas",fieldPath=".maxReplicas",message="maxReplicas must not be less than minReplicas: raise maxReplicas or lower minReplicas"
// +kubebuilder:validation:XValidation:rule="has(self.targetCPUUtilizationPercent) || has(self.targetMemoryUtilizationPercent)",message="autoscaling needs something to measure: set targetCPUUtilizationPercent (80 is usual), targetMemoryUtilizationPercent, or both"
type MCPServerAutoscaling struct {
	// minReplicas is the smallest number of pods, at least 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="minReplicas must be at least 1, because with no pod there is nothing to measure: set 1 or more"
	MinReplicas int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the largest number of pods; not less than minReplicas.
	// +required
	MaxReplicas int32 `json:"maxReplicas"`

	// targetCPUUtilizationPercent is the CPU use to aim at, averaged over the
	// pods, in percent of what they request (1 to 1000).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	TargetCPUUtilizationPercent *int32 `json:"targetCPUUtilizationPercent,omitempty"`

	// targetMemoryUtilizationPercent is the memory use to aim at, averaged over
	// the pods, in percent of what they request (1 to 1000).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	TargetMemoryUtilizationPercent *int32 `json:"targetMemoryUtilizationPercent,omitempty"`
}

// MCPServerServiceAccount is the ServiceAccount that the pods run as.
//
// +kubebuilder:validation:XValidation:rule="!has(self.name) || !has(self.create) || !self.create",fieldPath=".name",message="name is only for a ServiceAccount that exists, because one that Fixpoint creates has the name of the MCPServer: remove name, or set create to false"
// +kubebuilder:validation:XValidation:rule="!has(self.annotations) || (has(self.create) && self.create)",fieldPath=".annotations",message="annotations can only be put on a ServiceAccount that Fixpoint creates: set create to true, or annotate the ServiceAccount yourself"
type MCPServerServiceAccount struct {
	// create has Fixpoint make a ServiceAccount for this server alone, of the name
	// of the MCPServer. Otherwise one that exists is used.
	// +optional
	Create bool `json:"create,omitempty"`

	// name of a ServiceAccount that exists; it is waited for. Left out, it is the
	// default one of the namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a ServiceAccount: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or leave it out for the default one"
	Name string `json:"name,omitempty"`

	// annotations are put on the ServiceAccount that create makes. Clouds read
	// there which identity it stands for.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`

	// automountToken gives the container a token for the Kubernetes API.
	// +optional
	AutomountToken bool `json:"automountToken,omitempty"`
}

// MCPServerProbes are the questions that Kubernetes asks the container. Each
// that is left out is the default one of the transport: with stdio, the bridge
// is asked over HTTP whether it is ready and alive; otherwise readiness and
// startup are asked whether the port accepts connections, and there is no
// liveness probe, because a server that is busy is not dead.
type MCPServerProbes struct {
	// readiness decides whether a pod gets traffic.
	// +optional
	Readiness *MCPServerProbe `json:"readiness,omitempty"`

	// liveness decides whether a container is restarted.
	// +optional
	Liveness *MCPServerProbe `json:"liveness,omitempty"`

	// startup holds the other two back until it has succeeded once.
	// +optional
	Startup *MCPServerProbe `json:"startup,omitempty"`
}

// MCPServerProbe is a question. What is left out is as in the default one.
//
// +kubebuilder:validation:XValidation:rule="has(self.path) == (has(self.type) && self.type == 'HTTP')",fieldPath=".path",message="path is needed with type HTTP and is not for the others: set type HTTP together with a path, for example /healthz, or remove path"
// +kubebuilder:validation:XValidation:rule="!has(self.port) || has(self.type) && self.type != 'None'",fieldPath=".port",message="port needs a type that asks a port: set type to HTTP or TCP, or remove port"
type MCPServerProbe struct {
	// type is how it is asked: HTTP (a GET), TCP (a connection), or None. Left
	// out, it is as in the default one.
	// +optional
	Type MCPServerProbeType `json:"type,omitempty"`

	// path to ask for, with type HTTP. The path of the protocol itself is no
	// good one: it wants a session.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must start with '/': write for example /healthz"
	Path string `json:"path,omitempty"`

	// port to ask (1 to 65535). Left out, it is the port of the server.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// initialDelaySeconds is how long after the start of the container the first
	// question is asked, in seconds (0 to 3600). Left out, it is 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	InitialDelaySeconds *int32 `json:"initialDelaySeconds,omitempty"`

	// periodSeconds is the time from one question to the next, in seconds (1 to
	// 3600). Left out, it is 10, and 2 for startup.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	PeriodSeconds *int32 `json:"periodSeconds,omitempty"`

	// timeoutSeconds is how long an answer may take, in seconds (1 to 3600). Left
	// out, it is 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// failureThreshold is how many questions in a row have to fail (1 to 1000).
	// Left out, it is 3, and 60 for startup.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`
}

// MCPServerScheduling says where the pods may run. Its parts mean what they
// mean in a pod.
type MCPServerScheduling struct {
	// nodeSelector keeps the pods to nodes that carry these labels.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations let the pods run on nodes with these taints.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity draws the pods to nodes and to other pods, or keeps them away.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// topologySpreadConstraints spread the pods over zones or nodes.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	// +kubebuilder:validation:MaxItems=16
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// priorityClassName is the PriorityClass of the pods. Left out, it is the
	// cluster's default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="priorityClassName must be the name of a PriorityClass: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or leave it out for the cluster's default"
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// MCPServerNetworkPolicy becomes a NetworkPolicy for the pods. A direction that
// is left out is not restricted.
//
// +kubebuilder:validation:XValidation:rule="has(self.ingress) || has(self.egress)",message="networkPolicy needs something to restrict: set ingress to say who may connect, egress to say where the pods may connect to, or both, or remove networkPolicy"
type MCPServerNetworkPolicy struct {
	// ingress restricts who may connect to the pods.
	// +optional
	Ingress *MCPServerNetworkIngress `json:"ingress,omitempty"`

	// egress restricts where the pods may connect to.
	// +optional
	Egress *MCPServerNetworkEgress `json:"egress,omitempty"`
}

// MCPServerNetworkIngress names who may connect to the port of the server. The
// manager, which asks the pods, is let in beside them, unless protocol.disabled
// is true.
type MCPServerNetworkIngress struct {
	// from are the peers that may connect.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(peer, has(peer.ipBlock) != (has(peer.podSelector) || has(peer.namespaceSelector)))",message="from must have either an ipBlock, or a podSelector, a namespaceSelector or both, in each peer: remove what is too much, or split it into two peers"
	From []networkingv1.NetworkPolicyPeer `json:"from"`
}

// MCPServerNetworkEgress names where the pods may connect to. Empty, they may
// ask DNS and nothing else.
type MCPServerNetworkEgress struct {
	// allowDNS lets the pods ask for names, on port 53 of any peer.
	// +optional
	// +kubebuilder:default=true
	AllowDNS *bool `json:"allowDNS,omitempty"`

	// rules are what the pods may connect to. Left out, it is nothing.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Rules []MCPServerNetworkEgressRule `json:"rules,omitempty"`
}

// MCPServerNetworkEgressRule allows connections to its peers on its ports.
//
// +kubebuilder:validation:XValidation:rule="has(self.to) || has(self.ports)",message="rules must each have to, ports or both, because an empty one would allow everything: set one of the two, or remove egress to restrict nothing"
type MCPServerNetworkEgressRule struct {
	// to are the peers. Left out, they are all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(peer, has(peer.ipBlock) != (has(peer.podSelector) || has(peer.namespaceSelector)))",message="to must have either an ipBlock, or a podSelector, a namespaceSelector or both, in each peer: remove what is too much, or split it into two peers"
	To []networkingv1.NetworkPolicyPeer `json:"to,omitempty"`

	// ports are the ports of the peers. Left out, they are all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Ports []MCPServerNetworkPort `json:"ports,omitempty"`
}

// MCPServerNetworkPort is a port, or a range of ports.
//
// +kubebuilder:validation:XValidation:rule="!has(self.endPort) || self.endPort >= self.port || self.endPort < 1 || self.port > 65535",fieldPath=".endPort",message="endPort must not be less than port: raise endPort, or leave it out for a single port"
type MCPServerNetworkPort struct {
	// protocol of the port: TCP, UDP or SCTP.
	// +optional
	// +kubebuilder:default=TCP
	Protocol MCPServerPortProtocol `json:"protocol,omitempty"`

	// port is the port, or the first one of a range (1 to 65535).
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// endPort is the last port of a range (1 to 65535). Left out, it is a single
	// port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	EndPort *int32 `json:"endPort,omitempty"`
}

// MCPServerHTTPRoute becomes an HTTPRoute of the Gateway API.
type MCPServerHTTPRoute struct {
	// parentRefs are the Gateways that serve the route.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(ref, self.exists_one(other, other.name == ref.name && has(other.__namespace__) == has(ref.__namespace__) && (!has(ref.__namespace__) || other.__namespace__ == ref.__namespace__) && has(other.sectionName) == has(ref.sectionName) && (!has(ref.sectionName) || other.sectionName == ref.sectionName)))",message="parentRefs must not name the same listener twice: remove one of the two, or tell them apart by sectionName"
	ParentRefs []MCPServerParentRef `json:"parentRefs"`

	// hostnames are the DNS names to serve, without a scheme, port or wildcard.
	// The first one is that of status.externalEndpoint. Left out, they are those
	// of the Gateway's listener.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(host, host.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))",message="hostnames must be DNS names in lower case, without scheme, port, path or wildcard: write for example tools.example.com"
	Hostnames []string `json:"hostnames,omitempty"`

	// path is the prefix of the URL's path that leads to the server. If the
	// server's own path is not below it, the Gateway takes the prefix off:
	// /tools/mcp then leads to /mcp. With transport sse it has to be below it.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="path must start with '/': write for example /tools"
	Path string `json:"path,omitempty"`
}

// MCPServerParentRef names a Gateway, or a listener of one.
type MCPServerParentRef struct {
	// name of the Gateway.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a Gateway: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`

	// namespace of the Gateway. Left out, it is that of the MCPServer.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="namespace must be the name of a namespace: use lower-case letters, digits and '-', starting and ending with a letter or digit, or leave it out for that of the MCPServer"
	Namespace string `json:"namespace,omitempty"`

	// sectionName is the listener of the Gateway. Left out, they are all.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="sectionName must be the name of a listener: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or leave it out for all"
	SectionName string `json:"sectionName,omitempty"`
}

// MCPServerPodOverrides is a part of a PodTemplateSpec. Its JSON is that of an
// apply configuration of one.
type MCPServerPodOverrides struct {
	// metadata has labels and annotations for the pods.
	// +optional
	Metadata *MCPServerPodMetadata `json:"metadata,omitempty"`

	// spec is a part of a PodSpec. It is checked when the Deployment is applied,
	// and the condition DeploymentReady says what is wrong with it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec *runtime.RawExtension `json:"spec,omitempty"`
}

// MCPServerPodMetadata is what may be set of the metadata of a pod.
type MCPServerPodMetadata struct {
	// labels of the pods, beside those of Fixpoint.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, key in ['app.kubernetes.io/name', 'app.kubernetes.io/managed-by'] || key.startsWith('fixpoint.dev/'))",message="labels must neither be app.kubernetes.io/name or app.kubernetes.io/managed-by nor start with 'fixpoint.dev/', because those are Fixpoint's own: rename the label"
	Labels map[string]string `json:"labels,omitempty"`

	// annotations of the pods, beside those of Fixpoint.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, key.startsWith('fixpoint.dev/'))",message="annotations must not start with 'fixpoint.dev/', because those are Fixpoint's own: rename the annotation"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// MCPServerProtocol says how the server is asked whether it answers: after each
// rollout and then at an interval, one handshake of the Model Context Protocol
// with each pod that takes traffic.
//
// +kubebuilder:validation:XValidation:rule="![self.interval, self.timeout].all(text, text.size() > 0 && text.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$')) || duration(self.timeout) <= duration(self.interval) || duration(self.timeout) > duration('1h') || duration(self.interval) < duration('5s')",fieldPath=".timeout",message="timeout must not be more than interval: lower timeout or raise interval"
// +kubebuilder:validation:XValidation:rule="!has(self.caRef) || (has(self.tls) && self.tls)",fieldPath=".caRef",message="caRef is only used with tls: set tls to true if the server speaks TLS, or remove caRef"
type MCPServerProtocol struct {
	// disabled asks nothing. The server then counts as ready when its pods do,
	// and status.server stays empty.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// interval is how often each server is asked (5s to 1h). The moment is
	// varied a little.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="interval must be a duration from 5s to 1h, in hours, minutes and seconds: write for example 30s or 1m30s"
	Interval metav1.Duration `json:"interval,omitzero"`

	// timeout is how long the answer may take (1s to 1h, and not more than
	// interval).
	// +optional
	// +kubebuilder:default="5s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="timeout must be a duration from 1s to 1h, in hours, minutes and seconds: write for example 5s"
	Timeout metav1.Duration `json:"timeout,omitzero"`

	// tls says that the server itself speaks TLS on its port. Endpoint and
	// probes are then https. The certificate has to be for
	// <name>.<namespace>.svc.
	// +optional
	TLS bool `json:"tls,omitempty"`

	// caRef is where the certificates of the authorities are that the server's
	// certificate is checked against. Left out, they are those of the system.
	// +optional
	CARef *MCPServerCARef `json:"caRef,omitempty"`

	// credentialsSecretRef is a key of a Secret of the namespace that holds a
	// bearer token to ask with. Left out, it is asked without one.
	// +optional
	CredentialsSecretRef *MCPServerCredentialsSecretRef `json:"credentialsSecretRef,omitempty"`
}

// MCPServerCARef names the certificates of authorities, in PEM.
type MCPServerCARef struct {
	// kind of the object: ConfigMap or Secret.
	// +optional
	// +kubebuilder:default=ConfigMap
	Kind MCPServerCAKind `json:"kind,omitempty"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of an object of this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`

	// key in the object.
	// +optional
	// +kubebuilder:default=ca.crt
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="key must be a key of a ConfigMap or a Secret: use letters, digits, '-', '_' and '.', or leave it out for ca.crt"
	Key string `json:"key,omitempty"`
}

// MCPServerCredentialsSecretRef names a bearer token in a Secret.
type MCPServerCredentialsSecretRef struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be the name of a Secret of this namespace: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`

	// key in the Secret.
	// +optional
	// +kubebuilder:default=token
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="key must be a key of a Secret: use letters, digits, '-', '_' and '.', or leave it out for token"
	Key string `json:"key,omitempty"`
}

// MCPServerBridge limits the bridge that runs a child process for each session
// of a server of the transport stdio. The limits hold for each pod.
type MCPServerBridge struct {
	// maxSessions is how many sessions a pod may have (1 to 10000). A client
	// that wants one more is told to come again.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxSessions int32 `json:"maxSessions,omitempty"`

	// idleTimeout is after how long without a message a session is ended (1s to
	// 24h).
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="idleTimeout must be a duration from 1s to 24h, in hours, minutes and seconds: write for example 30m"
	IdleTimeout metav1.Duration `json:"idleTimeout,omitzero"`

	// maxMessageBytes is how long a message may be, in bytes, either way (1024
	// to 268435456).
	// +optional
	// +kubebuilder:default=4194304
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=268435456
	MaxMessageBytes int64 `json:"maxMessageBytes,omitempty"`

	// drainTimeout is how long running sessions may go on after the pod has been
	// told to end (1s to 24h). Together with drainSeconds it is not more than
	// terminationGracePeriodSeconds. Left out, it is what these two leave, less
	// two seconds.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != '' && self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}([.][0-9]{1,9})?s)?$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="drainTimeout must be a duration from 1s to 24h, in hours, minutes and seconds: write for example 25s"
	DrainTimeout metav1.Duration `json:"drainTimeout,omitzero"`
}

// MCPServerStatus is what was observed of an MCPServer. It is computed anew on
// every pass, and nothing is ever read back from it.
type MCPServerStatus struct {
	// observedGeneration is the metadata.generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase sums the MCPServer up in one word, for people.
	// +optional
	Phase MCPServerPhase `json:"phase,omitempty"`

	// conditions say how things stand: Ready over all, and one for each phase.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// endpoint is the URL that a client within the cluster connects to.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Endpoint string `json:"endpoint,omitempty"`

	// externalEndpoint is the URL that a client connects to through the HTTPRoute
	// or the Ingress. It is left out if there is neither, or if the URL does not
	// follow from them; the condition of the one that there is says why.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ExternalEndpoint string `json:"externalEndpoint,omitempty"`

	// replicas is the number of pods that there are.
	//
	// No omitempty here and below: zero is an answer, and it has to be stored
	// and shown like any other.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of pods that are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// selector finds the pods, as a label selector in its string form. An
	// autoscaler that targets the MCPServer reads it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Selector string `json:"selector,omitempty"`

	// server is what the server has told of itself when it was last asked. It is
	// left out until it has answered.
	// +optional
	Server *MCPServerInfo `json:"server,omitempty"`

	// askedVersions are the ReplicaSets whose pods took traffic when the condition
	// ProtocolReady was last decided by an answer, sorted. Pods of others have not
	// been asked yet.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	AskedVersions []string `json:"askedVersions,omitempty"`

	// drifts are the last changes, newest first, that somebody else made to
	// what the spec declares.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Drifts []AppServiceDrift `json:"drifts,omitempty"`
}

// MCPServerInfo is what a server tells of itself in the handshake, each text cut
// to its limit.
type MCPServerInfo struct {
	// name that the server gives itself.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`

	// version that the server gives itself.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// protocolVersion is the version of the Model Context Protocol that was
	// agreed on, for example 2025-11-25.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ProtocolVersion string `json:"protocolVersion,omitempty"`

	// capabilities are the names of what the server can do, sorted, for example
	// tools.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	Capabilities []string `json:"capabilities,omitempty"`

	// tools is how many tools the server lists.
	//
	// No omitempty here and below: zero is an answer.
	// +optional
	Tools int32 `json:"tools"`

	// prompts is how many prompts the server lists.
	// +optional
	Prompts int32 `json:"prompts"`

	// resources is how many resources the server lists.
	// +optional
	Resources int32 `json:"resources"`
}

// MCPServer runs a server of the Model Context Protocol: it becomes a
// Deployment, a Service and a ConfigMap, with a bridge for servers that speak on
// standard input and output. It is ready when a client that connects gets an
// answer. A change that somebody else makes is corrected, and the status says
// who made it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=mcpservers,singular=mcpserver,scope=Namespaced,shortName=mcp,categories=fixpoint
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether everything the spec declares exists and answers"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready, or is not"
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`,description="The URL that a client within the cluster connects to"
// +kubebuilder:printcolumn:name="Tools",type=integer,JSONPath=`.status.server.tools`,description="How many tools the server lists"
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.readyReplicas`,description="Pods that are ready"
// +kubebuilder:printcolumn:name="Transport",type=string,priority=1,JSONPath=`.spec.transport`,description="How the server speaks"
// +kubebuilder:printcolumn:name="External",type=string,priority=1,JSONPath=`.status.externalEndpoint`,description="The URL that a client outside of the cluster connects to"
// +kubebuilder:printcolumn:name="Phase",type=string,priority=1,JSONPath=`.status.phase`,description="One word for people"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.image`,description="The image that is declared"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 57 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name names the Service too and must be at most 57 lower-case letters, digits and '-', starting with a letter and ending with a letter or digit: choose such a name"
type MCPServer struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec declares the server.
	// +required
	Spec MCPServerSpec `json:"spec"`

	// status is what was observed. Only the controller writes it.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status MCPServerStatus `json:"status,omitzero"`
}

// MCPServerList is a list of MCPServers.
//
// +kubebuilder:object:root=true
type MCPServerList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard metadata of a list.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the MCPServers.
	Items []MCPServer `json:"items"`
}
