package setup

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// refusing is an applier whose writes fail.
type refusing struct {
	phases.Applier
	err error
}

func (r refusing) Execute(context.Context, ssa.Decision) (ssa.Result, error) {
	return ssa.Result{Action: ssa.ActionCreate}, r.err
}

func TestMissingPermissionOnSecretsSaysHowToGrantIt(t *testing.T) {
	forbidden := &ssa.Error{Reason: ssa.ReasonForbidden, Object: "Secret acme/keys", Message: "denied"}
	secret := ssa.Decision{Request: ssa.Request{Desired: corev1ac.Secret("keys", "acme")}}
	service := ssa.Decision{Request: ssa.Request{Desired: corev1ac.Service("tools", "acme")}}
	cases := map[string]struct {
		decision ssa.Decision
		err      error
		hinted   bool
	}{
		"Secret":        {secret, forbidden, true},
		"other child":   {service, forbidden, false},
		"other error":   {secret, &ssa.Error{Reason: ssa.ReasonQuotaExceeded, Message: "denied"}, false},
		"untyped error": {secret, errors.New("denied"), false},
		"none":          {secret, nil, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			result, err := PermissionHint{refusing{err: c.err}, "set rbac.keys"}.Execute(t.Context(), c.decision)
			g.Expect(result.Action).To(Equal(ssa.ActionCreate))
			if !c.hinted {
				g.Expect(errors.Is(err, c.err)).To(BeTrue())
				return
			}
			var refused *ssa.Error
			g.Expect(errors.As(err, &refused)).To(BeTrue())
			g.Expect(refused.Reason).To(Equal(ssa.ReasonForbidden))
			g.Expect(refused.Message).To(Equal("denied: set rbac.keys; see Permissions in docs/operations.md"))
			g.Expect(forbidden.Message).To(Equal("denied"))
		})
	}
}
