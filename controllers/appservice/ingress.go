package appservice

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// ingress is the Ingress from spec.ingress.
var ingress = phases.Child[*scope, *networkingv1ac.IngressApplyConfiguration, *networkingv1.Ingress]{
	Name: "Ingress",
	Desired: func(s *scope) (*networkingv1ac.IngressApplyConfiguration, error) {
		return desiredIngress(s.app, s.ingressClasses)
	},
	Requires: func(ctx context.Context, s *scope) (phases.Verdict, error) {
		return s.ingressClasses.Exist(ctx, *s.app.Spec.Ingress)
	},
	Health: workload.IngressReady,
	Ready: func(ctx context.Context, s *scope, live *networkingv1.Ingress) phases.Verdict {
		return s.references.Certificate(ctx, s.app.Namespace, s.app.Spec.Ingress, workload.IngressReady(live))
	},
}

func desiredIngress(app *v1beta1.AppService, classes workload.IngressClasses) (*networkingv1ac.IngressApplyConfiguration, error) {
	if app.Spec.Ingress == nil {
		return nil, nil
	}
	class, err := classes.Of(*app.Spec.Ingress)
	if err != nil {
		return nil, err
	}
	return workload.Ingress(app.Name, app.Namespace, portName, *app.Spec.Ingress, class).WithLabels(labelsOf(app)), nil
}
