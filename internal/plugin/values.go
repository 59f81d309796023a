package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Kind is one of the kinds of Fixpoint.
type Kind struct {
	Name     string
	Resource schema.GroupVersionResource
}

// Kinds are all kinds of Fixpoint.
func Kinds() []Kind {
	all := make([]Kind, 0, len(kinds))
	for _, k := range kinds {
		all = append(all, Kind{k.name, v1beta1.SchemeGroupVersion.WithResource(k.resource)})
	}
	return all
}

// Row is an object in a table of many.
type Row struct {
	Kind               string       `json:"kind"`
	Namespace          string       `json:"namespace"`
	Name               string       `json:"name"`
	UID                string       `json:"uid"`
	ResourceVersion    string       `json:"resourceVersion"`
	Generation         int64        `json:"generation"`
	ObservedGeneration int64        `json:"observedGeneration"`
	Phase              string       `json:"phase"`
	Ready              string       `json:"ready"`
	Reason             string       `json:"reason"`
	Message            string       `json:"message"`
	Since              *metav1.Time `json:"since,omitempty"`
	Created            metav1.Time  `json:"created"`
	Deleting           bool         `json:"deleting"`
	Suspended          bool         `json:"suspended"`
	Drifts             int          `json:"drifts"`
	LastDrift          *metav1.Time `json:"lastDrift,omitempty"`
}

// RowOf is the row of an object of one of the kinds.
func RowOf(live *unstructured.Unstructured) (Row, error) {
	o, err := objectOf(live)
	if err != nil {
		return Row{}, err
	}
	return rowOf(o), nil
}

func rowOf(o object) Row {
	row := Row{
		Kind: o.kind.name, Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion(),
		Generation: o.GetGeneration(), ObservedGeneration: o.observedGeneration, Phase: o.summary, Ready: string(metav1.ConditionUnknown),
		Created: o.GetCreationTimestamp(), Deleting: o.GetDeletionTimestamp() != nil, Suspended: o.suspended, Drifts: len(o.drifts),
	}
	if ready := o.condition(v1beta1.ConditionReady); ready != nil {
		row.Ready, row.Reason, row.Message, row.Since = string(ready.Status), ready.Reason, ready.Message, &ready.LastTransitionTime
	}
	for i := range o.drifts {
		if last := &o.drifts[i].Time; row.LastDrift == nil || row.LastDrift.Before(last) {
			row.LastDrift = last
		}
	}
	return row
}

// objectOf is an object with its Go type.
func objectOf(live *unstructured.Unstructured) (object, error) {
	k, err := kindOf(live.GetKind())
	if err != nil {
		return object{}, err
	}
	typed := k.empty()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, typed); err != nil {
		return object{}, fmt.Errorf("reading %s %s/%s: %w", k.name, live.GetNamespace(), live.GetName(), err)
	}
	return k.object(typed), nil
}

// Client has what the commands show as values, for other programs. It uses the credential of its configuration and
// nothing else.
type Client struct {
	clients *clients
	cloud   Cloud
}

// Cloud says how plans read the cloud.
type Cloud struct {
	// Endpoint and TokenFile are the flags of plan: --cloud-endpoint and --cloud-token-file.
	Endpoint, TokenFile string
	// NoLogin: the process does not run as the user, so its own Azure login must not be used.
	NoLogin bool
}

// NewClient builds a client. It sends no request.
func NewClient(config *rest.Config, cloud Cloud) (*Client, error) {
	api, err := newClients(config)
	return &Client{api, cloud}, err
}

// Get reads an object, as it is and with its Go type.
func (c *Client) get(ctx context.Context, resource, namespace, name string) (*unstructured.Unstructured, object, error) {
	k, err := kindOf(resource)
	if err != nil {
		return nil, object{}, apierrors.NewNotFound(v1beta1.SchemeGroupVersion.WithResource(resource).GroupResource(), name)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(k.name))
	if err := c.clients.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, live); err != nil {
		return nil, object{}, explain(err)
	}
	o, err := objectOf(live)
	return live, o, err
}

// Get reads an object.
func (c *Client) Get(ctx context.Context, resource, namespace, name string) (*unstructured.Unstructured, error) {
	live, _, err := c.get(ctx, resource, namespace, name)
	return live, err
}

// Details are what status, tree and why show of an object.
type Details struct {
	// Object is without its managed fields.
	Object *unstructured.Unstructured `json:"object"`
	Row    Row                        `json:"row"`
	Phases []Phase                    `json:"phases"`
	Drifts []Drift                    `json:"drifts"`
	Tree   Node                       `json:"tree"`
	Why    string                     `json:"why"`
	// Notes are what the user may not read.
	Notes []string `json:"notes,omitempty"`
}

// Phase is a phase of an object, with the children that it creates.
type Phase struct {
	Name      string `json:"name"`
	Condition string `json:"condition"`
	// Status is that of the condition; empty if the object does not have it.
	Status   string       `json:"status"`
	Verdict  string       `json:"verdict"`
	Reason   string       `json:"reason"`
	Message  string       `json:"message"`
	Since    *metav1.Time `json:"since,omitempty"`
	Children []Child      `json:"children"`
	// Gate is what is waited for, and until when, if the object waits for this phase.
	Gate string `json:"gate,omitempty"`
}

// Readiness of children and of nodes of a tree, beside those of conditions.
const readyMissing = "Missing"

// Child is an object that a phase creates.
type Child struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Ready     string `json:"ready"`
	Message   string `json:"message"`
}

// Node is an object of a tree.
type Node struct {
	Child
	// Managers hold fields of the object, status aside.
	Managers []string `json:"managers"`
	Children []Node   `json:"children"`
}

// Drift is a change by another field manager.
type Drift struct {
	Kind      string      `json:"kind"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Child     string      `json:"child"`
	Field     string      `json:"field"`
	Desired   string      `json:"desired"`
	Found     string      `json:"found"`
	Manager   string      `json:"manager"`
	Time      metav1.Time `json:"time"`
	Action    string      `json:"action"`
	// Message describes a drift in the cloud, which has no fields.
	Message string `json:"message,omitempty"`
}

// Details reads an object with what is below it.
func (c *Client) Details(ctx context.Context, resource, namespace, name string) (Details, error) {
	live, o, err := c.get(ctx, resource, namespace, name)
	if err != nil {
		return Details{}, err
	}
	there := c.clients.in(namespace)
	tree, notes, err := there.tree(ctx, o)
	if err != nil {
		return Details{}, err
	}
	found, err := there.evidence(ctx, o)
	if err != nil {
		return Details{}, err
	}
	rows, moreNotes, err := there.driftsOf(ctx, []object{o}, target{[]*kind{o.kind}, name})
	if err != nil {
		return Details{}, err
	}
	live.SetManagedFields(nil)
	d := Details{Object: live, Row: rowOf(o), Drifts: []Drift{}, Tree: nodeValue(tree), Notes: slices.Concat(notes, moreNotes)}
	now := time.Now()
	d.Phases, d.Why = phaseValues(o, tree.children, notes, now), whyText(found, now)
	for _, row := range rows {
		d.Drifts = append(d.Drifts, driftValue(row))
	}
	return d, nil
}

// phaseValues are the phases with their children. The children of a kind are those of the first phase that has the kind.
// By the notes, it is not known which children of a kind are missing.
func phaseValues(o object, children []node, notes []string, now time.Time) []Phase {
	rows, objects := phaseRows(o), make([]client.Object, 0, len(children))
	for _, child := range children {
		objects = append(objects, child.object)
	}
	waits := waitsFor(detailsOf(o, objects, nil), now)
	at, taken := gate(rows), map[string]bool{}
	all := make([]Phase, 0, len(rows))
	for i, row := range rows {
		p := Phase{
			Name: row.Phase, Condition: phases.ConditionOf(row.Phase), Verdict: row.Verdict, Reason: row.Reason, Message: row.Message, Since: row.Since, Children: []Child{},
		}
		if c := o.condition(p.Condition); c != nil {
			p.Status = string(c.Status)
		}
		if at != nil && at.Phase == row.Phase {
			p.Gate = strings.TrimSpace(waits)
		}
		if empty := o.kind.phases[i].child; empty != nil && !taken[kindName(empty)] {
			kind := kindName(empty)
			taken[kind] = true
			for _, child := range children {
				if child.kind == kind {
					p.Children = append(p.Children, childValue(child))
				}
			}
			isListed := !slices.Contains(notes, mayNotList(kind, o.GetNamespace()))
			if isMissing := isListed && o.kind.phases[i].hasOwnersName && len(p.Children) == 0 && p.Status != "" && p.Status != string(metav1.ConditionTrue); isMissing {
				p.Children = append(p.Children, Child{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), Ready: readyMissing})
			}
		}
		all = append(all, p)
	}
	return all
}

func nodeValue(n node) Node {
	value := Node{Child: childValue(n), Managers: holderNames(n.object), Children: []Node{}}
	for _, child := range n.children {
		value.Children = append(value.Children, nodeValue(child))
	}
	return value
}

func childValue(n node) Child {
	child := Child{Kind: n.kind, Namespace: n.object.GetNamespace(), Name: n.object.GetName(), Ready: string(isReadyObject(n)), Message: n.note}
	if n.ready != "exists" && n.ready != "-" && n.ready != child.Ready {
		child.Message = strings.TrimSuffix(n.ready+", "+n.note, ", ")
	}
	return child
}

// isReadyObject is whether an object of a tree is ready, by its own status.
func isReadyObject(n node) metav1.ConditionStatus {
	if n.object.GetDeletionTimestamp() != nil {
		return metav1.ConditionFalse
	}
	switch live := n.object.(type) {
	case *appsv1.Deployment:
		return statusIf(live.Status.ObservedGeneration >= live.Generation && live.Status.AvailableReplicas >= ptr.Deref(live.Spec.Replicas, 1) &&
			live.Status.UpdatedReplicas >= ptr.Deref(live.Spec.Replicas, 1))
	case *appsv1.ReplicaSet:
		return statusIf(live.Status.AvailableReplicas >= ptr.Deref(live.Spec.Replicas, 1))
	case *batchv1.Job:
		return statusIf(workload.JobSucceeded(live))
	case *corev1.Pod:
		for _, c := range live.Status.Conditions {
			if c.Type == corev1.PodReady {
				return metav1.ConditionStatus(c.Status)
			}
		}
		return metav1.ConditionUnknown
	case *v1beta1.AppService, *v1beta1.MCPServer, *v1beta1.SecureStorage:
		if n.ready == "-" {
			return metav1.ConditionUnknown
		}
		return metav1.ConditionStatus(n.ready)
	default:
		return metav1.ConditionTrue
	}
}

func statusIf(is bool) metav1.ConditionStatus {
	if is {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func holderNames(o client.Object) []string {
	names := []string{}
	for _, entry := range o.GetManagedFields() {
		if entry.Subresource == "" {
			names = append(names, entry.Manager)
		}
	}
	return names
}

// Drifts reads the drifts of a kind, the latest first. All namespaces are the empty one.
func (c *Client) Drifts(ctx context.Context, resource, namespace string, since time.Duration) (drifts []Drift, note string, err error) {
	k, err := kindOf(resource)
	if err != nil {
		return nil, "", err
	}
	o := &options{now: time.Now}
	rows, note, err := o.drifts(ctx, c.clients.in(namespace), target{kinds: []*kind{k}}, since)
	drifts = make([]Drift, 0, len(rows))
	for _, row := range rows {
		drifts = append(drifts, driftValue(row))
	}
	return drifts, strings.TrimSpace(note), err
}

func driftValue(row driftRow) Drift {
	kindName, name, _ := strings.Cut(row.Object, "/")
	if k, err := kindOf(kindName); err == nil {
		kindName = k.name
	}
	d := Drift{
		Kind: kindName, Namespace: row.Namespace, Name: name, Field: strings.TrimPrefix(row.Field, "."), Desired: row.Desired, Found: row.Found,
		Manager: row.Manager, Time: row.Time, Action: string(row.Action), Message: row.Note,
	}
	if row.Kind != "" {
		d.Child = row.Kind + "/" + row.Name
	}
	if row.Action == v1beta1.DriftCorrected {
		d.Action = "Reverted"
	}
	return d
}

// BlameLine is a line of YAML with the field manager that last changed it.
type BlameLine struct {
	Text    string       `json:"text"`
	Manager string       `json:"manager"`
	Time    *metav1.Time `json:"time,omitempty"`
}

// Blame reads an object as YAML with the field managers.
func (c *Client) Blame(ctx context.Context, resource, namespace, name string) ([]BlameLine, error) {
	live, _, err := c.get(ctx, resource, namespace, name)
	if err != nil {
		return nil, err
	}
	lines := []BlameLine{}
	for _, line := range blamedLines(live) {
		value := BlameLine{Text: line.text}
		if holders := holdersOf(line.claims); len(holders) > 0 {
			value.Manager, value.Time = holders[0].Manager, holders[0].Time
		}
		lines = append(lines, value)
	}
	return lines, nil
}

// PlannedAction is one action of the manager.
type PlannedAction struct {
	// Verb is create, update, delete, step, or none for what is reported only, waited for, suspended or not known.
	Verb      string   `json:"verb"`
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Phase     string   `json:"phase"`
	Diff      []string `json:"diff"`
	Message   string   `json:"message"`
}

// ActionPlan is what the manager would do next.
type ActionPlan struct {
	Actions []PlannedAction `json:"actions"`
	Notes   []string        `json:"notes"`
}

// Plan plans an object as it is, or as it would be if the document, YAML or JSON, were applied by the field manager.
func (c *Client) Plan(ctx context.Context, resource, namespace, name string, document *unstructured.Unstructured) (ActionPlan, error) {
	_, o, err := c.get(ctx, resource, namespace, name)
	if err != nil {
		return ActionPlan{}, err
	}
	if document != nil {
		if o, err = objectOf(document); err != nil {
			return ActionPlan{}, err
		}
	}
	planner, err := c.clients.in(namespace).newPlanner(ctx, planOptions{cloudEndpoint: c.cloud.Endpoint, cloudTokenFile: c.cloud.TokenFile})
	if err != nil {
		return ActionPlan{}, err
	}
	if c.cloud.NoLogin {
		planner.settings.credential = noLogin{}
		planner.settings.cloud.Transport = refuseAll{}
	}
	planned, err := planner.plan(ctx, o)
	if err != nil {
		return ActionPlan{}, fmt.Errorf("planning %s: %w", o, err)
	}
	return ActionPlan{Actions: plannedActions(o, planned), Notes: append([]string{}, planner.notes...)}, nil
}

// noLogin has no credential for the cloud.
type noLogin struct{}

var errNoLogin = errors.New("the console has no login of yours for Azure: run kubectl fixpoint plan")

// Own implements [cloud.Credentials].
func (noLogin) Own() (azcore.TokenCredential, error) { return nil, errNoLogin }

// Secret implements [cloud.Credentials].
func (noLogin) Secret(string, string, string) (azcore.TokenCredential, error) { return nil, errNoLogin }

// Assertion implements [cloud.Credentials].
func (noLogin) Assertion(string, string, func(context.Context) (string, error)) (azcore.TokenCredential, error) {
	return nil, errNoLogin
}

// refuseAll sends no request.
type refuseAll struct{}

// Do implements the transport of the SDK.
func (refuseAll) Do(*http.Request) (*http.Response, error) { return nil, errNoLogin }

func plannedActions(o object, plan objectPlan) []PlannedAction {
	actions := []PlannedAction{}
	none := func(phase, message string) {
		actions = append(actions, PlannedAction{
			Verb: "none", Kind: o.kind.name, Namespace: o.GetNamespace(), Name: o.GetName(), Phase: phase, Diff: []string{}, Message: message,
		})
	}
	if plan.Suspended {
		none("", "suspended: nothing is done until it is resumed")
	}
	for _, phase := range plan.Phases {
		for _, change := range phase.Changes {
			actions = append(actions, plannedAction(o, phase.Phase, change))
		}
		switch {
		case phase.Unknown != "":
			none(phase.Phase, "not known: "+phase.Unknown)
		case phase.Verdict == verdictWaits || phase.Verdict == verdictStalled:
			none(phase.Phase, phase.Verdict+": "+phase.Message)
		}
	}
	return actions
}

func plannedAction(o object, phase string, change plannedChange) PlannedAction {
	action := PlannedAction{Verb: "update", Namespace: o.GetNamespace(), Phase: phase, Diff: []string{}, Message: strings.Join(change.Drifts, "; ")}
	action.Kind, action.Name, _ = strings.Cut(change.Object, "/")
	switch change.Action {
	case ssa.ActionCreate:
		action.Verb = "create"
	case ssa.ActionDelete:
		action.Verb = "delete"
	case ssa.ActionReport:
		action.Verb, action.Message = "none", "reported only: "+action.Message
	case phases.ActionEnsure, phases.ActionUndo:
		action.Verb, action.Kind, action.Name = "step", o.kind.name, o.GetName()
		action.Message = strings.ToLower(string(change.Action)) + " " + change.Object
	case ssa.ActionUpdate:
	default:
		action.Message = strings.TrimSuffix(strings.ToLower(string(change.Action))+": "+action.Message, ": ")
	}
	for _, field := range change.Fields {
		action.Diff = append(action.Diff, field.String())
	}
	return action
}

// Suspend suspends or resumes an object.
func (c *Client) Suspend(ctx context.Context, resource, namespace, name string, suspend bool, reason string) (*unstructured.Unstructured, error) {
	if suspend {
		return c.change(ctx, resource, namespace, name, suspendManager, change{&suspend, reasonAnnotation(reason)})
	}
	_, o, err := c.get(ctx, resource, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := c.clients.in(namespace).resume(ctx, o, reason); err != nil {
		return nil, err
	}
	return c.Get(ctx, resource, namespace, name)
}

// Reconcile requests a reconcile.
func (c *Client) Reconcile(ctx context.Context, resource, namespace, name, reason string) (*unstructured.Unstructured, error) {
	annotations := map[string]string{v1beta1.AnnotationReconcileRequest: time.Now().UTC().Format(time.RFC3339Nano)}
	if reason != "" {
		annotations[v1beta1.AnnotationReason] = reason
	}
	return c.change(ctx, resource, namespace, name, reconcileManager, change{nil, annotations})
}

func (c *Client) change(ctx context.Context, resource, namespace, name, manager string, ch change) (*unstructured.Unstructured, error) {
	_, o, err := c.get(ctx, resource, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := c.clients.in(namespace).apply(ctx, o, manager, ch); err != nil {
		return nil, err
	}
	return c.Get(ctx, resource, namespace, name)
}

// ParseDocument parses one object as YAML or JSON.
func ParseDocument(raw []byte) (*unstructured.Unstructured, error) {
	documents, err := readDocuments(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if len(documents) != 1 {
		return nil, fmt.Errorf("it has %d objects: give one", len(documents))
	}
	return documents[0], nil
}
