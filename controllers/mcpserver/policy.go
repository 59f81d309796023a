package mcpserver

import (
	"fmt"
	"slices"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// OverridesPolicy is what an installation permits in the pods of MCPServers. Who may create an MCPServer may
// not be allowed to create pods, so without a policy spec.podOverrides would give them more than they have.
type OverridesPolicy string

const (
	// OverridesNone is OverridesRestricted, and refuses spec.podOverrides.
	OverridesNone OverridesPolicy = "none"
	// OverridesRestricted permits pods that satisfy the restricted Pod Security Standard, and neither a node
	// nor a ServiceAccount in spec.podOverrides. It is the default.
	OverridesRestricted OverridesPolicy = "restricted"
	// OverridesAll permits all pods, except those that would run as the manager.
	OverridesAll OverridesPolicy = "all"
)

// ParseOverridesPolicy returns the policy of this name.
func ParseOverridesPolicy(name string) (OverridesPolicy, error) {
	all := []OverridesPolicy{OverridesNone, OverridesRestricted, OverridesAll}
	if policy := OverridesPolicy(name); slices.Contains(all, policy) {
		return policy, nil
	}
	return "", fmt.Errorf("%q does not exist: set none, restricted or all", name)
}

const permitAll = "or ask the administrator to run the manager with --pod-overrides=all"

// checkTemplate refuses a pod template that the installation does not permit. It checks the final template,
// whichever fields of the spec it comes from; base is the template without spec.podOverrides.
func checkTemplate(server *v1beta1.MCPServer, settings Settings, base, final *corev1ac.PodTemplateSpecApplyConfiguration) error {
	if err := checkAccount(server, settings, base, final); err != nil {
		return err
	}
	if settings.PodOverrides == OverridesAll {
		return nil
	}
	if settings.PodOverrides == OverridesNone && server.Spec.PodOverrides != nil {
		return &workload.NotPermitted{Fields: "spec.podOverrides", Problem: "the manager runs with --pod-overrides=none", Remedy: "remove spec.podOverrides, " + permitAll}
	}
	if hasUserPerSession(server) {
		return &workload.NotPermitted{
			Fields: "spec.bridge.firstSessionUser", Problem: "it requires root and capabilities, which the restricted Pod Security Standard forbids",
			Remedy: "remove it, " + permitAll,
		}
	}
	if err := checkStandard(workload.SecurityContextFields(server.Spec.PodSecurityContext, server.Spec.ContainerSecurityContext), base); err != nil {
		return err
	}
	if final == base {
		return nil
	}
	if err := checkStandard("spec.podOverrides", final); err != nil {
		return err
	}
	switch {
	case final.Spec.NodeName != nil && *final.Spec.NodeName != "":
		return &workload.NotPermitted{
			Fields: "spec.podOverrides.spec.nodeName", Problem: "pods must be scheduled",
			Remedy: "select nodes with spec.scheduling, " + permitAll,
		}
	case !slices.Equal(workload.AccountsOf(base.Spec), workload.AccountsOf(final.Spec)):
		return &workload.NotPermitted{
			Fields: "spec.podOverrides.spec.serviceAccountName", Problem: "the ServiceAccount must not be overridden",
			Remedy: "set spec.serviceAccount instead, " + permitAll,
		}
	default:
		return nil
	}
}

func checkAccount(server *v1beta1.MCPServer, settings Settings, base, final *corev1ac.PodTemplateSpecApplyConfiguration) error {
	if err := workload.CheckServiceAccount(settings.ManagerAccount, server.Namespace, "spec.serviceAccount", workload.AccountsOf(base.Spec)...); err != nil {
		return err
	}
	return workload.CheckServiceAccount(settings.ManagerAccount, server.Namespace, "spec.podOverrides.spec.serviceAccountName", workload.AccountsOf(final.Spec)...)
}

func checkStandard(fields string, template *corev1ac.PodTemplateSpecApplyConfiguration) error {
	violations := workload.Violations(v1beta1.PodSecurityRestricted, template)
	if violations == "" {
		return nil
	}
	return &workload.NotPermitted{
		Fields:  fields,
		Problem: "the restricted Pod Security Standard forbids such pods: " + violations,
		Remedy:  "change these settings, " + permitAll,
	}
}
