package campaign

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// door asks the API server what would become of objects. Nothing is stored.
type door struct {
	client    dynamic.Interface
	namespace string
	// versions of the stored objects, which an update has to carry.
	versions map[string]string
}

// way is how an object is brought before the API server.
type way string

const (
	byCreate way = "create"
	byUpdate way = "update"
	byApply  way = "apply"
)

// existing is the name of the stored object of a seed, which updates are of.
func existing(seed string) string { return "existing-" + seed }

func newDoor(namespace string) (*door, error) {
	client, err := dynamic.NewForConfig(shared.Admin())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &door{client: client, namespace: namespace, versions: map[string]string{}}, nil
}

func (d *door) objects(kind string) dynamic.ResourceInterface {
	resource := v1alpha1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")
	return d.client.Resource(resource).Namespace(d.namespace)
}

// build makes an object of a tree, which it takes.
func build(kind, name string, tree map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: tree}
	object.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	object.SetName(name)
	return object
}

// try brings an object before the API server, which checks fields as strictly as it is told.
func (d *door) try(ctx context.Context, how way, kind string, object *unstructured.Unstructured, strictness string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, patience) // a rule may take for ever, and nobody ends it
	defer cancel()
	dryRun := []string{metav1.DryRunAll}
	switch how {
	case byUpdate:
		return d.objects(kind).Update(ctx, object, metav1.UpdateOptions{DryRun: dryRun, FieldValidation: strictness})
	case byApply:
		return d.objects(kind).Apply(ctx, object.GetName(), object, metav1.ApplyOptions{
			DryRun: dryRun, FieldManager: "campaign", Force: true})
	default:
		return d.objects(kind).Create(ctx, object, metav1.CreateOptions{DryRun: dryRun, FieldValidation: strictness})
	}
}

// isRefusal: the API server judged the object and did not like it. Everything else that it may say
// instead, code 500 above all, is a finding.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || isUntyped(err)
}

// isUntyped: an apply that does not fit the schema is answered with code 500, but in words.
func isUntyped(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && strings.HasPrefix(status.ErrStatus.Message, "failed to create typed patch object ")
}

var (
	brackets  = regexp.MustCompile(`\[[^\[\]]*\]`)
	someField = regexp.MustCompile(`^\W*spec(\.[a-zA-Z0-9_]+|\[[^\]]*\])*`)
	unknown   = regexp.MustCompile(`unknown field "([^"]*)"`)
	misformed = regexp.MustCompile(`^Invalid value: "": Checked value must be of type .* in (spec\S*)$`)
	untyped   = regexp.MustCompile(`\.spec[.\w/ -]*`)
)

// decoder reads objects as the manager's watches do.
var decoder = serializer.NewCodecFactory(controllers.NewScheme()).UniversalDeserializer()

// isReadable says whether the manager can read what the API server would store. If it cannot, the
// watch breaks and so does each list: one object keeps the manager from seeing all others of its kind.
func isReadable(stored *unstructured.Unstructured) error {
	text, err := stored.MarshalJSON()
	if err != nil {
		return fmt.Errorf("writing what is stored: %w", err)
	}
	_, _, err = decoder.Decode(text, nil, nil)
	return err
}

// complaints are the fields that a refusal points to. That some rules were not checked is none.
func complaints(err error) []string {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return nil
	}
	var fields []string
	if details := status.ErrStatus.Details; details != nil {
		for _, cause := range details.Causes {
			fields = append(fields, cause.Field)
			// What does not fit a format is told without the path of its own.
			if match := misformed.FindStringSubmatch(cause.Message); match != nil {
				fields = append(fields, match[1])
			}
		}
	}
	for _, match := range unknown.FindAllStringSubmatch(status.ErrStatus.Message, -1) {
		fields = append(fields, match[1])
	}
	if isUntyped(err) {
		fields = append(fields, untyped.FindAllString(flat(status.ErrStatus.Message), -1)...)
	}
	return fields
}

// namesSome says whether any field of the spec is pointed to.
func namesSome(err error) bool {
	return slices.ContainsFunc(complaints(err), someField.MatchString)
}

// names says whether a refusal points to a field. Which item of a list is left aside: some messages
// count them, and some name them by their keys. A fault of a whole item may be told of its list.
func names(err error, path specs.Path) bool {
	for len(path) > 1 {
		if _, isIndex := path[len(path)-1].(int); !isIndex {
			break
		}
		path = path[:len(path)-1]
	}
	want := flat(path.String())
	return slices.ContainsFunc(complaints(err), func(field string) bool {
		field = strings.TrimPrefix(flat(field), ".")
		// An item without its key is told of its list.
		return field == want || isUntyped(err) && strings.Count(field, ".") > 0 && strings.HasPrefix(want, field+".")
	})
}

// flat takes out of a path which items of lists it leads through.
func flat(path string) string {
	for brackets.MatchString(path) {
		path = brackets.ReplaceAllString(path, "")
	}
	return path
}
