package appservice

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// ingress is the Ingress from spec.ingress.
var ingress = phases.Child[*scope, *networkingv1ac.IngressApplyConfiguration, *networkingv1.Ingress]{
	Name:     "Ingress",
	Desired:  func(s *scope) (*networkingv1ac.IngressApplyConfiguration, error) { return desiredIngress(s.app), nil },
	Absent:   "spec.ingress is not set",
	Requires: ingressClassExists,
	// An ingress controller need not publish an address, so there is nothing to wait for.
	Ready: func(*networkingv1.Ingress) phases.Verdict { return phases.Done("the Ingress leads to the Service") },
}

func desiredIngress(app *v1alpha1.AppService) *networkingv1ac.IngressApplyConfiguration {
	in := app.Spec.Ingress
	if in == nil {
		return nil
	}
	path := networkingv1ac.HTTPIngressPath().
		WithPath(in.Path).
		WithPathType(networkingv1.PathTypePrefix).
		WithBackend(networkingv1ac.IngressBackend().WithService(networkingv1ac.IngressServiceBackend().
			WithName(app.Name).WithPort(networkingv1ac.ServiceBackendPort().WithName(portName))))
	spec := networkingv1ac.IngressSpec().WithRules(networkingv1ac.IngressRule().
		WithHost(in.Host).
		WithHTTP(networkingv1ac.HTTPIngressRuleValue().WithPaths(path)))
	if in.IngressClassName != nil {
		spec.WithIngressClassName(*in.IngressClassName)
	}
	if in.TLSSecretName != "" {
		spec.WithTLS(networkingv1ac.IngressTLS().WithHosts(in.Host).WithSecretName(in.TLSSecretName))
	}
	desired := networkingv1ac.Ingress(app.Name, app.Namespace).WithLabels(labelsOf(app)).WithSpec(spec)
	if len(in.Annotations) > 0 {
		desired.WithAnnotations(in.Annotations)
	}
	return desired
}

// ingressClassExists looks for the class that is asked for, or for a default one.
func ingressClassExists(ctx context.Context, s *scope) (phases.Verdict, error) {
	var classes networkingv1.IngressClassList
	if err := s.reader.List(ctx, &classes); err != nil {
		return phases.Verdict{}, fmt.Errorf("listing ingress classes: %w", err)
	}
	return judgeIngressClass(s.app.Spec.Ingress.IngressClassName, classes.Items), nil
}

func judgeIngressClass(wanted *string, classes []networkingv1.IngressClass) phases.Verdict {
	for _, class := range classes {
		if wanted != nil && class.Name == *wanted {
			return phases.Done("")
		}
		if wanted == nil && class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			return phases.Done("")
		}
	}
	if wanted == nil {
		return phases.Stalled(v1alpha1.ReasonIngressClassMissing,
			"the cluster has no default IngressClass; name one in spec.ingress.ingressClassName, or install an ingress controller")
	}
	return phases.Stalled(v1alpha1.ReasonIngressClassMissing, fmt.Sprintf(
		"IngressClass %s does not exist; correct spec.ingress.ingressClassName, or install the ingress controller that brings it", *wanted))
}
