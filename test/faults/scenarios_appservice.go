package faults

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// AppEdit changes the spec of an AppService.
type AppEdit = func(*v1beta1.AppServiceSpec)

// NewAppService returns an AppService with two replicas, changed by the edits.
func NewAppService(name string, edits ...AppEdit) *v1beta1.AppService {
	app := &v1beta1.AppService{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1beta1.AppServiceSpec{Image: "registry.test/shop:1", Replicas: ptr.To[int32](2)},
	}
	for _, edit := range edits {
		edit(&app.Spec)
	}
	return app
}

// AllOptions turns on every optional phase of an AppService.
func AllOptions(s *v1beta1.AppServiceSpec) {
	specs.AllOptions(s)
	withAutoscaling(s)
	s.Ingress.IngressClassName = ptr.To(IngressClass)
	s.ServiceAccountName = accountName
}

func withAutoscaling(s *v1beta1.AppServiceSpec) {
	s.Replicas = nil
	s.Autoscaling = &v1beta1.AppServiceAutoscaling{MinReplicas: 3, MaxReplicas: 5, TargetCPUUtilizationPercent: ptr.To[int32](80)}
}

// NoOptions turns off every optional phase of an AppService.
func NoOptions(s *v1beta1.AppServiceSpec) {
	specs.NoOptions(s)
	s.Replicas, s.ServiceAccountName = ptr.To[int32](2), ""
}

// changePodTemplate changes every field that affects only the pod template.
func changePodTemplate(s *v1beta1.AppServiceSpec) {
	s.Image = "registry.test/shop:2"
	s.Env = []corev1.EnvVar{{Name: "LEVEL", Value: "high"}}
	s.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	s.Probes = &v1beta1.AppServiceProbes{Readiness: &v1beta1.AppServiceProbe{
		Path: "/ready", PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3,
	}}
	s.NodeSelector = map[string]string{"disk": "fast"}
	s.ServiceAccountName = accountName
	s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: pullSecret}}
	s.ImagePullPolicy = corev1.PullAlways
	securePods(s)
}

// securePods changes the security settings of the pods.
func securePods(s *v1beta1.AppServiceSpec) {
	s.PodSecurityStandard, s.AutomountServiceAccountToken = v1beta1.PodSecurityBaseline, ptr.To(true)
	s.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000)}
	s.ContainerSecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
	s.Mounts = []v1beta1.AppServiceMount{{Name: "tmp", MountPath: "/tmp"}}
}

func createApp(edits ...AppEdit) Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			return env.Create(ctx, NewAppService(objectName, edits...))
		},
		Done: func(env *Environment) bool { return env.ReadyWith(AppService, objectName, 1) },
	}
}

// withSecretVariable sets a variable from the Secret that pods use.
func withSecretVariable(s *v1beta1.AppServiceSpec) {
	s.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secretName}, Key: "token",
	}}}}
}

// createAppBeforeSecret creates an AppService before the Secret that its pods use.
func createAppBeforeSecret() Step {
	step := createApp()
	step.Do = func(ctx context.Context, env *Environment) error {
		return createBeforeSecret(ctx, env, AppService, NewAppService(objectName, withSecretVariable))
	}
	return step
}

func editApp(edit AppEdit) Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			return Edit(ctx, env, user, objectName, &v1beta1.AppService{}, func(a *v1beta1.AppService) { edit(&a.Spec) })
		},
		Done: func(env *Environment) bool { return env.ReadyWith(AppService, objectName, 2) },
	}
}

func deleteApp(options ...client.DeleteOption) Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			return env.Delete(ctx, &v1beta1.AppService{}, objectName, options...)
		},
		Done: func(env *Environment) bool { return env.Deleted(AppService, objectName) },
	}
}

// deleteAppDuring creates an AppService and deletes it at the first call of the class.
func deleteAppDuring(class string) Step {
	const deleted = "deleted"
	return Step{
		Do:   createApp(AllOptions).Do,
		Done: func(env *Environment) bool { return env.Deleted(AppService, objectName) },
		During: injectOnce(deleted, hasClass(class), func(ctx context.Context, env *Environment) error {
			return env.Delete(ctx, &v1beta1.AppService{}, objectName)
		}),
	}
}

// replaceApp deletes an AppService and recreates it as soon as the name is free.
func replaceApp() Step {
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			if err := env.Delete(ctx, &v1beta1.AppService{}, objectName); err != nil {
				return err
			}
			go func() { // the caller must return to restart crashed managers
				if env.WaitUntil(Timeout, func() bool { return env.Deleted(AppService, objectName) }) {
					_ = env.Create(ctx, NewAppService(objectName, NoOptions)) // Done notices a failure
				}
			}()
			return nil
		},
		Done: func(env *Environment) bool {
			return env.Created(AppService, objectName) > 1 && env.ReadyWith(AppService, objectName, 1)
		},
	}
}

// editDeploymentAndService changes children as another client.
func editDeploymentAndService() Step {
	return externalAction(AppService, func(ctx context.Context, env *Environment) (string, error) {
		if _, err := editAs(ctx, env, "kubectl-edit", objectName, &corev1.Service{}, func(s *corev1.Service) { s.Spec.Selector["app.kubernetes.io/name"] = "other" }); err != nil {
			return "", err
		}
		return editAs(ctx, env, "kubectl-edit", objectName, &appsv1.Deployment{}, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image = "registry.test/other:1"
			d.Labels["app.kubernetes.io/name"] = "other"
		})
	}, func(env *Environment) bool {
		image, _, ready := readyPods(env.Get("Deployment", objectName))
		return ready && image == "registry.test/shop:1"
	})
}

// editServicePort changes the port number, which is the key of the list: for the API server, the managed
// port is gone, and an unmanaged port has its name.
func editServicePort() Step {
	return externalAction(AppService, func(ctx context.Context, env *Environment) (string, error) {
		return editAs(ctx, env, "kubectl-edit", objectName, &corev1.Service{}, func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })
	}, func(env *Environment) bool {
		return strings.Contains(field(env.Get("Service", objectName), "spec", "ports"), "port:8080")
	})
}

// scaleDeployment scales the Deployment like kubectl scale.
func scaleDeployment() Step {
	return externalAction(AppService, func(ctx context.Context, env *Environment) (string, error) {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: objectName, Namespace: env.Namespace}}
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 7}}
		err := env.As("kubectl").SubResource("scale").Update(ctx, d, client.WithSubResourceBody(scale))
		return scale.ResourceVersion, err
	}, func(env *Environment) bool {
		return field(env.Get("Deployment", objectName), "spec", "replicas") == "2"
	})
}

// failHook changes to an image with which the hook fails.
func failHook() Step {
	step := editApp(func(s *v1beta1.AppServiceSpec) { s.Image = failingImage })
	step.Done = func(env *Environment) bool { return env.hookFailed() }
	return step
}

// hookFailed reports whether the status says that the hook of the current spec has failed, and that the pods remain.
func (env *Environment) hookFailed() bool {
	app := env.Get(AppService, objectName)
	_, reason, generation := condition(app, v1beta1.ConditionPreDeployReady)
	image, _, ready := readyPods(env.Get("Deployment", objectName))
	return reason == v1beta1.ReasonHookFailed && generation == app.GetGeneration() && field(app, "spec", "image") == failingImage &&
		ready && image != failingImage
}

// rerunHook deletes the Job that has failed, so that it runs again.
func rerunHook() Step {
	const deleted = "UID of the deleted Job"
	return Step{
		Do: func(ctx context.Context, env *Environment) error {
			job := env.job()
			env.setValue(deleted, string(job.GetUID()))
			return env.Delete(ctx, &batchv1.Job{}, job.GetName(), client.PropagationPolicy(metav1.DeletePropagationBackground))
		},
		Done: func(env *Environment) bool {
			job := env.job()
			return job != nil && string(job.GetUID()) != env.value(deleted) && len(conditionsOf(job)) > 0 && env.hookFailed()
		},
	}
}

// job returns the Job of the hook, or nil.
func (env *Environment) job() *unstructured.Unstructured {
	jobs := env.history.filter(func(o *unstructured.Unstructured) bool { return o.GetKind() == "Job" })
	if len(jobs) == 0 {
		return nil
	}
	return jobs[0]
}

func appServiceScenarios() []Scenario {
	app := func(name string, when Step, given ...Step) Scenario {
		return Scenario{Name: name, Kinds: []string{AppService}, Given: given, When: when}
	}
	drift := func(name string, when Step, given ...Step) Scenario {
		s := app(name, when, given...)
		s.Unavoidable = reportedDriftMayBeLost
		return s
	}
	all, plain := createApp(AllOptions), createApp()
	return []Scenario{
		app("create", createApp(AllOptions)),
		app("create-plain", plain),
		app("waits", createAppBeforeSecret()),
		app("pods", editApp(changePodTemplate), all),
		app("config", editApp(func(s *v1beta1.AppServiceSpec) { s.Config = map[string]string{"GREETING": "bye", "MORE": "yes"} }), all),
		app("port", editApp(func(s *v1beta1.AppServiceSpec) { s.Port = 9090 }), all),
		app("scale", editApp(func(s *v1beta1.AppServiceSpec) { s.Replicas = ptr.To[int32](4) }), plain),
		app("strategy", editApp(func(s *v1beta1.AppServiceSpec) { s.Strategy = v1beta1.StrategyRecreate }), plain),
		app("options-on", editApp(AllOptions), plain),
		app("options-off", editApp(NoOptions), all),
		app("options-changed", editApp(func(s *v1beta1.AppServiceSpec) {
			s.Autoscaling.MinReplicas = 4
			s.DisruptionBudget = &v1beta1.DisruptionBudget{MinAvailable: ptr.To(intstr.FromInt32(1))}
			s.Ingress.Host, s.Ingress.TLSSecretName = "other.example.com", certificateName
		}), all),
		app("hook-fails", failHook(), all),
		app("hook-again", rerunHook(), all, failHook()),
		app("hook-reverted", editApp(func(s *v1beta1.AppServiceSpec) { s.Image = "registry.test/shop:1" }), all, failHook()),
		app("hook-fixed", editApp(func(s *v1beta1.AppServiceSpec) { s.Image = "registry.test/shop:2" }), all, failHook()),
		drift("drift", editDeploymentAndService(), plain),
		drift("drift-port", editServicePort(), plain),
		drift("drift-scale", scaleDeployment(), plain),
		drift("drift-deleted", deleteChild(AppService, "Service", func() client.Object { return &corev1.Service{} }), all),
		drift("drift-deployment-deleted", deleteChild(AppService, "Deployment", func() client.Object { return &appsv1.Deployment{} }), all),
		app("delete", deleteApp(), all),
		app("delete-foreground", deleteApp(client.PropagationPolicy(metav1.DeletePropagationForeground)), all),
		app("replace", replaceApp(), all),
		raceScenario(app("delete-at-finalizer", deleteAppDuring("apply appservices"))),
		raceScenario(app("delete-at-service", deleteAppDuring("apply services"))),
		raceScenario(app("delete-at-status", deleteAppDuring("apply appservices/status"))),
		raceScenario(app("delete-at-autoscaler", deleteAppDuring("apply horizontalpodautoscalers"))),
	}
}
