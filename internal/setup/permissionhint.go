package setup

import (
	"context"
	"errors"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// PermissionHint is an applier that adds to the error of a missing permission on Secrets how to grant it: the managers of
// most installations have none.
type PermissionHint struct {
	phases.Applier
	// Hint is what to do, without the permission.
	Hint string
}

// Execute implements [phases.Applier].
func (a PermissionHint) Execute(ctx context.Context, decision ssa.Decision) (ssa.Result, error) {
	result, err := a.Applier.Execute(ctx, decision)
	if _, isSecret := decision.Request.Desired.(*corev1ac.SecretApplyConfiguration); isSecret {
		err = WithPermissionHint(err, a.Hint)
	}
	return result, err
}

// WithPermissionHint adds to the error of a missing permission how to grant it.
func WithPermissionHint(err error, hint string) error {
	refused, ok := errors.AsType[*ssa.Error](err)
	if !ok || refused.Reason != ssa.ReasonForbidden {
		return err
	}
	hinted := *refused
	hinted.Message += ": " + hint + "; see Permissions in docs/operations.md"
	return &hinted
}
