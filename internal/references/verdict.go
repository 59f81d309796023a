package references

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// missingRecheckInterval is the safety net for a missed watch event.
const missingRecheckInterval = time.Minute

// Verdict is that of a phase that waits for the referenced objects.
func (f Finding) Verdict() phases.Verdict {
	if len(f.Missing) > 0 {
		remedy := "; create the missing objects and keys"
		if f.MayBeOptional {
			remedy += ", or mark the references optional"
		}
		return phases.Wait(v1beta1.ReasonDependencyMissing, "missing: "+strings.Join(f.Missing, ", ")+remedy, missingRecheckInterval)
	}
	return phases.Done("all referenced objects exist")
}

// Certificate is the verdict of an applied Ingress, unless the Secret of spec.ingress.tlsSecretName is missing. The
// Ingress does not wait for the Secret, because cert-manager creates it for an Ingress that exists.
func (r *Reader) Certificate(ctx context.Context, namespace string, in *v1beta1.Ingress, applied phases.Verdict) phases.Verdict {
	finding, err := r.Find(ctx, namespace, FromIngress(in))
	switch {
	case r.Ignores(err):
		return applied
	case err != nil:
		return phases.Wait(v1beta1.ReasonFailed, err.Error(), 0)
	case len(finding.Missing) > 0:
		return phases.Wait(v1beta1.ReasonDependencyMissing,
			"Ingress applied, but Secret "+in.TLSSecretName+" (spec.ingress.tlsSecretName) does not exist; create it, or have cert-manager create it", missingRecheckInterval)
	default:
		return applied
	}
}

// Ignores is true for the error of a read that a plan does without.
func (r *Reader) Ignores(err error) bool {
	if r.Unreadable == nil || !apierrors.IsForbidden(err) {
		return false
	}
	r.Unreadable(err)
	return true
}
