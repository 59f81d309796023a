package ssa_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// edit is something that another manager does to a live object.
type edit struct {
	name string
	// as is the manager that does it, if it always has to be the same: a manager's apply takes
	// back what its apply before said.
	as string
	// do edits through a client, and returns the fields that it changed. It returns false if the object has
	// nothing for it to do.
	do func(ctx context.Context, c client.Client, g generator, live client.Object, who string) ([]change, bool, error)
}

// change is a field that an edit has set to another value, or removed.
type change struct {
	path string
	// alpha is the path in v1alpha1, if it is another one.
	alpha   string
	removed bool
	// by is the manager that made the change, and version that in which it wrote.
	by      string
	version schema.GroupVersion
}

// in is the path in a version of the kind.
func (c change) in(version schema.GroupVersion) string {
	if version == alpha && c.alpha != "" {
		return c.alpha
	}
	return c.path
}

// update edits by Update: what mutate changes, who owns afterwards.
func update[T client.Object](name string, mutate func(g generator, live T) []change) edit {
	return edit{name: name, do: func(ctx context.Context, c client.Client, g generator, live client.Object, who string) ([]change, bool, error) {
		typed, ok := live.(T)
		if !ok {
			return nil, false, nil
		}
		changes := mutate(g, typed)
		if changes == nil {
			return nil, false, nil
		}
		return changes, true, c.Update(ctx, typed, client.FieldOwner(who))
	}}
}

// apply edits by Server-Side Apply with force.
func apply[T client.Object](name string, build func(g generator, live T) (spec map[string]any, changes []change)) edit {
	return edit{name: name, as: "applier-of-" + strings.ReplaceAll(name, " ", "-"), do: func(ctx context.Context, c client.Client, g generator, live client.Object, who string) ([]change, bool, error) {
		typed, ok := live.(T)
		if !ok {
			return nil, false, nil
		}
		document, changes := build(g, typed)
		if document == nil {
			return nil, false, nil
		}
		gvk, err := api.GroupVersionKindFor(live)
		if err != nil {
			return nil, false, err
		}
		document["apiVersion"], document["kind"] = gvk.GroupVersion().String(), gvk.Kind
		metadata, _ := document["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["name"], metadata["namespace"] = live.GetName(), live.GetNamespace()
		document["metadata"] = metadata
		raw, err := json.Marshal(document)
		if err != nil {
			return nil, false, err
		}
		return changes, true, c.Patch(ctx, typed, client.RawPatch(types.ApplyPatchType, raw), client.FieldOwner(who), client.ForceOwnership)
	}}
}

// nothing is a change of no declared field.
var nothing = []change{}

func set(paths ...string) []change {
	changes := []change{}
	for _, path := range paths {
		changes = append(changes, change{path: path})
	}
	return changes
}

// setRenamed is the change of a field that v1alpha1 calls by another name.
func setRenamed(path, alpha string) []change { return []change{{path: path, alpha: alpha}} }

func removed(path string) []change { return []change{{path: path, removed: true}} }

const webPath = `.spec.template.spec.containers[name="web"]`

func web(d *appsv1.Deployment) *corev1.Container {
	for i := range d.Spec.Template.Spec.Containers {
		if d.Spec.Template.Spec.Containers[i].Name == "web" {
			return &d.Spec.Template.Spec.Containers[i]
		}
	}
	return &d.Spec.Template.Spec.Containers[0]
}

// edits are all that other managers do in the property test.
var edits = []edit{
	// What no manager applies.
	update("no change at all", func(_ generator, _ client.Object) []change { return nothing }),
	update("foreign annotation", func(g generator, o client.Object) []change {
		annotations := maps.Clone(o.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["other.example/x"] = g.word()
		o.SetAnnotations(annotations)
		return nothing
	}),
	update("foreign label", func(g generator, o client.Object) []change {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["other.example/x"] = g.word()
		o.SetLabels(labels)
		return nothing
	}),
	apply("foreign label by apply", func(g generator, _ client.Object) (map[string]any, []change) {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"applied.example/x": g.word()}}}, nothing
	}),
	apply("co-own our label", func(_ generator, o client.Object) (map[string]any, []change) {
		for key, v := range o.GetLabels() {
			if strings.HasPrefix(v, "changed-") {
				continue // then two hold what one of them changed
			}
			return map[string]any{"metadata": map[string]any{"labels": map[string]any{key: v}}}, nothing
		}
		return nil, nil
	}),
	{name: "status", do: func(ctx context.Context, c client.Client, g generator, live client.Object, who string) ([]change, bool, error) {
		switch o := live.(type) {
		case *appsv1.Deployment:
			o.Status.ObservedGeneration = int64(g.IntN(100))
			o.Status.Replicas = int32(g.IntN(5))
		case *autoscalingv2.HorizontalPodAutoscaler:
			o.Status.CurrentReplicas = int32(g.IntN(5))
		case *v1beta1.AppService:
			o.Status.Replicas = int32(g.IntN(5))
		case *v1beta1.MCPServer:
			o.Status.ProbedVersions = []string{g.word()}
			o.Status.Drifts = []v1beta1.Drift{{Time: metav1.Now(), Kind: "Deployment", Name: o.Name, Desired: g.word(), Found: g.word(), Action: v1beta1.DriftCorrected}}
		case *v1beta1.SecureStorage:
			o.Status.Endpoint = g.word()
		default:
			return nil, false, nil
		}
		return nothing, true, c.Status().Update(ctx, live, client.FieldOwner(who))
	}},

	// Declared metadata.
	update("our label", func(g generator, o client.Object) []change {
		labels := o.GetLabels()
		for _, key := range []string{"tier", "team", "example.com/part"} {
			if _, ok := labels[key]; ok {
				labels[key] = "changed-" + g.fresh()
				o.SetLabels(labels)
				return set(".metadata.labels." + key)
			}
		}
		return nil
	}),
	update("our label gone", func(_ generator, o client.Object) []change {
		labels := o.GetLabels()
		for _, key := range []string{"team", "tier", "example.com/part"} {
			if _, ok := labels[key]; ok {
				delete(labels, key)
				o.SetLabels(labels)
				return removed(".metadata.labels." + key)
			}
		}
		return nil
	}),
	update("owner reference gone", func(_ generator, o client.Object) []change {
		applied := slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager })
		if len(o.GetOwnerReferences()) == 0 || !applied {
			return nil // then nothing would prove who owns it
		}
		uid := o.GetOwnerReferences()[0].UID
		o.SetOwnerReferences(nil)
		return removed(fmt.Sprintf(`.metadata.ownerReferences[uid=%q]`, uid))
	}),
	{name: "managed fields wiped", do: func(ctx context.Context, c client.Client, _ generator, live client.Object, who string) ([]change, bool, error) {
		if len(live.GetOwnerReferences()) == 0 {
			return nil, false, nil // then nothing would prove who owns it
		}
		patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`))
		return removed(".metadata.managedFields"), true, c.Patch(ctx, live, patch, client.FieldOwner(who))
	}},

	// Deployments.
	update("image", func(g generator, d *appsv1.Deployment) []change {
		web(d).Image = "elsewhere.example/web:" + g.fresh()
		return set(webPath + ".image")
	}),
	apply("image by forced apply", func(g generator, _ *appsv1.Deployment) (map[string]any, []change) {
		return podSpec(map[string]any{"containers": []any{map[string]any{"name": "web", "image": "forced.example/web:" + g.fresh()}}}), set(webPath + ".image")
	}),
	update("replicas", func(g generator, d *appsv1.Deployment) []change {
		*d.Spec.Replicas += int32(1 + g.IntN(3))
		return set(".spec.replicas")
	}),
	{name: "scale", do: func(ctx context.Context, c client.Client, g generator, live client.Object, who string) ([]change, bool, error) {
		d, ok := live.(*appsv1.Deployment)
		if !ok {
			return nil, false, nil
		}
		scale := &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace},
			Spec:       autoscalingv1.ScaleSpec{Replicas: *d.Spec.Replicas + int32(1+g.IntN(3))},
		}
		return set(".spec.replicas"), true, c.SubResource("scale").Update(ctx, d, client.WithSubResourceBody(scale), client.FieldOwner(who))
	}},
	update("env value", func(g generator, d *appsv1.Deployment) []change {
		for i, e := range web(d).Env {
			if e.ValueFrom == nil {
				web(d).Env[i].Value = "changed-" + g.fresh()
				return set(fmt.Sprintf("%s.env[name=%q].value", webPath, e.Name))
			}
		}
		return nil
	}),
	update("env gone", func(_ generator, d *appsv1.Deployment) []change {
		c := web(d)
		if len(c.Env) == 0 {
			return nil
		}
		gone := c.Env[0].Name
		c.Env = c.Env[1:]
		return removed(fmt.Sprintf("%s.env[name=%q]", webPath, gone))
	}),
	update("env added", func(g generator, d *appsv1.Deployment) []change {
		web(d).Env = append(web(d).Env, corev1.EnvVar{Name: "FOREIGN" + g.word(), Value: "x"})
		return nothing
	}),
	update("args", func(g generator, d *appsv1.Deployment) []change {
		if len(web(d).Args) == 0 {
			return nil
		}
		web(d).Args = []string{"--changed", g.fresh()}
		return set(webPath + ".args")
	}),
	update("cpu", func(g generator, d *appsv1.Deployment) []change {
		if _, ok := web(d).Resources.Requests[corev1.ResourceCPU]; !ok {
			return nil
		}
		web(d).Resources.Requests[corev1.ResourceCPU] = resource.MustParse(fmt.Sprintf("%dm", 1501+g.unique()))
		return set(webPath + ".resources.requests.cpu")
	}),
	update("the same cpu in other words", func(_ generator, d *appsv1.Deployment) []change {
		cpu, ok := web(d).Resources.Requests[corev1.ResourceCPU]
		if !ok {
			return nil
		}
		web(d).Resources.Requests[corev1.ResourceCPU] = resource.MustParse(fmt.Sprintf("%dm", cpu.MilliValue()))
		return nothing
	}),
	update("sidecar", func(g generator, d *appsv1.Deployment) []change {
		d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "side-" + g.word(), Image: "side:1"}}, d.Spec.Template.Spec.Containers...)
		return nothing
	}),
	update("rollout restart", func(g generator, d *appsv1.Deployment) []change {
		if d.Spec.Template.Annotations == nil {
			d.Spec.Template.Annotations = map[string]string{}
		}
		d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = g.word()
		return nothing
	}),
	update("strategy", func(_ generator, d *appsv1.Deployment) []change {
		if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
			return nil
		}
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType}
		return set(".spec.strategy.type", ".spec.strategy.rollingUpdate")
	}),

	// Services.
	update("selector", func(g generator, s *corev1.Service) []change {
		s.Spec.Selector["tier"] = "changed-" + g.fresh()
		return set(".spec.selector") // atomic
	}),
	update("selector grows", func(g generator, s *corev1.Service) []change {
		s.Spec.Selector["foreign"] = g.word()
		return set(".spec.selector")
	}),
	update("target port", func(g generator, s *corev1.Service) []change {
		if s.Spec.Ports[0].TargetPort.IntValue() == 80 {
			return nil // the default, which is not declared
		}
		s.Spec.Ports[0].TargetPort.Type, s.Spec.Ports[0].TargetPort.IntVal = 0, int32(10000+g.unique())
		return set(`.spec.ports[port=80,protocol="TCP"].targetPort`)
	}),
	update("affinity", func(_ generator, s *corev1.Service) []change {
		if s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
			return nil
		}
		s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
		return set(".spec.sessionAffinity")
	}),
	update("port added", func(g generator, s *corev1.Service) []change {
		for _, p := range s.Spec.Ports {
			if p.Name == "foreign" {
				return nil
			}
		}
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "foreign", Port: int32(20000 + g.IntN(1000))})
		return nothing
	}),

	// ConfigMaps.
	update("data", func(g generator, c *corev1.ConfigMap) []change {
		if c.Data == nil {
			c.Data = map[string]string{}
		}
		c.Data["first"] = "changed-" + g.fresh()
		return set(".data.first")
	}),
	update("data gone", func(_ generator, c *corev1.ConfigMap) []change {
		if _, ok := c.Data["first"]; !ok {
			return nil
		}
		delete(c.Data, "first")
		return removed(".data.first")
	}),
	update("data added", func(g generator, c *corev1.ConfigMap) []change {
		if c.Data == nil {
			c.Data = map[string]string{}
		}
		c.Data["foreign"] = g.word()
		return nothing
	}),
	apply("data by forced apply", func(g generator, _ *corev1.ConfigMap) (map[string]any, []change) {
		return map[string]any{"data": map[string]any{"first": "forced-" + g.fresh()}}, set(".data.first")
	}),

	// Autoscalers.
	update("max replicas", func(g generator, h *autoscalingv2.HorizontalPodAutoscaler) []change {
		h.Spec.MaxReplicas += int32(1 + g.IntN(10))
		return set(".spec.maxReplicas")
	}),
	update("metrics", func(g generator, h *autoscalingv2.HorizontalPodAutoscaler) []change {
		if h.Spec.Metrics[0].Resource.Target.AverageUtilization == nil {
			return nil
		}
		*h.Spec.Metrics[0].Resource.Target.AverageUtilization += int32(1 + g.IntN(50))
		return set(".spec.metrics")
	}),

	// Our own kind.
	update("spec image", func(g generator, a *v1beta1.AppService) []change {
		a.Spec.Image = "elsewhere.example/app:" + g.fresh()
		return set(".spec.image")
	}),
	update("spec replicas", func(_ generator, a *v1beta1.AppService) []change {
		if a.Spec.Replicas == nil {
			return nil
		}
		*a.Spec.Replicas += 3
		return set(".spec.replicas")
	}),
	update("spec config gone", func(_ generator, a *v1beta1.AppService) []change {
		if _, ok := a.Spec.Config["A"]; !ok {
			return nil
		}
		delete(a.Spec.Config, "A")
		return removed(".spec.config.A")
	}),
	update("spec probe", func(g generator, a *v1beta1.AppService) []change {
		if a.Spec.Probes == nil || a.Spec.Probes.Readiness == nil {
			return nil
		}
		a.Spec.Probes.Readiness.Path = "/changed" + g.fresh()
		return set(".spec.probes.readiness.path")
	}),
	update("server image", func(g generator, m *v1beta1.MCPServer) []change {
		m.Spec.Image = "elsewhere.example/tools:" + g.fresh()
		return set(".spec.image")
	}),
	update("server env", func(g generator, m *v1beta1.MCPServer) []change {
		if len(m.Spec.Env) == 0 {
			return nil
		}
		m.Spec.Env[0].Value = "changed-" + g.fresh()
		return set(fmt.Sprintf(".spec.env[name=%q].value", m.Spec.Env[0].Name))
	}),
	update("scheme", func(_ generator, m *v1beta1.MCPServer) []change {
		if m.Spec.Protocol.Scheme != v1beta1.SchemeHTTP {
			return nil
		}
		m.Spec.Protocol.Scheme = v1beta1.SchemeHTTPS
		return setRenamed(schemePath, tlsPath)
	}),
	apply("scheme by forced apply", func(_ generator, m *v1beta1.MCPServer) (map[string]any, []change) {
		if m.Spec.Protocol.Scheme != v1beta1.SchemeHTTP {
			return nil, nil
		}
		return map[string]any{"spec": map[string]any{"protocol": map[string]any{"scheme": "HTTPS"}}}, setRenamed(schemePath, tlsPath)
	}),
	update("scheme gone", func(_ generator, m *v1beta1.MCPServer) []change {
		if m.Spec.Protocol.Scheme == "" {
			return nil
		}
		m.Spec.Protocol.Scheme = ""
		return []change{{path: schemePath, alpha: tlsPath, removed: true}}
	}),
	update("probe", func(_ generator, m *v1beta1.MCPServer) []change {
		if m.Spec.Protocol.Probe != v1beta1.ProbePeriodic {
			return nil
		}
		m.Spec.Protocol.Probe = v1beta1.ProbeDisabled
		return setRenamed(".spec.protocol.probe", ".spec.protocol.disabled")
	}),
	update("DNS", func(_ generator, m *v1beta1.MCPServer) []change {
		if m.Spec.NetworkPolicy == nil || m.Spec.NetworkPolicy.Egress.DNS != v1beta1.DNSDenied {
			return nil
		}
		m.Spec.NetworkPolicy.Egress.DNS = v1beta1.DNSAllowed
		return setRenamed(".spec.networkPolicy.egress.dns", ".spec.networkPolicy.egress.allowDNS")
	}),
	update("network policy added", func(_ generator, m *v1beta1.MCPServer) []change {
		if m.Spec.NetworkPolicy != nil {
			return nil
		}
		m.Spec.NetworkPolicy = &v1beta1.MCPServerNetworkPolicy{Egress: &v1beta1.MCPServerNetworkEgress{DNS: v1beta1.DNSAllowed}}
		return nothing
	}),
	update("key", func(g generator, s *v1beta1.SecureStorage) []change {
		s.Spec.Key.Name = "changed-" + g.fresh()
		return setRenamed(".spec.key.name", ".spec.key.keyName")
	}),
	update("account loss policy", func(_ generator, s *v1beta1.SecureStorage) []change {
		if s.Spec.AccountLossPolicy != v1beta1.LossRecreate {
			return nil
		}
		s.Spec.AccountLossPolicy = v1beta1.LossStall
		return setRenamed(".spec.accountLossPolicy", ".spec.onAccountLoss")
	}),
	update("credentials", func(g generator, s *v1beta1.SecureStorage) []change {
		if s.Spec.Provider.CredentialsSecretRef == nil {
			return nil
		}
		s.Spec.Provider.CredentialsSecretRef.Name = "changed-" + g.fresh()
		return setRenamed(".spec.provider.credentialsSecretRef.name", ".spec.provider.credentialsRef.name")
	}),
	update("tag", func(g generator, s *v1beta1.SecureStorage) []change {
		if s.Spec.Tags["a"] == "" {
			return nil
		}
		s.Spec.Tags["a"] = "changed-" + g.fresh()
		return set(".spec.tags.a")
	}),
}

const (
	schemePath = ".spec.protocol.scheme"
	tlsPath    = ".spec.protocol.tls"
)

func podSpec(spec map[string]any) map[string]any {
	return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": spec}}}
}
