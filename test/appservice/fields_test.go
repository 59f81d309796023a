package appservice_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// container is the field of the pods' one container that a field of the spec sets.
func container(w *fixture, name string) corev1.Container {
	w.T.Helper()
	containers := w.deployment(name).Spec.Template.Spec.Containers
	w.Expect(containers).To(HaveLen(1))
	return containers[0]
}

// beYAML matches what reads as the YAML, once it is serialised.
func beYAML(w *fixture, got any, want string) {
	w.T.Helper()
	text, err := yaml.Marshal(got)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(text).To(MatchYAML(want))
}

// fieldStep changes a field, and checks what follows.
type fieldStep struct {
	edit  edit
	check func(w *fixture, name string)
}

// otherFields are tested elsewhere: policies and suspend say how an AppService is reconciled, not what its
// children are.
var otherFields = []string{"adoptionPolicy", "driftPolicy", "driftHistoryLimit", "suspend"}

// addOptions adds a case for each option that has none: with it the children differ, and without it they are as
// they were. Every other field of the schema needs a case of its own.
func addOptions(t *testing.T, cases map[string][]fieldStep) {
	t.Helper()
	tested := slices.Clone(otherFields)
	for _, steps := range cases {
		for _, step := range steps {
			tested = append(tested, harness.FieldsChangedBy(step.edit)...)
		}
	}
	for _, field := range specs.Options() {
		if slices.Contains(tested, field) {
			continue
		}
		tested = append(tested, field)
		var plain map[string]string
		cases[field] = []fieldStep{
			{replicas(2), func(w *fixture, name string) { plain = w.children(name) }},
			{option(field), func(w *fixture, name string) { w.Expect(w.children(name)).NotTo(Equal(plain)) }},
			{withoutOption(field), func(w *fixture, name string) {
				w.Eventually(func() map[string]string { return w.children(name) }).Should(Equal(plain))
			}},
		}
	}
	slices.Sort(tested)
	NewWithT(t).Expect(slices.Compact(tested)).To(Equal(harness.SpecFields("AppService")), "the fields with a case")
}

// children are what users read of the children, by kind, without what the API server and controllers write.
func (w *fixture) children(name string) map[string]string {
	w.T.Helper()
	read := map[string]string{}
	for kind, newObject := range childKinds {
		child := newObject()
		err := api.Get(w.Ctx, w.Key(name), child)
		if apierrors.IsNotFound(err) {
			continue
		}
		w.Expect(err).NotTo(HaveOccurred())
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(child)
		w.Expect(err).NotTo(HaveOccurred())
		delete(fields, "status")
		for _, field := range []string{"managedFields", "resourceVersion", "generation", "annotations"} {
			unstructured.RemoveNestedField(fields, "metadata", field)
		}
		read[kind] = string(mustYAML(fields))
	}
	return read
}

// TestEveryFieldOfTheSpecWorks makes an AppService with a field, changes it, and takes it away
// again: each time the children follow, and the AppService becomes Ready, which it does only if
// the API server takes what is applied.
func TestEveryFieldOfTheSpecWorks(t *testing.T) {
	cases := map[string][]fieldStep{
		"image": {
			{withImage(image), func(w *fixture, name string) { w.Expect(container(w, name).Image).To(Equal(image)) }},
			{withImage(otherImage), func(w *fixture, name string) { w.Expect(container(w, name).Image).To(Equal(otherImage)) }},
		},
		"imagePullPolicy": {
			{pullPolicy(corev1.PullAlways), pullPolicyIs(corev1.PullAlways)},
			{pullPolicy(corev1.PullNever), pullPolicyIs(corev1.PullNever)},
			{pullPolicy(""), pullPolicyIs(corev1.PullIfNotPresent)},
		},
		"port": {
			{func(*v1beta1.AppServiceSpec) {}, portIs(8080)},
			{func(s *v1beta1.AppServiceSpec) { s.Port = 9090 }, portIs(9090)},
			{func(s *v1beta1.AppServiceSpec) { s.Port = 80 }, portIs(80)},
		},
		"replicas": {
			{replicas(2), podsAre(2)},
			{replicas(4), podsAre(4)},
			{replicas(3), podsAre(3)},
		},
		"replicas-left-out": {
			{func(s *v1beta1.AppServiceSpec) { s.Replicas = nil }, podsAre(1)},
			{replicas(3), podsAre(3)},
			// Nobody else owns the number, and it stays what it was.
			{func(s *v1beta1.AppServiceSpec) { s.Replicas = nil }, podsAre(3)},
		},
		"strategy": {
			{strategy(v1beta1.StrategyRollingUpdate), strategyIs(`{type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 0}}`)},
			{strategy(v1beta1.StrategyRecreate), strategyIs(`{type: Recreate}`)},
			{strategy(v1beta1.StrategyRollingUpdate), strategyIs(`{type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 0}}`)},
		},
		"config-as-env": {
			{config("A", "1"), func(w *fixture, name string) {
				w.Expect(harness.Read(w, name, &corev1.ConfigMap{}).Data).To(Equal(map[string]string{"A": "1"}))
				beYAML(w, container(w, name).EnvFrom, `[{configMapRef: {name: `+name+`}}]`)
			}},
			{config("A", "1", "B", "two\nlines"), func(w *fixture, name string) {
				w.Expect(harness.Read(w, name, &corev1.ConfigMap{}).Data).To(Equal(map[string]string{"A": "1", "B": "two\nlines"}))
			}},
			{config("B", ""), func(w *fixture, name string) {
				w.Expect(harness.Read(w, name, &corev1.ConfigMap{}).Data).To(Equal(map[string]string{"B": ""}))
			}},
		},
		"config-as-files": {
			{func(s *v1beta1.AppServiceSpec) {
				config("shop.properties", "currency = EUR")(s)
				s.ConfigMountPath = "/etc/shop"
			}, mountIs("/etc/shop")},
			{func(s *v1beta1.AppServiceSpec) { s.ConfigMountPath = "/etc/other" }, mountIs("/etc/other")},
			{func(s *v1beta1.AppServiceSpec) { config("A", "1")(s); s.ConfigMountPath = "" }, func(w *fixture, name string) {
				w.Expect(container(w, name).VolumeMounts).To(BeEmpty())
				w.Expect(w.deployment(name).Spec.Template.Spec.Volumes).To(BeEmpty())
				beYAML(w, container(w, name).EnvFrom, `[{configMapRef: {name: `+name+`}}]`)
			}},
		},
		// The hook is an operation and adds no child: see hooks_test.go.
		"hooks": {
			{hook("", "up"), func(w *fixture, name string) { w.Expect(w.jobRan(name).Args).To(Equal([]string{"up"})) }},
			{hook(otherImage, "up"), func(w *fixture, name string) { w.Expect(w.jobRan(name).Image).To(Equal(otherImage)) }},
			{withoutOption("hooks"), func(w *fixture, name string) { w.Eventually(w.jobs).WithArguments(name).Should(BeEmpty()) }},
		},
		"mounts": {
			{mounts(v1beta1.AppServiceMount{Name: "tmp", MountPath: "/tmp", EmptyDir: v1beta1.MCPServerEmptyDir{SizeLimit: ptr.To(resource.MustParse("0.5Gi"))}}),
				mountsAre(`[{name: tmp, mountPath: /tmp}]`, `[{name: tmp, emptyDir: {sizeLimit: 512Mi}}]`)},
			{func(s *v1beta1.AppServiceSpec) {
				config("A", "1")(s)
				s.ConfigMountPath = "/etc/shop"
				mounts(v1beta1.AppServiceMount{Name: "tmp", MountPath: "/var/tmp", EmptyDir: v1beta1.MCPServerEmptyDir{Medium: v1beta1.MediumMemory}},
					v1beta1.AppServiceMount{Name: "run", MountPath: "/tmp"})(s)
			}, func(w *fixture, name string) {
				mountsAre(`[{name: config, mountPath: /etc/shop, readOnly: true}, {name: run, mountPath: /tmp}, {name: tmp, mountPath: /var/tmp}]`,
					`[{name: config, configMap: {name: `+name+`, defaultMode: 420}}, {name: run, emptyDir: {}}, {name: tmp, emptyDir: {medium: Memory}}]`)(w, name)
			}},
			{func(s *v1beta1.AppServiceSpec) { config("A", "1")(s); s.ConfigMountPath = "/etc/shop"; s.Mounts = nil }, mountIs("/etc/shop")},
		},
		// fieldRef is a struct in which the API server adds a default, and a secretKeyRef is atomic.
		"env": {
			{env(
				corev1.EnvVar{Name: "MODE", Value: "fast"},
				corev1.EnvVar{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				corev1.EnvVar{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "shop"}, Key: "password", Optional: ptr.To(true)}}},
			), func(w *fixture, name string) {
				beYAML(w, container(w, name).Env, `
- {name: MODE, value: fast}
- {name: POD, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}
- {name: PASSWORD, valueFrom: {secretKeyRef: {name: shop, key: password, optional: true}}}`)
			}},
			{env(
				corev1.EnvVar{Name: "POD", Value: "none"},
				corev1.EnvVar{Name: "MODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
			), func(w *fixture, name string) {
				w.Expect(container(w, name).Env).To(ConsistOf(
					corev1.EnvVar{Name: "POD", Value: "none"},
					corev1.EnvVar{Name: "MODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.uid"}}}))
			}},
			{env(), func(w *fixture, name string) { w.Expect(container(w, name).Env).To(BeEmpty()) }},
		},
		// 1000m is stored as 1, and 0.5Gi as 512Mi.
		"resources-in-odd-notation": {
			{func(s *v1beta1.AppServiceSpec) {
				s.Resources = corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("1000m"), "memory": resource.MustParse("0.5Gi")},
					Limits:   corev1.ResourceList{"cpu": resource.MustParse("2e0"), "memory": resource.MustParse("1073741824")},
				}
			}, func(w *fixture, name string) {
				got := container(w, name).Resources
				w.Expect(got.Requests.Cpu().Cmp(resource.MustParse("1"))).To(BeZero())
				w.Expect(got.Requests.Memory().Cmp(resource.MustParse("512Mi"))).To(BeZero())
				w.Expect(got.Limits.Cpu().Cmp(resource.MustParse("2"))).To(BeZero())
				w.Expect(got.Limits.Memory().Cmp(resource.MustParse("1Gi"))).To(BeZero())
			}},
			{func(s *v1beta1.AppServiceSpec) {
				s.Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("0.25")}}
			}, func(w *fixture, name string) { beYAML(w, container(w, name).Resources, `{requests: {cpu: 250m}}`) }},
			{func(s *v1beta1.AppServiceSpec) { s.Resources = corev1.ResourceRequirements{} },
				func(w *fixture, name string) { beYAML(w, container(w, name).Resources, `{}`) }},
		},
		"probes": {
			{func(s *v1beta1.AppServiceSpec) {
				s.Probes = &v1beta1.AppServiceProbes{
					Readiness: &v1beta1.AppServiceProbe{},
					Liveness:  &v1beta1.AppServiceProbe{Path: "/live", Port: ptr.To[int32](9000), InitialDelaySeconds: 3, PeriodSeconds: 20, TimeoutSeconds: 2, FailureThreshold: 5},
					Startup:   &v1beta1.AppServiceProbe{Path: "/started", FailureThreshold: 30},
				}
			}, func(w *fixture, name string) {
				c := container(w, name)
				beYAML(w, c.ReadinessProbe, `{httpGet: {path: /, port: http, scheme: HTTP}, periodSeconds: 10, timeoutSeconds: 1, failureThreshold: 3, successThreshold: 1}`)
				beYAML(w, c.LivenessProbe, `{httpGet: {path: /live, port: 9000, scheme: HTTP}, initialDelaySeconds: 3, periodSeconds: 20, timeoutSeconds: 2, failureThreshold: 5, successThreshold: 1}`)
				beYAML(w, c.StartupProbe, `{httpGet: {path: /started, port: http, scheme: HTTP}, periodSeconds: 10, timeoutSeconds: 1, failureThreshold: 30, successThreshold: 1}`)
			}},
			{func(s *v1beta1.AppServiceSpec) { s.Probes = nil }, func(w *fixture, name string) {
				c := container(w, name)
				w.Expect([]*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe}).To(HaveEach(BeNil()))
			}},
		},
		"autoscaling": {
			{autoscaled(2, 4), func(w *fixture, name string) {
				spec := harness.Read(w, name, &autoscalingv2.HorizontalPodAutoscaler{}).Spec
				w.Expect(spec.MinReplicas).To(HaveValue(BeEquivalentTo(2)))
				w.Expect(spec.MaxReplicas).To(BeEquivalentTo(4))
				w.Expect(spec.Metrics).To(HaveLen(1))
			}},
			{func(s *v1beta1.AppServiceSpec) {
				s.Autoscaling = &v1beta1.AppServiceAutoscaling{MinReplicas: 3, MaxReplicas: 5, TargetCPUUtilizationPercent: ptr.To[int32](50), TargetMemoryUtilizationPercent: ptr.To[int32](70)}
			}, func(w *fixture, name string) {
				spec := harness.Read(w, name, &autoscalingv2.HorizontalPodAutoscaler{}).Spec
				w.Expect(spec.MinReplicas).To(HaveValue(BeEquivalentTo(3)))
				w.Expect(spec.MaxReplicas).To(BeEquivalentTo(5))
				beYAML(w, spec.Metrics, `
- {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
- {type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 70}}}`)
			}},
		},
		"disruption-budget": {
			{budget(&v1beta1.DisruptionBudget{MinAvailable: ptr.To(intstr.FromInt32(1))}), budgetIs(`{minAvailable: 1}`)},
			{budget(&v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromString("25%"))}), budgetIs(`{maxUnavailable: 25%}`)},
			{budget(&v1beta1.DisruptionBudget{MinAvailable: ptr.To(intstr.FromString("50%"))}), budgetIs(`{minAvailable: 50%}`)},
		},
		"ingress": {
			{ingress(&v1beta1.Ingress{Host: "a.test", IngressClassName: ptr.To(ingressClass), Annotations: map[string]string{"test/one": "1", "test/two": "2"}}),
				func(w *fixture, name string) {
					in := harness.Read(w, name, &networkingv1.Ingress{})
					w.Expect(in.Annotations).To(And(HaveKeyWithValue("test/one", "1"), HaveKeyWithValue("test/two", "2")))
					w.Expect(in.Spec.TLS).To(BeEmpty())
					w.Expect(w.ready(name).Status.URL).To(Equal("http://a.test"))
				}},
			{ingress(&v1beta1.Ingress{Host: "b.test", Path: "/shop/", IngressClassName: ptr.To(ingressClass), TLSSecretName: "cert", Annotations: map[string]string{"test/two": "zwei"}}),
				func(w *fixture, name string) {
					in := harness.Read(w, name, &networkingv1.Ingress{})
					w.Expect(in.Annotations).To(And(Not(HaveKey("test/one")), HaveKeyWithValue("test/two", "zwei")))
					beYAML(w, in.Spec, `
ingressClassName: shared
tls: [{hosts: [b.test], secretName: cert}]
rules:
- host: b.test
  http: {paths: [{path: /shop/, pathType: Prefix, backend: {service: {name: `+name+`, port: {name: http}}}}]}`)
					w.Expect(w.ready(name).Status.URL).To(Equal("https://b.test/shop"))
				}},
			{ingress(&v1beta1.Ingress{Host: "b.test", IngressClassName: ptr.To(ingressClass)}),
				func(w *fixture, name string) {
					w.Expect(harness.Read(w, name, &networkingv1.Ingress{}).Spec.TLS).To(BeEmpty())
				}},
		},
		"imagePullSecrets": {
			{func(s *v1beta1.AppServiceSpec) {
				s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}}
			}, func(w *fixture, name string) {
				w.Expect(w.deployment(name).Spec.Template.Spec.ImagePullSecrets).To(ConsistOf(
					corev1.LocalObjectReference{Name: "one"}, corev1.LocalObjectReference{Name: "two"}))
			}},
			{func(s *v1beta1.AppServiceSpec) {
				s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "two"}}
			}, func(w *fixture, name string) {
				w.Expect(w.deployment(name).Spec.Template.Spec.ImagePullSecrets).To(ConsistOf(corev1.LocalObjectReference{Name: "two"}))
			}},
		},
		// The API server copies the name into a deprecated field of its own.
		"serviceAccountName": {
			{func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = "shop" }, accountIs("shop")},
			{func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = "other" }, accountIs("other")},
			{func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = "" }, accountIs("")},
		},
		"podSecurityStandard": {
			{standard(v1beta1.PodSecurityRestricted), securityIs(restrictedPod, restrictedContainer, ptr.To(false))},
			{standard(v1beta1.PodSecurityBaseline), securityIs("{}", "null", nil)},
			{standard(v1beta1.PodSecurityRestricted), securityIs(restrictedPod, restrictedContainer, ptr.To(false))},
			{standard(v1beta1.PodSecurityBaseline), securityIs("{}", "null", nil)},
			{standard(""), securityIs(restrictedPod, restrictedContainer, ptr.To(false))},
		},
		"securityContexts": {
			{func(s *v1beta1.AppServiceSpec) {
				s.PodSecurityStandard = v1beta1.PodSecurityBaseline
				s.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000), FSGroup: ptr.To[int64](1000)}
				s.ContainerSecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
			}, securityIs("{runAsUser: 1000, fsGroup: 1000}", "{readOnlyRootFilesystem: true}", nil)},
			{func(s *v1beta1.AppServiceSpec) {
				s.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000)}
				s.ContainerSecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](7)}
			}, securityIs("{runAsUser: 1000}", "{runAsUser: 7}", nil)},
			{func(s *v1beta1.AppServiceSpec) { s.PodSecurityContext, s.ContainerSecurityContext = nil, nil }, securityIs("{}", "null", nil)},
			{standard(""), securityIs(restrictedPod, restrictedContainer, ptr.To(false))},
		},
		"automountServiceAccountToken": {
			{func(s *v1beta1.AppServiceSpec) {
				s.AutomountServiceAccountToken, s.PodSecurityStandard = ptr.To(false), v1beta1.PodSecurityBaseline
			}, securityIs("{}", "null", ptr.To(false))},
			{func(s *v1beta1.AppServiceSpec) {
				s.AutomountServiceAccountToken, s.PodSecurityStandard = ptr.To(true), v1beta1.PodSecurityRestricted
			}, securityIs(restrictedPod, restrictedContainer, ptr.To(true))},
			{func(s *v1beta1.AppServiceSpec) {
				s.AutomountServiceAccountToken, s.PodSecurityStandard = nil, v1beta1.PodSecurityBaseline
			}, securityIs("{}", "null", nil)},
			{standard(""), securityIs(restrictedPod, restrictedContainer, ptr.To(false))},
		},
		"nodeSelector": {
			{func(s *v1beta1.AppServiceSpec) { s.NodeSelector = map[string]string{corev1.LabelHostname: "node-2"} }, func(w *fixture, name string) {
				for _, pod := range w.pods(name) {
					w.Expect(pod.Spec.NodeName).To(Equal("node-2"))
				}
			}},
			{func(s *v1beta1.AppServiceSpec) { s.NodeSelector = map[string]string{corev1.LabelArchStable: "amd64"} }, func(w *fixture, name string) {
				w.Expect(w.deployment(name).Spec.Template.Spec.NodeSelector).To(Equal(map[string]string{corev1.LabelArchStable: "amd64"}))
			}},
			{func(s *v1beta1.AppServiceSpec) { s.NodeSelector = nil }, func(w *fixture, name string) {
				w.Expect(w.deployment(name).Spec.Template.Spec.NodeSelector).To(BeEmpty())
			}},
		},
		"progressDeadlineSeconds": {
			{deadline(30), func(w *fixture, name string) {
				w.Expect(w.deployment(name).Spec.ProgressDeadlineSeconds).To(HaveValue(BeEquivalentTo(30)))
			}},
			{deadline(60), func(w *fixture, name string) {
				w.Expect(w.deployment(name).Spec.ProgressDeadlineSeconds).To(HaveValue(BeEquivalentTo(60)))
			}},
		},
	}
	addOptions(t, cases)
	shared := newManagedFixture(t)
	for _, account := range []string{"shop", "other"} {
		shared.createAccount(account)
	}
	for _, secret := range []string{"one", "two", "cert"} {
		shared.createSecret(secret, nil)
	}
	for field, steps := range cases {
		t.Run(field, func(t *testing.T) {
			name := strings.ToLower(field)
			w := shared.sub(t, name)
			for i, s := range steps {
				if i == 0 {
					w.createReady(name, s.edit)
				} else {
					w.changeReady(name, s.edit)
				}
				s.check(w, name)
			}
			app := w.ready(name)
			w.Expect(app.Status.Drifts).To(BeEmpty(), "what the spec changes is no drift")
		})
	}
}

func portIs(port int32) func(*fixture, string) {
	return func(w *fixture, name string) {
		beYAML(w, container(w, name).Ports, string(mustYAML([]corev1.ContainerPort{{Name: "http", ContainerPort: port, Protocol: "TCP"}})))
		ports := harness.Read(w, name, &corev1.Service{}).Spec.Ports
		w.Expect(ports).To(ConsistOf(corev1.ServicePort{Name: "http", Port: port, Protocol: "TCP", TargetPort: intstr.FromString("http")}))
	}
}

func podsAre(n int32) func(*fixture, string) {
	return func(w *fixture, name string) {
		w.Expect(w.deployment(name).Spec.Replicas).To(HaveValue(Equal(n)))
		harness.Eventually(w, name, &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
			g.Expect(a.Status.Replicas).To(Equal(n))
			g.Expect(a.Status.ReadyReplicas).To(Equal(n))
		})
	}
}

func strategyIs(want string) func(*fixture, string) {
	return func(w *fixture, name string) { beYAML(w, w.deployment(name).Spec.Strategy, want) }
}

func pullPolicy(policy corev1.PullPolicy) edit {
	return func(s *v1beta1.AppServiceSpec) { s.ImagePullPolicy = policy }
}

func pullPolicyIs(policy corev1.PullPolicy) func(*fixture, string) {
	return func(w *fixture, name string) { w.Expect(container(w, name).ImagePullPolicy).To(Equal(policy)) }
}

func mounts(mounts ...v1beta1.AppServiceMount) edit {
	return func(s *v1beta1.AppServiceSpec) { s.Mounts = mounts }
}

func mountsAre(inContainer, volumes string) func(*fixture, string) {
	return func(w *fixture, name string) {
		w.Expect(container(w, name).VolumeMounts).To(ConsistOf(listOf[corev1.VolumeMount](w, inContainer)))
		w.Expect(w.deployment(name).Spec.Template.Spec.Volumes).To(ConsistOf(listOf[corev1.Volume](w, volumes)))
	}
}

// listOf reads a list in YAML.
func listOf[T any](w *fixture, text string) []T {
	w.T.Helper()
	var list []T
	w.Expect(yaml.UnmarshalStrict([]byte(text), &list)).To(Succeed())
	return list
}

func mountIs(path string) func(*fixture, string) {
	return func(w *fixture, name string) {
		w.Expect(container(w, name).EnvFrom).To(BeEmpty())
		beYAML(w, container(w, name).VolumeMounts, `[{name: config, mountPath: `+path+`, readOnly: true}]`)
		beYAML(w, w.deployment(name).Spec.Template.Spec.Volumes, `[{name: config, configMap: {name: `+name+`, defaultMode: 420}}]`)
	}
}

func budgetIs(want string) func(*fixture, string) {
	return func(w *fixture, name string) {
		spec := harness.Read(w, name, &policyv1.PodDisruptionBudget{}).Spec
		w.Expect(spec.Selector.MatchLabels).To(Equal(map[string]string{"app.kubernetes.io/name": name}))
		spec.Selector = nil
		beYAML(w, spec, want)
	}
}

func accountIs(account string) func(*fixture, string) {
	return func(w *fixture, name string) {
		w.Expect(w.deployment(name).Spec.Template.Spec.ServiceAccountName).To(Equal(account))
		pods := w.pods(name)
		w.Expect(pods).NotTo(BeEmpty())
		for _, pod := range pods {
			if account == "" {
				account = "default"
			}
			if pod.DeletionTimestamp == nil {
				w.Expect(pod.Spec.ServiceAccountName).To(Equal(account))
			}
		}
	}
}

// The security contexts of pods and containers with the restricted Pod Security Standard, which is the default.
const (
	restrictedPod       = `{runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}`
	restrictedContainer = `{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`
)

func standard(standard v1beta1.PodSecurityStandard) edit {
	return func(s *v1beta1.AppServiceSpec) { s.PodSecurityStandard = standard }
}

// securityIs compares the security contexts of the pod and the container, and whether a token is mounted.
func securityIs(pod, ofContainer string, automount *bool) func(*fixture, string) {
	return func(w *fixture, name string) {
		spec := w.deployment(name).Spec.Template.Spec
		beYAML(w, spec.SecurityContext, pod)
		beYAML(w, spec.Containers[0].SecurityContext, ofContainer)
		w.Expect(spec.AutomountServiceAccountToken).To(Equal(automount))
	}
}

func mustYAML(v any) []byte {
	text, err := yaml.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func TestSuspendChangesNothing(t *testing.T) {
	w := newManagedFixture(t)
	w.createReady("web", config("A", "1"))

	// When it is suspended, and things are changed by hand and in the spec
	w.change("web", suspend(true))
	app := w.shows("web", "Suspended", "True Suspended", Not(BeEmpty()))
	w.Expect(conditions(app)).To(And(HaveKeyWithValue("Ready", "Unknown Suspended"), Not(HaveKey("Reconciling")), Not(HaveKey("Stalled"))))
	w.Expect(app.Status.Phase).To(Equal(v1beta1.PhaseSuspended))
	mark := w.Mark()
	w.Scale("kubectl", w.deployment("web"), 5)
	w.Expect(api.Delete(w.Ctx, harness.Read(w, "web", &corev1.Service{}))).To(Succeed())
	w.change("web", withImage(otherImage))
	w.shows("web", "Suspended", "True Suspended", Not(BeEmpty())) // for the new generation

	// Then nothing but the status is written,
	harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, a *v1beta1.AppService) {
		g.Expect(a.Status.ReadyReplicas).To(BeEquivalentTo(5), "the status stays true")
	})
	w.Settled()
	w.Expect(w.Requests(mark).Writes().Except("appservices.fixpoint.dev")).To(BeEmpty())
	w.Expect(w.deployment("web").Spec.Replicas).To(HaveValue(BeEquivalentTo(5)))
	w.Expect(container(w, "web").Image).To(Equal(image))

	// and when it is resumed, all of it is reverted and reported.
	w.change("web", suspend(false))
	app = w.ready("web")
	w.Expect(conditions(app)).NotTo(HaveKey("Suspended"))
	w.Expect(w.deployment("web").Spec.Replicas).To(HaveValue(BeEquivalentTo(2)))
	w.Expect(container(w, "web").Image).To(Equal(otherImage))
	harness.Read(w, "web", &corev1.Service{})
	w.Expect(app.Status.Drifts).To(ContainElement(And(HaveField("Manager", "kubectl"), HaveField("Field", ".spec.replicas"), HaveField("Desired", "2"), HaveField("Found", "5"))))
}

func TestAdoptsUnownedObjectsIfUnowned(t *testing.T) {
	w := newManagedFixture(t)

	// Given a Deployment and a ConfigMap created with kubectl
	deployment := foreignDeployment(w.Namespace, "web", map[string]string{"app.kubernetes.io/name": "web"})
	deployment.Annotations = map[string]string{"team": "shop"}
	w.Expect(w.As("kubectl-create").Create(w.Ctx, deployment)).To(Succeed())
	w.Expect(w.As("kubectl-create").Create(w.Ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"}, Data: map[string]string{"A": "old", "UNMANAGED": "x"},
	})).To(Succeed())

	// When an AppService of the name may take them over
	app := w.createReady("web", adoption(v1beta1.AdoptionIfUnowned), config("A", "1"))

	// Then they are its children, the same objects as before, and what was not asked for stays.
	adopted := w.deployment("web")
	w.Expect(adopted.UID).To(Equal(deployment.UID))
	w.Expect(adopted).To(beOwnedBy(app))
	w.Expect(adopted.Annotations).To(HaveKeyWithValue("team", "shop"))
	w.Expect(adopted.Spec.Replicas).To(HaveValue(BeEquivalentTo(2)))
	names := []string{}
	for _, c := range adopted.Spec.Template.Spec.Containers {
		names = append(names, c.Name)
	}
	w.Expect(names).To(ConsistOf("app", "unmanaged"))
	configMap := harness.Read(w, "web", &corev1.ConfigMap{})
	w.Expect(configMap).To(beOwnedBy(app))
	w.Expect(configMap.Data).To(Equal(map[string]string{"A": "1", "UNMANAGED": "x"}))
	w.Expect(app.Status.Drifts).To(BeEmpty(), "fields of other managers have not drifted")

	// And the adoption is complete: another reconcile writes nothing.
	w.AtRest("web")
	mark := w.Settled()
	w.Stop(w.Managers[0])
	m := w.startManager()
	w.Eventually(func() int { return m.Checks("AppService", "web", "Deployment") }).Should(BeNumerically(">=", 1))
	w.Settled()
	w.Expect(w.Requests(mark).Applies()).To(BeEmpty())
}

// foreignDeployment is one that nobody controls, with pods of the given labels.
func foreignDeployment(namespace, name string, selector map[string]string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "unmanaged", Image: image}}},
			},
		},
	}
}
