package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const group = "fixpoint.dev"

// row is one resource in the table.
type row struct {
	kind, namespace, name         string
	ready, reason, phase, message string
	created                       time.Time
	// current reports whether the Ready condition observed the current generation.
	current bool
}

func (r row) isReady() bool { return r.current && r.ready == string(metav1.ConditionTrue) }

// lister lists the resources of all kinds in the group.
type lister struct {
	client    dynamic.Interface
	resources []schema.GroupVersionResource
}

func newLister(config *rest.Config) (*lister, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	lists, err := discoverer.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("discovering the kinds of %s: %w", group, err)
	}
	return &lister{client: client, resources: resourcesOf(group, lists)}, nil
}

func resourcesOf(group string, lists []*metav1.APIResourceList) []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || version.Group != group {
			continue
		}
		for _, resource := range list.APIResources {
			if !strings.Contains(resource.Name, "/") {
				all = append(all, version.WithResource(resource.Name))
			}
		}
	}
	return all
}

// list returns the rows, sorted by kind, namespace and name, and the objects.
func (l *lister) list(ctx context.Context) ([]row, []unstructured.Unstructured, error) {
	var rows []row
	var objects []unstructured.Unstructured
	for _, resource := range l.resources {
		list, err := l.client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, nil, fmt.Errorf("listing %s: %w", resource.Resource, err)
		}
		objects = append(objects, list.Items...)
	}
	for _, object := range objects {
		rows = append(rows, rowOf(object))
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return rows, objects, nil
}

func rowOf(object unstructured.Unstructured) row {
	r := row{
		kind: object.GetKind(), namespace: object.GetNamespace(), name: object.GetName(),
		ready: string(metav1.ConditionUnknown), created: object.GetCreationTimestamp().Time,
	}
	r.phase, _, _ = unstructured.NestedString(object.Object, "status", "phase")
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, each := range conditions {
		condition, _ := each.(map[string]any)
		if condition["type"] != "Ready" {
			continue
		}
		r.ready, _ = condition["status"].(string)
		r.reason, _ = condition["reason"].(string)
		r.message, _ = condition["message"].(string)
		observed, _ := condition["observedGeneration"].(int64)
		r.current = observed == object.GetGeneration()
	}
	return r
}

func allReady(rows []row) bool {
	return len(rows) > 0 && !slices.ContainsFunc(rows, func(r row) bool { return !r.isReady() })
}

// render formats the rows as columns and truncates lines at width; 0 means no limit.
func render(rows []row, now time.Time, width int) []string {
	cells := [][]string{{"KIND", "NAMESPACE/NAME", "READY", "REASON", "PHASE", "AGE", "MESSAGE"}}
	for _, r := range rows {
		cells = append(cells, []string{
			r.kind, r.namespace + "/" + r.name, r.ready, r.reason, r.phase, age(r, now), firstLine(r.message),
		})
	}
	widths := widthsOf(cells)
	var lines []string
	for _, line := range cells {
		var b strings.Builder
		for column, cell := range line {
			fmt.Fprintf(&b, "%-*s  ", widths[column], cell)
		}
		lines = append(lines, cut(strings.TrimRight(b.String(), " "), width))
	}
	return lines
}

func age(r row, now time.Time) string {
	if now.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(r.created))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func widthsOf(cells [][]string) []int {
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for column, cell := range line {
			widths[column] = max(widths[column], len(cell))
		}
	}
	return widths
}

func cut(line string, width int) string {
	runes := []rune(line)
	if width <= 0 || len(runes) <= width {
		return line
	}
	return string(runes[:width-1]) + "…"
}
