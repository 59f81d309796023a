package appservice

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// refusing is a reader that the API server refuses everything.
type refusing struct{ client.Reader }

func (refusing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("refused")
}

func TestIngressIsNotAppliedWhileItsClassIsNotKnown(t *testing.T) {
	g := NewWithT(t)
	app := webApp(func(spec *v1beta1.AppServiceSpec) { spec.Ingress = &v1beta1.Ingress{Host: "shop.example.com"} })
	desired, err := desiredIngress(app, workload.IngressClasses{Reader: refusing{}})
	g.Expect(err).To(MatchError(ContainSubstring("listing ingress classes: refused")))
	g.Expect(desired).To(BeNil())
}

func TestDesiredIngress(t *testing.T) {
	cases := map[string]struct {
		ingress *v1beta1.Ingress
		want    string
	}{
		"none": {nil, ""},
		"only a host": {&v1beta1.Ingress{Host: "shop.example.com", Path: "/"}, `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
  namespace: shop
  labels: {app.kubernetes.io/name: web, app.kubernetes.io/managed-by: fixpoint}
spec:
  rules:
  - host: shop.example.com
    http:
      paths:
      - path: /
        pathType: Prefix
        backend: {service: {name: web, port: {name: http}}}
`},
		"everything": {&v1beta1.Ingress{
			Host: "shop.example.com", Path: "/shop", IngressClassName: ptr.To("nginx"), TLSSecretName: "shop-tls",
			Annotations: map[string]string{"nginx.ingress.kubernetes.io/ssl-redirect": "true"},
		}, `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web
  namespace: shop
  labels: {app.kubernetes.io/name: web, app.kubernetes.io/managed-by: fixpoint}
  annotations: {nginx.ingress.kubernetes.io/ssl-redirect: "true"}
spec:
  ingressClassName: nginx
  tls:
  - hosts: [shop.example.com]
    secretName: shop-tls
  rules:
  - host: shop.example.com
    http:
      paths:
      - path: /shop
        pathType: Prefix
        backend: {service: {name: web, port: {name: http}}}
`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			desired, err := desiredIngress(webApp(func(spec *v1beta1.AppServiceSpec) { spec.Ingress = c.ingress }), workload.IngressClasses{})
			g.Expect(err).NotTo(HaveOccurred())
			if c.want == "" {
				g.Expect(desired).To(BeNil())
				return
			}
			g.Expect(asJSON(t, desired)).To(MatchYAML(c.want))
		})
	}
}
