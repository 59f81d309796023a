package appservice

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Phases is the order in which an AppService comes about. It is torn down in reverse.
//
//	Config            the ConfigMap that the pods read when they start
//	Service           the name under which the pods are reached
//	Deployment        the pods; waits until all run what the spec declares
//	Autoscaling       who decides how many pods there are, if the spec does not
//	DisruptionBudget  how many pods the cluster may take away at a time
//	Ingress           the way in from outside, once something answers there
func Phases() []phases.Phase[*scope] {
	return []phases.Phase[*scope]{
		config,
		service,
		deployment,
		autoscaling,
		disruptionBudget,
		ingress,
	}
}

// scope is what one reconcile knows. Phases read app, and add what they find.
type scope struct {
	// app is the AppService, as it was read.
	app *v1alpha1.AppService
	// reader reads from the cache, uncached past it.
	reader, uncached client.Reader
	ingressClasses   workload.IngressClasses
	clock            clock.PassiveClock
	// deployment is the live Deployment, if there is one.
	deployment *appsv1.Deployment
}
