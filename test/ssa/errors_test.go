package ssa_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalac "k8s.io/client-go/applyconfigurations/apiserverinternal/v1alpha1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// refusal is a configuration that the API server refuses, with the expected error.
type refusal struct {
	labels map[string]string
	// given prepares the namespace.
	given func(s *scenario)
	when  func(s *scenario) ssa.Configuration
	// live is the existing object, if one exists.
	live      func(s *scenario) client.Object
	reason    ssa.Reason
	message   string // NS stands for the namespace
	permanent bool
	transient bool
}

var refusals = map[string]refusal{
	"an invalid value": {
		when:   func(s *scenario) ssa.Configuration { return s.scaled("d", -1) },
		reason: ssa.ReasonInvalid, permanent: true,
		message: "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
	},
	"a list with the same key twice": {
		when: func(s *scenario) ssa.Configuration {
			d := s.deployment("d")
			d.Spec.Template.Spec.Containers[0].WithEnv(corev1ac.EnvVar().WithName("A").WithValue("1"), corev1ac.EnvVar().WithName("A").WithValue("2"))
			return d
		},
		reason: ssa.ReasonInvalid, permanent: true,
		message: `.spec.template.spec.containers[name="web"].env: duplicate entries for key [name="A"]`,
	},
	"an immutable field": {
		live: func(s *scenario) client.Object { return s.done(s.deployment("d"), nil, ssa.ActionCreate).Live },
		when: func(s *scenario) ssa.Configuration {
			d := s.deployment("d")
			d.Spec.Selector = metav1ac.LabelSelector().WithMatchLabels(map[string]string{"app": "d", "more": "x"})
			d.Spec.Template.WithLabels(map[string]string{"more": "x"})
			return d
		},
		reason: ssa.ReasonImmutableField, permanent: true,
		message: `spec.selector: Invalid value: {"matchLabels":{"app":"d","more":"x"}}: field is immutable; restore the previous value, or delete the object so that it is recreated`,
	},
	"a webhook that refuses": {
		labels:  map[string]string{denyAll: "yes"},
		when:    func(s *scenario) ssa.Configuration { return s.deployment("d") },
		reason:  ssa.ReasonAdmissionDenied,
		message: `admission webhook "deny.test.fixpoint.dev" denied the request: images must come from the mirror`,
	},
	"a webhook that does not answer": {
		given:  (*scenario).webhookThatIsDown,
		when:   func(s *scenario) ssa.Configuration { return s.configMap("c", nil) },
		reason: ssa.ReasonAPIUnavailable, transient: true,
		message: `an admission webhook did not respond: failed calling webhook "down.test.fixpoint.dev": connection refused`,
	},
	"a quota": {
		given:   (*scenario).fullQuota,
		when:    func(s *scenario) ssa.Configuration { return s.configMap("c", nil) },
		reason:  ssa.ReasonQuotaExceeded,
		message: "exceeded quota: few, requested: count/configmaps=1, limited: count/configmaps=1; raise the quota or request less",
	},
	"Pod Security": {
		labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		given:  (*scenario).serviceAccount,
		when: func(s *scenario) ssa.Configuration {
			return corev1ac.Pod("p", s.namespace).WithSpec(corev1ac.PodSpec().WithHostNetwork(true).WithContainers(container("web", "web:1").
				WithSecurityContext(corev1ac.SecurityContext().WithAllowPrivilegeEscalation(false).WithRunAsNonRoot(true).
					WithCapabilities(corev1ac.Capabilities().WithDrop("ALL")).WithSeccompProfile(corev1ac.SeccompProfile().WithType("RuntimeDefault")))))
		},
		reason:  ssa.ReasonAdmissionDenied,
		message: `violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)`,
	},
	"an admission plugin": {
		given: (*scenario).limitRange,
		when: func(s *scenario) ssa.Configuration {
			return corev1ac.Pod("p", s.namespace).WithSpec(corev1ac.PodSpec().WithContainers(container("web", "web:1").
				WithResources(corev1ac.ResourceRequirements().WithLimits(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}))))
		},
		reason:  ssa.ReasonAdmissionDenied,
		message: "maximum cpu usage per Container is 1, but limit is 2",
	},
	"a kind that is not served": {
		when: func(*scenario) ssa.Configuration {
			return internalac.StorageVersion("v")
		},
		reason:  ssa.ReasonKindMissing,
		message: "the cluster does not serve internal.apiserver.k8s.io/v1alpha1 StorageVersion; install the API that provides it, or disable the option that needs it",
	},
	"a namespace that is missing": {
		when:   func(*scenario) ssa.Configuration { return corev1ac.ConfigMap("c", "no-such-namespace") },
		reason: ssa.ReasonNamespaceTerminating, transient: true,
		message: "namespace no-such-namespace is being deleted or does not exist",
	},
	"a namespace that is being deleted": {
		given: func(s *scenario) {
			s.Expect(api.Delete(s, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).To(Succeed())
		},
		when:   func(s *scenario) ssa.Configuration { return s.configMap("c", nil) },
		reason: ssa.ReasonNamespaceTerminating, transient: true,
		message: "namespace NS is being deleted or does not exist",
	},
	"an API server that is not there": {
		given: func(s *scenario) {
			gone, err := client.New(&rest.Config{Host: "https://127.0.0.1:1"}, client.Options{Scheme: scheme, Mapper: api.RESTMapper()})
			s.Expect(err).NotTo(HaveOccurred())
			s.applier, err = ssa.New(ssa.Options{Client: gone, FieldManager: manager})
			s.Expect(err).NotTo(HaveOccurred())
		},
		when:   func(s *scenario) ssa.Configuration { return s.configMap("c", nil) },
		reason: ssa.ReasonAPIUnavailable, transient: true,
		message: "the API server did not accept the request; retrying",
	},
}

func TestErrorsNameTheProblemAndTheRemedy(t *testing.T) {
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, r.labels)
			if r.given != nil {
				r.given(s)
			}
			var live client.Object
			if r.live != nil {
				live = r.live(s)
			}

			err := s.fails(r.when(s), live)

			s.Expect(err.Reason).To(Equal(r.reason), err.Message)
			s.Expect(err.Message).To(Equal(strings.ReplaceAll(r.message, "NS", s.namespace)))
			s.Expect(err.Permanent()).To(Equal(r.permanent))
			s.Expect(err.Transient).To(Equal(r.transient))
			s.Expect(err.ConditionReason()).To(Equal(string(r.reason)))
			s.Expect(err.Unwrap()).To(HaveOccurred())
			s.Expect(s.fails(r.when(s), live).Message).To(Equal(err.Message), "it is the same from try to try")
		})
	}
}

func (s *scenario) serviceAccount() {
	s.create("kubectl-create", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
}

func (s *scenario) limitRange() {
	s.serviceAccount()
	s.create("kubectl-create", &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{
		Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}},
	}})
	// The API server learns of a limit range from a watch, and remembers for a while that there was none.
	two := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	s.Eventually(func() error {
		return api.Create(s, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: s.namespace},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1", Resources: two}}},
		}, client.DryRunAll)
	}).WithTimeout(eventually).Should(MatchError(ContainSubstring("maximum cpu usage")))
}

// fullQuota plays the controller manager, which counts what there is.
func (s *scenario) fullQuota() {
	one := corev1.ResourceList{"count/configmaps": resource.MustParse("1")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: one}}
	s.create("kubectl-create", quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: one, Used: one}
	s.Expect(api.Status().Update(s, quota)).To(Succeed())
	// The API server learns of a quota, and of what is used of it, from a watch.
	s.Eventually(func() error {
		return api.Create(s, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: s.namespace}}, client.DryRunAll)
	}).WithTimeout(eventually).Should(MatchError(ContainSubstring("exceeded quota")))
}

func (s *scenario) webhookThatIsDown() {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "down-"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "down.test.fixpoint.dev",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}
	s.Expect(api.Create(s, configuration)).To(Succeed())
	// The API server learns of a webhook from a watch.
	s.Eventually(func() error {
		return api.Create(s, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: s.namespace}})
	}).WithTimeout(eventually).ShouldNot(Succeed())
}

// eventually bounds what the API server does asynchronously.
const eventually = 10 * time.Minute
