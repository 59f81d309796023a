package plugin

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/internal/releases"
)

// managerIn is the Deployment of a manager, or one that has its labels.
func managerIn(namespace, bridgeImage string) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	d.Name, d.Namespace = "fixpoint-controller-manager", namespace
	d.Labels = map[string]string{"control-plane": "controller-manager", "app.kubernetes.io/name": "fixpoint"}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: managerContainer, Args: []string{"--bridge-image=" + bridgeImage}}}
	return d
}

func claims(annotations map[string]string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	l.Name, l.Namespace, l.Annotations = releases.LeaseName, releases.LeaseNamespace, annotations
	return l
}

// Tenants can create Deployments with the labels of the manager, and several releases divide a cluster.
func TestPlanHasTheSettingsOfTheManagerThatReconcilesTheNamespace(t *testing.T) {
	const (
		assumed = "2 Deployments have the labels of the manager, and it is not known which one reconciles namespace shop: the settings of "
		record  = `{"leader":"a","renewed":"2026-01-02T09:00:00Z","durationSeconds":300,`
		later   = `{"leader":"b","renewed":"2026-01-02T09:59:00Z","durationSeconds":300,`
	)
	tenant, system, other := managerIn("a-tenant", "of-tenant"), managerIn("fixpoint-system", "of-system"), managerIn("fixpoint-b", "of-b")
	for name, c := range map[string]struct {
		objects   []client.Object
		forbidden bool
		want      string
		notes     []string
	}{
		"one manager": {[]client.Object{other}, false, "of-b", nil},
		"a Deployment of a tenant": {[]client.Object{tenant, other, claims(map[string]string{
			"release.fixpoint.dev/fixpoint-b": record + `"all":true}`})}, false, "of-b", nil},
		"several releases": {[]client.Object{other, system, claims(map[string]string{
			"release.fixpoint.dev/fixpoint-b":      record + `"namespaces":"factory"}`,
			"release.fixpoint.dev/fixpoint-system": record + `"namespaces":"office shop"}`})}, false, "of-system", nil},
		"claims that have expired": {[]client.Object{other, system, claims(map[string]string{
			"release.fixpoint.dev/fixpoint-b":      later + `"namespaces":"shop"}`,
			"release.fixpoint.dev/fixpoint-system": record + `"namespaces":"shop"}`})}, false, "of-b", nil},
		"a release whose Deployment is unknown": {[]client.Object{tenant, system, claims(map[string]string{
			"release.fixpoint.dev/elsewhere": record + `"all":true}`})}, false, "of-system", []string{assumed + "fixpoint-system/fixpoint-controller-manager are assumed"}},
		"no claims":             {[]client.Object{tenant, system}, false, "of-system", []string{assumed + "fixpoint-system/fixpoint-controller-manager are assumed"}},
		"claims of others only": {[]client.Object{tenant, other, claims(nil)}, false, "of-tenant", []string{assumed + "a-tenant/fixpoint-controller-manager are assumed"}},
		"forbidden claims": {[]client.Object{tenant, system, claims(map[string]string{"release.fixpoint.dev/fixpoint-system": record + `"all":true}`})}, true,
			"of-system", []string{assumed + "fixpoint-system/fixpoint-controller-manager are assumed"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := clientOf(c.objects...)
			if c.forbidden {
				api.WithWatch = interceptor.NewClient(api.WithWatch, interceptor.Funcs{
					Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
						return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, key.Name, nil)
					},
				})
			}
			p, err := api.newPlanner(t.Context(), planOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			made, err := p.enginesFor("shop")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(made.settings.mcp.BridgeImage).To(Equal(c.want))
			g.Expect(p.notes).To(Equal(c.notes))
		})
	}
}

func TestEachManagerHasEnginesOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	const record = `{"leader":"a","renewed":"2026-01-02T09:00:00Z","durationSeconds":300,`
	p, err := clientOf(managerIn("fixpoint-a", "of-a"), managerIn("fixpoint-b", "of-b"), claims(map[string]string{
		"release.fixpoint.dev/fixpoint-a": record + `"namespaces":"factory office"}`,
		"release.fixpoint.dev/fixpoint-b": record + `"namespaces":"shop"}`,
	})).newPlanner(t.Context(), planOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	of := func(namespace string) *engines {
		made, err := p.enginesFor(namespace)
		g.Expect(err).NotTo(HaveOccurred())
		return made
	}
	g.Expect(of("factory").settings.mcp.BridgeImage).To(Equal("of-a"))
	g.Expect(of("factory").settings.mcp.ManagerNamespace).To(Equal("fixpoint-a"))
	g.Expect(of("shop").settings.mcp.BridgeImage).To(Equal("of-b"))
	g.Expect(of("factory")).To(BeIdenticalTo(of("office")))
}
