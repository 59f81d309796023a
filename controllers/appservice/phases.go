package appservice

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Phases lists the phases of an AppService in order. Teardown runs in reverse order.
//
//	Dependencies      all objects that the spec refers to exist
//	Config            the ConfigMap with spec.config
//	Service           the Service for the pods
//	PreDeploy         the Job that must succeed before the Deployment changes
//	Deployment        the Deployment; ready when its rollout is complete
//	Autoscaling       the HorizontalPodAutoscaler that sets the number of replicas
//	DisruptionBudget  the PodDisruptionBudget that limits evictions
//	Ingress           the Ingress, applied once the Deployment serves
func Phases() []phases.Phase[*scope] {
	return []phases.Phase[*scope]{
		dependencies,
		config,
		service,
		preDeploy{},
		deployment,
		autoscaling,
		disruptionBudget,
		ingress,
	}
}

// scope is the data of one reconcile. Phases read app, and record what they observe.
type scope struct {
	// app is the AppService as read from the cache.
	app *v1beta1.AppService
	// references resolves what the spec refers to.
	references *references.Reader
	// uncached reads from the API server.
	uncached       client.Reader
	ingressClasses workload.IngressClasses
	clock          clock.PassiveClock
	// managerAccount is the ServiceAccount of the manager, which pods must not use; empty if it has none.
	managerAccount types.NamespacedName
	// deployment is the live Deployment; nil if it does not exist.
	deployment *appsv1.Deployment
	// hook is what was observed of spec.hooks.preDeploy; nil if nothing was.
	hook *hook
}
