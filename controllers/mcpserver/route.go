package mcpserver

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// ingress is the Ingress in front of the Service.
var ingress = phases.Child[*scope, *networkingv1ac.IngressApplyConfiguration, *networkingv1.Ingress]{
	Name: "Ingress",
	Desired: func(s *scope) (*networkingv1ac.IngressApplyConfiguration, error) {
		return desiredIngress(s.server, s.ingressClasses)
	},
	Requires: func(ctx context.Context, s *scope) (phases.Verdict, error) {
		return s.ingressClasses.Exist(ctx, *s.server.Spec.Ingress)
	},
	Health: workload.IngressReady,
	Ready: func(ctx context.Context, s *scope, live *networkingv1.Ingress) phases.Verdict {
		applied := explainMissingURL(s, workload.IngressReady(live))
		return s.references.Certificate(ctx, s.server.Namespace, s.server.Spec.Ingress, applied)
	},
}

func desiredIngress(server *v1beta1.MCPServer, classes workload.IngressClasses) (*networkingv1ac.IngressApplyConfiguration, error) {
	if server.Spec.Ingress == nil {
		return nil, nil
	}
	class, err := classes.Of(*server.Spec.Ingress)
	if err != nil {
		return nil, err
	}
	desired := workload.Ingress(server.Name, server.Namespace, portName, *server.Spec.Ingress, class).WithLabels(labelsOf(server))
	if path := metadataPath(server, server.Spec.Ingress.Path); path != "" {
		http := desired.Spec.Rules[0].HTTP
		http.WithPaths(networkingv1ac.HTTPIngressPath().WithPath(path).WithPathType(networkingv1.PathTypeExact).WithBackend(http.Paths[0].Backend))
	}
	return desired, nil
}

// route is the HTTPRoute from Gateways to the Service.
var route = phases.Child[*scope, *gatewayac.HTTPRouteApplyConfiguration, *gatewayv1.HTTPRoute]{
	Name:    "Route",
	Desired: desired(desiredRoute),
	Requires: func(_ context.Context, s *scope) (phases.Verdict, error) {
		if s.gateways.isServed() {
			return phases.Done(""), nil
		}
		if err := s.gateways.denied(); err != nil {
			return phases.Wait(v1beta1.ReasonForbidden, err.Error()+"; grant the manager's service account this permission: "+
				"the role fixpoint-manager-mcpserver-role has it", 0).AsWarning(), nil
		}
		install := "install the Gateway API"
		if !s.gateways.isWatched() {
			install = "install the Gateway API and restart the manager"
		}
		return phases.Stalled(v1beta1.ReasonKindMissing,
			"the API server does not serve HTTPRoute (gateway.networking.k8s.io/v1); "+install+", or remove spec.httpRoute"), nil
	},
	Health: routeReady,
	Ready: func(_ context.Context, s *scope, live *gatewayv1.HTTPRoute) phases.Verdict {
		return explainMissingURL(s, routeReady(live))
	},
}

// gatewayReader reads the Gateway API of the cluster.
type gatewayReader interface {
	// isServed reports whether the API server serves the Gateway API.
	isServed() bool
	// isWatched reports whether the manager has cluster-wide permissions: it then detects the installation
	// and removal of the API, and reads Gateways.
	isWatched() bool
	// denied is the error of a permission that the manager lacks to watch the API; nil if it lacks none.
	denied() error
	// gateway returns a Gateway, or nil if it does not exist.
	gateway(namespace, name string) *gatewayv1.Gateway
	// route returns an HTTPRoute, or nil if it does not exist.
	route(namespace, name string) *gatewayv1.HTTPRoute
}

// explainMissingURL adds to the message why status.externalEndpoint is empty.
func explainMissingURL(s *scope, verdict phases.Verdict) phases.Verdict {
	if _, why := externalEndpoint(s); why != "" && verdict.IsDone() {
		return verdict.WithMessage(verdict.Message() + "; " + why)
	}
	return verdict
}

func desiredRoute(server *v1beta1.MCPServer) *gatewayac.HTTPRouteApplyConfiguration {
	in := server.Spec.HTTPRoute
	if in == nil {
		return nil
	}
	path := in.Path
	if path == "" {
		path = "/"
	}
	rule := gatewayac.HTTPRouteRule().
		WithMatches(gatewayac.HTTPRouteMatch().WithPath(gatewayac.HTTPPathMatch().WithType(gatewayv1.PathMatchPathPrefix).WithValue(path))).
		WithBackendRefs(gatewayac.HTTPBackendRef().
			WithName(gatewayv1.ObjectName(server.Name)).
			WithPort(server.Spec.Port))
	if stripsPrefix(server) {
		rule.WithFilters(gatewayac.HTTPRouteFilter().WithType(gatewayv1.HTTPRouteFilterURLRewrite).
			WithURLRewrite(gatewayac.HTTPURLRewriteFilter().WithPath(gatewayac.HTTPPathModifier().
				WithType(gatewayv1.PrefixMatchHTTPPathModifier).WithReplacePrefixMatch("/"))))
	}
	spec := gatewayac.HTTPRouteSpec().WithRules(rule)
	if metadata := metadataPath(server, path); metadata != "" {
		spec.WithRules(gatewayac.HTTPRouteRule().
			WithMatches(gatewayac.HTTPRouteMatch().WithPath(gatewayac.HTTPPathMatch().WithType(gatewayv1.PathMatchExact).WithValue(metadata))).
			WithBackendRefs(gatewayac.HTTPBackendRef().WithName(gatewayv1.ObjectName(server.Name)).WithPort(server.Spec.Port)))
	}
	for _, parent := range in.ParentRefs {
		reference := gatewayac.ParentReference().WithName(gatewayv1.ObjectName(parent.Name))
		if parent.Namespace != "" {
			reference.WithNamespace(gatewayv1.Namespace(parent.Namespace))
		}
		if parent.SectionName != "" {
			reference.WithSectionName(gatewayv1.SectionName(parent.SectionName))
		}
		spec.WithParentRefs(reference)
	}
	for _, hostname := range in.Hostnames {
		spec.WithHostnames(gatewayv1.Hostname(hostname))
	}
	return gatewayac.HTTPRoute(server.Name, server.Namespace).WithLabels(labelsOf(server)).WithSpec(spec)
}

// routeReady is Done unless a Gateway rejects the route. It does not wait for Gateways to accept it.
func routeReady(r *gatewayv1.HTTPRoute) phases.Verdict {
	for _, parent := range r.Status.Parents {
		for _, wanted := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
			c := meta.FindStatusCondition(parent.Conditions, string(wanted))
			if c != nil && c.Status == "False" && c.ObservedGeneration >= r.Generation {
				return phases.Stalled(v1beta1.ReasonRouteRejected, "Gateway "+string(parent.ParentRef.Name)+" rejected the HTTPRoute: "+c.Message+"; correct spec.httpRoute or the listener of the Gateway")
			}
		}
	}
	return phases.Done("HTTPRoute applied")
}
