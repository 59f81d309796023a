package chart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestUndeployStopsIfTheDefinitionsCannotBeListed: it must not delete the manager while objects have finalizers.
func TestUndeployStopsIfTheDefinitionsCannotBeListed(t *testing.T) {
	for name, c := range map[string]struct {
		get      string
		succeeds bool
		deletes  []string
	}{
		"a failure": {"exit 1", false, nil},
		"a definition": {"echo customresourcedefinition.apiextensions.k8s.io/mcpservers.fixpoint.dev; echo customresourcedefinition.apiextensions.k8s.io/a.test", true,
			[]string{"delete mcpservers.fixpoint.dev --all --all-namespaces", "delete --ignore-not-found -f -"}},
		"no definition": {"true", true, []string{"delete --ignore-not-found -f -"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			bin := t.TempDir()
			program := func(name, script string) string {
				path := filepath.Join(bin, name)
				g.Expect(os.WriteFile(path, []byte("#!/usr/bin/env bash\n"+script+"\n"), 0o700)).To(Succeed()) //nolint:gosec // a program
				return path
			}
			log := filepath.Join(bin, "log")
			kubectl := program("kubectl", `case $1 in delete) echo "$*" >>`+log+`;; get) `+c.get+`;; config) echo a;; esac`)
			undeploy := exec.CommandContext(t.Context(), "make", "-C", root, "undeploy", "YES=1", "KUBECTL="+kubectl, "KUSTOMIZE="+program("kustomize", "true"))

			out, err := undeploy.CombinedOutput()

			g.Expect(err == nil).To(Equal(c.succeeds), string(out))
			deleted, err := os.ReadFile(log)
			if c.deletes == nil {
				g.Expect(err).To(MatchError(os.ErrNotExist), string(deleted))
				return
			}
			g.Expect(err).NotTo(HaveOccurred(), string(out))
			g.Expect(strings.Split(strings.TrimSpace(string(deleted)), "\n")).To(Equal(c.deletes))
		})
	}
}
