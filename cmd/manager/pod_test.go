package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
)

func TestPodNamespaceAndLabels(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("POD_NAMESPACE", "")
	file := filepath.Join(t.TempDir(), "namespace")
	g.Expect(ownNamespace(file)).To(BeEmpty(), "outside of a pod")
	g.Expect(os.WriteFile(file, []byte("system\n"), 0o600)).To(Succeed())
	g.Expect(ownNamespace(file)).To(Equal("system"))
	t.Setenv("POD_NAMESPACE", "other")
	g.Expect(ownNamespace(file)).To(Equal("other"))

	s, err := parse([]string{"--pod-labels=app=manager,tier=control"}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.options.PodNamespace).To(Equal("other"))
	g.Expect(s.options.PodLabels).To(Equal(map[string]string{"app": "manager", "tier": "control"}))

	s, err = parse([]string{"--pod-overrides=all"}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.options.PodOverrides).To(Equal(mcpserver.OverridesAll))

	_, err = parse([]string{"--pod-overrides=some"}, nil)
	g.Expect(err).To(MatchError(ContainSubstring(`invalid value "some" for flag -pod-overrides: "some" does not exist: set none, restricted or all`)))

	_, err = parse([]string{"--pod-labels=manager"}, nil)
	g.Expect(err).To(MatchError(ContainSubstring("set labels as key=value, separated by commas")))
}
