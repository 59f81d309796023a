package ssa_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// scenario is a namespace, an owner in it and an applier whose requests are counted.
type scenario struct {
	Gomega
	context.Context
	namespace string
	owner     metav1.OwnerReference
	applier   *ssa.Applier
	log       *sent
	watched   []client.Object
}

func newScenario(t *testing.T, labels map[string]string) *scenario {
	t.Helper()
	s := &scenario{Gomega: NewWithT(t), Context: context.Background()}
	s.namespace = newNamespace(s, s, labels)
	s.owner = newOwner(s, s, s.namespace, "owner")
	s.restart()
	t.Cleanup(func() {
		if t.Failed() {
			s.print(t)
		}
	})
	return s
}

// print shows the objects of a failed test, with who manages what.
func (s *scenario) print(t *testing.T) {
	for _, object := range s.watched {
		if err := api.Get(s, client.ObjectKeyFromObject(object), object); err != nil {
			t.Logf("%T %s: %v", object, object.GetName(), err)
			continue
		}
		raw, _ := yaml.Marshal(object)
		t.Logf("%T:\n%s", object, raw)
	}
}

// restart forgets all that the applier remembers, as a restart of the manager does.
func (s *scenario) restart() { s.applier, s.log = newApplier(api) }

// requests is how many writes the applier has sent since the last call.
func (s *scenario) requests() int {
	n := len(s.log.bodies)
	s.log.bodies = nil
	return n
}

// apply applies a child of the owner, to the live object if it is not nil.
func (s *scenario) apply(desired ssa.Configuration, live client.Object, change ...func(*ssa.Request)) (ssa.Result, error) {
	request := ssa.Request{Desired: desired, Owner: &s.owner}
	if live != nil {
		request.Live = live
	}
	for _, c := range change {
		c(&request)
	}
	return s.applier.Apply(s, request)
}

// done applies, expects an action, and that the same again sends nothing, not even after a restart.
func (s *scenario) done(desired ssa.Configuration, live client.Object, action ssa.Action, change ...func(*ssa.Request)) ssa.Result {
	s.requests()
	result, err := s.apply(desired, live, change...)
	s.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	s.ExpectWithOffset(1, result.Action).To(Equal(action))
	sent := s.log.bodies
	if !result.Left {
		s.isQuiet(desired, result.Live, change...)
	}
	s.log.bodies = sent
	return result
}

func (s *scenario) isQuiet(desired ssa.Configuration, live client.Object, change ...func(*ssa.Request)) {
	for _, restarted := range []bool{false, true} {
		if restarted {
			s.restart()
		}
		s.requests()
		again, err := s.apply(desired, live, change...)
		s.ExpectWithOffset(2, err).NotTo(HaveOccurred())
		s.ExpectWithOffset(2, again.Action).To(Equal(ssa.ActionNone))
		s.ExpectWithOffset(2, s.requests()).To(BeZero(), "requests of a quiet apply; restarted: %v", restarted)
	}
}

// fails applies and returns the typed error.
func (s *scenario) fails(desired ssa.Configuration, live client.Object, change ...func(*ssa.Request)) *ssa.Error {
	_, err := s.apply(desired, live, change...)
	var typed *ssa.Error
	s.ExpectWithOffset(1, errors.As(err, &typed)).To(BeTrue(), "%v", err)
	return typed
}

func (s *scenario) create(who string, object client.Object) {
	object.SetNamespace(s.namespace)
	s.ExpectWithOffset(1, api.Create(s, object, client.FieldOwner(who))).To(Succeed())
	s.watched = append(s.watched, as[client.Object](object.DeepCopyObject()))
}

// get reads an object again.
func get[T client.Object](s *scenario, into T, name string) T {
	into.SetName(name)
	s.ExpectWithOffset(1, api.Get(s, types.NamespacedName{Namespace: s.namespace, Name: name}, into)).To(Succeed())
	s.watched = append(s.watched, as[client.Object](into.DeepCopyObject()))
	return into
}

// editAs changes an object by Update, as kubectl edit does, and returns it as it is then.
func editAs[T client.Object](s *scenario, who string, live T, mutate func(T)) T {
	changed := as[T](live.DeepCopyObject())
	mutate(changed)
	s.ExpectWithOffset(1, api.Update(s, changed, client.FieldOwner(who))).To(Succeed())
	return changed
}

// applyAs applies a document under another manager.
func (s *scenario) applyAs(who string, live client.Object, document string, opts ...client.PatchOption) {
	raw, err := yaml.YAMLToJSON([]byte(document))
	s.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	target := as[client.Object](live.DeepCopyObject())
	s.ExpectWithOffset(1, api.Patch(s, target, client.RawPatch(types.ApplyPatchType, raw), append(opts, client.FieldOwner(who))...)).To(Succeed())
}

// formerManager is a name under which an earlier version of the operator wrote.
const formerManager = "operator-v0"

// newApplierAfter is an applier whose operator once wrote under another name.
func newApplierAfter(former string) (*ssa.Applier, *sent) {
	log := &sent{}
	applier, err := ssa.New(ssa.Options{Client: log.watch(api), FieldManager: manager, FormerManagers: []string{former}, TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{applyconfiguration.NewTypeConverter}})
	if err != nil {
		panic(err)
	}
	return applier, log
}

// watch is a client that remembers what is sent through it.
func (l *sent) watch(c client.WithWatch) client.Client {
	remember := func(obj client.Object, patch client.Patch) {
		if body, err := patch.Data(obj); err == nil {
			l.bodies = append(l.bodies, body)
		}
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			remember(obj, patch)
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			remember(obj, patch)
			return c.SubResource(subresource).Patch(ctx, obj, patch, opts...)
		},
	})
}

func (s *scenario) wipeManagedFields(live client.Object) {
	patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`))
	s.ExpectWithOffset(1, api.Patch(s, live, patch)).To(Succeed())
}

// scale sets the replicas as an autoscaler or kubectl scale does.
func (s *scenario) scale(live client.Object, replicas int32, who string) {
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: live.GetName(), Namespace: live.GetNamespace()},
		Spec:       autoscalingv1.ScaleSpec{Replicas: replicas},
	}
	target := as[client.Object](live.DeepCopyObject())
	s.ExpectWithOffset(1, api.SubResource("scale").Update(s, target, client.WithSubResourceBody(scale), client.FieldOwner(who))).To(Succeed())
}

func (s *scenario) blankConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
}

// as is what is known to be a T, such as the live object of a result.
func as[T any](v any) T {
	typed, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("%T is not a %T", v, typed))
	}
	return typed
}

// managers lists who manages something, but for the status.
func managers(live client.Object) []string {
	var names []string
	for _, entry := range live.GetManagedFields() {
		if entry.Subresource == "" {
			names = append(names, entry.Manager+" "+string(entry.Operation))
		}
	}
	return names
}

// descriptions are drifts as people read them.
func descriptions(drifts []ssa.Drift) []string {
	var texts []string
	for _, d := range drifts {
		texts = append(texts, d.String())
	}
	return texts
}

func adopt(r *ssa.Request)  { r.Adoption = ssa.AdoptIfUnowned }
func report(r *ssa.Request) { r.Drift = ssa.ReportDrift }
func shared(r *ssa.Request) { r.Owner = nil }
func handOver(fields ...string) func(*ssa.Request) {
	return func(r *ssa.Request) { r.HandOver = fields }
}
func removeFields(fields ...string) func(*ssa.Request) {
	return func(r *ssa.Request) { r.RemoveFields = fields }
}
func unique(fields ...string) func(*ssa.Request) {
	return func(r *ssa.Request) { r.UniqueFields = fields }
}

// deployment is a small one, whose container web runs web:1.
func (s *scenario) deployment(name string) *appsv1ac.DeploymentApplyConfiguration {
	labels := map[string]string{"app": name}
	return appsv1ac.Deployment(name, s.namespace).WithSpec(appsv1ac.DeploymentSpec().
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().
			WithContainers(corev1ac.Container().WithName("web").WithImage("web:1")))))
}

func (s *scenario) configMap(name string, data map[string]string) *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap(name, s.namespace).WithData(data)
}

func container(name, image string) *corev1ac.ContainerApplyConfiguration {
	return corev1ac.Container().WithName(name).WithImage(image)
}

// plainDeployment is the same deployment as an object, for others to create.
func plainDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:0"}}},
			},
		},
	}
}
