package appservice

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// ingress is the Ingress from spec.ingress.
var ingress = phases.Child[*scope, *networkingv1ac.IngressApplyConfiguration, *networkingv1.Ingress]{
	Name:    "Ingress",
	Desired: func(s *scope) (*networkingv1ac.IngressApplyConfiguration, error) { return desiredIngress(s.app), nil },
	Absent:  "spec.ingress is not set",
	Requires: func(ctx context.Context, s *scope) (phases.Verdict, error) {
		return workload.IngressClassExists(ctx, s.ingressClasses, s.app.Spec.Ingress.IngressClassName)
	},
	// An ingress controller need not publish an address, so there is nothing to wait for.
	Ready: func(*networkingv1.Ingress) phases.Verdict { return phases.Done("the Ingress leads to the Service") },
}

func desiredIngress(app *v1alpha1.AppService) *networkingv1ac.IngressApplyConfiguration {
	if app.Spec.Ingress == nil {
		return nil
	}
	return workload.Ingress(app.Name, app.Namespace, portName, *app.Spec.Ingress).WithLabels(labelsOf(app))
}
