package faults_test

import (
	"context"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/test/faults"
)

const name = "web"

var children = map[string]struct {
	condition string
	stranger  func() client.Object
}{
	"ConfigMap": {"ConfigReady", func() client.Object { return &corev1.ConfigMap{Data: map[string]string{"mine": "yes"}} }},
	"Service": {"ServiceReady", func() client.Object {
		return &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1234}}}}
	}},
	"Deployment": {"DeploymentReady", func() client.Object {
		labels := map[string]string{"app": "stranger"}
		return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.test/stranger:1"}}},
			},
		}}
	}},
	"HorizontalPodAutoscaler": {"AutoscalingReady", func() client.Object {
		return &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "stranger"}, MaxReplicas: 9,
		}}
	}},
	"PodDisruptionBudget": {"DisruptionBudgetReady", func() client.Object {
		return &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "stranger"}}, MinAvailable: ptr.To(intstr.FromInt32(1)),
		}}
	}},
	"Ingress": {"IngressReady", func() client.Object {
		return &networkingv1.Ingress{Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "stranger", Port: networkingv1.ServiceBackendPort{Number: 80}},
		}}}
	}},
}

// newApp is a world with an AppService that has all options, and the manager that has made it.
func newApp(t *testing.T) (*faults.Environment, *faults.Manager, Gomega) {
	t.Helper()
	ctx := context.Background()
	g := NewWithT(t)
	env, err := testCluster.NewEnvironment(ctx, faults.AppService)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(env.Report())
		}
		// What an object says may be seen before that of which it says it: each kind has a watch of its own.
		env.WaitUntil(5*time.Second, func() bool { return len(env.Violations()) == 0 })
		for _, violation := range env.Violations() {
			t.Error(violation)
		}
		if err := env.Close(); err != nil {
			t.Error(err)
		}
	})
	m, err := env.Start()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(env.Create(ctx, faults.NewAppService(name, faults.AllOptions))).To(Succeed())
	g.Expect(env.WaitUntil(faults.Timeout, func() bool {
		return env.ReadyWith(faults.AppService, name, 1) && m.IdleFor() > 300*time.Millisecond && hasChildren(env)
	})).To(BeTrue(), "it is never Ready")
	return env, m, g
}

// hasChildren: every child is seen, and of the object that is there.
func hasChildren(env *faults.Environment) bool {
	app := env.Get(faults.AppService, name)
	for kind := range children {
		child := env.Get(kind, name)
		if app == nil || child == nil || !metav1.IsControlledBy(child, app) {
			return false
		}
	}
	return true
}

// everythingElse changes something of every child.
func changeEveryChild(a *v1alpha1.AppService) {
	a.Spec.Image = "registry.test/shop:2"
	a.Spec.Port = 9090
	a.Spec.Config["MORE"] = "yes"
	a.Spec.Autoscaling.MaxReplicas = 6
	a.Spec.DisruptionBudget.MaxUnavailable = ptr.To(intstr.FromInt32(2))
	a.Spec.Ingress.Host = "other.example.com"
}

// pass waits until the manager has done what it finds to do, or waits for something itself.
func waitForReconcile(env *faults.Environment, m *faults.Manager, looks int) {
	began := time.Now()
	env.WaitUntil(2*time.Second, func() bool {
		return m.Reconciles(name) > looks && m.IdleFor() > 200*time.Millisecond || time.Since(began) > 1500*time.Millisecond
	})
}

// A child is deleted and another object takes its name, and the manager sees neither before it acts.
func TestAChildIsReplacedUnseen(t *testing.T) {
	for kind, child := range children {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			env, m, g := newApp(t)
			stranger := child.stranger()
			stranger.SetName(name)
			// given a cache that shows the child
			resource, looks := faults.ResourceOf(kind), m.Reconciles(name)
			m.HoldWatch(resource)
			g.Expect(env.Delete(ctx, child.stranger(), name, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			g.Expect(env.Create(ctx, stranger)).To(Succeed())
			// when the manager has to change it
			g.Expect(faults.Edit(ctx, env, "user", name, &v1alpha1.AppService{}, changeEveryChild)).To(Succeed())
			waitForReconcile(env, m, looks)
			m.ReleaseWatch(resource)
			// then the stranger is left alone, and the user is told
			g.Expect(env.WaitUntil(faults.Timeout, func() bool { return env.Reason(faults.AppService, name, child.condition) == "NotOwned" })).To(BeTrue(), "nobody is told")
			live := env.Get(kind, name)
			g.Expect(live.GetUID()).To(Equal(stranger.GetUID()))
			g.Expect(live.GetOwnerReferences()).To(BeEmpty())
			for _, entry := range live.GetManagedFields() {
				g.Expect(entry.Manager).NotTo(HavePrefix("fixpoint"))
			}
			// and its name is taken when it goes
			g.Expect(env.Delete(ctx, child.stranger(), name, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			g.Expect(env.WaitUntil(faults.Timeout, func() bool { return env.ReadyWith(faults.AppService, name, 2) })).To(BeTrue(), "it is never Ready again")
			g.Expect(deletions(env)).To(BeEmpty())
		})
	}
}

// deletions are those that managers asked for.
func deletions(env *faults.Environment) []faults.Call {
	return slices.DeleteFunc(env.Calls(), func(c faults.Call) bool { return c.Verb != "delete" })
}

// An AppService is replaced by another of its name while no manager runs, and the next one's cache is
// from before that.
func TestAnObjectIsReplacedUnseen(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	env, m, g := newApp(t)
	before := env.Get(faults.AppService, name)
	versions := env.Versions()
	m.Crash()
	// given
	g.Expect(faults.Edit(ctx, env, "user", name, &v1alpha1.AppService{}, func(a *v1alpha1.AppService) { a.Finalizers = nil })).To(Succeed())
	g.Expect(env.Delete(ctx, &v1alpha1.AppService{}, name, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	g.Expect(env.Create(ctx, faults.NewAppService(name, faults.AllOptions, func(s *v1alpha1.AppServiceSpec) { s.Image = "registry.test/shop:3" }))).To(Succeed())
	// when
	next, err := env.StartWithStaleCache(faults.StaleCache{faults.ResourceOf(faults.AppService): versions[len(versions)-1].Revision})
	g.Expect(err).NotTo(HaveOccurred())
	waitForReconcile(env, next, 0)
	next.ReleaseWatch(faults.ResourceOf(faults.AppService))
	// then
	g.Expect(env.WaitUntil(faults.Timeout, func() bool {
		app := env.Get(faults.AppService, name)
		return app != nil && app.GetUID() != before.GetUID() && env.ReadyWith(faults.AppService, name, 1) && hasChildren(env)
	})).To(BeTrue(), "it is never Ready, or not with children of its own")
	for kind := range children {
		child := env.Get(kind, name)
		g.Expect(child).NotTo(BeNil(), kind)
		g.Expect(child.GetOwnerReferences()).To(HaveExactElements(HaveField("UID", env.Get(faults.AppService, name).GetUID())), kind)
	}
}

// What changes and is changed back before the manager has seen it leads to nothing.
func TestAnEventComesWithTheOneThatCancelsIt(t *testing.T) {
	for _, kind := range []string{faults.AppService, "Deployment", "Service", "ConfigMap"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			env, m, g := newApp(t)
			uids := uidsOf(env)
			// given
			resource, looks := faults.ResourceOf(kind), m.Reconciles(name)
			m.HoldWatch(resource)
			g.Expect(changeAndRevert(ctx, env, kind)).To(Succeed())
			// when
			m.ReleaseWatch(resource)
			waitForReconcile(env, m, looks)
			g.Expect(env.WaitUntil(faults.Timeout, func() bool { return env.ReadyWith(faults.AppService, name, 1) && m.IdleFor() > 1500*time.Millisecond })).To(BeTrue())
			// then
			g.Expect(uidsOf(env)).To(Equal(uids))
			g.Expect(deletions(env)).To(BeEmpty())
			image, _, _ := faults.Field(env.Get("Deployment", name), "spec", "template", "spec", "containers")
			g.Expect(image).To(ContainElement(HaveKeyWithValue("image", "registry.test/shop:1")))
		})
	}
}

func changeAndRevert(ctx context.Context, env *faults.Environment, kind string) error {
	for _, forth := range []bool{true, false} {
		var err error
		pick := func(first, second string) string {
			if forth {
				return second
			}
			return first
		}
		switch kind {
		case "Deployment":
			err = faults.Edit(ctx, env, "kubectl-edit", name, &appsv1.Deployment{}, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = pick("registry.test/shop:1", "registry.test/other:1")
			})
		case "Service":
			err = faults.Edit(ctx, env, "kubectl-edit", name, &corev1.Service{}, func(s *corev1.Service) {
				s.Labels["app.kubernetes.io/name"] = pick(name, "other")
			})
		case "ConfigMap":
			err = faults.Edit(ctx, env, "kubectl-edit", name, &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data["GREETING"] = pick("hello", "bye") })
		default:
			err = faults.Edit(ctx, env, "user", name, &v1alpha1.AppService{}, func(a *v1alpha1.AppService) {
				a.Spec.Image = pick("registry.test/shop:1", "registry.test/shop:2")
				if forth {
					a.Spec.Ingress = nil
				} else {
					faults.AllOptions(&a.Spec)
				}
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func uidsOf(env *faults.Environment) map[string]types.UID {
	uids := map[string]types.UID{}
	for kind := range children {
		if child := env.Get(kind, name); child != nil {
			uids[kind] = child.GetUID()
		}
	}
	return uids
}
