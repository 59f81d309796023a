package appservice

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func TestDesiredDisruptionBudget(t *testing.T) {
	const head = `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: web
  namespace: shop
  labels: {app.kubernetes.io/name: web, app.kubernetes.io/managed-by: fixpoint}
spec:
  selector:
    matchLabels: {app.kubernetes.io/name: web}
`
	cases := map[string]struct {
		budget *v1beta1.DisruptionBudget
		want   string
	}{
		"none":           {nil, ""},
		"minAvailable":   {&v1beta1.DisruptionBudget{MinAvailable: ptr.To(intstr.FromString("50%"))}, head + "  minAvailable: 50%\n"},
		"maxUnavailable": {&v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}, head + "  maxUnavailable: 1\n"},
		"no evictions":   {&v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(0))}, head + "  maxUnavailable: 0\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			desired := desiredDisruptionBudget(webApp(func(spec *v1beta1.AppServiceSpec) { spec.DisruptionBudget = c.budget }))
			if c.want == "" {
				g.Expect(desired).To(BeNil())
				return
			}
			g.Expect(asJSON(t, desired)).To(MatchYAML(c.want))
		})
	}
}
