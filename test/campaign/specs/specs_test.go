package specs

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const definitions = "../../../config/crd/bases"

// kubernetesTypes are fields with types of Kubernetes. Seeds set only some of their fields; mutations cover all.
var kubernetesTypes = []string{
	"spec.env", "spec.envFrom", "spec.resources", "spec.podSecurityContext", "spec.containerSecurityContext", "spec.scheduling.affinity",
	"spec.scheduling.tolerations", "spec.scheduling.topologySpreadConstraints", "spec.networkPolicy.ingress.from", "spec.networkPolicy.egress.rules.to",
	"spec.hooks.preDeploy.env", "spec.hooks.preDeploy.resources",
}

var index = regexp.MustCompile(`\[\d+\]`)

func eachKind(t *testing.T, test func(*testing.T, Kind)) {
	t.Helper()
	kinds, err := Read(definitions)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(kinds).To(HaveLen(3))
	for _, kind := range kinds {
		t.Run(kind.Name, func(t *testing.T) { test(t, kind) })
	}
}

func TestSeedsSetEveryField(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		isSet := map[string]bool{}
		for _, seed := range kind.Seeds {
			for _, location := range Locations(kind.Schema, seed) {
				field := index.ReplaceAllString(location.Path.String(), "")
				isSet[field] = isSet[field] || location.Present
			}
		}
		for field, set := range isSet {
			isBorrowed := slices.ContainsFunc(kubernetesTypes, func(path string) bool { return strings.HasPrefix(field, path+".") })
			if !set && !isBorrowed && !strings.HasSuffix(field, "."+exampleKey) {
				t.Errorf("no seed sets %s", field)
			}
		}
	})
}

func TestMutationsCoverEveryLocation(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		g := NewWithT(t)
		for name, seed := range kind.Seeds {
			before := Clone(seed)
			reached := map[string]bool{}
			for _, m := range Mutations(kind.Schema, seed) {
				mutated := m.Apply(kind.Schema, seed)
				reached[m.Path.String()] = true
				value, there := Get(mutated, m.Path)
				g.Expect(there).To(Equal(m.Sets), "%s", m)
				if there && m.Value == nil {
					g.Expect(value).To(BeNil(), "%s", m)
				}
			}
			for _, location := range Locations(kind.Schema, seed) {
				g.Expect(reached).To(HaveKey(location.Path.String()), "no mutation of %s covers it", name)
			}
			g.Expect(seed).To(Equal(before), name)
		}
	})
}

func TestGeneratorIsReproducible(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		g := NewWithT(t)
		draw := func() []map[string]any {
			generator, err := NewGenerator(kind, rand.New(rand.NewPCG(7, 7))) //nolint:gosec // it must be reproducible
			g.Expect(err).NotTo(HaveOccurred())
			drawn := []map[string]any{generator.First()}
			for range 20 {
				drawn = append(drawn, generator.Next(drawn[len(drawn)-1]))
			}
			bad, _ := generator.Bad(drawn[0])
			return append(drawn, bad)
		}
		g.Expect(draw()).To(Equal(draw()))
	})
}

func TestVariantsNameExistingFields(t *testing.T) {
	eachKind(t, func(t *testing.T, kind Kind) {
		g := NewWithT(t)
		variants, err := kind.Variants()
		g.Expect(err).NotTo(HaveOccurred())
		for name, values := range variants.Fields {
			g.Expect(kind.Schema.Properties["spec"].Properties).To(HaveKey(name))
			g.Expect(values).NotTo(BeEmpty(), name)
		}
		for _, bad := range variants.Bad {
			for name := range bad {
				g.Expect(kind.Schema.Properties["spec"].Properties).To(HaveKey(name))
			}
		}
	})
}
