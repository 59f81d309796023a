package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

func newWhy(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "why [KIND[/NAME]]",
		Short: "Say why an object is not Ready, which object is to blame, and what helps.",
		Long: "Say why an object is not Ready, which object is to blame, and what helps: a command, or a field to change. " +
			"Without a name, it groups the objects that are not Ready by reason.",
		Example:           "  kubectl fixpoint why appservice/web\n  kubectl fixpoint why -A",
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: o.completeObjects,
		RunE: func(command *cobra.Command, args []string) error {
			t, c, err := o.start(args)
			if err != nil {
				return err
			}
			return o.show(command.Context(), func(ctx context.Context) (string, error) { return o.why(ctx, c, t) })
		},
	}
	o.addAllNamespaces(command)
	return command
}

func (o *options) why(ctx context.Context, c *clients, t target) (string, error) {
	objects, notes, err := c.objects(ctx, t)
	if err != nil {
		return "", err
	}
	if t.name == "" {
		return whyFleet(objects, c.namespace) + notesText(notes), nil
	}
	found, err := c.evidence(ctx, objects[0])
	if err != nil {
		return "", err
	}
	return wrap(whyText(found, o.now())), nil
}

// evidence is what why goes by.
type evidence struct {
	object object
	// deployment, replicaSets and pods are those below the object, with the newest ReplicaSet and its pods first; nil if
	// they do not exist, or were not needed.
	deployment  *appsv1.Deployment
	replicaSets []appsv1.ReplicaSet
	pods        []corev1.Pod
	// events are about the pods and the ReplicaSets, the latest last.
	events []eventsv1.Event
	// managers is how many replicas of the manager are available; -1 if it is not known.
	managers int32
	// notes are what the user may not read.
	notes []string
}

// evidence reads what may be to blame: nothing below an object that waits for something else than its Deployment.
func (c *clients) evidence(ctx context.Context, o object) (evidence, error) {
	found := evidence{object: o, managers: -1}
	if len(o.conditions) == 0 || !o.isCurrent() {
		found.managers = c.availableManagers(ctx)
		return found, nil
	}
	if !o.isRollingOut() {
		return found, nil
	}
	deployments, note, err := c.controlled(ctx, o, &appsv1.DeploymentList{}, o.GetNamespace(), childLabels(o))
	found.addNote(note)
	if err != nil || len(deployments) == 0 {
		return found, err
	}
	found.deployment, _ = deployments[0].(*appsv1.Deployment)
	return found, c.addPods(ctx, &found)
}

// isRollingOut is true if the Deployment may be what the object waits for.
func (o object) isRollingOut() bool {
	if row := gate(phaseRows(o)); row != nil {
		return row.Phase == "Deployment" || row.Phase == "Protocol"
	}
	return o.condition(v1beta1.ConditionReconciling) != nil || o.condition(v1beta1.ConditionStalled) != nil
}

func (e *evidence) addNote(note string) {
	if note != "" {
		e.notes = append(e.notes, note)
	}
}

// addPods reads the ReplicaSets and pods of the Deployment, and the Events about them.
func (c *clients) addPods(ctx context.Context, found *evidence) error {
	namespace, selector := found.object.GetNamespace(), client.MatchingLabels(found.deployment.Spec.Selector.MatchLabels)
	sets, note, err := c.controlled(ctx, found.deployment, &appsv1.ReplicaSetList{}, namespace, selector)
	found.addNote(note)
	if err != nil {
		return err
	}
	sortNewestFirst(sets)
	regarding := map[string]bool{}
	for _, live := range sets {
		set, ok := live.(*appsv1.ReplicaSet)
		if !ok {
			continue
		}
		found.replicaSets = append(found.replicaSets, *set)
		regarding[string(set.UID)] = true
		pods, note, err := c.controlled(ctx, set, &corev1.PodList{}, namespace, selector)
		if err != nil {
			return err
		}
		if note != "" {
			found.addNote(note)
			break
		}
		for _, live := range pods {
			if pod, ok := live.(*corev1.Pod); ok {
				found.pods = append(found.pods, *pod)
				regarding[string(pod.UID)] = true
			}
		}
	}
	warnings, err := c.events(ctx, client.InNamespace(namespace), client.MatchingFields{"type": corev1.EventTypeWarning})
	found.events = slices.DeleteFunc(warnings, func(event eventsv1.Event) bool { return !regarding[string(event.Regarding.UID)] })
	if apierrors.IsForbidden(err) {
		found.addNote("you may not list Events in namespace " + namespace)
		err = nil
	}
	slices.SortStableFunc(found.events, func(a, b eventsv1.Event) int { return eventTime(a).Compare(eventTime(b)) })
	return err
}

// events lists Events.
func (c *clients) events(ctx context.Context, options ...client.ListOption) (found []eventsv1.Event, err error) {
	err = c.listEach(ctx, &eventsv1.EventList{}, func(live client.Object) {
		if event, ok := live.(*eventsv1.Event); ok {
			found = append(found, *event)
		}
	}, options...)
	return found, err
}

// eventTime is when an Event happened last. Components of Kubernetes fill different fields.
func eventTime(e eventsv1.Event) time.Time {
	last := e.EventTime.Time
	for _, other := range []time.Time{e.CreationTimestamp.Time, e.DeprecatedLastTimestamp.Time} {
		if other.After(last) {
			last = other
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

// whyText is the paragraph about one object.
func whyText(e evidence, now time.Time) string {
	var sentences []string
	say := func(format string, args ...any) {
		sentences = append(sentences, printable(fmt.Sprintf(format, args...)))
	}
	o, ready := e.object, e.object.condition(v1beta1.ConditionReady)
	switch {
	case o.GetDeletionTimestamp() != nil:
		say("%s is being deleted since %s.", o, ago(now, o.GetDeletionTimestamp()))
	case o.suspended && o.isSuspended():
		say("%s is suspended by spec.suspend%s: nothing is created, reverted or deleted. To resume it, run kubectl fixpoint resume %s.",
			o, reasonOfUser(o), o.argument())
		return strings.Join(sentences, " ")
	case ready == nil || !o.isCurrent():
		sayUnobserved(say, e)
		return strings.Join(sentences, " ")
	case o.isReady():
		sayReady(say, o)
		return strings.Join(sentences, " ")
	default:
		say("%s is not Ready since %s.", o, ago(now, &ready.LastTransitionTime))
	}
	if row := gate(phaseRows(o)); row != nil {
		say("Phase %s %s (%s): %s.", row.Phase, map[string]string{verdictWaits: "waits", verdictStalled: "is stalled"}[row.Verdict], row.Reason, strings.TrimSuffix(row.Message, "."))
	} else if ready != nil {
		say("%s: %s.", ready.Reason, strings.TrimSuffix(ready.Message, "."))
	}
	sayBlame(say, e)
	for _, note := range e.notes {
		say("There may be more to say: %s.", note)
	}
	return strings.Join(sentences, " ")
}

func reasonOfUser(o object) string {
	if reason := o.GetAnnotations()[v1beta1.AnnotationReason]; reason != "" {
		return " (" + reason + ")"
	}
	return ""
}

func sayUnobserved(say func(string, ...any), e evidence) {
	if len(e.object.conditions) == 0 {
		say("%s has not been reconciled yet.", e.object)
	} else {
		say("The manager has not observed generation %d of %s yet; its status is about generation %d.", e.object.GetGeneration(), e.object, e.object.observedGeneration)
	}
	switch {
	case e.managers == 0:
		say("No replica of the manager is available: run kubectl get pods -A -l %s.", managerLabel)
	case e.managers > 0:
		say("The manager has %d available replicas: check with kubectl get deployments -A -l %s -o yaml that it watches the namespace (--namespaces) and the kind (--controllers).", e.managers, managerLabel)
	default:
		say("Check that the manager runs, and that it watches the namespace and the kind; you may not read its Deployment.")
	}
}

func sayReady(say func(string, ...any), o object) {
	say("%s is Ready.", o)
	for _, conditionType := range []string{v1beta1.ConditionDrifted, v1beta1.ConditionStalled, v1beta1.ConditionReconciling} {
		if c := o.condition(conditionType); c != nil && c.Status == metav1.ConditionTrue {
			say("%s (%s): %s.", conditionType, c.Reason, c.Message)
		}
	}
	for _, row := range phaseRows(o) {
		if row.Verdict == verdictDone && row.Reason != v1beta1.ReasonReady {
			say("Phase %s (%s): %s.", row.Phase, row.Reason, row.Message)
		}
	}
}

// sayBlame names the object that is to blame, and what helps.
func sayBlame(say func(string, ...any), e evidence) {
	if culprit := findCulprit(e); culprit != nil {
		say("%s is to blame: %s.", culprit.object, strings.TrimSuffix(culprit.problem, "."))
		if culprit.event != "" {
			say("Its last Event: %s.", strings.TrimSuffix(culprit.event, "."))
		}
		say("%s.", culprit.remedy)
		return
	}
	row := gate(phaseRows(e.object))
	if row == nil {
		return
	}
	if remedy := remedies[row.Reason]; remedy != "" {
		say("%s.", remedy)
	}
}

// remedies are for reasons whose messages do not name one.
var remedies = map[string]string{
	v1beta1.ReasonRolloutProgressing: "No action is needed within spec.progressDeadlineSeconds",
	v1beta1.ReasonProgressing:        "No action is needed",
	v1beta1.ReasonProtocolPending:    "No action is needed while the server starts",
	v1beta1.ReasonCreating:           "No action is needed: Azure is working",
	v1beta1.ReasonUpdating:           "No action is needed: Azure is working",
	v1beta1.ReasonPropagating:        "No action is needed within spec.propagationDeadline",
	v1beta1.ReasonThrottled:          "No action is needed: the manager retries when Azure allows it",
	v1beta1.ReasonCloudUnavailable:   "No action is needed if Azure recovers: see https://status.azure.com",
}

// culprit is the object that is to blame.
type culprit struct{ object, problem, event, remedy string }

// findCulprit follows the Deployment to its newest ReplicaSet and its pods.
func findCulprit(e evidence) *culprit {
	if e.deployment == nil {
		return nil
	}
	namespace := e.object.GetNamespace()
	for i := range e.pods {
		pod := &e.pods[i]
		if problem := podProblem(pod); problem != nil && pod.DeletionTimestamp == nil {
			return &culprit{"Pod " + pod.Name, problem.text, lastEvent(e.events, pod), problem.remedy(namespace, pod.Name, e.object)}
		}
	}
	for i := range e.replicaSets {
		set := &e.replicaSets[i]
		for _, c := range set.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				return &culprit{"ReplicaSet " + set.Name, "it cannot create pods: " + c.Message, "",
					fmt.Sprintf("Run kubectl describe replicaset %s -n %s, and kubectl get resourcequotas -n %s", set.Name, namespace, namespace)}
			}
		}
	}
	return nil
}

func lastEvent(events []eventsv1.Event, about client.Object) string {
	for _, event := range slices.Backward(events) {
		if event.Regarding.UID == about.GetUID() {
			return event.Reason + ": " + event.Note
		}
	}
	return ""
}

// problem is why a pod is not ready.
type problem struct {
	// reason in one word, for tables.
	reason, text string
	remedy       func(namespace, pod string, o object) string
}

// podProblem is the first problem that keeps a pod from being ready, or nil.
func podProblem(pod *corev1.Pod) *problem {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return &problem{c.Reason, "it cannot be scheduled: " + c.Message, schedulingRemedy(c.Message)}
		}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if p := containerProblem(status); p != nil {
			return p
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1beta1.PodConditionContract && c.Status == corev1.ConditionFalse {
			return &problem{v1beta1.ReasonContractNotApproved, "it offers a contract that is not approved, so it takes no traffic", func(namespace, _ string, o object) string {
				return fmt.Sprintf("Run kubectl fixpoint mcp contract %s -n %s to see what differs, and how to approve it", o.GetName(), namespace)
			}}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && pod.Status.Phase == corev1.PodRunning {
			return &problem{"NotReady", cmp.Or(c.Message, "its containers run and are not ready"), describePod}
		}
	}
	return nil
}

// schedulingRemedy helps with what the scheduler says.
func schedulingRemedy(message string) func(namespace, pod string, o object) string {
	return func(namespace, _ string, o object) string {
		constraints := "spec.nodeSelector"
		if _, isServer := o.Object.(*v1beta1.MCPServer); isServer {
			constraints = "spec.scheduling"
		}
		if workload.LacksVolume(message) {
			return "Run kubectl describe pvc -n " + namespace
		}
		return "Lower spec.resources, relax " + constraints + ", or add nodes"
	}
}

func containerProblem(status corev1.ContainerStatus) *problem {
	waiting, last := status.State.Waiting, status.LastTerminationState.Terminated
	crashes := waiting == nil && !status.Ready && status.RestartCount > 0 && last != nil && last.ExitCode != 0
	switch {
	case crashes, waiting != nil && waiting.Reason == "CrashLoopBackOff":
		return crash(status.Name, last)
	case waiting == nil || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing":
		return nil
	}
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return &problem{waiting.Reason, fmt.Sprintf("container %s cannot pull image %s (%s)", status.Name, status.Image, waiting.Reason),
			func(_, _ string, o object) string {
				remedy := workload.PullRemedy(status.Name, waiting.Reason, "spec.image")
				return strings.ToUpper(remedy[:1]) + remedy[1:] + " with kubectl edit " + o.argument()
			}}
	default:
		return &problem{waiting.Reason, fmt.Sprintf("container %s waits (%s): %s", status.Name, waiting.Reason, waiting.Message), describePod}
	}
}

// crash is the problem of a container that ended as in last, or for an unknown reason.
func crash(container string, last *corev1.ContainerStateTerminated) *problem {
	if last != nil && last.Reason == "OOMKilled" {
		return &problem{last.Reason, "container " + container + " ran out of memory", func(_, _ string, o object) string {
			return fmt.Sprintf("Raise its limit in %s with kubectl edit %s", workload.LimitsField(container), o.argument())
		}}
	}
	text := "container " + container + " crashes"
	if last != nil {
		text += fmt.Sprintf(" with exit code %d", last.ExitCode)
	}
	return &problem{"CrashLoopBackOff", text, func(namespace, pod string, _ object) string {
		return fmt.Sprintf("Run kubectl logs %s -n %s -c %s --previous", pod, namespace, container)
	}}
}

func describePod(namespace, pod string, _ object) string {
	return fmt.Sprintf("Run kubectl describe pod %s -n %s", pod, namespace)
}

// whyFleet groups the objects that are not Ready by kind, phase and reason, the largest group first.
func whyFleet(objects []object, namespace string) string {
	if len(objects) == 0 {
		return nothingFound(namespace)
	}
	type group struct {
		title, example, message string
		count                   int
	}
	groups := map[string]*group{}
	notReady := 0
	for _, o := range objects {
		if o.isReady() && o.isCurrent() {
			continue
		}
		notReady++
		title, message := titleOf(o)
		if groups[title] == nil {
			groups[title] = &group{title: title, example: o.argument(), message: message}
		}
		groups[title].count++
	}
	if notReady == 0 {
		return fmt.Sprintf("All %d objects are Ready.\n", len(objects))
	}
	sorted := slices.SortedFunc(maps.Values(groups), func(a, b *group) int { return cmp.Or(b.count-a.count, strings.Compare(a.title, b.title)) })
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d objects are not Ready.\n", notReady, len(objects))
	for _, g := range sorted {
		fmt.Fprintf(&b, "\n%d: %s\n", g.count, g.title)
		if g.message != "" {
			fmt.Fprintf(&b, "  for example: %s\n", printable(g.message))
		}
		fmt.Fprintf(&b, "  kubectl fixpoint why %s\n", g.example)
	}
	return b.String()
}

func titleOf(o object) (title, message string) {
	ready, row := o.condition(v1beta1.ConditionReady), gate(phaseRows(o))
	switch {
	case ready == nil:
		return o.kind.name + ", not reconciled yet", ""
	case !o.isCurrent():
		return o.kind.name + ", the current spec is not observed yet", ""
	case row == nil:
		return fmt.Sprintf("%s (%s)", o.kind.name, ready.Reason), ready.Message
	default:
		return fmt.Sprintf("%s, phase %s %s (%s)", o.kind.name, row.Phase, row.Verdict, row.Reason), row.Message
	}
}

// wrap breaks a paragraph into lines.
func wrap(paragraph string) string {
	const width = 100
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(paragraph) {
		length := len([]rune(word))
		switch {
		case i == 0:
		case column+1+length > width:
			b.WriteString("\n")
			column = 0
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += length
	}
	return b.String() + "\n"
}
