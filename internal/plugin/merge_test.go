package plugin

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// The manager hands spec.replicas over before it applies: a dry run of the apply alone would remove the field.
func TestPlanOfTwoWritesShowsTheResultOfBoth(t *testing.T) {
	for name, mayUpdate := range map[string]bool{"who may update the object": true, "who may not": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := ssatest.NewServer(scheme, ssatest.Options{Intercept: func(call ssatest.Call) error {
				if call.Verb == "update" && !mayUpdate {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, call.Key.Name, nil)
				}
				return nil
			}})
			applier, err := ssa.New(ssa.Options{Client: server, FieldManager: "fixpoint-appservice"})
			g.Expect(err).NotTo(HaveOccurred())
			desired := func(spec *appsv1ac.DeploymentSpecApplyConfiguration) ssa.Request {
				return ssa.Request{Desired: appsv1ac.Deployment("web", "shop").WithSpec(spec), HandOver: []string{"spec.replicas"}}
			}
			applied, err := applier.Apply(t.Context(), desired(appsv1ac.DeploymentSpec().WithReplicas(3).WithMinReadySeconds(1)))
			g.Expect(err).NotTo(HaveOccurred())
			request := desired(appsv1ac.DeploymentSpec().WithMinReadySeconds(2))
			request.Live = applied.Live
			decision, err := applier.Decide(request)
			g.Expect(err).NotTo(HaveOccurred())
			r := &recorder{Applier: applier.DryRun(), api: server, fieldManager: "fixpoint-appservice"}

			planned, err := r.Execute(t.Context(), decision)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(planned.Live.GetGeneration()).To(Equal(applied.Live.GetGeneration() + 1))
			g.Expect(r.executed).To(HaveLen(1))
			g.Expect(r.executed[0].estimated).To(Equal(!mayUpdate))
			lines, err := printed(r.executed[0].before, r.executed[0].after)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(lines).To(Equal([]string{"~ spec.minReadySeconds: 1 -> 2"}))
			var live appsv1.Deployment
			g.Expect(server.Get(t.Context(), client.ObjectKeyFromObject(applied.Live), &live)).To(Succeed())
			g.Expect(live.Spec.MinReadySeconds).To(BeEquivalentTo(1), "nothing is written")
			result, err := applier.Execute(t.Context(), decision)
			g.Expect(err).NotTo(HaveOccurred())
			happened, err := printed(applied.Live, result.Live)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(lines).To(Equal(happened), "the plan is what happens")
		})
	}
}
