package mcpserver

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Phases is the order in which an MCPServer comes about. It is torn down in reverse.
//
//	Dependencies      everything that the spec names and does not make is there
//	ServiceAccount    as whom the pods run, if the server is to have an account of its own
//	Config            the ConfigMap with the files
//	Service           the name under which the pods are reached
//	Deployment        the pods; waits until they run what the spec declares, or old ones still serve
//	Autoscaling       who decides how many pods there are, if the spec does not
//	DisruptionBudget  how many pods the cluster may take away at a time
//	NetworkPolicy     who may connect to the pods, and whereto they may
//	Ingress, Route    the way in from outside
//	Protocol          the server answers in its protocol, from every pod that takes traffic
func Phases() []phases.Phase[*scope] {
	return []phases.Phase[*scope]{
		dependencies,
		serviceAccount,
		config,
		service,
		deployment,
		autoscaling,
		disruptionBudget,
		networkPolicy,
		ingress,
		route,
		protocol,
	}
}

// scope is what one reconcile knows. Phases read server, and add what they find.
type scope struct {
	// server is the MCPServer, as it was read.
	server *v1alpha1.MCPServer
	// reader reads from the cache, uncached past it.
	reader, uncached client.Reader
	ingressClasses   workload.IngressClasses
	references       *references.Reader
	keys             *keyReader
	gateways         gatewayReader
	prober           Prober
	settings         Settings
	clock            clock.PassiveClock

	// dependencies is a hash of the data that pods take from Secrets and ConfigMaps; empty if they
	// take none.
	dependencies string
	// deployment is the live Deployment, if there is one.
	deployment *appsv1.Deployment
	// answer is what the protocol's probe has found, and asked the versions of the pods that were
	// judged by it.
	answer *prober.Result
	asked  []string
}

// Prober is what the controller needs of [prober.Prober].
type Prober interface {
	Set(key client.ObjectKey, target prober.Target)
	Forget(key client.ObjectKey)
	Result(key client.ObjectKey) (prober.Result, bool)
}

// Settings are what a manager sets for all MCPServers.
type Settings struct {
	// BridgeImage is the image that brings the bridge for stdio servers.
	BridgeImage string
	// ManagerNamespace is where the manager's own pods are, which ask the servers, and ManagerLabels
	// tell them from others there. Network policies let them in. Unknown if it is empty.
	ManagerNamespace string
	ManagerLabels    map[string]string
}

// done is for children that are ready when they exist.
func done[L any](message string) func(L) phases.Verdict {
	return func(L) phases.Verdict { return phases.Done(message) }
}

// desired turns a pure function of the MCPServer into one of the scope.
func desired[C any](build func(*v1alpha1.MCPServer) C) func(*scope) (C, error) {
	return func(s *scope) (C, error) { return build(s.server), nil }
}
