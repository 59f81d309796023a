package certificates

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

func definitionWith(config *apiextensionsv1.WebhookClientConfig) *apiextensionsv1.CustomResourceDefinition {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if config != nil {
		definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: config}}
	}
	return definition
}

// Two managers would write the CA bundle of one definition in turns.
func TestTheWebhookOfAnotherServiceIsLeftAlone(t *testing.T) {
	o := Options{Namespace: "fixpoint-system", Service: "fixpoint-webhook", Current: "v1beta1"}
	service := func(namespace, name string) *apiextensionsv1.WebhookClientConfig {
		return &apiextensionsv1.WebhookClientConfig{CABundle: []byte("ca"), Service: &apiextensionsv1.ServiceReference{Namespace: namespace, Name: name}}
	}
	for name, c := range map[string]struct {
		config *apiextensionsv1.WebhookClientConfig
		ours   bool
	}{
		"its own":           {service("fixpoint-system", "fixpoint-webhook"), true},
		"another namespace": {service("other", "fixpoint-webhook"), false},
		"another name":      {service("fixpoint-system", "other"), false},
		"a URL":             {&apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://example.com/convert")}, true},
		"none":              {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(o.observationOf(definitionWith(c.config)).webhook).To(Equal(c.ours))
		})
	}
}

// A definition that cannot be written keeps the certificate that API servers trust.
func TestACertificateIsPublishedOnceAllDefinitionsTrustIt(t *testing.T) {
	g := NewWithT(t)
	old, err := issue([]string{"a"}, time.Now())
	g.Expect(err).NotTo(HaveOccurred())
	next, err := issue([]string{"a"}, time.Now())
	g.Expect(err).NotTo(HaveOccurred())
	k := &Keeper{o: Options{Definitions: []string{"apps", "servers", "others"}}, observed: map[string]observed{
		"apps": {webhook: true, bundle: bundleOf(old, next)}, "servers": {webhook: true, bundle: bundleOf(old)}, "others": {},
	}}

	g.Expect(k.isPublished(old)).To(BeTrue())
	g.Expect(k.isPublished(next)).To(BeFalse())
	k.observed["servers"] = k.observed["apps"]
	g.Expect(k.isPublished(next)).To(BeTrue())
}

// appliedSecrets counts the applies of the Secret.
type appliedSecrets struct {
	coreclient.SecretInterface
	applies int
}

func (a *appliedSecrets) Apply(context.Context, *corev1ac.SecretApplyConfiguration, metav1.ApplyOptions) (*corev1.Secret, error) {
	a.applies++
	return &corev1.Secret{}, nil
}

// After a start, the Secret may be read before the CustomResourceDefinitions are.
func TestNoCertificateIsServedBeforeTheDefinitionsAreRead(t *testing.T) {
	g := NewWithT(t)
	// given a next certificate that is due, and definitions that may not trust it
	now := time.Now()
	serving, next := issued(t, now.Add(-lifetime/2), names...), issued(t, now.Add(-time.Hour), names...)
	applied := &appliedSecrets{}
	k := &Keeper{
		o:     Options{Definitions: []string{"apps", "servers"}, Clock: testingclock.NewFakeClock(now), Logger: logr.Discard()},
		names: names, secrets: applied, observed: map[string]observed{},
		secret: &corev1.Secret{Data: state{serving, next, bundleOf(serving, next)}.data()}, secretRead: true,
	}
	trusting := observed{webhook: true, bundle: bundleOf(serving, next)}

	k.step(t.Context())
	g.Expect(applied.applies).To(BeZero(), "none is read")
	k.observed["apps"] = trusting
	k.step(t.Context())
	g.Expect(applied.applies).To(BeZero(), "one is not read")
	k.observed["servers"] = observed{} // it does not exist
	k.step(t.Context())
	g.Expect(applied.applies).To(Equal(1))
	g.Expect(k.serving.Load().Leaf.Raw).To(Equal(serving.leaf.Raw), "until the Secret is observed")
}

func TestOnlyWhatTheManagerReadsNeedsTheWebhook(t *testing.T) {
	g := NewWithT(t)
	k := &Keeper{o: Options{Cached: []string{"apps"}}, observed: map[string]observed{"apps": {}, "servers": {older: true}}}
	g.Expect(k.StoresOlder()).To(BeFalse())
	k.observed["apps"] = observed{older: true}
	g.Expect(k.StoresOlder()).To(BeTrue())
}
