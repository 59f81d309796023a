package ssatest_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// widgetConfiguration is a configuration of a Widget without a generator.
type widgetConfiguration struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`
	Spec                                   WidgetSpec `json:"spec"`
}

func (widgetConfiguration) IsApplyConfiguration() {}

func widgetOf(color string) *widgetConfiguration {
	c := &widgetConfiguration{ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName("w").WithNamespace("default"), Spec: WidgetSpec{Color: color}}
	c.WithKind(widgetKind.Kind).WithAPIVersion(widgetKind.GroupVersion().String())
	return c
}

// A server with the schema of a kind records fewer fields than are deduced without it: not .spec, but what is in it. That
// says nothing about drift.
func TestUnknownSchemaIsNoDrift(t *testing.T) {
	g, server := NewWithT(t), ssatest.NewServer(widgetScheme(), ssatest.Options{})
	restarted := func() *ssa.Applier {
		applier, err := ssa.New(ssa.Options{Client: server, FieldManager: "widget-operator"})
		g.Expect(err).NotTo(HaveOccurred())
		return applier
	}
	owner := metav1.NewControllerRef(&Widget{ObjectMeta: metav1.ObjectMeta{Name: "o", UID: "o"}}, widgetKind)
	applied, err := restarted().Apply(ctx, ssa.Request{Desired: widgetOf("red"), Owner: owner})
	g.Expect(err).NotTo(HaveOccurred())
	live := applied.Live
	entries := live.GetManagedFields()
	g.Expect(entries).To(HaveLen(1))
	recorded := entries[0].FieldsV1.GetRawString()
	structural := strings.Replace(recorded, `"f:spec":{".":{},`, `"f:spec":{`, 1)
	g.Expect(structural).NotTo(Equal(recorded))
	entries[0].FieldsV1 = metav1.NewFieldsV1(structural)
	live.SetManagedFields(entries)

	changed, err := restarted().Decide(ssa.Request{Desired: widgetOf("blue"), Live: live, Owner: owner})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(changed.Action).To(Equal(ssa.ActionUpdate))
	g.Expect(changed.Drifts).To(BeEmpty())

	_, err = restarted().Decide(ssa.Request{Desired: widgetOf("blue"), Live: live, Owner: owner, Drift: ssa.ReportDrift})
	g.Expect(err).To(MatchError(ContainSubstring("drift cannot be reported without the schema of Widget: give it in Options.TypeConverters")))
}
