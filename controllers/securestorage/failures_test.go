package securestorage

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

// lives are the situations of a SecureStorage, each with how it ends.
var lives = map[string]struct {
	access string
	edit   func(*v1beta1.SecureStorageSpec)
	live   func(f *fixture, before func())
}{
	"creation, another key vault, and deletion": {access: "role", live: func(f *fixture, before func()) {
		f.each(before, f.isReady)
		f.edit(inVault("second"))
		f.each(before, f.isReady)
		f.delete()
		f.each(before, func() bool { return f.deleted })
	}},
	"access policies": {access: "policy", live: func(f *fixture, before func()) {
		f.each(before, f.isReady)
		f.edit(inVault("policies"))
		f.each(before, f.isReady)
		f.delete()
		f.each(before, func() bool { return f.deleted })
	}},
	"drift, and Retain": {access: "role", edit: retain, live: func(f *fixture, before func()) {
		f.each(before, f.isReady)
		f.Expect(f.server.UsePlatformKeys(f.name())).To(Succeed())
		f.Expect(f.server.RemoveGrants(f.server.Principal(f.name()))).To(Succeed())
		f.clock.Step(time.Hour)
		before()
		f.reconcile()
		f.each(before, f.isReady)
		f.delete()
		f.each(before, func() bool { return f.deleted })
	}},
}

// each reconciles, each time when it is due, until the check returns true.
func (f *fixture) each(before func(), check func() bool) {
	f.t.Helper()
	f.runUntil("done", func() bool {
		if check() {
			return true
		}
		before()
		return false
	})
}

// Whatever request fails in whatever reconcile, and how: the reconcile reports it, or does not need the answer. A request
// that is refused, because another manager has the lease, is an error that the engine retries, and nothing is written after it.
func TestEachFailedRequestIsReported(t *testing.T) {
	for name, life := range lives {
		// given
		whole := newFixtureFor(t, life.access, withSecret("own"))
		if life.edit != nil {
			life.edit(&whole.storage.Spec)
		}
		whole.addVault("second", fakecloud.VaultSpec{PurgeProtection: true})
		whole.addVault("policies", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
		var moments []saved
		life.live(whole, func() {
			if now := whole.save(); len(moments) == 0 || !moments[len(moments)-1].equal(now) {
				moments = append(moments, now)
			}
		})
		for moment, given := range moments {
			for at, more := 1, true; more; at++ {
				more = false // a test that fails, or does not run with -failfast, is the last one
				t.Run(fmt.Sprintf("%s/reconcile %d/request %d", name, moment, at), func(t *testing.T) {
					more = expectRefusalIsAnError(given.open(t), at)
					if more {
						expectDenialIsReported(given.open(t), at)
					}
				})
			}
		}
	}
}

// expectRefusalIsAnError says whether there is such a request.
func expectRefusalIsAnError(f *fixture, at int) bool {
	requests, writes := 0, 0
	f.refuse = func(r *http.Request) error {
		requests++
		switch {
		case requests == at:
			return &lease.Error{Reason: lease.Lost}
		case requests > at && r.Method != http.MethodGet:
			writes++
		}
		return nil
	}
	_, err := f.process.reconciler.Reconcile(f.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f.storage)})
	if requests < at {
		return false
	}
	f.Expect(err).To(MatchError(ContainSubstring("another replica holds the Lease")))
	f.Expect(writes).To(BeZero())
	f.Expect(f.deleted).To(BeFalse())
	return true
}

// expectDenialIsReported: Azure denies a request, which a user has to change.
func expectDenialIsReported(f *fixture, at int) {
	requests := 0
	var denied *http.Request
	f.onRequest = func(r *http.Request) {
		if requests++; requests == at {
			denied = r
			f.server.Inject(fakecloud.Fault{Method: r.Method, Status: http.StatusForbidden, Code: "AuthorizationFailed"})
		}
	}
	_, err := f.process.reconciler.Reconcile(f.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f.storage)})
	f.Expect(err).NotTo(HaveOccurred())
	path := strings.ToLower(denied.URL.Path)
	isOfFormerVault := strings.Contains(path, "/vaults/") && !strings.Contains(path+"/", "/vaults/"+f.vault()+"/")
	isDeletion := f.storage.DeletionTimestamp != nil
	if strings.HasSuffix(path, "/checknameavailability") || isOfFormerVault && !isDeletion || isDeletion && f.storage.Spec.DeletionPolicy == v1beta1.DeletionRetain {
		return // the reconcile goes on without it
	}
	f.Expect(f.ready().Reason).To(Equal(v1beta1.ReasonPermissionMissing))
	f.Expect(f.condition(v1beta1.ConditionStalled)).NotTo(BeNil())
	f.Expect(f.deleted).To(BeFalse())
}
