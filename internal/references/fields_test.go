package references_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
)

func TestFromEnv(t *testing.T) {
	fromSecret := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
	}
	fromConfigMap := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
	}
	for name, c := range map[string]struct {
		from *corev1.EnvVarSource
		want []references.Reference
	}{
		"a value":          {},
		"a field":          {from: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		"a Secret":         {fromSecret("tokens", "a", nil), []references.Reference{{Kind: references.Secret, Name: "tokens", Keys: []string{"a"}, Rolls: true}}},
		"optional Secret":  {fromSecret("tokens", "a", ptr.To(true)), []references.Reference{{Kind: references.Secret, Name: "tokens", Keys: []string{"a"}, Rolls: true, Optional: true}}},
		"required Secret":  {fromSecret("tokens", "a", ptr.To(false)), []references.Reference{{Kind: references.Secret, Name: "tokens", Keys: []string{"a"}, Rolls: true}}},
		"a ConfigMap":      {fromConfigMap("settings", "b", nil), []references.Reference{{Kind: references.ConfigMap, Name: "settings", Keys: []string{"b"}, Rolls: true}}},
		"without a name":   {from: fromSecret("", "a", nil)},
		"without a key":    {from: fromConfigMap("settings", "", nil)},
		"without anything": {from: fromSecret("", "", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(references.FromEnv([]corev1.EnvVar{{Name: "X", ValueFrom: c.from}})).To(Equal(c.want))
		})
	}
	NewWithT(t).Expect(references.FromEnv([]corev1.EnvVar{
		{Name: "A", ValueFrom: fromSecret("one", "k", nil)}, {Name: "B", Value: "b"}, {Name: "C", ValueFrom: fromConfigMap("two", "k", nil)},
	})).To(HaveExactElements(HaveField("Name", "one"), HaveField("Name", "two")))
}

func TestFromPullSecrets(t *testing.T) {
	g := NewWithT(t)
	g.Expect(references.FromPullSecrets(nil)).To(BeEmpty())
	// Nothing rolls: the kubelet reads them for each pull.
	g.Expect(references.FromPullSecrets([]corev1.LocalObjectReference{{Name: "one"}, {}, {Name: "two"}})).To(Equal([]references.Reference{
		{Kind: references.Secret, Name: "one"}, {Kind: references.Secret, Name: "two"},
	}))
}

func TestFromIngress(t *testing.T) {
	g := NewWithT(t)
	g.Expect(references.FromIngress(nil)).To(BeEmpty())
	g.Expect(references.FromIngress(&v1beta1.Ingress{Host: "shop.example.com"})).To(BeEmpty())
	g.Expect(references.FromIngress(&v1beta1.Ingress{TLSSecretName: "tls"})).To(Equal([]references.Reference{{Kind: references.Secret, Name: "tls"}}))
}
