package appservice

import (
	"testing"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

func TestDesiredIngress(t *testing.T) {
	cases := map[string]struct {
		ingress *v1alpha1.AppServiceIngress
		want    string
	}{
		"none": {nil, ""},
		"only a host": {&v1alpha1.AppServiceIngress{Host: "shop.example.com", Path: "/"}, `
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
		"everything": {&v1alpha1.AppServiceIngress{
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
			desired := desiredIngress(webApp(func(spec *v1alpha1.AppServiceSpec) { spec.Ingress = c.ingress }))
			if c.want == "" {
				g.Expect(desired).To(BeNil())
				return
			}
			g.Expect(asJSON(t, desired)).To(MatchYAML(c.want))
		})
	}
}

func TestJudgeIngressClass(t *testing.T) {
	class := func(name, isDefault string) networkingv1.IngressClass {
		c := networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if isDefault != "" {
			c.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault}
		}
		return c
	}
	noDefault := judgement{"stalled", v1alpha1.ReasonIngressClassMissing,
		"the cluster has no default IngressClass; name one in spec.ingress.ingressClassName, or install an ingress controller"}
	noSuch := judgement{"stalled", v1alpha1.ReasonIngressClassMissing,
		"IngressClass nginx does not exist; correct spec.ingress.ingressClassName, or install the ingress controller that brings it"}
	found := judgement{"done", v1alpha1.ReasonReady, ""}

	cases := map[string]struct {
		wanted  *string
		classes []networkingv1.IngressClass
		want    judgement
	}{
		"no classes at all":              {nil, nil, noDefault},
		"no default class":               {nil, []networkingv1.IngressClass{class("nginx", ""), class("traefik", "false")}, noDefault},
		"a default class":                {nil, []networkingv1.IngressClass{class("nginx", ""), class("traefik", "true")}, found},
		"named, and there are none":      {ptr.To("nginx"), nil, noSuch},
		"named, and there":               {ptr.To("nginx"), []networkingv1.IngressClass{class("traefik", "true"), class("nginx", "")}, found},
		"named, and only the default is": {ptr.To("nginx"), []networkingv1.IngressClass{class("traefik", "true")}, noSuch},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(judgementOf(judgeIngressClass(c.wanted, c.classes))).To(Equal(c.want))
		})
	}
}

func TestIngressIsReadyOnceItExists(t *testing.T) {
	NewWithT(t).Expect(judgementOf(ingress.Ready(nil))).To(
		Equal(judgement{"done", v1alpha1.ReasonReady, "the Ingress leads to the Service"}))
}
