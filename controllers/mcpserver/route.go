package mcpserver

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// ingress is the way in from outside through an Ingress.
var ingress = phases.Child[*scope, *networkingv1ac.IngressApplyConfiguration, *networkingv1.Ingress]{
	Name:    "Ingress",
	Desired: desired(desiredIngress),
	Absent:  "spec.ingress is not set",
	Requires: func(ctx context.Context, s *scope) (phases.Verdict, error) {
		return workload.IngressClassExists(ctx, s.reader, s.server.Spec.Ingress.IngressClassName)
	},
	Ready: done[*networkingv1.Ingress]("the Ingress leads to the Service"),
}

func desiredIngress(server *v1alpha1.MCPServer) *networkingv1ac.IngressApplyConfiguration {
	if server.Spec.Ingress == nil {
		return nil
	}
	return workload.Ingress(server.Name, server.Namespace, portName, *server.Spec.Ingress).WithLabels(labelsOf(server))
}

// route is the way in from outside through a Gateway.
var route = phases.Child[*scope, *gatewayac.HTTPRouteApplyConfiguration, *gatewayv1.HTTPRoute]{
	Name:    "Route",
	Desired: desired(desiredRoute),
	Absent:  "spec.httpRoute is not set",
	Ready:   routeReady,
}

func desiredRoute(server *v1alpha1.MCPServer) *gatewayac.HTTPRouteApplyConfiguration {
	in := server.Spec.HTTPRoute
	if in == nil {
		return nil
	}
	path := in.Path
	if path == "" {
		path = "/"
	}
	spec := gatewayac.HTTPRouteSpec().WithRules(gatewayac.HTTPRouteRule().
		WithMatches(gatewayac.HTTPRouteMatch().WithPath(gatewayac.HTTPPathMatch().WithType(gatewayv1.PathMatchPathPrefix).WithValue(path))).
		WithBackendRefs(gatewayac.HTTPBackendRef().
			WithName(gatewayv1.ObjectName(server.Name)).
			WithPort(server.Spec.Port)))
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

// routeReady: a Gateway that has not answered may have no controller; one that refuses says so.
func routeReady(r *gatewayv1.HTTPRoute) phases.Verdict {
	for _, parent := range r.Status.Parents {
		accepted := meta.FindStatusCondition(parent.Conditions, string(gatewayv1.RouteConditionAccepted))
		if accepted != nil && accepted.Status == "False" && accepted.ObservedGeneration >= r.Generation {
			return phases.Stalled(v1alpha1.ReasonRouteRejected, "Gateway "+string(parent.ParentRef.Name)+" does not take the HTTPRoute: "+accepted.Message+"; correct spec.httpRoute, or the Gateway's listener")
		}
	}
	return phases.Done("the HTTPRoute leads to the Service")
}
