package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// adoptableKind is a kind of objects that an AppService can adopt, with the names that kubectl accepts.
type adoptableKind struct {
	name  string
	names []string
	empty func() client.Object
	list  func() client.ObjectList
}

var adoptableKinds = []adoptableKind{
	{"Deployment", []string{"deployment", "deployments", "deploy"}, func() client.Object { return &appsv1.Deployment{} }, func() client.ObjectList { return &appsv1.DeploymentList{} }},
	{"Service", []string{"service", "services", "svc"}, func() client.Object { return &corev1.Service{} }, func() client.ObjectList { return &corev1.ServiceList{} }},
	{"ConfigMap", []string{"configmap", "configmaps", "cm"}, func() client.Object { return &corev1.ConfigMap{} }, func() client.ObjectList { return &corev1.ConfigMapList{} }},
	{"HorizontalPodAutoscaler", []string{"horizontalpodautoscaler", "horizontalpodautoscalers", "hpa"}, func() client.Object { return &autoscalingv2.HorizontalPodAutoscaler{} }, func() client.ObjectList { return &autoscalingv2.HorizontalPodAutoscalerList{} }},
	{"PodDisruptionBudget", []string{"poddisruptionbudget", "poddisruptionbudgets", "pdb"}, func() client.Object { return &policyv1.PodDisruptionBudget{} }, func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} }},
	{"Ingress", []string{"ingress", "ingresses", "ing"}, func() client.Object { return &networkingv1.Ingress{} }, func() client.ObjectList { return &networkingv1.IngressList{} }},
}

type adoptOptions struct {
	from    []string
	yes     bool
	timeout time.Duration
}

func newAdopt(o *options) *cobra.Command {
	var a adoptOptions
	command := &cobra.Command{
		Use:   "adopt appservice/NAME --from deployment/NAME [--from KIND/NAME ...]",
		Short: "Adopt a running Deployment, with its Service and others, by a new AppService.",
		Long: "Adopt a running Deployment, with its Service, ConfigMap, HorizontalPodAutoscaler, PodDisruptionBudget and Ingress, by a new AppService. " +
			"Without --yes, it prints the AppService under which the manager replaces no pod, and writes nothing. " +
			"It lists the fields that prevent that, and ends with code 1.\n\n" +
			"With --yes, it creates the AppService, and waits until it is Ready and controls the objects.",
		Example: "  kubectl fixpoint adopt appservice/web --from deployment/web,service/web > web.yaml\n" +
			"  kubectl fixpoint adopt appservice/web --from deployment/web --from service/web --from hpa/web --yes",
		Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"appservice/"}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(command *cobra.Command, args []string) error {
			t, err := parseTarget(args)
			if err != nil {
				return err
			}
			k, name, err := t.one()
			if err != nil {
				return err
			}
			named, err := parseSources(k, name, a.from)
			if err != nil {
				return err
			}
			c, err := o.connect()
			if err != nil {
				return err
			}
			return o.adopt(command.Context(), c, adoption{kind: k, name: name, namespace: c.namespace}, named, a)
		},
	}
	command.Flags().StringSliceVar(&a.from, "from", nil, "`KIND/NAME` of an object to adopt. Repeat it, or separate several by commas. A Deployment is required.")
	command.Flags().BoolVar(&a.yes, "yes", false, "Create the AppService, and wait for the result.")
	command.Flags().DurationVar(&a.timeout, "timeout", 2*time.Minute, "How long to wait for the result, with --yes.")
	_ = command.RegisterFlagCompletionFunc("from", o.completeSources) // the flag exists
	return command
}

// parseSources checks what can be checked without reading the objects.
func parseSources(k *kind, name string, from []string) ([]adoptableKind, error) {
	if k.name != "AppService" {
		return nil, fmt.Errorf("a new %s cannot adopt objects with this command, only an AppService can: %s", k.name, adoptByHand[k.name])
	}
	var named []adoptableKind
	for _, given := range from {
		kindName, object, _ := strings.Cut(given, "/")
		kindName, _, _ = strings.Cut(strings.ToLower(kindName), ".") // deployment.apps
		i := slices.IndexFunc(adoptableKinds, func(k adoptableKind) bool { return slices.Contains(k.names, kindName) })
		switch {
		case i < 0:
			return nil, fmt.Errorf("--from %s: an AppService has no child of this kind: use %s", given, adoptableNames())
		case object == "":
			return nil, fmt.Errorf("--from %s names no object: give it as KIND/NAME", given)
		case object != name && adoptableKinds[i].name == "Deployment":
			return nil, fmt.Errorf("--from %s: the Deployment of an AppService has its name: run kubectl fixpoint adopt appservice/%s --from %s", given, object, given)
		case object != name:
			return nil, fmt.Errorf("--from %s: the %s of AppService %s is named %s: leave out --from %s, which keeps it unmanaged beside a new one, or create it again under that name first",
				given, adoptableKinds[i].name, name, name, given)
		case slices.ContainsFunc(named, func(k adoptableKind) bool { return k.name == adoptableKinds[i].name }):
			return nil, fmt.Errorf("--from %s is given twice", given)
		}
		named = append(named, adoptableKinds[i])
	}
	if !slices.ContainsFunc(named, func(k adoptableKind) bool { return k.name == "Deployment" }) {
		return nil, fmt.Errorf("no Deployment to adopt is given: set --from deployment/%s", name)
	}
	return named, nil
}

// adoptByHand says how the other kinds adopt.
var adoptByHand = map[string]string{
	"MCPServer":     "write the manifest with spec.adoptionPolicy: IfUnowned, check it with kubectl fixpoint plan -f FILE, and apply it",
	"SecureStorage": "set spec.accountName, and spec.adoptionPolicy: IfUnowned, to adopt a storage account",
}

func adoptableNames() string {
	names := make([]string, 0, len(adoptableKinds))
	for _, k := range adoptableKinds {
		names = append(names, k.names[0])
	}
	return strings.Join(names, ", ")
}

// completeSources completes KIND/NAME of what can be adopted.
func (o *options) completeSources(command *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	kindName, _, slash := strings.Cut(typed, "/")
	var found []string
	for _, k := range adoptableKinds {
		switch {
		case !slash:
			found = append(found, k.names[0]+"/")
		case slices.Contains(k.names, kindName):
			for _, name := range o.names(command.Context(), k.list(), true) {
				found = append(found, kindName+"/"+name)
			}
		}
	}
	if !slash {
		return found, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

func (o *options) adopt(ctx context.Context, c *clients, planned adoption, named []adoptableKind, a adoptOptions) error {
	if err := c.planAdoption(ctx, &planned, named); err != nil {
		return err
	}
	if planned.isRefused() {
		fmt.Fprint(o.Out, planned.refusal())
		return &exitError{code: exitFailure, message: planned.String() + " cannot be adopted as they are: nothing was changed"}
	}
	if !a.yes {
		text, err := planned.manifest()
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(o.Out, text)
		return err
	}
	return o.carryOutAdoption(ctx, c, planned, a.timeout)
}

// planAdoption reads the objects and finds the AppService that describes them, what an AppService cannot express, and
// what the manager would change.
func (c *clients) planAdoption(ctx context.Context, planned *adoption, named []adoptableKind) error {
	live, err := c.get(ctx, planned.kind, planned.name)
	switch {
	case err == nil:
		return alreadyExists(live)
	case !apierrors.IsNotFound(err):
		return err
	}
	planned.objects = map[string]client.Object{}
	for _, k := range named {
		live := k.empty()
		if err := c.Get(ctx, client.ObjectKey{Namespace: planned.namespace, Name: planned.name}, live); err != nil {
			return fmt.Errorf("reading %s %s/%s: %w", k.name, planned.namespace, planned.name, err)
		}
		planned.objects[k.name] = live
	}
	if err := c.findScaler(ctx, planned); err != nil {
		return err
	}
	planned.derive()
	return c.verifyAdoption(ctx, planned)
}

// alreadyExists says what to do about an AppService that exists. An earlier run that was interrupted may have created it.
func alreadyExists(live object) error {
	remedy := "To adopt objects by it, set its spec.adoptionPolicy to IfUnowned"
	if app, ok := live.Object.(*v1beta1.AppService); ok && app.Spec.AdoptionPolicy == v1beta1.AdoptionIfUnowned {
		remedy = "It adopts objects: to see how far it is, run kubectl fixpoint status " + live.argument()
	}
	return fmt.Errorf("%s exists: this command creates one. %s", live, remedy)
}

// findScaler finds a HorizontalPodAutoscaler of the Deployment that is not adopted.
func (c *clients) findScaler(ctx context.Context, planned *adoption) error {
	err := c.listEach(ctx, &autoscalingv2.HorizontalPodAutoscalerList{}, func(live client.Object) {
		scaler, ok := live.(*autoscalingv2.HorizontalPodAutoscaler)
		if ok && scaler.Spec.ScaleTargetRef.Kind == "Deployment" && scaler.Spec.ScaleTargetRef.Name == planned.name && planned.objects["HorizontalPodAutoscaler"] == nil {
			planned.scaler = scaler.Name
		}
	}, client.InNamespace(c.namespace))
	if apierrors.IsForbidden(err) {
		planned.notes = append(planned.notes, "you may not list HorizontalPodAutoscalers: if one scales the Deployment, remove spec.replicas")
		return nil
	}
	return err
}

// verifyAdoption plans the AppService, and compares the live objects with those that the manager would create for it.
func (c *clients) verifyAdoption(ctx context.Context, planned *adoption) error {
	document, err := planned.document()
	if err != nil {
		return err
	}
	stored, err := c.dryApply(ctx, document, false)
	if apierrors.IsInvalid(err) {
		planned.refuse("AppService", "", "the AppService that describes the objects is not valid: "+err.Error(), "change the objects")
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating AppService %s/%s as a dry run: %w", planned.namespace, planned.name, err)
	}
	app, err := typedAs(stored, &v1beta1.AppService{})
	if err != nil {
		return err
	}
	planner, err := c.newPlanner(ctx, planOptions{})
	if err != nil {
		return err
	}
	planner.recorder.goesOn, planner.recorder.refused = true, map[string]error{}
	plan, err := planner.plan(ctx, planned.kind.object(app))
	if err != nil {
		return fmt.Errorf("planning AppService %s/%s: %w", planned.namespace, planned.name, err)
	}
	planned.notes = append(planned.notes, planner.notes...)
	created := map[string]client.Object{}
	for kind, desired := range planner.recorder.desired {
		if live := planned.objects[kind]; live != nil {
			if created[kind], err = c.created(ctx, desired, live); err != nil {
				return err
			}
		}
	}
	return planned.decide(plan, planner.recorder.refused, created)
}

// created is the object that the manager would create if the live one did not exist, with what the API server sets.
func (c *clients) created(ctx context.Context, desired ssa.Configuration, live client.Object) (client.Object, error) {
	fresh := &unstructured.Unstructured{Object: map[string]any{}}
	if err := workload.Convert(desired, &fresh.Object); err != nil {
		return nil, fmt.Errorf("reading the configuration of %s %s: %w", kindName(live), live.GetName(), err)
	}
	fresh.SetOwnerReferences(nil)
	const suffix = "-adopt" // the longest name of an AppService leaves room for it
	fresh.SetName(live.GetName() + suffix)
	// The API server sets nothing in an Ingress, and webhooks of ingress controllers refuse a second one with its host.
	if kindName(live) != "Ingress" {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(fresh), client.FieldOwner(kubectlManager), client.DryRunAll)
		if err != nil {
			return nil, fmt.Errorf("creating %s %s as a dry run, to compare it with that to adopt: %w", kindName(live), fresh.GetName(), err)
		}
	}
	return typedAs(fresh, newObjectLike(live))
}

// carryOutAdoption creates the AppService, waits for it, and reports what became of the objects and the pods.
func (o *options) carryOutAdoption(ctx context.Context, c *clients, planned adoption, timeout time.Duration) error {
	deployment, _ := planned.objects["Deployment"].(*appsv1.Deployment)
	before := evidence{object: object{Object: deployment}, deployment: deployment}
	if err := c.addPods(ctx, &before); err != nil {
		return err
	}
	if err := c.createAdopter(ctx, planned); err != nil {
		return err
	}
	// What follows may be interrupted.
	fmt.Fprintf(o.ErrOut, "AppService %s/%s is created. Waiting until it is Ready.\n", planned.namespace, planned.name)
	live, err := c.get(ctx, planned.kind, planned.name)
	if err != nil {
		return err
	}
	live, err = c.waitFor(ctx, timeout, live, func(now object) bool {
		return now.isCurrent() && (now.isReady() || now.condition(v1beta1.ConditionStalled) != nil)
	})
	if err != nil {
		return err
	}
	if !live.isReady() || !live.isCurrent() {
		found, err := c.evidence(ctx, live)
		if err != nil {
			return err
		}
		fmt.Fprint(o.Out, wrap(whyText(found, o.now())))
		return &exitError{code: exitFailure}
	}
	after := evidence{object: object{Object: deployment}, deployment: deployment}
	if err := c.addPods(ctx, &after); err != nil {
		return err
	}
	owned, err := c.adoptedBy(ctx, live, planned)
	if err != nil {
		return err
	}
	pods, same := comparePods(before, after)
	text, ok := adoptedText(live, owned, pods, same)
	fmt.Fprint(o.Out, text)
	if !ok {
		return &exitError{code: exitFailure}
	}
	return nil
}

// createAdopter creates the AppService, unless it exists by now.
func (c *clients) createAdopter(ctx context.Context, planned adoption) error {
	spec := fixpointac.AppServiceSpec()
	if err := workload.Convert(planned.spec, spec); err != nil {
		return fmt.Errorf("serializing the AppService: %w", err)
	}
	if err := c.confirmUnchanged(ctx, planned); err != nil {
		return err
	}
	// The resourceVersion, which no object has, keeps the apply from changing an AppService that exists by now.
	err := c.Apply(ctx, fixpointac.AppService(planned.name, planned.namespace).WithResourceVersion("1").WithSpec(spec), client.FieldOwner(kubectlManager), client.ForceOwnership)
	if apierrors.IsConflict(err) {
		return fmt.Errorf("AppService %s/%s exists by now, and is left as it is: run kubectl fixpoint status appservice/%s -n %s",
			planned.namespace, planned.name, planned.name, planned.namespace)
	}
	if err != nil {
		return fmt.Errorf("creating AppService %s/%s: %w", planned.namespace, planned.name, err)
	}
	return nil
}

// confirmUnchanged fails if an object has changed since the adoption was planned, as by a rollout: the manager would revert
// that.
func (c *clients) confirmUnchanged(ctx context.Context, planned adoption) error {
	for _, k := range adoptableKinds {
		before := planned.objects[k.name]
		if before == nil {
			continue
		}
		live := k.empty()
		if err := c.Get(ctx, client.ObjectKey{Namespace: planned.namespace, Name: planned.name}, live); err != nil {
			return fmt.Errorf("reading %s %s/%s: %w", k.name, planned.namespace, planned.name, err)
		}
		changes, err := diff(before, live)
		if err != nil {
			return err
		}
		if len(changes) > 0 || live.GetUID() != before.GetUID() {
			return fmt.Errorf("%s/%s has changed since the adoption was planned: nothing was changed; repeat the command", k.name, planned.name)
		}
	}
	return nil
}

// adoptedBy says for each object whether the AppService controls it and the manager holds fields of it.
func (c *clients) adoptedBy(ctx context.Context, owner object, planned adoption) ([]ownedObject, error) {
	var owned []ownedObject
	for _, k := range adoptableKinds {
		if planned.objects[k.name] == nil {
			continue
		}
		live := k.empty()
		if err := c.Get(ctx, client.ObjectKey{Namespace: planned.namespace, Name: planned.name}, live); err != nil {
			return nil, fmt.Errorf("reading %s %s/%s: %w", k.name, planned.namespace, planned.name, err)
		}
		isHeld := slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == owner.kind.fieldManager })
		owned = append(owned, ownedObject{k.name + "/" + planned.name, isHeld && metav1.IsControlledBy(live, owner) && live.GetUID() == planned.objects[k.name].GetUID()})
	}
	return owned, nil
}

// ownedObject is an object that was to be adopted.
type ownedObject struct {
	name    string
	isOwned bool
}

// comparePods says what became of the pods. ok is true if all are the same and none has restarted.
func comparePods(before, after evidence) (text string, ok bool) {
	var changed []string
	for i := range before.pods {
		pod := &before.pods[i]
		j := slices.IndexFunc(after.pods, func(p corev1.Pod) bool { return p.UID == pod.UID })
		switch {
		case j < 0:
			changed = append(changed, "Pod "+pod.Name+" no longer exists")
		case restartsOf(&after.pods[j]) > restartsOf(pod):
			changed = append(changed, "Pod "+pod.Name+" has restarted")
		}
	}
	switch {
	case len(before.notes) > 0:
		return "The pods were not compared: " + before.notes[0] + ".", true
	case len(changed) > 0:
		return strings.Join(changed, "; ") + ".", false
	default:
		return fmt.Sprintf("The %d pods are the same as before, and none has restarted.", len(before.pods)), true
	}
}

func restartsOf(pod *corev1.Pod) (restarts int32) {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		restarts += status.RestartCount
	}
	return restarts
}

// adoptedText is the result. ok is false if not all is as it was planned.
func adoptedText(live object, owned []ownedObject, pods string, same bool) (text string, ok bool) {
	var names, missing []string
	for _, one := range owned {
		if names = append(names, one.name); !one.isOwned {
			missing = append(missing, one.name)
		}
	}
	text = fmt.Sprintf("%s is Ready. It controls %s.\n%s\n", live, strings.Join(names, ", "), pods)
	if len(missing) > 0 {
		text = fmt.Sprintf("%s is Ready, but it does not control %s.\n%s\n", live, strings.Join(missing, ", "), pods)
	}
	return text, same && len(missing) == 0
}
