package mcpserver

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Phases lists the phases of an MCPServer in order. Teardown runs in reverse.
//
//	Dependencies      all objects that the spec refers to exist
//	ServiceAccount    the ServiceAccount of the pods, with spec.serviceAccount.create
//	Config            the ConfigMap with spec.files
//	SessionKeys       the Secret with the keys that the pods share, with spec.sessionRouting
//	Service           the Service in front of the pods
//	NetworkPolicy     the NetworkPolicy of the pods; it exists before them, and is deleted after them
//	Deployment        the pods; ready when rolled out, or while enough old pods serve
//	Autoscaling       the HorizontalPodAutoscaler
//	DisruptionBudget  the PodDisruptionBudget
//	Ingress, Route    access from outside the cluster
//	StoredContract    the ConfigMap with the contracts in full
//	Contract          pods whose contract is not approved take no traffic, with spec.contract.policy Pin
//	Protocol          MCP handshakes succeed on all serving pods
func Phases() []phases.Phase[*scope] {
	return []phases.Phase[*scope]{
		dependencies,
		serviceAccount,
		config,
		sessionKeys,
		service,
		networkPolicy,
		deployment,
		autoscaling,
		disruptionBudget,
		ingress,
		route,
		storedContract,
		pinnedContract,
		protocol,
	}
}

// scope carries the data of one reconcile. Phases read server and store what they observe.
type scope struct {
	// server is the MCPServer as read at the start of the reconcile.
	server *v1beta1.MCPServer
	readers
	// reader reads from the cache, uncached from the API server.
	reader, uncached client.Reader
	ingressClasses   workload.IngressClasses
	prober           Prober
	settings         Settings
	clock            clock.PassiveClock

	// dependencies is the declared hash of the data that pods use from Secrets and ConfigMaps; empty if they
	// use none.
	dependencies string
	// sessionKeys are the keys that the pods should share; zero before they are read.
	sessionKeys keysOfSessions
	// deployment is the live Deployment, or nil.
	deployment *appsv1.Deployment
	// probed is the result of the prober, and probedVersions are the versions of the pods that it
	// covers.
	probed         *prober.Result
	probedVersions []string
	// pinned is what has been decided about the contracts of pods; nil before that, and if they are not pinned.
	pinned *pinned
	// storedContract is the data of the ConfigMap with the contracts; nil before they are read.
	storedContract map[string]string
}

// Prober is the part of [prober.Prober] that the controller uses.
type Prober interface {
	Set(key client.ObjectKey, target prober.Target)
	Forget(key client.ObjectKey)
	Result(key client.ObjectKey) (prober.Result, bool)
	ContractText(digest string) string
}

// Settings apply to all MCPServers of a manager.
type Settings struct {
	// BridgeImage is the image with the bridge for stdio servers, which is also the proxy that checks tokens.
	BridgeImage string
	// ManagerNamespace and ManagerLabels select the pods of the manager, which network policies admit
	// because they probe the servers. Without labels the whole namespace is admitted; an empty namespace
	// is unknown.
	ManagerNamespace string
	ManagerLabels    map[string]string
	// ManagerAccount is the ServiceAccount of the manager, which pods must not use; empty if it has none.
	ManagerAccount types.NamespacedName
	// PodOverrides is what the installation permits in pods. The zero value is OverridesRestricted.
	PodOverrides OverridesPolicy
}

// desired adapts a function of the MCPServer to the scope.
func desired[C any](build func(*v1beta1.MCPServer) C) func(*scope) (C, error) {
	return func(s *scope) (C, error) { return build(s.server), nil }
}
