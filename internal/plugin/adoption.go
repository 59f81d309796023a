package plugin

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// adoption is a new AppService that adopts objects.
type adoption struct {
	kind            *kind
	name, namespace string
	// objects to adopt, by kind. There is a Deployment.
	objects map[string]client.Object
	// scaler is a HorizontalPodAutoscaler of the Deployment that is not adopted.
	scaler string
	// spec describes the objects.
	spec v1beta1.AppServiceSpec
	// refused prevents the adoption. kept are fields that the AppService does not declare and that stay as they are, and
	// changed is what the manager changes without an effect on what runs.
	refused []refusedField
	kept    []string
	changed []string
	notes   []string
}

// refusedField is a field that prevents an adoption.
type refusedField struct{ object, field, problem, remedy string }

// containerName is the name of the container of an AppService, and portName that of its port.
const (
	containerName = "app"
	portName      = "http"
	// appContainer is the path of the fields of the container.
	appContainer = "spec.template.spec.containers[name=" + containerName + "]."
)

func (a *adoption) refuse(kind, field, problem, remedy string) {
	refused := refusedField{kind + "/" + a.name, field, problem, remedy}
	known := slices.ContainsFunc(a.refused, func(r refusedField) bool { return field != "" && r.object == refused.object && r.field == field })
	if !known {
		a.refused = append(a.refused, refused)
	}
}

func (a *adoption) isRefused() bool { return len(a.refused) > 0 }

// String lists the objects.
func (a *adoption) String() string {
	var names []string
	for _, k := range adoptableKinds {
		if a.objects[k.name] != nil {
			names = append(names, k.name+"/"+a.name)
		}
	}
	return strings.Join(names, ", ")
}

// derive finds the spec that describes the objects, as far as an AppService can.
func (a *adoption) derive() {
	for _, k := range adoptableKinds {
		live := a.objects[k.name]
		if live == nil {
			continue
		}
		if owner := metav1.GetControllerOf(live); owner != nil {
			a.refuse(k.name, "metadata.ownerReferences", fmt.Sprintf("%s %s controls it", owner.Kind, owner.Name),
				fmt.Sprintf("adopt what %s %s controls only after it has released it: delete it with --cascade=orphan", owner.Kind, owner.Name))
		}
		if live.GetDeletionTimestamp() != nil {
			a.refuse(k.name, "metadata.deletionTimestamp", "it is being deleted", "create it again first")
		}
		if by := live.GetLabels()[workload.LabelManagedBy]; by != "" && by != workload.ManagedBy {
			a.notes = append(a.notes, fmt.Sprintf("%s/%s is managed by %s: remove it there without deleting it, or both change the same fields", k.name, a.name, by))
		}
	}
	a.spec = v1beta1.AppServiceSpec{AdoptionPolicy: v1beta1.AdoptionIfUnowned}
	deployment, _ := a.objects["Deployment"].(*appsv1.Deployment)
	container := a.container(deployment)
	a.describeRollout(deployment)
	a.describePods(&deployment.Spec.Template.Spec, container)
	a.describeOthers()
}

// container is the one that runs the application: that of the name that an AppService gives it, or the first, which is
// then renamed, so that the rest of it is compared.
func (a *adoption) container(d *appsv1.Deployment) *corev1.Container {
	containers := d.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == containerName })
	if i < 0 {
		i = 0
		a.refuse("Deployment", "spec.template.spec.containers[name="+containers[i].Name+"].name", "the container of an AppService is named "+containerName,
			"rename the container, which rolls the pods")
		containers[i].Name = containerName
	}
	return &containers[i]
}

func (a *adoption) describeRollout(d *appsv1.Deployment) {
	switch {
	case a.objects["HorizontalPodAutoscaler"] != nil:
	case a.scaler != "":
		a.notes = append(a.notes, fmt.Sprintf("HorizontalPodAutoscaler %s sets the number of pods and stays unmanaged, so spec.replicas is left out", a.scaler))
	case d.Spec.Replicas != nil && *d.Spec.Replicas >= 2:
		a.spec.Replicas = d.Spec.Replicas
	default:
		a.notes = append(a.notes, "an AppService has at least 2 replicas, so spec.replicas is left out, and the number of pods is not managed")
	}
	a.spec.Strategy = v1beta1.StrategyRollingUpdate
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		a.spec.Strategy = v1beta1.StrategyRecreate
	}
	if d.Spec.ProgressDeadlineSeconds != nil {
		a.spec.ProgressDeadlineSeconds = *d.Spec.ProgressDeadlineSeconds
	}
}

func (a *adoption) describePods(pod *corev1.PodSpec, container *corev1.Container) {
	s := &a.spec
	s.Image, s.Env, s.Resources = container.Image, container.Env, container.Resources
	s.Port = portOf(container)
	s.ImagePullSecrets, s.ServiceAccountName, s.AutomountServiceAccountToken = pod.ImagePullSecrets, pod.ServiceAccountName, pod.AutomountServiceAccountToken
	s.NodeSelector = pod.NodeSelector
	s.PodSecurityStandard = v1beta1.PodSecurityBaseline // it adds nothing to the pods
	if pod.SecurityContext != nil && !reflect.ValueOf(*pod.SecurityContext).IsZero() {
		s.PodSecurityContext = pod.SecurityContext
	}
	s.ContainerSecurityContext = container.SecurityContext
	probes := v1beta1.AppServiceProbes{
		Readiness: probeOf(container.ReadinessProbe), Liveness: probeOf(container.LivenessProbe), Startup: probeOf(container.StartupProbe),
	}
	if probes != (v1beta1.AppServiceProbes{}) {
		s.Probes = &probes
	}
	if config, ok := a.objects["ConfigMap"].(*corev1.ConfigMap); ok {
		s.Config = config.Data
		s.ConfigMountPath = configMountOf(pod, container, config.Name)
	}
}

// portOf is the port of the application: the one with the name that an AppService gives it, or the first.
func portOf(container *corev1.Container) int32 {
	const usual = 8080
	port := int32(usual)
	for i, p := range container.Ports {
		if i == 0 || p.Name == portName {
			port = p.ContainerPort
		}
	}
	return port
}

// probeOf is a probe by HTTP; nil if it is none.
func probeOf(p *corev1.Probe) *v1beta1.AppServiceProbe {
	if p == nil || p.HTTPGet == nil {
		return nil
	}
	probe := &v1beta1.AppServiceProbe{
		Path: p.HTTPGet.Path, InitialDelaySeconds: p.InitialDelaySeconds, PeriodSeconds: p.PeriodSeconds, TimeoutSeconds: p.TimeoutSeconds, FailureThreshold: p.FailureThreshold,
	}
	if number := p.HTTPGet.Port.IntVal; number != 0 {
		probe.Port = &number
	}
	return probe
}

// configMountOf is where the container mounts the ConfigMap; empty if it does not.
func configMountOf(pod *corev1.PodSpec, container *corev1.Container, name string) string {
	for _, volume := range pod.Volumes {
		if volume.ConfigMap == nil || volume.ConfigMap.Name != name {
			continue
		}
		for _, mount := range container.VolumeMounts {
			if mount.Name == volume.Name {
				return mount.MountPath
			}
		}
	}
	return ""
}

func (a *adoption) describeOthers() {
	if scaler, ok := a.objects["HorizontalPodAutoscaler"].(*autoscalingv2.HorizontalPodAutoscaler); ok {
		a.spec.Autoscaling = a.autoscalingOf(scaler)
	}
	if budget, ok := a.objects["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget); ok {
		a.spec.DisruptionBudget = &v1beta1.DisruptionBudget{MinAvailable: budget.Spec.MinAvailable, MaxUnavailable: budget.Spec.MaxUnavailable}
	}
	if ingress, ok := a.objects["Ingress"].(*networkingv1.Ingress); ok {
		a.spec.Ingress = ingressOf(ingress)
	}
}

func (a *adoption) autoscalingOf(scaler *autoscalingv2.HorizontalPodAutoscaler) *v1beta1.AppServiceAutoscaling {
	scaling := &v1beta1.AppServiceAutoscaling{MinReplicas: 1, MaxReplicas: scaler.Spec.MaxReplicas}
	if scaler.Spec.MinReplicas != nil {
		scaling.MinReplicas = *scaler.Spec.MinReplicas
	}
	if scaling.MinReplicas < 2 {
		a.refuse("HorizontalPodAutoscaler", "spec.minReplicas", fmt.Sprintf("it is %d, and an AppService has at least 2 replicas", scaling.MinReplicas),
			"set it to 2, or leave out --from hpa/"+a.name+", which keeps it unmanaged")
		scaling.MinReplicas = 2
		scaling.MaxReplicas = max(scaling.MaxReplicas, scaling.MinReplicas)
	}
	for _, metric := range scaler.Spec.Metrics {
		if metric.Resource == nil || metric.Resource.Target.AverageUtilization == nil {
			continue
		}
		switch metric.Resource.Name {
		case corev1.ResourceCPU:
			scaling.TargetCPUUtilizationPercent = metric.Resource.Target.AverageUtilization
		case corev1.ResourceMemory:
			scaling.TargetMemoryUtilizationPercent = metric.Resource.Target.AverageUtilization
		}
	}
	return scaling
}

// ingressOf describes the first rule; others are found when the Ingress is compared.
func ingressOf(ingress *networkingv1.Ingress) *v1beta1.Ingress {
	described := &v1beta1.Ingress{Path: "/", IngressClassName: ingress.Spec.IngressClassName}
	if len(ingress.Spec.Rules) > 0 {
		rule := ingress.Spec.Rules[0]
		described.Host = rule.Host
		if rule.HTTP != nil && len(rule.HTTP.Paths) > 0 {
			described.Path = rule.HTTP.Paths[0].Path
		}
	}
	if len(ingress.Spec.TLS) > 0 {
		described.TLSSecretName = ingress.Spec.TLS[0].SecretName
	}
	annotations := maps.Clone(ingress.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return key == corev1.LastAppliedConfigAnnotation || strings.HasPrefix(key, ssa.RecordAnnotationPrefix)
	})
	if len(annotations) > 0 {
		described.Annotations = annotations
	}
	return described
}

// decide compares the live objects with those that the manager would create, and joins that with the plan.
func (a *adoption) decide(plan objectPlan, refused map[string]error, created map[string]client.Object) error {
	for _, k := range adoptableKinds {
		if a.objects[k.name] != nil && created[k.name] != nil {
			if err := a.compare(k.name, a.objects[k.name], created[k.name]); err != nil {
				return err
			}
		}
	}
	for _, phase := range plan.Phases {
		for _, change := range phase.Changes {
			a.decideChange(change)
		}
	}
	a.kept = slices.DeleteFunc(a.kept, a.isChanged)
	for _, k := range adoptableKinds {
		if err := refused[k.name]; err != nil && !a.refuses(k.name) {
			a.refuse(k.name, "", "the API server refuses what the manager would apply: "+err.Error(), "correct what the message names")
		}
	}
	for _, phase := range plan.Phases {
		switch {
		case a.isRefused(): // which may be why
		case phase.Unknown != "":
			a.refuse("AppService", "", "phase "+phase.Phase+" would fail: "+phase.Unknown, "correct what the message names")
		case phase.Verdict == verdictStalled || phase.Verdict == verdictWaits:
			a.refuse("AppService", "", "phase "+phase.Phase+" would not be ready: "+phase.Message, "correct what the message names, and adopt what is ready")
		}
	}
	return nil
}

// decideChange decides about what the manager would do.
func (a *adoption) decideChange(change plannedChange) {
	kind, _, _ := strings.Cut(change.Object, "/")
	switch {
	case change.Action == ssa.ActionCreate:
		a.changed = append(a.changed, "create "+change.Object)
	case change.Action != ssa.ActionAdopt:
		a.refuse(kind, "", fmt.Sprintf("the manager would %s %s", strings.ToLower(string(change.Action)), change.Object), "report this as an error of the plugin")
	case a.objects[kind] == nil:
		a.refuse(kind, "", "it exists, and would be adopted too", fmt.Sprintf("add --from %s/%s, or delete it", strings.ToLower(kind), a.name))
	}
	for _, field := range change.Fields {
		switch {
		case change.Action != ssa.ActionAdopt || a.refuses(kind):
		case isMetadata(field.Field) || a.isHarmless(kind, field):
			a.changed = append(a.changed, change.Object+" "+field.String())
		default:
			a.refuse(kind, field.Field, problemOf(field), remedyFor(kind, a.name, field))
		}
	}
}

// compare finds the fields that the manager would not create, which the AppService cannot express.
func (a *adoption) compare(kind string, live, created client.Object) error {
	one, err := specOf(live)
	if err != nil {
		return err
	}
	other, err := specOf(created)
	if err != nil {
		return err
	}
	for _, field := range diffValues("", one, other) {
		switch {
		case a.isHarmless(kind, field):
			if field.From != "" {
				a.kept = append(a.kept, kind+"/"+a.name+" "+field.Field+": "+field.From)
			}
		case field.To == "" && !isMetadata(strings.TrimPrefix(field.Field, "spec.template.")):
			a.refuse(kind, summary(field.Field), "an AppService does not express it", remedyFor(kind, a.name, field))
		default:
			a.refuse(kind, field.Field, problemOf(field), remedyFor(kind, a.name, field))
		}
	}
	return nil
}

// summary is the field that stands for those below it in a list of what an AppService does not express.
func summary(field string) string {
	for _, above := range []string{appContainer, "spec.template.spec.", "spec.template.", "spec."} {
		below, found := strings.CutPrefix(field, above)
		if !found {
			continue
		}
		depth := 0
		end := strings.IndexFunc(below, func(r rune) bool {
			switch r {
			case '[':
				depth++
			case ']':
				depth--
			}
			return r == '.' && depth == 0
		})
		if end >= 0 {
			return above + below[:end]
		}
		return field
	}
	return field
}

// refuses says whether something about an object of the kind prevents the adoption.
func (a *adoption) refuses(kind string) bool {
	return slices.ContainsFunc(a.refused, func(r refusedField) bool { return strings.HasPrefix(r.object, kind+"/") })
}

// isChanged says whether the manager changes a field that would stay as it is otherwise.
func (a *adoption) isChanged(kept string) bool {
	object, field, _ := strings.Cut(kept, " ")
	return slices.ContainsFunc(a.changed, func(changed string) bool {
		return strings.HasPrefix(changed, object+" ~ "+field+" ->") || changed == object+" - "+field
	})
}

// specOf is what of an object is compared: everything but its metadata and what the API server allocates.
func specOf(o client.Object) (map[string]any, error) {
	substance, err := substanceOf(o)
	if err != nil {
		return nil, err
	}
	if _, isService := o.(*corev1.Service); isService {
		withoutAllocated(substance)
	}
	tree, _ := substance.(map[string]any)
	delete(tree, "metadata")
	return tree, nil
}

func isMetadata(field string) bool { return strings.HasPrefix(field, "metadata.") }

// harmless are fields by kind whose values have no effect on what runs: they say how later rollouts go, or when the
// pods were restarted last. What the manager does not declare stays as it is.
var harmless = map[string][]string{
	"Deployment": {
		"spec.strategy.rollingUpdate.", "spec.revisionHistoryLimit", "spec.minReadySeconds", `spec.template.metadata.annotations."kubectl.kubernetes.io/restartedAt"`,
	},
}

// isHarmless decides whether a field may differ from what the manager would create.
func (a *adoption) isHarmless(kind string, field fieldChange) bool {
	switch {
	case kind == "Deployment" && field.Field == "spec.replicas":
		return a.spec.Replicas == nil // it is not managed
	case kind == "Service" && strings.HasSuffix(field.Field, "].targetPort"):
		return field.From == fmt.Sprint(a.spec.Port) && field.To == `"`+portName+`"` // the port of this name has this number
	case kind == "Service" && strings.HasPrefix(field.Field, "spec.ports[") && strings.HasSuffix(field.Field, "].name"):
		return field.From == "" // one port without a name gets one
	}
	return slices.ContainsFunc(harmless[kind], func(prefix string) bool { return strings.HasPrefix(field.Field, prefix) })
}

func problemOf(field fieldChange) string {
	switch {
	case field.To == "":
		return "it is " + field.From + ", and an AppService does not express it"
	case field.From == "":
		return "it is not set, and the manager sets it to " + field.To
	default:
		return "it is " + field.From + ", and the manager sets it to " + field.To
	}
}

// adoptionRemedy is what to do about the fields of a kind below a path.
type adoptionRemedy struct{ kind, prefix, remedy string }

var adoptionRemedies = []adoptionRemedy{
	{"Deployment", "spec.selector", "the selector is immutable: create the AppService under another name, move the traffic there, and delete the Deployment"},
	{"Deployment", appContainer + "envFrom", "add --from configmap/NAME if it is the ConfigMap of that name, or move the variables to env, which rolls the pods"},
	{"Deployment", appContainer + "command", "set the entrypoint in the image, which rolls the pods"},
	{"Deployment", appContainer + "args", "set the arguments in the image, or by environment variables, which rolls the pods"},
	{"Deployment", "spec.template.spec.initContainers", "do this in the container or in a Job, which rolls the pods"},
	{"Service", "spec.selector", "correct the selector: the Service sends traffic to other pods otherwise"},
	{"Service", "spec.ports", "give the Service the port of the container and no other, or create it again under another name to keep it unmanaged"},
	{"Ingress", "spec.rules", "an AppService has one host and path: move the others to an Ingress of their own"},
	{"ConfigMap", "immutable", "create the ConfigMap again without it"},
}

// remedyFor says what to do about a field that prevents an adoption.
func remedyFor(kind, name string, field fieldChange) string {
	for _, known := range adoptionRemedies {
		if known.kind == kind && strings.HasPrefix(field.Field, known.prefix) {
			return strings.ReplaceAll(known.remedy, "NAME", name)
		}
	}
	if strings.HasPrefix(field.Field, "spec.template.spec.containers[") && !strings.HasPrefix(field.Field, appContainer) {
		return "an AppService runs one container: run this one in a Deployment of its own"
	}
	remedy := "remove it"
	if field.To != "" {
		remedy = "set it to " + field.To
	}
	if strings.HasPrefix(field.Field, "spec.template.") {
		remedy += ", which rolls the pods"
	}
	return remedy
}

// document is the manifest of the AppService.
func (a *adoption) document() (*unstructured.Unstructured, error) {
	document := &unstructured.Unstructured{Object: map[string]any{}}
	spec := map[string]any{}
	if err := workload.Convert(a.spec, &spec); err != nil {
		return nil, fmt.Errorf("serializing the AppService: %w", err)
	}
	document.Object["spec"] = spec
	document.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind("AppService"))
	document.SetName(a.name)
	document.SetNamespace(a.namespace)
	return document, nil
}

// manifest is the AppService as YAML, after comments that say what happens to the objects.
func (a *adoption) manifest() (string, error) {
	document, err := a.document()
	if err != nil {
		return "", err
	}
	raw, err := yaml.Marshal(document.Object)
	if err != nil {
		return "", fmt.Errorf("serializing the AppService: %w", err)
	}
	var b strings.Builder
	comment := func(text string) { b.WriteString("# " + printable(text) + "\n") }
	comment("Adopts " + a.String() + ". No pod is replaced.")
	section := func(title string, lines []string) {
		if len(lines) > 0 {
			comment(title)
		}
		for _, line := range lines {
			comment("  " + line)
		}
	}
	section("The manager changes:", a.changed)
	section("These fields are not in the AppService, and stay as they are:", a.kept)
	for _, note := range a.notes {
		comment("Note: " + note + ".")
	}
	return b.String() + string(raw), nil
}

// refusal lists what prevents the adoption.
func (a *adoption) refusal() string {
	var b strings.Builder
	for _, r := range a.refused {
		where := r.object
		if r.field != "" {
			where += " " + r.field
		}
		fmt.Fprintf(&b, "%s\n  %s\n  remedy: %s\n", printable(where), printable(r.problem), printable(r.remedy))
	}
	return b.String()
}

// typedAs converts an object into the Go type of another.
func typedAs[O client.Object](from *unstructured.Unstructured, into O) (O, error) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, into); err != nil {
		return into, fmt.Errorf("reading %s %s: %w", from.GetKind(), from.GetName(), err)
	}
	return into, nil
}

// newObjectLike is an empty object of the same Go type.
func newObjectLike(o client.Object) client.Object {
	empty, _ := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	return empty
}
