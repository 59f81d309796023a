package plugin

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// scheme knows the Go types of all objects that the commands read.
var scheme = controllers.NewScheme()

// kind is one of the kinds of Fixpoint.
type kind struct {
	name string
	// resource and short are the names that kubectl accepts too.
	resource, short string
	fieldManager    string
	// phases in the order in which the controller declares them.
	phases []declaredPhase
	list   func() client.ObjectList
	empty  func() client.Object
	// view reads what the kinds have in common.
	view func(client.Object) status
}

// declaredPhase is a phase as the controller declares it.
type declaredPhase struct {
	name string
	// child is an empty object of the type of the children, or of what the phase runs; nil if it has neither.
	child client.Object
	// hasOwnersName is true if the child has the name of its owner.
	hasOwnersName bool
}

// operations are empty objects of the types of what phases run: these declare no child (ADR 47).
var operations = map[string]client.Object{"PreDeploy": &batchv1.Job{}}

// status is what the statuses of all kinds have in common.
type status struct {
	summary            string
	observedGeneration int64
	handledReconcileAt string
	conditions         []metav1.Condition
	drifts             []v1beta1.Drift
	suspended          bool
	// deadline is when the phase that waits gives up; nil if it does not.
	deadline *metav1.Time
}

// object is an object of one of the kinds.
type object struct {
	client.Object
	status
	kind *kind
}

// String is its kind, namespace and name.
func (o object) String() string {
	return o.kind.name + " " + o.GetNamespace() + "/" + o.GetName()
}

// argument is how to name the object on the command line.
func (o object) argument() string {
	return strings.ToLower(o.kind.name) + "/" + o.GetName() + " -n " + o.GetNamespace()
}

var kinds = []*kind{
	{
		name: "AppService", resource: "appservices", short: "asvc", fieldManager: appservice.FieldManager, phases: declared(appservice.Phases()),
		list:  func() client.ObjectList { return &v1beta1.AppServiceList{} },
		empty: func() client.Object { return &v1beta1.AppService{} },
		view: func(o client.Object) status {
			app, _ := o.(*v1beta1.AppService)
			s := app.Status
			return status{string(s.Phase), s.ObservedGeneration, s.LastHandledReconcileAt, s.Conditions, s.Drifts, app.Spec.Suspend, nil}
		},
	},
	{
		name: "MCPServer", resource: "mcpservers", short: "mcp", fieldManager: mcpserver.FieldManager, phases: declared(mcpserver.Phases()),
		list:  func() client.ObjectList { return &v1beta1.MCPServerList{} },
		empty: func() client.Object { return &v1beta1.MCPServer{} },
		view: func(o client.Object) status {
			server, _ := o.(*v1beta1.MCPServer)
			s := server.Status
			return status{string(s.Phase), s.ObservedGeneration, s.LastHandledReconcileAt, s.Conditions, s.Drifts, server.Spec.Suspend, nil}
		},
	},
	{
		name: "SecureStorage", resource: "securestorages", short: "sst", fieldManager: securestorage.FieldManager, phases: declared(securestorage.Phases()),
		list:  func() client.ObjectList { return &v1beta1.SecureStorageList{} },
		empty: func() client.Object { return &v1beta1.SecureStorage{} },
		view: func(o client.Object) status {
			storage, _ := o.(*v1beta1.SecureStorage)
			s := storage.Status
			return status{string(s.Phase), s.ObservedGeneration, s.LastHandledReconcileAt, s.Conditions, s.Drifts, storage.Spec.Suspend, propagationDeadline(storage)}
		},
	},
}

// propagationDeadline is when a grant that Azure propagates has to take effect.
func propagationDeadline(storage *v1beta1.SecureStorage) *metav1.Time {
	for _, c := range storage.Status.Conditions {
		if c.Type == v1beta1.ConditionEncryptionReady && c.Reason == v1beta1.ReasonPropagating && c.Status == metav1.ConditionFalse {
			deadline := metav1.NewTime(c.LastTransitionTime.Add(storage.Spec.PropagationDeadline.Duration))
			return &deadline
		}
	}
	return nil
}

func declared[S any](list []phases.Phase[S]) []declaredPhase {
	all := make([]declaredPhase, 0, len(list))
	for _, phase := range list {
		declaration, err := phase.Declare(scheme)
		if err != nil {
			panic(fmt.Sprintf("declaring phase %s: %v", phase.PhaseName(), err)) // the manager would not start either
		}
		child := declaration.Child
		if child == nil {
			child = operations[phase.PhaseName()]
		}
		all = append(all, declaredPhase{phase.PhaseName(), child, declaration.HasOwnersName})
	}
	return all
}

// childLists are empty lists of the kinds of the children, each once.
func (o object) childLists() []client.ObjectList {
	var lists []client.ObjectList
	seen := map[string]bool{}
	for i, row := range phaseRows(o) {
		phase := o.kind.phases[i]
		switch phase.child.(type) {
		case nil:
			continue
		case *corev1.Secret, *batchv1.Job: // a user without permissions for them is not told about objects that cannot exist
			if row.Verdict == verdictNotConfigured {
				continue
			}
		}
		gvks, _, err := scheme.ObjectKinds(phase.child)
		if err != nil || seen[gvks[0].Kind] {
			continue
		}
		seen[gvks[0].Kind] = true
		list, err := scheme.New(gvks[0].GroupVersion().WithKind(gvks[0].Kind + "List"))
		if typed, ok := list.(client.ObjectList); ok && err == nil {
			lists = append(lists, typed)
		}
	}
	return lists
}

func (k *kind) object(o client.Object) object { return object{o, k.view(o), k} }

// kindOf is the kind of Fixpoint of that name, as kubectl accepts names.
func kindOf(name string) (*kind, error) {
	name, _, _ = strings.Cut(strings.ToLower(name), ".") // appservices.fixpoint.dev
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		if slices.Contains([]string{strings.ToLower(k.name), k.resource, k.short}, name) {
			return k, nil
		}
		names = append(names, strings.ToLower(k.name))
	}
	return nil, fmt.Errorf("%q is not a kind of Fixpoint: use one of %s", name, strings.Join(names, ", "))
}

// target is what the arguments of a command name: a kind and a name, a kind alone, or nothing, which is everything.
type target struct {
	kinds []*kind
	name  string
}

// parseTarget parses KIND/NAME, KIND NAME, KIND, or nothing.
func parseTarget(args []string) (target, error) {
	if len(args) == 0 {
		return target{kinds: kinds}, nil
	}
	kindName, name, slash := strings.Cut(args[0], "/")
	if len(args) == 2 && !slash {
		name = args[1]
	} else if len(args) > 1 {
		return target{}, fmt.Errorf("unexpected argument %q: give one object as KIND/NAME", args[1])
	}
	k, err := kindOf(kindName)
	if err != nil {
		return target{}, err
	}
	if slash && name == "" {
		return target{}, fmt.Errorf("%q names no object: give it as KIND/NAME", args[0])
	}
	return target{[]*kind{k}, name}, nil
}

// one requires that the arguments name one object.
func (t target) one() (*kind, string, error) {
	if t.name == "" {
		return nil, "", fmt.Errorf("no object is named: give it as KIND/NAME, such as appservice/web")
	}
	return t.kinds[0], t.name, nil
}

// kindName is the kind of an object by its Go type.
func kindName(o runtime.Object) string {
	gvks, _, err := scheme.ObjectKinds(o)
	if err != nil {
		return fmt.Sprintf("%T", o)
	}
	return gvks[0].Kind
}
