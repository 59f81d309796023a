package workload

import (
	"cmp"
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// classAnnotation is the deprecated annotation for the class of an Ingress. Its value need not be the
// name of an IngressClass, and the API server rejects an Ingress with both the annotation and the field.
const classAnnotation = "kubernetes.io/ingress.class"

// Ingress routes to the named port of the Service of the same name. Its class is declared even if the
// spec names none: see [IngressClasses.Of].
func Ingress(name, namespace, port string, in v1beta1.Ingress, class *string) *networkingv1ac.IngressApplyConfiguration {
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

// IngressReady reports an existing Ingress as ready. Ingress controllers need not publish an address,
// so it does not wait for one.
func IngressReady(live *networkingv1.Ingress) phases.Verdict {
	const applied = "Ingress applied"
	if live.Spec.IngressClassName == nil && !hasClassAnnotation(live.Annotations) {
		// Only a manager that cannot read IngressClasses gets here.
		return phases.Done(applied + " without a class, which some ingress controllers ignore; set spec.ingress.ingressClassName")
	}
	return phases.Done(applied)
}

// IngressClasses finds IngressClasses of the cluster. The zero value is for a manager that may not read
// them: it assumes that a class exists and leaves the default class to the API server.
type IngressClasses struct {
	// Reader reads IngressClasses from a cache.
	Reader client.Reader
}

// Of returns the class to declare for an Ingress: the one in the spec, or the default class of the
// cluster. The API server sets the default class only on creation, so an Ingress whose class was
// removed from the spec would permanently have none (ADR 26). Of returns nil if no default class exists
// or the spec sets the deprecated annotation.
func (c IngressClasses) Of(in v1beta1.Ingress) (*string, error) {
	if in.IngressClassName != nil || hasClassAnnotation(in.Annotations) || c.Reader == nil {
		return in.IngressClassName, nil
	}
	classes, err := c.list(context.Background()) // reads from a cache, without network
	if err != nil {
		return nil, err
	}
	return defaultClass(classes), nil
}

// Exist is Done if the class in the spec, or else a default class, exists.
func (c IngressClasses) Exist(ctx context.Context, in v1beta1.Ingress) (phases.Verdict, error) {
	if c.Reader == nil || in.IngressClassName == nil && hasClassAnnotation(in.Annotations) {
		return phases.Done(""), nil
	}
	classes, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	return checkIngressClass(in.IngressClassName, classes), nil
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

// KeepIngressClass gives an Ingress that has lost its annotations the one that [IngressReady] reads.
func KeepIngressClass(live *networkingv1.Ingress, annotations map[string]string) {
	if class, has := annotations[classAnnotation]; has {
		live.Annotations = map[string]string{classAnnotation: class}
	}
}

// defaultClass is the class that the API server would set on a new Ingress: of several, the newest.
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

func checkIngressClass(wanted *string, classes []networkingv1.IngressClass) phases.Verdict {
	if wanted == nil {
		if defaultClass(classes) != nil {
			return phases.Done("")
		}
		provide := "install an ingress controller"
		if len(classes) > 0 {
			provide = "set the annotation " + networkingv1.AnnotationIsDefaultIngressClass + "=true of one"
		}
		return phases.Stalled(v1beta1.ReasonIngressClassMissing,
			"the cluster has no default IngressClass; set spec.ingress.ingressClassName, or "+provide)
	}
	for i := range classes {
		if classes[i].Name == *wanted {
			return phases.Done("")
		}
	}
	return phases.Stalled(v1beta1.ReasonIngressClassMissing, fmt.Sprintf(
		"IngressClass %s does not exist; correct spec.ingress.ingressClassName, or install the ingress controller that provides it", *wanted))
}
