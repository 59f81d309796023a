package appservice

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func deploymentWith(replicas, ready int32) *appsv1.Deployment {
	return &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: replicas, ReadyReplicas: ready}}
}

func TestURLOf(t *testing.T) {
	cases := map[string]struct {
		ingress *v1beta1.Ingress
		want    string
	}{
		"within the cluster": {nil, "http://web.shop.svc:8080"},
		"HTTP":               {&v1beta1.Ingress{Host: "shop.example.com", Path: "/"}, "http://shop.example.com"},
		"HTTPS":              {&v1beta1.Ingress{Host: "shop.example.com", Path: "/", TLSSecretName: "tls"}, "https://shop.example.com"},
		"with a path":        {&v1beta1.Ingress{Host: "example.com", Path: "/shop/"}, "http://example.com/shop"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			app := webApp(func(spec *v1beta1.AppServiceSpec) { spec.Ingress = c.ingress })
			NewWithT(t).Expect(urlOf(app)).To(Equal(c.want))
		})
	}
}

// earlier and later are times of reconciles; a status stores whole seconds.
var (
	earlier = metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	later   = metav1.NewTime(earlier.Add(time.Hour))
)

func scaledAt(at metav1.Time, action v1beta1.DriftAction) v1beta1.Drift {
	return v1beta1.Drift{
		Time: at, Kind: "Deployment", Name: "web", Field: ".spec.replicas", Manager: "kubectl", Desired: "3", Found: "7", Action: action,
	}
}

func TestDesiredStatus(t *testing.T) {
	ready := []metav1.Condition{{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady,
		Message: "all phases are done", ObservedGeneration: 3, LastTransitionTime: earlier,
	}}
	cases := map[string]struct {
		deployment *appsv1.Deployment
		before     v1beta1.AppServiceStatus
		change     func(*v1beta1.AppService)
		summary    phases.Summary
		want       string
	}{
		// Zero is written explicitly: an absent field would read as "unknown".
		"no Deployment yet": {nil, v1beta1.AppServiceStatus{}, nil, phases.Summary{ObservedGeneration: 3, ReadyReason: v1beta1.ReasonFailed, Now: later}, `
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: web, namespace: shop}
status:
  observedGeneration: 3
  phase: Provisioning
  replicas: 0
  readyReplicas: 0
  selector: app.kubernetes.io/name=web
  url: http://web.shop.svc:8080
`},
		"running, with recorded drifts": {deploymentWith(3, 2), v1beta1.AppServiceStatus{Drifts: []v1beta1.Drift{
			scaledAt(earlier, v1beta1.DriftCorrected),
			{Time: earlier, Kind: "Service", Name: "web", Action: v1beta1.DriftCorrected},
		}}, nil,
			phases.Summary{ObservedGeneration: 3, Conditions: ready, Ready: true, ReadyReason: v1beta1.ReasonReady, Now: later}, `
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: web, namespace: shop}
status:
  observedGeneration: 3
  phase: Running
  replicas: 3
  readyReplicas: 2
  selector: app.kubernetes.io/name=web
  url: http://web.shop.svc:8080
  conditions:
  - {type: Ready, status: "True", reason: Ready, message: all phases are done, observedGeneration: 3, lastTransitionTime: "2026-05-01T12:00:00Z"}
  drifts:
  - {time: "2026-05-01T12:00:00Z", kind: Deployment, name: web, field: .spec.replicas, manager: kubectl, desired: "3", found: "7", action: Corrected}
  - {time: "2026-05-01T12:00:00Z", kind: Service, name: web, action: Corrected}
`},
		"a requested reconcile": {nil, v1beta1.AppServiceStatus{}, func(app *v1beta1.AppService) {
			app.Annotations = map[string]string{v1beta1.AnnotationReconcileRequest: "today"}
		}, phases.Summary{ObservedGeneration: 3, Now: later}, `
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: web, namespace: shop}
status:
  observedGeneration: 3
  phase: Provisioning
  replicas: 0
  readyReplicas: 0
  selector: app.kubernetes.io/name=web
  url: http://web.shop.svc:8080
  lastHandledReconcileAt: today
`},
		// What is known of the hook must not be lost: a version that has succeeded would run again.
		"the hook was not observed, and no drifts are kept": {nil, v1beta1.AppServiceStatus{
			Drifts: []v1beta1.Drift{scaledAt(earlier, v1beta1.DriftCorrected)},
			Hooks: &v1beta1.AppServiceHooksStatus{PreDeploy: &v1beta1.AppServiceHookStatus{
				Version: "0f3e7d9e23", Phase: v1beta1.PhaseSucceeded, SucceededVersions: []string{"0f3e7d9e23", "abc"},
			}},
		}, func(app *v1beta1.AppService) { app.Spec.DriftHistoryLimit = ptr.To[int32](0) }, phases.Summary{ObservedGeneration: 3, Now: later}, `
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: web, namespace: shop}
status:
  observedGeneration: 3
  phase: Provisioning
  replicas: 0
  readyReplicas: 0
  selector: app.kubernetes.io/name=web
  url: http://web.shop.svc:8080
  hooks: {preDeploy: {version: 0f3e7d9e23, phase: Succeeded, succeededVersions: [0f3e7d9e23, abc]}}
`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			app := webApp()
			if c.change != nil {
				c.change(app)
			}
			app.Status = c.before
			desired := desiredStatus(&scope{app: app, deployment: c.deployment}, c.summary)
			NewWithT(t).Expect(asJSON(t, desired)).To(MatchYAML(c.want))
		})
	}
}
