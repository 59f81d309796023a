package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func newBlame(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "blame KIND/NAME",
		Short: "Show an object as YAML, with the field manager and the time of the last write beside each line.",
		Long: "Show an object of any kind as YAML, with the field manager beside each line, and the time at which that manager last changed " +
			"any of its fields. Lines without a manager were set by the API server. The values of Secrets are not shown.",
		Example: "  kubectl fixpoint blame deployment/web\n  kubectl fixpoint blame appservice/web",
		Args:    cobra.RangeArgs(1, 2), ValidArgsFunction: o.completeObjects,
		RunE: func(command *cobra.Command, args []string) error {
			c, err := o.connect()
			if err != nil {
				return err
			}
			return o.show(command.Context(), func(ctx context.Context) (string, error) {
				live, err := o.anyObject(ctx, c, args)
				if err != nil {
					return "", err
				}
				return blameText(live, o.now()), nil
			})
		},
	}
}

// anyObject reads an object of any kind, by the names that kubectl accepts.
func (o *options) anyObject(ctx context.Context, c *clients, args []string) (*unstructured.Unstructured, error) {
	kindName, name, slash := strings.Cut(args[0], "/")
	if !slash && len(args) > 1 {
		name = args[1]
	}
	if name == "" {
		return nil, fmt.Errorf("no object is named: give it as KIND/NAME, such as deployment/web")
	}
	api, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("finding the kind %s: %w", kindName, err)
	}
	cached := memory.NewMemCacheClient(api)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	_, resource := schema.ParseResourceArg(strings.ToLower(kindName))
	gvk, err := mapper.KindFor(resource.WithVersion(""))
	if err != nil {
		return nil, fmt.Errorf("finding the kind %s: %w", kindName, err)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(gvk)
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, live); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", gvk.Kind, name, err)
	}
	return live, nil
}

// claim is what one field manager holds at a place of an object.
type claim struct {
	entry *metav1.ManagedFieldsEntry
	// below are the fields that it holds below the place; a place without fields below is held as a whole.
	below map[string]any
}

// blamedLine is a line of YAML with the managers that hold it.
type blamedLine struct {
	text   string
	claims []claim
}

// claimsOf are what each field manager holds of an object.
func claimsOf(live *unstructured.Unstructured) []claim {
	entries := live.GetManagedFields()
	claims := make([]claim, 0, len(entries))
	for i := range entries {
		var tree map[string]any
		if entries[i].FieldsV1 != nil && json.Unmarshal(entries[i].FieldsV1.GetRawBytes(), &tree) == nil {
			claims = append(claims, claim{&entries[i], tree})
		}
	}
	return claims
}

// blamedLines are the lines of an object without its managed fields.
func blamedLines(live *unstructured.Unstructured) []blamedLine {
	claims, shown := claimsOf(live), live.DeepCopy()
	unstructured.RemoveNestedField(shown.Object, "metadata", "managedFields")
	if shown.GetKind() == "Secret" {
		hideValues(shown.Object, "data", "stringData")
		metadata, _ := shown.Object["metadata"].(map[string]any)
		hideValues(metadata, "annotations") // kubectl apply records the values in one
	}
	return blameMap(shown.Object, claims, "")
}

func blameText(live *unstructured.Unstructured, now time.Time) string {
	lines := blamedLines(live)
	width := 0
	labels := make([]string, len(lines))
	for i, line := range lines {
		labels[i] = labelOf(line.claims, now)
		width = max(width, len(labels[i]))
	}
	var b strings.Builder
	for i, line := range lines {
		fmt.Fprintf(&b, "%-*s  %s\n", width, labels[i], printable(line.text))
	}
	return b.String()
}

// hideValues replaces the values of maps.
func hideValues(object map[string]any, fields ...string) {
	for _, field := range fields {
		values, _ := object[field].(map[string]any)
		hideAll(values)
	}
}

// holdersOf are the managers that hold a line as a leaf, the latest first.
func holdersOf(claims []claim) []*metav1.ManagedFieldsEntry {
	var holders []*metav1.ManagedFieldsEntry
	for _, c := range claims {
		holders = append(holders, c.entry)
	}
	slices.SortStableFunc(holders, func(a, b *metav1.ManagedFieldsEntry) int {
		return cmp.Or(timeOf(b).Compare(timeOf(a)), strings.Compare(a.Manager, b.Manager))
	})
	return holders
}

// labelOf names the managers that hold a line, and the age of the last write.
func labelOf(claims []claim, now time.Time) string {
	holders := holdersOf(claims)
	if len(holders) == 0 {
		return ""
	}
	label := holders[0].Manager + " " + ago(now, holders[0].Time)
	if more := len(holders) - 1; more > 0 {
		label += fmt.Sprintf(" +%d", more)
	}
	return label
}

func timeOf(entry *metav1.ManagedFieldsEntry) time.Time {
	if entry.Time == nil {
		return time.Time{}
	}
	return entry.Time.Time
}

// blameMap renders the fields of a map in the order of kubectl.
func blameMap(fields map[string]any, claims []claim, indent string) []blamedLine {
	var lines []blamedLine
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		lines = append(lines, blameValue(indent+key(name)+":", fields[name], descend(claims, func(element string) bool {
			return element == fieldPrefix+name
		}), indent+"  ")...)
	}
	return lines
}

// key quotes keys that are not plain in YAML.
func key(name string) string {
	plain := name != "" && !strings.ContainsAny(name, ": #{}[]&*!|>'\"%@`,")
	if plain {
		return name
	}
	return asJSON(name)
}

// blameValue renders a value after the text that introduces it.
func blameValue(introduction string, value any, claims []claim, indent string) []blamedLine {
	switch typed := value.(type) {
	case map[string]any:
		if len(typed) > 0 {
			return append([]blamedLine{{introduction, whole(claims)}}, blameMap(typed, claims, indent)...)
		}
	case []any:
		if len(typed) > 0 {
			return append([]blamedLine{{introduction, whole(claims)}}, blameList(typed, claims, indent)...)
		}
	}
	return []blamedLine{{introduction + " " + cmp.Or(asJSON(value), "null"), claims}}
}

func blameList(items []any, claims []claim, indent string) []blamedLine {
	var lines []blamedLine
	for _, item := range items {
		below := descend(claims, func(element string) bool { return selectsItem(element, item) })
		fields, isMap := item.(map[string]any)
		if !isMap || len(fields) == 0 {
			lines = append(lines, blameValue(indent+"-", item, below, indent+"  ")...)
			continue
		}
		rendered := blameMap(fields, below, indent+"  ")
		rendered[0].text = indent + "- " + strings.TrimPrefix(rendered[0].text, indent+"  ")
		lines = append(lines, rendered...)
	}
	return lines
}

// descend are the claims on what an element selects. What is held as a whole is held with everything below.
func descend(claims []claim, selects func(element string) bool) []claim {
	var found []claim
	for _, c := range claims {
		if isWhole(c) {
			found = append(found, c)
			continue
		}
		for element, below := range c.below {
			if selects(element) {
				fields, _ := below.(map[string]any)
				found = append(found, claim{c.entry, fields})
				break
			}
		}
	}
	return found
}

// isWhole is true for a claim on a place itself, without fields below.
func isWhole(c claim) bool {
	for element := range c.below {
		if element != itself {
			return false
		}
	}
	return true
}

func whole(claims []claim) []claim {
	return slices.DeleteFunc(slices.Clone(claims), func(c claim) bool { return !isWhole(c) })
}
