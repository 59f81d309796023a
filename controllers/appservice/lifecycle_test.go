package appservice

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// createPlain creates an AppService without a hook.
func (r *rollout) createPlain(changes ...func(*v1beta1.AppServiceSpec)) {
	r.Create(stored(changes...))
	r.Settle("shop/web")
	r.Clock.SetTime(r.Clock.Now().Add(time.Minute)) // progress is reported some seconds later
	r.Settle("shop/web")
}

func (r *rollout) read(object client.Object) {
	r.Expect(r.Server.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "web"}, object)).To(Succeed())
}

func (r *rollout) deployment() *appsv1.Deployment {
	d := &appsv1.Deployment{}
	r.read(d)
	return d
}

func TestPodsNeverRunAsTheManager(t *testing.T) {
	r := newRolloutWith(t, Options{ManagerAccount: types.NamespacedName{Namespace: "shop", Name: "default"}})
	r.createPlain()
	r.Expect(r.condition(v1beta1.ConditionDeploymentReady)).To(Equal("False NotPermitted"))
	r.Expect(r.running()).To(BeEmpty())
}

func TestIngressWaitsForItsClassUnlessTheManagerCannotReadClasses(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"with cluster rights":    {Options{}, "False IngressClassMissing"},
		"without cluster rights": {Options{NoClusterRights: true}, "True Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRolloutWith(t, c.options)
			r.createPlain(func(s *v1beta1.AppServiceSpec) {
				s.Ingress = &v1beta1.Ingress{Host: "a.test", Path: "/", IngressClassName: ptr.To("missing")}
			})
			r.Expect(r.condition(v1beta1.ConditionIngressReady)).To(Equal(c.want))
			r.Expect(r.condition(v1beta1.ConditionDeploymentReady)).To(Equal("True Ready"))
		})
	}
}

func TestIngressGetsTheDefaultClass(t *testing.T) {
	r := newRollout(t)
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "nginx", Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}}}
	r.Expect(r.Server.Create(context.Background(), class)).To(Succeed())
	r.createPlain(func(s *v1beta1.AppServiceSpec) { s.Ingress = &v1beta1.Ingress{Host: "a.test", Path: "/"} })
	in := &networkingv1.Ingress{}
	r.read(in)
	r.Expect(in.Spec.IngressClassName).To(HaveValue(Equal("nginx")))
}

func TestMissingCertificateIsInTheConditionOfTheIngress(t *testing.T) {
	r := newRolloutWith(t, Options{NoClusterRights: true})
	r.createPlain(func(s *v1beta1.AppServiceSpec) {
		s.Ingress = &v1beta1.Ingress{Host: "a.test", Path: "/", TLSSecretName: "web-tls"}
	})
	c := apimeta.FindStatusCondition(r.app().Status.Conditions, v1beta1.ConditionIngressReady)
	r.Expect(c.Message).To(ContainSubstring("web-tls"))
}

func TestAutoscalerStartsFromTheCurrentReplicas(t *testing.T) {
	r := newRollout(t)
	r.createPlain(func(s *v1beta1.AppServiceSpec) { s.Replicas = ptr.To[int32](5) })
	r.edit(func(s *v1beta1.AppServiceSpec) {
		s.Replicas, s.Autoscaling = nil, &v1beta1.AppServiceAutoscaling{MinReplicas: 2, MaxReplicas: 6, TargetCPUUtilizationPercent: ptr.To[int32](80)}
	})
	r.Settle("shop/web")
	r.Expect(r.deployment().Spec.Replicas).To(HaveValue(BeEquivalentTo(5)))

	// Two that set the number of replicas would undo each other.
	r.Forget()
	r.edit(func(s *v1beta1.AppServiceSpec) { s.Replicas, s.Autoscaling = ptr.To[int32](3), nil })
	r.Settle("shop/web")
	r.Expect(r.Changes()).To(ContainElements("delete HorizontalPodAutoscaler web", "update Deployment web"))
	r.Expect(slices.Index(r.Changes(), "delete HorizontalPodAutoscaler web")).To(BeNumerically("<", slices.Index(r.Changes(), "update Deployment web")))
	r.Expect(r.Exists(&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: named("web")})).To(BeFalse())
}

func TestRemovedConfigIsKeptUntilNoPodUsesIt(t *testing.T) {
	r := newRollout(t)
	r.createPlain(withConfig(map[string]string{"A": "1"}))
	r.Forget()
	r.edit(withConfig(nil))
	r.Settle("shop/web")
	r.Expect(r.Changes()).To(ContainElements("update Deployment web", "delete ConfigMap web"))
	r.Expect(slices.Index(r.Changes(), "update Deployment web")).To(BeNumerically("<", slices.Index(r.Changes(), "delete ConfigMap web")))
}

// The API server rejects parameters of a rolling update beside the strategy Recreate, whoever has set them.
func TestRecreateLeavesNoParametersOfRollingUpdates(t *testing.T) {
	r := newRollout(t)
	existing := &appsv1.Deployment{ObjectMeta: named("web"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: selectorOf(stored())},
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(1))}},
	}}
	r.Expect(r.Server.Create(context.Background(), existing, client.FieldOwner("kubectl-create"))).To(Succeed())
	r.createPlain(func(s *v1beta1.AppServiceSpec) {
		s.Strategy, s.AdoptionPolicy = v1beta1.StrategyRecreate, v1beta1.AdoptionIfUnowned
	})
	r.Expect(r.deployment().Spec.Strategy).To(Equal(appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}))
}

// A port with another number is another element of the list, whose name would exist twice.
func TestPortThatWasRenumberedIsReverted(t *testing.T) {
	r := newRollout(t)
	r.createPlain()
	service := &corev1.Service{ObjectMeta: named("web")}
	r.Edit(service, func() { service.Spec.Ports[0].Port = 9090 })
	d := &appsv1.Deployment{ObjectMeta: named("web")}
	r.Edit(d, func() { d.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort = 9090 })
	r.Settle("shop/web")
	r.read(service)
	r.Expect(service.Spec.Ports).To(HaveExactElements(HaveField("Port", BeEquivalentTo(8080))))
	r.Expect(r.deployment().Spec.Template.Spec.Containers[0].Ports).To(HaveExactElements(HaveField("ContainerPort", BeEquivalentTo(8080))))
}

func TestDeletionDoesNotWaitForPods(t *testing.T) {
	r := newRollout(t)
	r.createPlain()
	pod := &corev1.Pod{ObjectMeta: named("web-1")}
	pod.Finalizers = []string{"example.com/held"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: r.deployment().UID, BlockOwnerDeletion: ptr.To(true)}}
	r.Expect(r.Server.Create(context.Background(), pod)).To(Succeed())

	r.Delete(stored())
	r.Settle("shop/web")

	r.Expect(r.Exists(stored())).To(BeFalse())
}

func withPassword(s *v1beta1.AppServiceSpec) {
	s.Env = []corev1.EnvVar{fromSecret("db", "password", nil)}
}

func TestErrorsOfTheAPIServerEndTheReconcile(t *testing.T) {
	cases := map[string]struct {
		kind, verb string
		cached     bool
		want       string
	}{
		"a Secret":                            {"Secret", "get", true, "getting Secret db: refused"},
		"the Jobs in the cache":               {"Job", "list", true, "listing Jobs: refused"},
		"the Job of the version":              {"Job", "get", true, "reading Job web-" + hookVersion(stored(withHook(), withPassword)) + ": refused"},
		"the Jobs, past the cache":            {"Job", "list", false, "listing Jobs: refused"},
		"the pods of Jobs":                    {"Pod", "list", false, "listing the pods of earlier Jobs: refused"},
		"the Job that is about to be created": {"Job", "get", false, "reading Job web-" + hookVersion(stored(withHook(), withPassword)) + ": refused"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRollout(t)
			r.refuses = func(call ssatest.Call) error {
				if call.Kind.Kind == c.kind && call.Verb == c.verb && call.Cached == c.cached {
					return errors.New("refused")
				}
				return nil
			}
			r.Create(stored(withHook(), withPassword))
			secret := &corev1.Secret{ObjectMeta: named("db"), Data: map[string][]byte{"password": []byte("x")}}
			r.Expect(r.Server.Create(context.Background(), secret)).To(Succeed())
			var err error
			for i := 0; i < 10 && err == nil; i++ {
				_, err = r.Reconcile("shop/web")
			}
			r.Expect(err).To(MatchError(ContainSubstring(c.want)))
			r.refuses = nil
			r.Expect(r.jobs()).To(BeEmpty())
			r.Settle("shop/web")
			r.Expect(r.running()).To(Equal(v1))
		})
	}
}

// These names are in objects of earlier releases.
func TestNamesInObjectsDoNotChange(t *testing.T) {
	r := newRollout(t)
	r.createPlain(func(s *v1beta1.AppServiceSpec) {
		s.DisruptionBudget = &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
	})
	r.Expect(r.app().Finalizers).To(Equal([]string{"fixpoint.dev/teardown"}))
	r.Expect(r.Exists(&policyv1.PodDisruptionBudget{ObjectMeta: named("web")})).To(BeTrue())

	// A plan with another field manager would take over all fields.
	engine, err := NewPlanner(setup.Planning{API: r.Server, Reader: r.Cache}, Options{NoClusterRights: true})
	r.Expect(err).NotTo(HaveOccurred())
	plan, err := engine.Plan(context.Background(), r.app())
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(plan.Changes()).To(BeEmpty())
}

func TestJobThatIsBeingDeletedRunsAgainOnceItIsGone(t *testing.T) {
	r := newRollout(t)
	r.hangs = true
	r.create()
	job := r.jobs()[0]
	r.Edit(&job, func() { job.Finalizers = []string{"example.com/held"} })
	r.Expect(r.Server.Delete(context.Background(), &job)).To(Succeed())
	r.Settle("shop/web")
	r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(Equal("False Recreating"))
	r.Expect(r.jobs()).To(HaveLen(1))

	r.hangs = false
	r.Edit(&job, func() { job.Finalizers = nil })
	r.Settle("shop/web")
	r.Expect(r.runs).To(Equal(map[string]int{v1 + " Complete": 1}))
	r.Expect(r.running()).To(Equal(v1))
}

func TestChildrenAreReadyOnceKubernetesHasSeenThem(t *testing.T) {
	g := NewWithT(t)
	reader := refusing{}
	s := &scope{app: webApp(), uncached: reader, references: &references.Reader{}, clock: clocktesting.NewFakePassiveClock(time.Now())}
	complete := deploymentWith(1, 1)
	complete.Spec.Replicas, complete.Status.UpdatedReplicas, complete.Status.AvailableReplicas = ptr.To[int32](1), 1, 1
	g.Expect(deployment.Health(complete).IsDone()).To(BeTrue())
	g.Expect(deployment.Ready(t.Context(), s, complete).IsDone()).To(BeTrue())
	unseen := complete.DeepCopy()
	unseen.Generation = 1
	g.Expect(deployment.Health(unseen).IsDone()).To(BeFalse())
	g.Expect(deployment.Ready(t.Context(), s, unseen).IsDone()).To(BeFalse())
	g.Expect(disruptionBudget.Health(&policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 0}}).IsDone()).To(BeTrue())
	g.Expect(ingress.Health(&networkingv1.Ingress{}).IsDone()).To(BeTrue())
}

// heldPod is a pod of a Job that does not end for now.
func (r *rollout) heldPod(job batchv1.Job) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: named("web-migrates")}
	pod.Finalizers = []string{"example.com/held"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, BlockOwnerDeletion: ptr.To(true)}}
	r.Expect(r.Server.Create(context.Background(), pod)).To(Succeed())
	return pod
}

func TestJobIsGoneOnceItsPodsAre(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*rollout)
		then string
	}{
		"another version":          {func(r *rollout) { r.edit(withImage(v2)) }, "False Pruning"},
		"deletion":                 {func(r *rollout) { r.Delete(stored()) }, "False Terminating"},
		"deletion, without a hook": {func(r *rollout) { r.edit(func(s *v1beta1.AppServiceSpec) { s.Hooks = nil }); r.Delete(stored()) }, "False Terminating"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRollout(t)
			r.create()
			pod := r.heldPod(r.jobs()[0])
			c.end(r)
			r.Settle("shop/web")
			r.Expect(r.jobs()).To(HaveLen(1))
			r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(Equal(c.then))

			r.Edit(pod, func() { pod.Finalizers = nil })
			r.Settle("shop/web")
			if r.Exists(stored()) {
				r.Expect(r.running()).To(Equal(v2))
			} else {
				r.Expect(r.jobs()).To(BeEmpty())
			}
		})
	}
}

// Without the finalizer nothing would delete the Job with its pods.
func TestDeletionThatCannotReadJobsKeepsTheFinalizer(t *testing.T) {
	for name, isRefused := range map[string]func(ssatest.Call) bool{
		"listing": func(call ssatest.Call) bool { return call.Verb == "list" && !call.Cached },
		"reading": func(call ssatest.Call) bool { return call.Verb == "get" },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRollout(t)
			r.create()
			r.Delete(stored())
			r.refuses = func(call ssatest.Call) error {
				if call.Kind.Kind == "Job" && isRefused(call) {
					return errors.New("refused")
				}
				return nil
			}
			var err error
			for i := 0; i < 20 && err == nil; i++ {
				_, err = r.Reconcile("shop/web")
			}
			r.Expect(err).To(MatchError(ContainSubstring("refused")))
			r.Expect(r.Exists(stored())).To(BeTrue())
			r.refuses = nil
			r.Settle("shop/web")
			r.Expect(r.Exists(stored())).To(BeFalse())
			r.Expect(r.jobs()).To(BeEmpty())
		})
	}
}

// Labels do not make a Job that of the AppService.
func TestJobsOfOthersAreNotDeleted(t *testing.T) {
	r := newRollout(t)
	foreign := &batchv1.Job{ObjectMeta: named("other-abc")}
	foreign.Labels = hookLabels(stored())
	r.Expect(r.Server.Create(context.Background(), foreign)).To(Succeed())
	r.create()
	r.Expect(r.running()).To(Equal(v1))
	r.Delete(stored())
	r.Settle("shop/web")
	r.Expect(r.Exists(stored())).To(BeFalse())
	r.Expect(r.jobs()).To(HaveExactElements(HaveField("Name", "other-abc")))
}

func TestUnownedJobOfTheNameIsAdoptedByPolicy(t *testing.T) {
	r := newRollout(t)
	r.hangs = true
	app := stored(withHook(), func(s *v1beta1.AppServiceSpec) { s.AdoptionPolicy = v1beta1.AdoptionIfUnowned })
	r.Expect(r.Server.Create(context.Background(), &batchv1.Job{ObjectMeta: named(jobName(app))})).To(Succeed())
	r.Create(app)
	r.Settle("shop/web")
	r.Expect(r.jobs()).To(HaveExactElements(HaveField("OwnerReferences", HaveLen(1))))
}

func TestHookThatIsNotPermittedCreatesNoJob(t *testing.T) {
	r := newRolloutWith(t, Options{ManagerAccount: types.NamespacedName{Namespace: "shop", Name: "default"}})
	r.createPlain(withHook())
	r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(Equal("False NotPermitted"))
	r.Expect(r.jobs()).To(BeEmpty())
}

func TestStatusShowsJobsOfASuspendedAppService(t *testing.T) {
	suspend := func(s *v1beta1.AppServiceSpec) { s.Suspend = true }
	r := newRollout(t)
	r.hangs = true
	r.create()
	r.edit(suspend)
	r.hangs = false
	r.kubernetes()
	r.Settle("shop/web")
	r.Expect(r.app().Status.Hooks.PreDeploy.Phase).To(Equal(v1beta1.PhaseSucceeded))
	r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(Equal("Unknown Suspended"))

	r = newRollout(t)
	r.createPlain(suspend)
	r.Expect(r.condition(v1beta1.ConditionPreDeployReady)).To(BeEmpty(), "no hook is configured")
	r.Expect(r.condition(v1beta1.ConditionDeploymentReady)).To(Equal("Unknown Suspended"))
}

// The API server accepts one of the fields, and an apply of the desired one leaves the other, which the other client holds.
func TestFieldThatWasReplacedByAnotherIsReverted(t *testing.T) {
	podName := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
	budget, d := &policyv1.PodDisruptionBudget{ObjectMeta: named("web")}, &appsv1.Deployment{ObjectMeta: named("web")}
	pod := &d.Spec.Template.Spec
	for name, c := range map[string]struct {
		of     client.Object
		change func()
		read   func() any
	}{
		"budget": {budget, func() { budget.Spec.MaxUnavailable, budget.Spec.MinAvailable = nil, ptr.To(intstr.FromInt32(1)) },
			func() any { return budget.Spec }},
		"value of a variable": {d, func() { pod.Containers[0].Env[0] = corev1.EnvVar{Name: "MODE", ValueFrom: podName} },
			func() any { return pod.Containers[0].Env }},
		"source of a variable": {d, func() { pod.Containers[0].Env[1] = corev1.EnvVar{Name: "POD", Value: "x"} },
			func() any { return pod.Containers[0].Env }},
		"kind of the source": {d, func() {
			pod.Containers[0].Env[1].ValueFrom = &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}
		}, func() any { return pod.Containers[0].Env }},
		"probe": {d, func() {
			pod.Containers[0].ReadinessProbe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}
		}, func() any { return pod.Containers[0].ReadinessProbe }},
		"volume": {d, func() { pod.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}} },
			func() any { return pod.Volumes }},
		"profile": {d, func() {
			pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("own.json")}
		}, func() any { return pod.SecurityContext }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRollout(t)
			r.createPlain(withConfig(map[string]string{"A": "1"}), func(s *v1beta1.AppServiceSpec) {
				s.PodSecurityStandard, s.ConfigMountPath = v1beta1.PodSecurityRestricted, "/etc/shop"
				s.DisruptionBudget = &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
				s.Env = []corev1.EnvVar{{Name: "MODE", Value: "fast"}, {Name: "POD", ValueFrom: podName}}
				s.Probes = &v1beta1.AppServiceProbes{Readiness: &v1beta1.AppServiceProbe{Path: "/", PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3}}
			})
			r.read(c.of)
			before := c.read()

			r.Edit(c.of, c.change)
			r.Settle("shop/web")

			r.read(c.of)
			r.Expect(c.read()).To(BeComparableTo(before))
			r.Expect(r.app().Status.Drifts).NotTo(BeEmpty())
		})
	}
}

func TestFieldThatReplacedAnotherStaysIfDriftIsReported(t *testing.T) {
	r := newRollout(t)
	edit := func(image string) func(*v1beta1.AppServiceSpec) {
		return func(s *v1beta1.AppServiceSpec) {
			s.Image, s.DriftPolicy, s.Env = image, v1beta1.DriftReport, []corev1.EnvVar{{Name: "MODE", Value: "fast"}}
		}
	}
	r.createPlain(edit(v1))
	d := &appsv1.Deployment{ObjectMeta: named("web")}
	theirs := corev1.EnvVar{Name: "MODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	r.Edit(d, func() { d.Spec.Template.Spec.Containers[0].Env[0] = theirs })
	r.edit(edit(v2))
	r.Settle("shop/web")
	r.Expect(r.running()).To(Equal(v2))
	r.Expect(r.deployment().Spec.Template.Spec.Containers[0].Env).To(BeComparableTo([]corev1.EnvVar{theirs}))
	r.Expect(r.condition(v1beta1.ConditionDrifted)).To(Equal("True Drifted"))
}

func TestStrategyThatIsOnlyReportedKeepsItsParameters(t *testing.T) {
	r := newRollout(t)
	edit := func(image string) func(*v1beta1.AppServiceSpec) {
		return func(s *v1beta1.AppServiceSpec) {
			s.Image, s.DriftPolicy, s.Strategy = image, v1beta1.DriftReport, v1beta1.StrategyRecreate
		}
	}
	r.createPlain(edit(v1))
	d := &appsv1.Deployment{ObjectMeta: named("web")}
	theirs := appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(3))}}
	r.Edit(d, func() { d.Spec.Strategy = theirs })
	r.edit(edit(v2))
	r.Settle("shop/web")
	r.Expect(r.running()).To(Equal(v2))
	r.Expect(r.deployment().Spec.Strategy).To(BeComparableTo(theirs))
}

// The API server refuses an empty struct, such as httpGet, beside the one that has taken its place.
func TestStructThatIsOnlyReportedIsNotAppliedEmpty(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: named("web")}
	for name, c := range map[string]struct{ change, check func(r *rollout) }{
		"strategy": {
			func(*rollout) {
				d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			},
			func(r *rollout) { r.Expect(r.deployment().Spec.Strategy.RollingUpdate).To(BeNil()) },
		},
		"probe": {
			func(*rollout) {
				d.Spec.Template.Spec.Containers[0].ReadinessProbe.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}
			},
			func(r *rollout) {
				r.Expect(r.deployment().Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet).To(BeNil())
			},
		},
		"variable": {
			func(*rollout) { d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "POD", Value: "x"}} },
			func(r *rollout) {
				r.Expect(r.deployment().Spec.Template.Spec.Containers[0].Env[0].ValueFrom).To(BeNil())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRollout(t)
			edit := func(image string) func(*v1beta1.AppServiceSpec) {
				return func(s *v1beta1.AppServiceSpec) {
					s.Image, s.DriftPolicy = image, v1beta1.DriftReport
					s.Probes = &v1beta1.AppServiceProbes{Readiness: &v1beta1.AppServiceProbe{Path: "/ready"}}
					s.Env = []corev1.EnvVar{{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
				}
			}
			r.createPlain(edit(v1))
			r.Edit(d, func() { c.change(r) })
			r.edit(edit(v2))
			r.Settle("shop/web")
			r.Expect(r.running()).To(Equal(v2))
			c.check(r)
		})
	}
}
