package mcpserver

import (
	"testing"

	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func TestEndpointSlicesEnqueueProbedServers(t *testing.T) {
	unprobed := func(s *spec) { s.Protocol.Probe = v1beta1.ProbeDisabled }
	cases := map[string]struct {
		server *v1beta1.MCPServer
		labels map[string]string
		want   []string
	}{
		"probed server":               {tools(), map[string]string{discoveryv1.LabelServiceName: "tools"}, []string{"acme/tools"}},
		"server with probes disabled": {tools(unprobed), map[string]string{discoveryv1.LabelServiceName: "tools"}, nil},
		"server not in the cache":     {tools(), map[string]string{discoveryv1.LabelServiceName: "other"}, []string{"acme/other"}},
		"no Service":                  {tools(), nil, nil},
		"other label":                 {tools(), map[string]string{"app.kubernetes.io/name": "tools"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := runtime.NewScheme()
			g.Expect(v1beta1.AddToScheme(scheme)).To(Succeed())
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.server).Build()
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "tools-x7f2q", Labels: c.labels}}

			var enqueued []string
			for _, request := range probedServer(reader)(t.Context(), slice) {
				enqueued = append(enqueued, request.String())
			}

			g.Expect(enqueued).To(Equal(c.want))
		})
	}
}
