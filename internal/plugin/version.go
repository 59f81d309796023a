package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/buildinfo"
)

func newVersion(o *options) *cobra.Command {
	var clientOnly bool
	command := &cobra.Command{
		Use:   "version [--client]",
		Short: "Show the versions of the plugin, the manager and the CRDs, and whether they fit.",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.checkOutput(); err != nil {
				return err
			}
			found := versions{Plugin: buildinfo.Get()}
			if !clientOnly {
				c, err := o.connect()
				if err != nil {
					return err
				}
				if err := found.read(command.Context(), c); err != nil {
					return err
				}
			}
			return o.show(command.Context(), func(context.Context) (string, error) {
				return o.format(found, func() string { return versionText(found) })
			})
		},
	}
	command.Flags().BoolVar(&clientOnly, "client", false, "Show the version of the plugin only, without a cluster.")
	o.addOutput(command)
	return command
}

// versions are what version shows.
type versions struct {
	Plugin   buildinfo.Info   `json:"plugin"`
	Managers []managerVersion `json:"managers,omitempty"`
	CRDs     []crdVersion     `json:"crds,omitempty"`
	Notes    []string         `json:"notes,omitempty"`
}

type managerVersion struct {
	Deployment string `json:"deployment"`
	Image      string `json:"image"`
	Available  string `json:"available"`
}

// crdVersion are the versions in which the API server serves a kind.
type crdVersion struct {
	Name   string   `json:"name"`
	Served []string `json:"served"`
	// Missing are the fields of the status that the plugin needs and the CRD does not have.
	Missing []string `json:"missing,omitempty"`
}

func (v *versions) read(ctx context.Context, c *clients) error {
	managers, note, err := c.managers(ctx)
	if err != nil {
		return err
	}
	v.Notes = append(v.Notes, notesOf(note)...)
	for i := range managers {
		v.Managers = append(v.Managers, managerVersionOf(&managers[i]))
	}
	for _, k := range kinds {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		name := k.resource + "." + v1beta1.SchemeGroupVersion.Group
		err := c.Get(ctx, client.ObjectKey{Name: name}, crd)
		switch {
		case apierrors.IsForbidden(err):
			v.Notes = append(v.Notes, "you may not read the CustomResourceDefinition "+name)
		case apierrors.IsNotFound(err):
			v.CRDs = append(v.CRDs, crdVersion{Name: name})
		case err != nil:
			return fmt.Errorf("reading the CustomResourceDefinition %s: %w", name, err)
		default:
			v.CRDs = append(v.CRDs, crdVersionOf(crd))
		}
	}
	return nil
}

func managerVersionOf(d *appsv1.Deployment) managerVersion {
	v := managerVersion{Deployment: d.Namespace + "/" + d.Name, Available: fraction(d.Status.AvailableReplicas, ptr.Deref(d.Spec.Replicas, 1))}
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name == managerContainer {
			v.Image = container.Image
		}
	}
	return v
}

func crdVersionOf(crd *unstructured.Unstructured) crdVersion {
	v := crdVersion{Name: crd.GetName()}
	list, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, item := range list {
		version, ok := item.(map[string]any)
		if !ok || version["served"] != true {
			continue
		}
		name, _ := version["name"].(string)
		v.Served = append(v.Served, name)
		if name != v1beta1.SchemeGroupVersion.Version {
			continue
		}
		const needed = "lastHandledReconcileAt"
		if _, has, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "status", "properties", needed); !has {
			v.Missing = append(v.Missing, "status."+needed)
		}
	}
	return v
}

func versionText(v versions) string {
	var b strings.Builder
	fmt.Fprintf(&b, "plugin:  %s\n", v.Plugin)
	for _, manager := range v.Managers {
		fmt.Fprintf(&b, "manager: %s, Deployment %s, %s available\n", printable(manager.Image), manager.Deployment, manager.Available)
	}
	for _, crd := range v.CRDs {
		served := strings.Join(crd.Served, ", ")
		served = cmp.Or(served, "not installed")
		fmt.Fprintf(&b, "CRD:     %s %s\n", crd.Name, served)
	}
	for _, note := range append(v.problems(), v.Notes...) {
		b.WriteString("Note: " + printable(note) + ".\n")
	}
	return b.String()
}

// problems say what does not fit.
func (v versions) problems() []string {
	var problems []string
	for _, manager := range v.Managers {
		if tag := tagOf(manager.Image); tag != "" && strings.HasPrefix(v.Plugin.Version, "v") && tag != v.Plugin.Version {
			problems = append(problems, fmt.Sprintf("the manager %s has the version %s and the plugin %s: plan may differ from what the manager does; install the plugin of the same version", manager.Deployment, tag, v.Plugin.Version))
		}
	}
	for _, crd := range v.CRDs {
		switch {
		case len(crd.Served) == 0:
			problems = append(problems, fmt.Sprintf("the CustomResourceDefinition %s is not installed: apply install.yaml of the release", crd.Name))
		case !slices.Contains(crd.Served, v1beta1.SchemeGroupVersion.Version):
			problems = append(problems, fmt.Sprintf("%s is not served in %s, the version that the plugin reads: install the plugin of the manager's version", crd.Name, v1beta1.SchemeGroupVersion.Version))
		case len(crd.Missing) > 0:
			problems = append(problems, fmt.Sprintf("%s has no field %s, so kubectl fixpoint reconcile cannot wait: apply install.yaml of the plugin's version", crd.Name, strings.Join(crd.Missing, ", ")))
		}
	}
	return problems
}

// tagOf is the tag of an image, without the digest.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	last := image[strings.LastIndex(image, "/")+1:]
	_, tag, _ := strings.Cut(last, ":")
	return tag
}
