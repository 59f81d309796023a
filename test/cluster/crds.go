package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// establishTimeout limits the wait for all CRDs. It takes a second on an idle machine, and a minute on one that is busy with
// work of a higher priority.
const establishTimeout = 10 * time.Minute

// InstallCRDs applies the CustomResourceDefinitions in files and directories and waits until all are established. In
// directories it reads .yaml and .yml files and ignores other kinds.
func (c *Cluster) InstallCRDs(ctx context.Context, paths ...string) error {
	definitions, err := readCRDs(paths)
	if err != nil {
		return err
	}
	clientset, err := apiextensions.NewForConfig(c.Admin())
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	for _, definition := range definitions {
		if definition.yaml, err = c.conversion.convertedBy(definition.yaml); err != nil {
			return fmt.Errorf("reading %s: %w", definition.file, err)
		}
		if err := applyCRD(ctx, clientset, definition); err != nil {
			return err
		}
	}
	for _, definition := range definitions {
		name := definition.name
		err := await(ctx, "CustomResourceDefinition "+name, func(ctx context.Context) error {
			return established(ctx, clientset, name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func applyCRD(ctx context.Context, clientset apiextensions.Interface, definition crd) error {
	force := true
	_, err := clientset.ApiextensionsV1().CustomResourceDefinitions().Patch(ctx, definition.name, types.ApplyPatchType,
		definition.yaml, metav1.PatchOptions{FieldManager: "fixpoint-test-cluster", Force: &force})
	if err != nil {
		return fmt.Errorf("applying CustomResourceDefinition %s from %s: %w", definition.name, definition.file, err)
	}
	return nil
}

func established(ctx context.Context, clientset apiextensions.Interface, name string) error {
	definition, err := clientset.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range definition.Status.Conditions {
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			return discovered(clientset, definition)
		}
	}
	return fmt.Errorf("not established: %v", definition.Status.Conditions)
}

// discovered reports whether discovery contains a CRD, which happens shortly after it is established.
func discovered(clientset apiextensions.Interface, definition *apiextensionsv1.CustomResourceDefinition) error {
	for _, version := range definition.Spec.Versions {
		if !version.Served {
			continue
		}
		list, err := clientset.Discovery().ServerResourcesForGroupVersion(definition.Spec.Group + "/" + version.Name)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == definition.Spec.Names.Plural }) {
			return fmt.Errorf("%s is not in discovery", definition.Name)
		}
	}
	return nil
}

// crd is a CustomResourceDefinition in a file.
type crd struct {
	name, file string
	yaml       []byte
}

func readCRDs(paths []string) ([]crd, error) {
	var all []crd
	for _, path := range paths {
		files, err := yamlFiles(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			found, err := readCRDFile(file)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("reading CustomResourceDefinitions: none in %v", paths)
	}
	return all, nil
}

// yamlFiles returns the files at the path, or below it if it is a directory.
func yamlFiles(path string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if extension := filepath.Ext(file); file == path || extension == ".yaml" || extension == ".yml" {
			files = append(files, file)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading CustomResourceDefinitions: %w", err)
	}
	return files, nil
}

func readCRDFile(file string) ([]crd, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading CustomResourceDefinitions: %w", err)
	}
	var found []crd
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		var head metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(document, &head); err != nil {
			return nil, fmt.Errorf("parsing %s: %w", file, err)
		}
		if head.Kind != "CustomResourceDefinition" {
			continue
		}
		found = append(found, crd{name: head.Name, file: file, yaml: document})
	}
}
