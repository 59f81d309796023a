package mcpserver

import (
	"testing"

	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

func TestEndpointsWakeTheServerThatIsAskedThroughThem(t *testing.T) {
	unasked := func(s *spec) { s.Protocol.Disabled = true }
	cases := map[string]struct {
		server *v1alpha1.MCPServer
		labels map[string]string
		want   []string
	}{
		"of a server that is asked":        {tools(), map[string]string{discoveryv1.LabelServiceName: "tools"}, []string{"acme/tools"}},
		"of a server that is not asked":    {tools(unasked), map[string]string{discoveryv1.LabelServiceName: "tools"}, nil},
		"of one that the cache lacks":      {tools(), map[string]string{discoveryv1.LabelServiceName: "other"}, []string{"acme/other"}},
		"of no Service":                    {tools(), nil, nil},
		"of an asked server's other label": {tools(), map[string]string{"app.kubernetes.io/name": "tools"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := runtime.NewScheme()
			g.Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.server).Build()
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "tools-x7f2q", Labels: c.labels}}

			var woken []string
			for _, request := range askedThrough(reader)(t.Context(), slice) {
				woken = append(woken, request.String())
			}

			g.Expect(woken).To(Equal(c.want))
		})
	}
}
