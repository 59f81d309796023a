package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/test/deploy"
)

// samples applies every sample there is, and returns its objects.
func (w *fixture) samples() []client.Object {
	w.t.Helper()
	var objects []client.Object
	dir := filepath.Join(deploy.Root, "config", "samples")
	w.Expect(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "kustomization.yaml" {
			return err
		}
		w.run("apply", "--server-side", "-f", path)
		objects = append(objects, w.sample(path)...)
		return nil
	})).To(Succeed())
	w.Expect(len(objects)).To(BeNumerically(">=", 6))
	// The resources that the kustomization of a directory names exist.
	w.run("apply", "--server-side", "-k", dir)
	w.run("apply", "--server-side", "-k", filepath.Join(dir, "mcpserver"))
	return objects
}

// sample reads which objects a file has.
func (w *fixture) sample(path string) []client.Object {
	w.t.Helper()
	content, err := os.ReadFile(path)
	w.Expect(err).NotTo(HaveOccurred())
	var objects []client.Object
	for _, text := range slices.Collect(strings.SplitSeq(string(content), "\n---\n")) {
		var head struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		w.Expect(yaml.Unmarshal([]byte(text), &head)).To(Succeed())
		switch head.Kind {
		case "AppService":
			objects = append(objects, app(head.Metadata.Namespace, head.Metadata.Name))
		case "MCPServer":
			objects = append(objects, server(head.Metadata.Namespace, head.Metadata.Name))
		case "SecureStorage":
			objects = append(objects, storage(head.Metadata.Namespace, head.Metadata.Name))
		}
	}
	w.Expect(objects).NotTo(BeEmpty(), path)
	return objects
}
