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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
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

func TestIngressClasses(t *testing.T) {
	byAnnotation := v1beta1.Ingress{Annotations: map[string]string{"kubernetes.io/ingress.class": "gce"}}
	named := v1beta1.Ingress{IngressClassName: ptr.To("nginx")}
	plain := v1beta1.Ingress{}
	unseen := IngressClasses{}
	noDefault := classesOf(classOf("nginx", "", 1), classOf("traefik", "false", 1))
	oneDefault := classesOf(classOf("nginx", "", 1), classOf("traefik", "true", 1))

	missing := outcome{"stalled", v1beta1.ReasonIngressClassMissing,
		"the cluster has no default IngressClass; set spec.ingress.ingressClassName, or install an ingress controller"}
	unmarked := outcome{"stalled", v1beta1.ReasonIngressClassMissing, "the cluster has no default IngressClass; set spec.ingress.ingressClassName, " +
		"or set the annotation ingressclass.kubernetes.io/is-default-class=true of one"}
	noSuch := outcome{"stalled", v1beta1.ReasonIngressClassMissing,
		"IngressClass nginx does not exist; correct spec.ingress.ingressClassName, or install the ingress controller that provides it"}
	found := outcome{"done", v1beta1.ReasonReady, ""}

	cases := map[string]struct {
		in      v1beta1.Ingress
		classes IngressClasses
		want    string
		verdict outcome
	}{
		"no class named, none exists":     {plain, classesOf(), "", missing},
		"no class named, none is default": {plain, noDefault, "", unmarked},
		"none named":                      {plain, oneDefault, "traefik", found},
		"newest of several defaults": {plain,
			classesOf(classOf("a", "true", 3), classOf("b", "true", 1), classOf("c", "true", 2)), "b", found},
		"first by name of equally old defaults": {plain, classesOf(classOf("b", "true", 1), classOf("a", "true", 1)), "a", found},
		"no class named, cannot read":           {plain, unseen, "", found},
		"named":                                 {named, oneDefault, "nginx", found},
		"named, none exists":                    {named, classesOf(), "nginx", noSuch},
		"named, only a default exists":          {named, classesOf(classOf("traefik", "true", 1)), "nginx", noSuch},
		"named, cannot read":                    {named, unseen, "nginx", found},
		"by annotation":                         {byAnnotation, oneDefault, "", found},
		"by annotation, none exists":            {byAnnotation, classesOf(), "", found},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)

			class, err := c.classes.Of(c.in)
			g.Expect(err).NotTo(HaveOccurred())
			verdict, err := c.classes.Exist(t.Context(), c.in)
			g.Expect(err).NotTo(HaveOccurred())

			g.Expect(ptr.Deref(class, "")).To(Equal(c.want))
			g.Expect(outcomeOf(verdict)).To(Equal(c.verdict))
			desired := Ingress("web", "shop", "http", c.in, class)
			g.Expect(ptr.Deref(desired.Spec.IngressClassName, "")).To(Equal(c.want))
		})
	}
}

func TestIngressReady(t *testing.T) {
	applied := "Ingress applied"
	cases := map[string]struct {
		class       *string
		annotations map[string]string
		want        string
	}{
		"with a class":    {ptr.To("nginx"), nil, applied},
		"by annotation":   {nil, map[string]string{"kubernetes.io/ingress.class": "gce"}, applied},
		"without a class": {nil, nil, applied + " without a class, which some ingress controllers ignore; set spec.ingress.ingressClassName"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			live := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}
			live.Spec.IngressClassName = c.class
			NewWithT(t).Expect(outcomeOf(IngressReady(live))).To(Equal(outcome{"done", v1beta1.ReasonReady, c.want}))
		})
	}
}

func TestKeepIngressClass(t *testing.T) {
	g := NewWithT(t)
	live := &networkingv1.Ingress{}
	KeepIngressClass(live, map[string]string{"other": "x"})
	g.Expect(live.Annotations).To(BeNil())
	KeepIngressClass(live, map[string]string{"other": "x", "kubernetes.io/ingress.class": "nginx"})
	g.Expect(live.Annotations).To(Equal(map[string]string{"kubernetes.io/ingress.class": "nginx"}))
}

func TestIngressWithoutAnnotationsDeclaresNone(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Ingress("web", "shop", "http", v1beta1.Ingress{Annotations: map[string]string{}}, nil).Annotations).To(BeNil())
	g.Expect(Ingress("web", "shop", "http", v1beta1.Ingress{Annotations: map[string]string{"a": "b"}}, nil).Annotations).To(Equal(map[string]string{"a": "b"}))
}
