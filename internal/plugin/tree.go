package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func newTree(o *options) *cobra.Command {
	return &cobra.Command{
		Use:               "tree KIND/NAME",
		Short:             "Show an object, its children, and their children down to pods, with readiness and field managers.",
		Example:           "  kubectl fixpoint tree appservice/web",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: o.completeObjects,
		RunE: func(command *cobra.Command, args []string) error {
			return o.onOne(command.Context(), args, func(ctx context.Context, c *clients, root object) error {
				tree, notes, err := c.tree(ctx, root)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(o.Out, treeText(tree, notes, o.now()))
				return err
			})
		},
	}
}

// node is an object of the tree.
type node struct {
	object   client.Object
	kind     string
	ready    string
	note     string
	children []node
}

// tree reads what the object controls, and what that controls.
func (c *clients) tree(ctx context.Context, o object) (node, []string, error) {
	root := node{object: o.Object, kind: o.kind.name, ready: "-"}
	if ready := o.condition(v1beta1.ConditionReady); ready != nil {
		root.ready, root.note = string(ready.Status), ready.Reason
	}
	children, notes, err := c.children(ctx, o)
	if err != nil {
		return root, nil, err
	}
	for _, child := range children {
		n := nodeOf(child)
		more, err := c.addBelow(ctx, &n)
		if err != nil {
			return root, nil, err
		}
		for _, note := range more {
			if !slices.Contains(notes, note) { // a Deployment and a Job both have pods
				notes = append(notes, note)
			}
		}
		root.children = append(root.children, n)
	}
	return root, notes, nil
}

func nodeOf(o client.Object) node {
	ready, note := readiness(o)
	return node{object: o, kind: kindName(o), ready: ready, note: note}
}

// addBelow adds what a child controls, down to pods.
func (c *clients) addBelow(ctx context.Context, n *node) (notes []string, err error) {
	switch live := n.object.(type) {
	case *appsv1.Deployment:
		return c.addReplicaSets(ctx, n, live)
	case *batchv1.Job:
		pods, note, err := c.controlled(ctx, live, &corev1.PodList{}, live.Namespace, client.MatchingLabels{batchv1.JobNameLabel: live.Name})
		for _, pod := range pods {
			n.children = append(n.children, nodeOf(pod))
		}
		return notesOf(note), err
	default:
		return nil, nil
	}
}

// addReplicaSets adds the ReplicaSets and pods of a Deployment, the newest first. ReplicaSets of the past without
// pods are left out.
func (c *clients) addReplicaSets(ctx context.Context, n *node, d *appsv1.Deployment) (notes []string, err error) {
	selector := client.MatchingLabels(d.Spec.Selector.MatchLabels)
	sets, note, err := c.controlled(ctx, d, &appsv1.ReplicaSetList{}, d.Namespace, selector)
	if note != "" || err != nil {
		return notesOf(note), err
	}
	sortNewestFirst(sets)
	for _, live := range sets {
		pods, note, err := c.controlled(ctx, live, &corev1.PodList{}, d.Namespace, selector)
		if err != nil {
			return nil, err
		}
		notes = notesOf(note)
		set, ok := live.(*appsv1.ReplicaSet)
		if ok && len(pods) == 0 && ptr.Deref(set.Spec.Replicas, 0) == 0 {
			continue
		}
		setNode := nodeOf(live)
		for _, pod := range pods {
			setNode.children = append(setNode.children, nodeOf(pod))
		}
		n.children = append(n.children, setNode)
	}
	return notes, nil
}

// sortNewestFirst sorts the ReplicaSets of a Deployment. The revision of an old one rises when it is used again.
func sortNewestFirst(sets []client.Object) {
	revision := func(set client.Object) int {
		number, _ := strconv.Atoi(set.GetAnnotations()["deployment.kubernetes.io/revision"]) // 0 until it is set
		return number
	}
	slices.SortStableFunc(sets, func(a, b client.Object) int {
		return cmp.Or(revision(b)-revision(a), b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time))
	})
}

func notesOf(note string) []string {
	if note == "" {
		return nil
	}
	return []string{note}
}

func treeText(root node, notes []string, now time.Time) string {
	rows := treeRows(root, "", "", now)
	return table([]string{"OBJECT", "READY", "NOTE", "AGE", "FIELD MANAGERS"}, rows) + notesText(notes)
}

// treeRows draws a node with the first prefix, and what is below it with the other.
func treeRows(n node, first, others string, now time.Time) [][]string {
	created := n.object.GetCreationTimestamp()
	rows := [][]string{{first + n.kind + "/" + n.object.GetName(), n.ready, n.note, ago(now, &created), holders(n.object)}}
	for i, child := range n.children {
		branch, below := "├─", "│ "
		if i == len(n.children)-1 {
			branch, below = "└─", "  "
		}
		rows = append(rows, treeRows(child, others+branch, others+below, now)...)
	}
	return rows
}

// maxHolders bounds how many field managers are listed.
const maxHolders = 4

// holders lists who holds how many fields of the object, status aside, most fields first.
func holders(o client.Object) string {
	counts := map[string]int{}
	for _, entry := range o.GetManagedFields() {
		if entry.Subresource == "" && entry.FieldsV1 != nil {
			counts[entry.Manager] += len(leavesOf(entry.FieldsV1.GetRawBytes()))
		}
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	var parts []string
	for _, name := range names[:min(len(names), maxHolders)] {
		parts = append(parts, fmt.Sprintf("%s (%d)", name, counts[name]))
	}
	if more := len(names) - maxHolders; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}
