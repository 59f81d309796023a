package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

func newStatus(o *options) *cobra.Command {
	var follow bool
	command := &cobra.Command{
		Use:   "status [KIND[/NAME]] [-w]",
		Short: "Show the phases of an object, its children and its last drifts; or a table of many objects.",
		Example: "  kubectl fixpoint status appservice/web\n" +
			"  kubectl fixpoint status appservice/web -w\n" +
			"  kubectl fixpoint status -A",
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: o.completeObjects,
		RunE: func(command *cobra.Command, args []string) error {
			t, c, err := o.start(args)
			if err != nil {
				return err
			}
			show := func(ctx context.Context) (string, error) { return o.status(ctx, c, t) }
			if follow {
				return o.follow(command.Context(), c, t, show)
			}
			return o.show(command.Context(), show)
		},
	}
	command.Flags().BoolVarP(&follow, "watch", "w", false, "Show changes as they happen.")
	o.addAllNamespaces(command)
	o.addOutput(command)
	return command
}

// start parses what every command begins with.
func (o *options) start(args []string) (target, *clients, error) {
	if err := o.checkOutput(); err != nil {
		return target{}, nil, err
	}
	t, err := parseTarget(args)
	if err != nil {
		return target{}, nil, err
	}
	c, err := o.connect()
	return t, c, err
}

// show prints what a command shows once.
func (o *options) show(ctx context.Context, show func(context.Context) (string, error)) error {
	text, err := show(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(o.Out, text)
	return err
}

// details are what status shows of one object.
type details struct {
	Kind       string            `json:"kind"`
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	Summary    string            `json:"summary,omitempty"`
	Ready      *metav1.Condition `json:"ready,omitempty"`
	Current    bool              `json:"current"`
	Reason     string            `json:"reasonOfUser,omitempty"`
	Phases     []phaseRow        `json:"phases"`
	Children   []childRow        `json:"children"`
	Drifts     []v1beta1.Drift   `json:"drifts,omitempty"`
	WaitsUntil *metav1.Time      `json:"waitsUntil,omitempty"`
	Notes      []string          `json:"notes,omitempty"`
}

// childRow is one child with its readiness.
type childRow struct {
	Child string `json:"child"`
	Ready string `json:"ready"`
	Note  string `json:"note,omitempty"`
}

func (o *options) status(ctx context.Context, c *clients, t target) (string, error) {
	objects, notes, err := c.objects(ctx, t)
	if err != nil {
		return "", err
	}
	if t.name == "" {
		rows := fleetRows(objects)
		return o.formatList(rows, notesText(notes), func() string { return fleetText(rows, o.now(), c.namespace) })
	}
	children, notes, err := c.children(ctx, objects[0])
	if err != nil {
		return "", err
	}
	d := detailsOf(objects[0], children, notes)
	return o.format(d, func() string { return statusText(d, o.now()) })
}

func detailsOf(o object, children []client.Object, notes []string) details {
	d := details{
		Kind: o.kind.name, Namespace: o.GetNamespace(), Name: o.GetName(), Summary: o.summary, Current: o.isCurrent(),
		Ready: o.condition(v1beta1.ConditionReady), Reason: o.GetAnnotations()[v1beta1.AnnotationReason],
		Phases: phaseRows(o), Children: []childRow{}, Drifts: o.drifts, Notes: notes, WaitsUntil: o.deadline,
	}
	for _, child := range children {
		ready, note := readiness(child)
		d.Children = append(d.Children, childRow{kindName(child) + "/" + child.GetName(), ready, note})
		if deployment, ok := child.(*appsv1.Deployment); ok && d.WaitsUntil == nil {
			d.WaitsUntil = progressDeadline(deployment)
		}
	}
	return d
}

// progressDeadline is when a rollout that makes no further progress is stalled; nil if it is complete or stalled.
func progressDeadline(d *appsv1.Deployment) *metav1.Time {
	for _, c := range d.Status.Conditions {
		isOver := c.Reason == "NewReplicaSetAvailable" || c.Status != corev1.ConditionTrue
		if c.Type == appsv1.DeploymentProgressing && !isOver && d.Spec.ProgressDeadlineSeconds != nil {
			deadline := metav1.NewTime(c.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second))
			return &deadline
		}
	}
	return nil
}

// readiness says how far an object below an object of Fixpoint is, by its own status.
func readiness(o client.Object) (ready, note string) {
	if o.GetDeletionTimestamp() != nil {
		return "-", terminating(o)
	}
	switch live := o.(type) {
	case *appsv1.Deployment:
		return fraction(live.Status.AvailableReplicas, ptr.Deref(live.Spec.Replicas, 1)), deploymentNote(live)
	case *appsv1.ReplicaSet:
		return fraction(live.Status.AvailableReplicas, ptr.Deref(live.Spec.Replicas, 1)), ""
	case *corev1.Pod:
		return podReadiness(live)
	case *batchv1.Job:
		return fraction(live.Status.Succeeded, ptr.Deref(live.Spec.Completions, 1)), jobNote(live)
	case *autoscalingv2.HorizontalPodAutoscaler:
		return fmt.Sprintf("%d of %d to %d", live.Status.CurrentReplicas, ptr.Deref(live.Spec.MinReplicas, 1), live.Spec.MaxReplicas), ""
	case *policyv1.PodDisruptionBudget:
		return fraction(live.Status.CurrentHealthy, live.Status.DesiredHealthy), fmt.Sprintf("%d disruptions allowed", live.Status.DisruptionsAllowed)
	default:
		return "exists", ""
	}
}

func terminating(o client.Object) string {
	note := "terminating"
	if finalizers := o.GetFinalizers(); len(finalizers) > 0 {
		note += " (finalizers: " + strings.Join(finalizers, ", ") + ")"
	}
	return note
}

func deploymentNote(d *appsv1.Deployment) string {
	if updated := d.Status.UpdatedReplicas; updated < ptr.Deref(d.Spec.Replicas, 1) {
		return fmt.Sprintf("%d updated", updated)
	}
	return ""
}

func jobNote(job *batchv1.Job) string {
	if workload.JobFailed(job) {
		return "failed"
	}
	return ""
}

func podReadiness(pod *corev1.Pod) (ready, note string) {
	count := 0
	for _, status := range pod.Status.ContainerStatuses {
		if status.Ready {
			count++
		}
	}
	note = string(pod.Status.Phase)
	if problem := podProblem(pod); problem != nil {
		note = problem.reason
	}
	return fmt.Sprintf("%d/%d", count, len(pod.Spec.Containers)), note
}

func fraction(is, want int32) string { return fmt.Sprintf("%d/%d", is, want) }

// statusText is what status prints for one object.
func statusText(d details, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s/%s: %s\n", d.Kind, d.Namespace, d.Name, headline(d, now))
	if !d.Current && d.Ready != nil {
		b.WriteString("The controller has not observed the current spec yet; what follows is about an earlier one.\n")
	}
	if d.Reason != "" {
		fmt.Fprintf(&b, "Reason given by a user: %s\n", printable(d.Reason))
	}
	rows := make([][]string, 0, len(d.Phases))
	for _, p := range d.Phases {
		rows = append(rows, []string{p.Phase, p.Verdict, p.Reason, ago(now, p.Since), p.Message})
	}
	b.WriteString("\n" + table([]string{"PHASE", "VERDICT", "REASON", "SINCE", "MESSAGE"}, rows))
	if len(d.Children) > 0 {
		rows = nil
		for _, child := range d.Children {
			rows = append(rows, []string{child.Child, child.Ready, child.Note})
		}
		b.WriteString("\n" + table([]string{"CHILD", "READY", "NOTE"}, rows))
	}
	if len(d.Drifts) > 0 {
		b.WriteString("\nLast drifts:\n")
		for _, drift := range d.Drifts {
			fmt.Fprintf(&b, "  %s ago: %s\n", ago(now, &drift.Time), printable(driftSentence(drift)))
		}
	}
	if waits := waitsFor(d, now); waits != "" {
		b.WriteString("\n" + waits)
	}
	return b.String() + notesText(d.Notes)
}

func headline(d details, now time.Time) string {
	if d.Ready == nil {
		return "not reconciled yet; check that the manager runs and watches the namespace"
	}
	ready := map[metav1.ConditionStatus]string{metav1.ConditionTrue: "ready", metav1.ConditionFalse: "not ready"}[d.Ready.Status]
	ready = cmp.Or(ready, "readiness unknown")
	return fmt.Sprintf("%s, %s for %s (%s)", d.Summary, ready, ago(now, &d.Ready.LastTransitionTime), d.Ready.Reason)
}

// waitsFor says what the object waits for, and until when.
func waitsFor(d details, now time.Time) string {
	row := gate(d.Phases)
	switch {
	case row == nil:
		return ""
	case row.Verdict == verdictStalled:
		return fmt.Sprintf("%s is stalled until the spec or the cluster changes: kubectl fixpoint why says what helps.\n", row.Phase)
	case d.WaitsUntil != nil && d.WaitsUntil.After(now):
		return fmt.Sprintf("Waits for %s, which fails at %s (in %s) unless it makes progress.\n", row.Phase, d.WaitsUntil.UTC().Format(time.RFC3339),
			duration.HumanDuration(d.WaitsUntil.Sub(now)))
	default:
		return fmt.Sprintf("Waits for %s, without a deadline.\n", row.Phase)
	}
}

// fleetRow is one line of the table of many objects.
type fleetRow struct {
	Namespace string       `json:"namespace"`
	Object    string       `json:"object"`
	Ready     string       `json:"ready"`
	Reason    string       `json:"reason,omitempty"`
	Phase     string       `json:"phase,omitempty"`
	Since     *metav1.Time `json:"since,omitempty"`
	Message   string       `json:"message,omitempty"`
}

// fleetRows sorts what is not ready first.
func fleetRows(objects []object) []fleetRow {
	rows := make([]fleetRow, 0, len(objects))
	for _, o := range objects {
		row := fleetRow{Object: strings.ToLower(o.kind.name) + "/" + o.GetName(), Ready: "-", Namespace: o.GetNamespace()}
		if ready := o.condition(v1beta1.ConditionReady); ready != nil {
			row.Ready, row.Reason, row.Since, row.Message = string(ready.Status), ready.Reason, &ready.LastTransitionTime, ready.Message
		}
		if at := gate(phaseRows(o)); at != nil {
			row.Phase = at.Phase
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b fleetRow) int {
		if isTrue := string(metav1.ConditionTrue); (a.Ready == isTrue) != (b.Ready == isTrue) {
			if a.Ready == isTrue {
				return 1
			}
			return -1
		}
		return strings.Compare(a.Namespace+" "+a.Object, b.Namespace+" "+b.Object)
	})
	return rows
}

// maxCell bounds messages in tables of many objects.
const maxCell = 100

func fleetText(rows []fleetRow, now time.Time, namespace string) string {
	if len(rows) == 0 {
		return nothingFound(namespace)
	}
	header := []string{"OBJECT", "READY", "REASON", "PHASE", "SINCE", "MESSAGE"}
	if namespace == "" {
		header = append([]string{"NAMESPACE"}, header...)
	}
	lines, ready := make([][]string, 0, len(rows)), 0
	for _, row := range rows {
		line := []string{row.Object, row.Ready, row.Reason, row.Phase, ago(now, row.Since), shorten(row.Message)}
		if namespace == "" {
			line = append([]string{row.Namespace}, line...)
		}
		lines = append(lines, line)
		if row.Ready == string(metav1.ConditionTrue) {
			ready++
		}
	}
	return table(header, lines) + fmt.Sprintf("\n%d of %d ready.\n", ready, len(rows))
}

func shorten(text string) string {
	if runes := []rune(text); len(runes) > maxCell {
		return string(runes[:maxCell]) + "…"
	}
	return text
}

func nothingFound(namespace string) string {
	if namespace == "" {
		return "No AppService, MCPServer or SecureStorage found.\n"
	}
	return "No AppService, MCPServer or SecureStorage found in namespace " + namespace + ": use -A for all namespaces.\n"
}
