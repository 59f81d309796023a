package workload

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Ingress leads to the Service of the same name, at the port of the name.
func Ingress(name, namespace, port string, in v1alpha1.AppServiceIngress) *networkingv1ac.IngressApplyConfiguration {
	path := networkingv1ac.HTTPIngressPath().
		WithPath(in.Path).
		WithPathType(networkingv1.PathTypePrefix).
		WithBackend(networkingv1ac.IngressBackend().WithService(networkingv1ac.IngressServiceBackend().
			WithName(name).WithPort(networkingv1ac.ServiceBackendPort().WithName(port))))
	spec := networkingv1ac.IngressSpec().WithRules(networkingv1ac.IngressRule().
		WithHost(in.Host).
		WithHTTP(networkingv1ac.HTTPIngressRuleValue().WithPaths(path)))
	if in.IngressClassName != nil {
		spec.WithIngressClassName(*in.IngressClassName)
	}
	if in.TLSSecretName != "" {
		spec.WithTLS(networkingv1ac.IngressTLS().WithHosts(in.Host).WithSecretName(in.TLSSecretName))
	}
	desired := networkingv1ac.Ingress(name, namespace).WithSpec(spec)
	if len(in.Annotations) > 0 {
		desired.WithAnnotations(in.Annotations)
	}
	return desired
}

// IngressClassExists looks for the class that is asked for, or for a default one. Without a reader
// the classes cannot be seen, and one is taken to be there.
func IngressClassExists(ctx context.Context, reader client.Reader, wanted *string) (phases.Verdict, error) {
	if reader == nil {
		return phases.Done(""), nil
	}
	var classes networkingv1.IngressClassList
	if err := reader.List(ctx, &classes); err != nil {
		return phases.Verdict{}, fmt.Errorf("listing ingress classes: %w", err)
	}
	return judgeIngressClass(wanted, classes.Items), nil
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
