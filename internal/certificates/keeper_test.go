package certificates

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
	k := &Keeper{observed: map[string]observed{
		"apps": {webhook: true, bundle: bundleOf(old, next)}, "servers": {webhook: true, bundle: bundleOf(old)}, "others": {},
	}}

	g.Expect(k.isPublished(old)).To(BeTrue())
	g.Expect(k.isPublished(next)).To(BeFalse())
	k.observed["servers"] = k.observed["apps"]
	g.Expect(k.isPublished(next)).To(BeTrue())
}

func TestOnlyWhatTheManagerReadsNeedsTheWebhook(t *testing.T) {
	g := NewWithT(t)
	k := &Keeper{o: Options{Cached: []string{"apps"}}, observed: map[string]observed{"apps": {}, "servers": {older: true}}}
	g.Expect(k.StoresOlder()).To(BeFalse())
	k.observed["apps"] = observed{older: true}
	g.Expect(k.StoresOlder()).To(BeTrue())
}
