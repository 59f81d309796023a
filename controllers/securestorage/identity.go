package securestorage

import (
	"context"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// identity is the account's own identity. It is asked for with the account; here we wait until the
// directory has it. Only an account that exists can be granted something.
var identity = phases.Step[*scope]{
	Name:    "Identity",
	Observe: observeIdentity,
}

func observeIdentity(_ context.Context, s *scope) (phases.Verdict, error) {
	if s.account.PrincipalID == "" {
		return phases.Wait(v1alpha1.ReasonWaitingForPrincipal, "the directory does not know the account's identity yet", jitter(s.pauseOf(v1alpha1.ConditionIdentityReady))), nil
	}
	return phases.Done("the account has the principal " + s.account.PrincipalID), nil
}
