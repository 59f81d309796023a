package plugin

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
)

// The API server answers a dry run in the version of the request.
func TestPlanOfAFileConvertsOlderVersions(t *testing.T) {
	g := NewWithT(t)
	o := &options{IOStreams: testStreams()}
	o.In = strings.NewReader(`
apiVersion: fixpoint.dev/v1alpha1
kind: MCPServer
metadata: {name: tools}
spec:
  protocol: {tls: true, disabled: true}
  networkPolicy: {egress: {allowDNS: false}}
---
apiVersion: fixpoint.dev/v1alpha1
kind: SecureStorage
metadata: {name: invoices}
spec: {key: {keyName: demo-key}, onAccountLoss: Recreate, provider: {credentialsRef: {name: azure}}}
---
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: web}
spec: {replicas: 2}
`)
	// The client adds versions that it does not know to its scheme, so it must not be the one of the package.
	api := &clients{WithWatch: fake.NewClientBuilder().WithScheme(controllers.NewScheme()).Build(), namespace: "shop"}
	objects, _, err := o.objectsOf(t.Context(), api, planOptions{file: "-"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(3))

	server, _ := objects[0].Object.(*v1beta1.MCPServer)
	g.Expect(server.Spec.Protocol.Scheme).To(BeEquivalentTo("HTTPS"))
	g.Expect(server.Spec.Protocol.Probe).To(Equal(v1beta1.ProbeDisabled))
	g.Expect(server.Spec.NetworkPolicy.Egress.DNS).To(BeEquivalentTo("Denied"))
	storage, _ := objects[1].Object.(*v1beta1.SecureStorage)
	g.Expect(storage.Spec.Key.Name).To(Equal("demo-key"))
	g.Expect(storage.Spec.AccountLossPolicy).To(BeEquivalentTo("Recreate"))
	g.Expect(storage.Spec.Provider.CredentialsSecretRef).To(HaveField("Name", "azure"))
	app, _ := objects[2].Object.(*v1beta1.AppService)
	g.Expect(app.Spec.Replicas).To(Equal(ptr.To[int32](2)))
}
