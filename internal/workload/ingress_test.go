package workload

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

// classOf is an IngressClass of an age in minutes. isDefault is the annotation, if it has one.
func classOf(name, isDefault string, age int) networkingv1.IngressClass {
	born := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC).Add(-time.Duration(age) * time.Minute)
	class := networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(born)}}
	if isDefault != "" {
		class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault}
	}
	return class
}

func classesOf(classes ...networkingv1.IngressClass) IngressClasses {
	return IngressClasses{fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).
		WithLists(&networkingv1.IngressClassList{Items: classes}).Build()}
}

func TestTheClassOfAnIngress(t *testing.T) {
	byAnnotation := v1alpha1.AppServiceIngress{Annotations: map[string]string{"kubernetes.io/ingress.class": "gce"}}
	named := v1alpha1.AppServiceIngress{IngressClassName: ptr.To("nginx")}
	plain := v1alpha1.AppServiceIngress{}
	unseen := IngressClasses{}
	noDefault := classesOf(classOf("nginx", "", 1), classOf("traefik", "false", 1))
	oneDefault := classesOf(classOf("nginx", "", 1), classOf("traefik", "true", 1))

	missing := judgement{"stalled", v1alpha1.ReasonIngressClassMissing,
		"the cluster has no default IngressClass; name one in spec.ingress.ingressClassName, or install an ingress controller"}
	noSuch := judgement{"stalled", v1alpha1.ReasonIngressClassMissing,
		"IngressClass nginx does not exist; correct spec.ingress.ingressClassName, or install the ingress controller that brings it"}
	found := judgement{"done", v1alpha1.ReasonReady, ""}

	cases := map[string]struct {
		in      v1alpha1.AppServiceIngress
		classes IngressClasses
		want    string
		verdict judgement
	}{
		"none named, and there are none":  {plain, classesOf(), "", missing},
		"none named, and none is default": {plain, noDefault, "", missing},
		"none named":                      {plain, oneDefault, "traefik", found},
		"of two that are default the youngest": {plain,
			classesOf(classOf("a", "true", 3), classOf("b", "true", 1), classOf("c", "true", 2)), "b", found},
		"of two of an age the first by name": {plain, classesOf(classOf("b", "true", 1), classOf("a", "true", 1)), "a", found},
		"none named, and none is seen":       {plain, unseen, "", found},
		"named":                              {named, oneDefault, "nginx", found},
		"named, and there are none":          {named, classesOf(), "nginx", noSuch},
		"named, and only the default is":     {named, classesOf(classOf("traefik", "true", 1)), "nginx", noSuch},
		"named, and none is seen":            {named, unseen, "nginx", found},
		"by annotation":                      {byAnnotation, oneDefault, "", found},
		"by annotation, and there are none":  {byAnnotation, classesOf(), "", found},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)

			class, err := c.classes.Of(c.in)
			g.Expect(err).NotTo(HaveOccurred())
			verdict, err := c.classes.Exist(t.Context(), c.in)
			g.Expect(err).NotTo(HaveOccurred())

			g.Expect(ptr.Deref(class, "")).To(Equal(c.want))
			g.Expect(judgementOf(verdict)).To(Equal(c.verdict))
			desired := Ingress("web", "shop", "http", c.in, class)
			g.Expect(ptr.Deref(desired.Spec.IngressClassName, "")).To(Equal(c.want))
		})
	}
}

func TestIngressReady(t *testing.T) {
	leads := "the Ingress leads to the Service"
	cases := map[string]struct {
		class       *string
		annotations map[string]string
		want        string
	}{
		"with a class":    {ptr.To("nginx"), nil, leads},
		"by annotation":   {nil, map[string]string{"kubernetes.io/ingress.class": "gce"}, leads},
		"without a class": {nil, nil, leads + "; it has no class, and not every ingress controller serves it then: name one in spec.ingress.ingressClassName"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			live := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}
			live.Spec.IngressClassName = c.class
			NewWithT(t).Expect(judgementOf(IngressReady(live))).To(Equal(judgement{"done", v1alpha1.ReasonReady, c.want}))
		})
	}
}
