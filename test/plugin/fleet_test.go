package plugin_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
)

// fleetSize is 1,000, or what FIXPOINT_PLUGIN_FLEET says.
func fleetSize(t *testing.T) int {
	t.Helper()
	text, given := os.LookupEnv("FIXPOINT_PLUGIN_FLEET")
	if !given {
		return 1000
	}
	count, err := strconv.Atoi(text)
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), "FIXPOINT_PLUGIN_FLEET is %q: set a number of objects", text)
	return count
}

// createFleet creates AppServices that no manager reconciles, with statuses as a manager writes them: one of ten is not
// Ready, and each has a drift.
func (w *fixture) createFleet(count int) {
	w.T.Helper()
	group, ctx := errgroup.WithContext(w.Ctx)
	const writers = 16
	group.SetLimit(writers)
	for i := range count {
		group.Go(func() error {
			name := fmt.Sprintf("app-%05d", i)
			app := &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Namespace}}
			app.Spec = v1beta1.AppServiceSpec{Image: image, Config: map[string]string{"COLOR": "green"}}
			if err := api.Create(ctx, app); err != nil {
				return err
			}
			return api.Status().Apply(ctx, fleetStatus(name, w.Namespace, i), client.FieldOwner("fixpoint-appservice"), client.ForceOwnership)
		})
	}
	w.Expect(group.Wait()).To(Succeed())
}

func fleetStatus(name, namespace string, i int) *fixpointac.AppServiceApplyConfiguration {
	ready, reason := metav1.ConditionTrue, v1beta1.ReasonReady
	if i%10 == 0 {
		ready, reason = metav1.ConditionFalse, v1beta1.ReasonPodsFailing
	}
	status := fixpointac.AppServiceStatus().WithObservedGeneration(1).WithPhase(v1beta1.PhaseRunning).WithReplicas(2).WithReadyReplicas(2)
	for _, conditionType := range []string{v1beta1.ConditionReady, v1beta1.ConditionConfigReady, v1beta1.ConditionServiceReady, v1beta1.ConditionDeploymentReady} {
		status.WithConditions(metav1ac.Condition().WithType(conditionType).WithStatus(ready).WithReason(reason).
			WithMessage("all pods are updated and available").WithObservedGeneration(1).WithLastTransitionTime(metav1.Now()))
	}
	status.WithDrifts(fixpointac.Drift().WithTime(metav1.Now()).WithKind("Deployment").WithName(name).
		WithField(".spec.replicas").WithManager("kubectl").WithDesired("2").WithFound("5").WithAction(v1beta1.DriftCorrected))
	return fixpointac.AppService(name, namespace).WithStatus(status)
}
