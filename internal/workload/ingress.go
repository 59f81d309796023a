package workload

import (
	"cmp"
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// classAnnotation is how an Ingress told its class before there was a field for it. It may name what
// no IngressClass is of, and the API server takes the field and the annotation only one at a time.
const classAnnotation = "kubernetes.io/ingress.class"

// Ingress leads to the Service of the same name, at the port of the name. The class is declared even
// where the spec names none: see [IngressClasses.Of].
func Ingress(name, namespace, port string, in v1alpha1.AppServiceIngress, class *string) *networkingv1ac.IngressApplyConfiguration {
	path := networkingv1ac.HTTPIngressPath().
		WithPath(in.Path).
		WithPathType(networkingv1.PathTypePrefix).
		WithBackend(networkingv1ac.IngressBackend().WithService(networkingv1ac.IngressServiceBackend().
			WithName(name).WithPort(networkingv1ac.ServiceBackendPort().WithName(port))))
	spec := networkingv1ac.IngressSpec().WithRules(networkingv1ac.IngressRule().
		WithHost(in.Host).
		WithHTTP(networkingv1ac.HTTPIngressRuleValue().WithPaths(path)))
	if class != nil {
		spec.WithIngressClassName(*class)
	}
	if in.TLSSecretName != "" {
		spec.WithTLS(networkingv1ac.IngressTLS().WithHosts(in.Host).WithSecretName(in.TLSSecretName))
	}
	desired := networkingv1ac.Ingress(name, namespace).WithSpec(spec)
	if len(in.Annotations) > 0 {
		desired.WithAnnotations(in.Annotations)
	}
	return desired
}

// IngressReady is the verdict on an Ingress that exists. An ingress controller need not publish an
// address, so there is nothing to wait for.
func IngressReady(live *networkingv1.Ingress) phases.Verdict {
	const leads = "the Ingress leads to the Service"
	if live.Spec.IngressClassName == nil && !hasClassAnnotation(live.Annotations) {
		// Only a manager that does not see IngressClasses comes here.
		return phases.Done(leads + "; it has no class, and not every ingress controller serves it then: name one in spec.ingress.ingressClassName")
	}
	return phases.Done(leads)
}

// IngressClasses tells of the classes of the cluster. The zero value is for a manager that may not see
// them: then a class is taken to be there, and left to the API server.
type IngressClasses struct {
	// Reader reads IngressClasses from a cache.
	Reader client.Reader
}

// Of is the class that an Ingress is to have: the one that the spec names, or the default one of the
// cluster. The API server gives the default one only to a new Ingress: one that has lost its class,
// because it is no longer in the spec, would have none for ever (ADR 26). It is nil if there is no default
// class, or the spec tells the class by the annotation of old.
func (c IngressClasses) Of(in v1alpha1.AppServiceIngress) (*string, error) {
	if in.IngressClassName != nil || hasClassAnnotation(in.Annotations) || c.Reader == nil {
		return in.IngressClassName, nil
	}
	classes, err := c.list(context.Background()) // a cache answers at once
	if err != nil {
		return nil, err
	}
	return defaultClass(classes), nil
}

// Exist is done if the class is there that is asked for, or a default one.
func (c IngressClasses) Exist(ctx context.Context, in v1alpha1.AppServiceIngress) (phases.Verdict, error) {
	if c.Reader == nil || in.IngressClassName == nil && hasClassAnnotation(in.Annotations) {
		return phases.Done(""), nil
	}
	classes, err := c.list(ctx)
	if err != nil {
		return phases.Verdict{}, err
	}
	return judgeIngressClass(in.IngressClassName, classes), nil
}

func (c IngressClasses) list(ctx context.Context) ([]networkingv1.IngressClass, error) {
	var classes networkingv1.IngressClassList
	if err := c.Reader.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("listing ingress classes: %w", err)
	}
	return classes.Items, nil
}

func hasClassAnnotation(annotations map[string]string) bool {
	_, has := annotations[classAnnotation]
	return has
}

// defaultClass is the one that the API server would give a new Ingress: of several, the youngest.
func defaultClass(classes []networkingv1.IngressClass) *string {
	var chosen *networkingv1.IngressClass
	for i := range classes {
		class := &classes[i]
		if class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" && (chosen == nil || isPreferred(class, chosen)) {
			chosen = class
		}
	}
	if chosen == nil {
		return nil
	}
	return &chosen.Name
}

func isPreferred(one, other *networkingv1.IngressClass) bool {
	younger := other.CreationTimestamp.Compare(one.CreationTimestamp.Time)
	return cmp.Or(younger, cmp.Compare(one.Name, other.Name)) < 0
}

func judgeIngressClass(wanted *string, classes []networkingv1.IngressClass) phases.Verdict {
	if wanted == nil {
		if defaultClass(classes) != nil {
			return phases.Done("")
		}
		return phases.Stalled(v1alpha1.ReasonIngressClassMissing,
			"the cluster has no default IngressClass; name one in spec.ingress.ingressClassName, or install an ingress controller")
	}
	for i := range classes {
		if classes[i].Name == *wanted {
			return phases.Done("")
		}
	}
	return phases.Stalled(v1alpha1.ReasonIngressClassMissing, fmt.Sprintf(
		"IngressClass %s does not exist; correct spec.ingress.ingressClassName, or install the ingress controller that brings it", *wanted))
}
