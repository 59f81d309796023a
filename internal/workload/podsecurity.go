package workload

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// NotPermitted is the error of a spec whose pods the installation does not permit. Only a change of the spec,
// or of the installation, resolves it.
type NotPermitted struct {
	// Fields of the spec that ask for such pods, such as "spec.podOverrides".
	Fields string
	// Problem is what is not permitted, and Remedy what to do.
	Problem, Remedy string
}

func (e *NotPermitted) Error() string {
	return e.Fields + ": " + e.Problem + "; " + e.Remedy + ". An existing Deployment and its pods are left unchanged"
}

// ConditionReason is the reason for a condition that reports this error.
func (e *NotPermitted) ConditionReason() string { return v1beta1.ReasonNotPermitted }

// Permanent is true: retries do not help.
func (e *NotPermitted) Permanent() bool { return true }

// evaluator has the checks of the Pod Security Standards that the API server enforces for the labels of a
// namespace.
var evaluator = sync.OnceValue(func() policy.Evaluator {
	checks, _ := policy.NewEvaluator(policy.DefaultChecks(), nil) // it fails only for other checks
	return checks
})

// Violations lists what a Pod Security Standard forbids in a pod template, and is empty if it satisfies the
// standard.
func Violations(standard v1beta1.PodSecurityStandard, template *corev1ac.PodTemplateSpecApplyConfiguration) string {
	pod := MustConvert(template, &corev1.PodTemplateSpec{})
	level := api.LevelBaseline
	if standard == v1beta1.PodSecurityRestricted {
		level = api.LevelRestricted
	}
	found := policy.AggregateCheckResults(evaluator().EvaluatePod(api.LevelVersion{Level: level, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec))
	return found.ForbiddenDetail()
}

// RestrictedContainer is the security context that the restricted Pod Security Standard requires of each
// container.
func RestrictedContainer() *corev1ac.SecurityContextApplyConfiguration {
	return corev1ac.SecurityContext().
		WithAllowPrivilegeEscalation(false).
		WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))
}

// RestrictedPod is the security context that the restricted Pod Security Standard requires of a pod.
func RestrictedPod() *corev1ac.PodSecurityContextApplyConfiguration {
	return corev1ac.PodSecurityContext().
		WithRunAsNonRoot(true).
		WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))
}

// SecurityContextFields names the security contexts that a spec sets, for a [NotPermitted].
func SecurityContextFields(pod *corev1.PodSecurityContext, container *corev1.SecurityContext) string {
	var fields []string
	if pod != nil {
		fields = append(fields, "spec.podSecurityContext")
	}
	if container != nil {
		fields = append(fields, "spec.containerSecurityContext")
	}
	return strings.Join(fields, " and ")
}

// CheckServiceAccount refuses pods that would run as the manager, and so have all of its permissions. The
// name is that in a field of the spec; an empty name is the default ServiceAccount of the namespace.
func CheckServiceAccount(manager types.NamespacedName, namespace, field string, names ...string) error {
	if manager.Name == "" || manager.Namespace != namespace {
		return nil
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) == 0 {
		names = []string{"default"}
	}
	if !slices.Contains(names, manager.Name) {
		return nil
	}
	return &NotPermitted{
		Fields:  field,
		Problem: "the pods would run as ServiceAccount " + manager.String() + ", which is that of the manager, and have its permissions",
		Remedy:  "use another ServiceAccount, or another namespace",
	}
}

// AccountsOf are the ServiceAccounts that a pod template names: the API server copies either field into the
// other if it is empty.
func AccountsOf(pod *corev1ac.PodSpecApplyConfiguration) []string {
	var names []string
	for _, name := range []*string{pod.ServiceAccountName, pod.DeprecatedServiceAccount} {
		if name != nil && *name != "" {
			names = append(names, *name)
		}
	}
	return names
}
