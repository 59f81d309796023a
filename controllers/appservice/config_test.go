package appservice

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func TestDesiredConfig(t *testing.T) {
	cases := map[string]struct {
		config map[string]string
		want   string
	}{
		"no config":    {nil, ""},
		"empty config": {map[string]string{}, ""},
		"config": {map[string]string{"LOG_LEVEL": "info", "GREETING": "Hello"}, `
apiVersion: v1
kind: ConfigMap
metadata:
  name: web
  namespace: shop
  labels: {app.kubernetes.io/name: web, app.kubernetes.io/managed-by: fixpoint}
data: {GREETING: Hello, LOG_LEVEL: info}
`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			desired := desiredConfig(webApp(withConfig(c.config)))
			if c.want == "" {
				g.Expect(desired).To(BeNil())
				return
			}
			g.Expect(asJSON(t, desired)).To(MatchYAML(c.want))
		})
	}
}

func TestConfigHash(t *testing.T) {
	of := func(config map[string]string, changes ...func(*v1beta1.AppServiceSpec)) string {
		return configHash(webApp(append(changes, withConfig(config))...))
	}
	reference := of(map[string]string{"A": "1", "B": "2"})

	t.Run("is stable across processes", func(t *testing.T) {
		// A fixed value: a build that computes another hash would roll all pods.
		NewWithT(t).Expect(reference).To(Equal("3eda2f06741f1d08"))
	})
	t.Run("does not depend on the order of keys", func(t *testing.T) {
		for range 20 {
			NewWithT(t).Expect(of(map[string]string{"B": "2", "A": "1"})).To(Equal(reference))
		}
	})
	t.Run("does not depend on the rest of the spec", func(t *testing.T) {
		g := NewWithT(t)
		replicas := int32(7)
		g.Expect(of(map[string]string{"A": "1", "B": "2"}, func(spec *v1beta1.AppServiceSpec) {
			spec.Replicas, spec.Image, spec.ConfigMountPath = &replicas, "other:2", "/etc/shop"
		})).To(Equal(reference))
	})
	for name, config := range map[string]map[string]string{
		"another value":                 {"A": "1", "B": "3"},
		"another key":                   {"A": "1", "C": "2"},
		"an added key":                  {"A": "1", "B": "2", "C": ""},
		"a removed key":                 {"A": "1"},
		"values swapped":                {"A": "2", "B": "1"},
		"a quoted separator in a key":   {"A": "1\",\"B", "B": "2"},
		"a quoted separator in a value": {"A": `1","B":"2`},
	} {
		t.Run("changes with "+name, func(t *testing.T) {
			NewWithT(t).Expect(of(config)).NotTo(Equal(reference))
		})
	}
}
