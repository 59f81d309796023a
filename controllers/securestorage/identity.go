package securestorage

import (
	"context"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// identity waits for the principal of the account's system-assigned identity. The identity is requested
// when the account is created; access can be granted only once the principal exists.
var identity = phases.Step[*scope]{
	Name:    "Identity",
	Observe: observeIdentity,
}

func observeIdentity(_ context.Context, s *scope) (phases.Observation, error) {
	if s.account.PrincipalID == "" && s.assumed {
		return phases.Done("the identity is not created yet"), nil
	}
	if s.account.PrincipalID == "" {
		return phases.Wait(v1beta1.ReasonWaitingForPrincipal, "waiting for the principal ID of the storage account's system-assigned identity", s.jitter(s.backoffOf(v1beta1.ConditionIdentityReady))), nil
	}
	return phases.Done("system-assigned identity has principal ID " + s.account.PrincipalID), nil
}
