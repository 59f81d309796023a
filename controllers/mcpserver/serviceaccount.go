package mcpserver

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// serviceAccount is the ServiceAccount of the pods. It is deleted once no pod uses it.
var serviceAccount = phases.Child[*scope, *corev1ac.ServiceAccountApplyConfiguration, *corev1.ServiceAccount]{
	Name: "ServiceAccount",
	Desired: func(s *scope) (*corev1ac.ServiceAccountApplyConfiguration, error) {
		desired := desiredServiceAccount(s.server)
		if desired == nil {
			return nil, nil
		}
		// The manager's own ServiceAccount must not be adopted either.
		return desired, workload.CheckServiceAccount(s.settings.ManagerAccount, s.server.Namespace, "spec.serviceAccount.create", s.server.Name)
	},
	Prune: phases.PruneLast,
}

func desiredServiceAccount(server *v1beta1.MCPServer) *corev1ac.ServiceAccountApplyConfiguration {
	account := server.Spec.ServiceAccount
	if account == nil || !account.Create {
		return nil
	}
	return corev1ac.ServiceAccount(server.Name, server.Namespace).
		WithLabels(labelsOf(server)).
		WithAnnotations(account.Annotations).
		WithAutomountServiceAccountToken(false)
}
