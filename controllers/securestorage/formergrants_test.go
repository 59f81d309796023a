package securestorage

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// grants returns the key vault of each grant in the cloud.
func (f *fixture) grants() []string {
	vaults := []string{}
	for _, a := range f.server.State().Assignments {
		vaults = append(vaults, a.Scope[strings.LastIndex(a.Scope, "/")+1:])
	}
	for _, v := range f.server.State().Vaults {
		for range v.Policies {
			vaults = append(vaults, v.Name)
		}
	}
	slices.Sort(vaults)
	return vaults
}

// recorded returns the key vault of each grant in the status.
func (f *fixture) recorded() []string {
	vaults := []string{}
	for _, g := range f.storage.Status.Grants {
		vaults = append(vaults, g.VaultID[strings.LastIndex(g.VaultID, "/")+1:])
	}
	return vaults
}

// serveStale answers reads of the account with the stale response until staleUntil.
func (f *fixture) serveStale(request *http.Request, now *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	if request.Method != http.MethodGet || !strings.Contains(strings.ToLower(request.URL.Path), "/storageaccounts/") {
		return now
	}
	if f.stale == nil || !f.clock.Now().Before(f.staleUntil) {
		f.stale = now
	}
	past := httptest.NewRecorder()
	maps.Copy(past.Header(), f.stale.Header())
	past.WriteHeader(f.stale.Code)
	_, err := past.Write(f.stale.Body.Bytes())
	f.Expect(err).NotTo(HaveOccurred())
	return past
}

// checkGrantIsRecorded says whether a request creates a grant, and checks that the status records it.
func (f *fixture) checkGrantIsRecorded(request *http.Request) bool {
	path := strings.ToLower(request.URL.Path)
	vault, what, _ := strings.Cut(path, "/providers/microsoft.authorization/roleassignments/")
	access := v1beta1.AccessRoleAssignment
	if what == "" {
		vault, what, _ = strings.Cut(path, "/accesspolicies/")
		access = v1beta1.AccessPolicy
	}
	if request.Method != http.MethodPut || what == "" || what == "remove" {
		return false
	}
	body, err := io.ReadAll(request.Body)
	f.Expect(err).NotTo(HaveOccurred())
	request.Body = io.NopCloser(bytes.NewReader(body))
	if !slices.ContainsFunc(f.storage.Status.Grants, func(g v1beta1.SecureStorageGrant) bool {
		return strings.EqualFold(g.VaultID, vault) && g.AccessType == access && bytes.Contains(body, []byte(g.PrincipalID))
	}) {
		f.unrecorded = append(f.unrecorded, string(access)+" on "+vault)
	}
	return true
}

// reconcileTimes reconciles n times, each time when it is due.
func (f *fixture) reconcileTimes(n int) {
	for range n {
		after := f.reconcile()
		f.clock.Step(after)
	}
}

// expectOneGrant checks the grants of an object that is Ready.
func (f *fixture) expectOneGrant(vault string) {
	f.t.Helper()
	f.Expect(f.grants()).To(Equal([]string{vault}), "grants in the cloud")
	f.Expect(f.unrecorded).To(BeEmpty(), "grants created before status.grants recorded them")
	f.Expect(f.recorded()).To(Equal([]string{vault}))
	f.Expect(f.storage.Status.Grants[0].PrincipalID).To(Equal(f.server.Principal(f.name())))
	f.Expect(f.storage.Status.GrantID).To(ContainSubstring("/vaults/" + vault))
	f.Expect(f.eventsWith("DriftCorrected")).To(BeZero(), "nothing was changed outside of the controller")
	f.clock.Step(time.Hour)
	f.Expect(f.server.ReadData(f.name())).To(Succeed())
}

func byRole(s *v1beta1.SecureStorageSpec) { s.Access.Type = v1beta1.AccessRoleAssignment }

// both applies edits one after the other.
func both(edits ...func(*v1beta1.SecureStorageSpec)) func(*v1beta1.SecureStorageSpec) {
	return func(s *v1beta1.SecureStorageSpec) {
		for _, edit := range edits {
			edit(s)
		}
	}
}

// twice are two changes that follow each other, with the key vault of the second.
var twice = map[string]struct {
	first, second func(*v1beta1.SecureStorageSpec)
	ends          string
}{
	"the vault":                      {inVault("second"), inVault("third"), "third"},
	"the vault, and back":            {inVault("second"), inVault("fixpoint-demo"), "fixpoint-demo"},
	"the access type, and back":      {both(byPolicy, inVault("policies")), both(byRole, inVault("fixpoint-demo")), "fixpoint-demo"},
	"the access type, and the vault": {both(byPolicy, inVault("policies")), inVault("more-policies"), "more-policies"},
}

// newVaultsFixture has a key vault for each of the changes.
func newVaultsFixture(t *testing.T, edits ...func(*v1beta1.SecureStorageSpec)) *fixture {
	t.Helper()
	f := newFixture(t, fastCloud(), edits...)
	f.addVault("second", fakecloud.VaultSpec{PurgeProtection: true})
	f.addVault("third", fakecloud.VaultSpec{PurgeProtection: true})
	f.addVault("policies", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
	f.addVault("more-policies", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
	return f
}

// maxReconciles is enough for each change to be started, and for most to be complete.
const maxReconciles = 8

func TestTwoChangesLeaveOneGrant(t *testing.T) {
	for what, change := range twice {
		for n := range maxReconciles {
			t.Run(fmt.Sprintf("%s/after %d reconciles", what, n), func(t *testing.T) {
				// given
				f := newVaultsFixture(t)
				f.runUntilReady()
				// when
				f.edit(change.first)
				f.reconcileTimes(n)
				f.edit(change.second)
				f.runUntilReady()
				// then
				f.expectOneGrant(change.ends)
				f.delete()
				f.runUntilDeleted()
				f.Expect(f.grants()).To(BeEmpty(), "grants in the cloud")
				f.expectNothingLeft()
				for _, grant := range f.storage.Status.Grants {
					f.Expect(grant.PrincipalID).NotTo(BeEmpty(), "no grant without a principal is recorded during a teardown")
				}
			})
		}
	}
}

func TestTwoChangesDuringCreationLeaveOneGrant(t *testing.T) {
	for what, change := range twice {
		for n := range 2 * maxReconciles {
			t.Run(fmt.Sprintf("%s/after %d reconciles", what, n), func(t *testing.T) {
				f := newVaultsFixture(t)
				f.reconcileTimes(n)
				f.edit(change.first)
				f.reconcileTimes(n % 3)
				f.edit(change.second)
				f.runUntilReady()
				f.expectOneGrant(change.ends)
			})
		}
	}
}

func TestCrashBetweenTwoChangesLeavesOneGrant(t *testing.T) {
	t.Parallel()
	for what, change := range twice {
		for n := range 4 {
			// given
			whole := newVaultsFixture(t)
			whole.runUntilReady()
			// when it crashes between the changes
			whole.edit(change.first)
			for reconcile := range n {
				for _, crash := range whole.crashesDuring(func() { whole.reconcileTimes(1) }) {
					t.Run(fmt.Sprintf("%s/after %d reconciles/in the one of number %d, %s", what, n, reconcile, crash.call), func(t *testing.T) {
						f := crash.open(t)
						f.clock.Step(afterCrash)
						f.reconcileTimes(n - reconcile - 1)
						f.edit(change.second)
						f.runUntilReady()
						// then
						f.expectOneGrant(change.ends)
					})
				}
			}
			// or after both
			whole.edit(change.second)
			for _, crash := range whole.crashesUntil(whole.runUntilReady) {
				t.Run(fmt.Sprintf("%s/after %d reconciles/after both, %s", what, n, crash.call), func(t *testing.T) {
					f := crash.restart(t)
					f.runUntilReady()
					// then
					f.expectOneGrant(change.ends)
				})
			}
		}
	}
}

// The spec changes right after a grant was created, so the status of that reconcile is rejected.
func TestChangeRightAfterGrantLeavesOneGrant(t *testing.T) {
	for what, change := range twice {
		for isReady, when := range map[bool]string{false: "the first grant", true: "the next grant"} {
			for ends, how := range map[bool]string{false: "", true: ", and the process crashes"} {
				t.Run(what+"/"+when+how, func(t *testing.T) {
					// given
					f := newVaultsFixture(t)
					last := change.first
					if isReady {
						f.runUntilReady()
						f.edit(change.first)
						last = change.second
					}
					// when
					edited := false
					f.onGrant = func() {
						if edited {
							return
						}
						edited = true
						f.edit(last)
						if ends {
							panic(crash{})
						}
					}
					f.runUntil("granted", func() bool { return edited })
					if !isReady {
						f.edit(change.second)
					}
					f.runUntilReady()
					// then
					f.expectOneGrant(change.ends)
				})
			}
		}
	}
}

func TestDeletionBetweenTwoChangesLeavesNoGrant(t *testing.T) {
	t.Parallel()
	for what, change := range twice {
		for n := range 5 {
			for m := range maxReconciles {
				t.Run(fmt.Sprintf("%s/after %d and %d reconciles", what, n, m), func(t *testing.T) {
					f := newVaultsFixture(t)
					f.runUntilReady()
					f.edit(change.first)
					f.reconcileTimes(n)
					f.edit(change.second)
					f.reconcileTimes(m)
					f.delete()
					f.runUntilDeleted()
					f.Expect(f.grants()).To(BeEmpty(), "grants in the cloud")
					f.expectNothingLeft()
				})
			}
		}
	}
}

func TestChangeOfVaultRevokesFormerGrant(t *testing.T) {
	t.Run("role assignment", func(t *testing.T) {
		f := readyFixture(t)
		f.addVault("second", fakecloud.VaultSpec{PurgeProtection: true})
		f.edit(inVault("second"))
		f.runUntilReady()
		f.Expect(f.grants()).To(Equal([]string{"second"}))
		f.Expect(f.storage.Status.GrantID).To(ContainSubstring("/vaults/second/"))
		f.Expect(f.storage.Status.KeyURI).To(ContainSubstring("second"))
		f.Expect(f.eventsWith("DriftCorrected")).To(BeZero())
	})
	t.Run("access policy", func(t *testing.T) {
		f := readyFixture(t)
		f.addVault("second", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
		f.edit(inVault("second"))
		f.edit(byPolicy)
		f.runUntilReady()
		f.Expect(f.grants()).To(Equal([]string{"second"}))
		f.addVault("third", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
		f.edit(inVault("third"))
		f.runUntilReady()
		f.Expect(f.grants()).To(Equal([]string{"third"}))
	})
	t.Run("access policy in another subscription", func(t *testing.T) {
		f := readyFixture(t)
		f.server.SeedGroup(otherSubscription, "keys", f.demo.Location)
		foreign := f.server.SeedVault(otherSubscription, "keys", "foreign", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
		_, err := f.server.SeedKey("foreign", f.demo.Key, fakecloud.KeySpec{})
		f.Expect(err).NotTo(HaveOccurred())
		f.edit(both(byPolicy, func(s *v1beta1.SecureStorageSpec) { s.Key.Vault, s.Key.VaultID = nil, foreign }))
		f.runUntilReady()
		f.Expect(f.grants()).To(Equal([]string{"foreign"}))
		f.edit(both(byRole, inVault(f.demo.Vault)))
		f.runUntilReady()
		f.Expect(f.grants()).To(Equal([]string{f.demo.Vault}))
	})
	t.Run("deleted during the change", func(t *testing.T) {
		const reconciles = 8
		for n := range reconciles {
			f := readyFixture(t)
			f.addVault("second", fakecloud.VaultSpec{PurgeProtection: true})
			f.edit(inVault("second"))
			for range n {
				after := f.reconcile()
				f.clock.Step(after)
			}
			f.delete()
			f.runUntilDeleted()
			f.Expect(f.grants()).To(BeEmpty(), "grants in the cloud")
			f.expectNothingLeft()
		}
	})
}

// The identity of the account is removed while the key vault changes.
func TestChangeOfIdentityAndVaultLeavesOneGrant(t *testing.T) {
	for n := range maxReconciles {
		for m := range maxReconciles {
			t.Run(fmt.Sprintf("after %d and %d reconciles", n, m), func(t *testing.T) {
				f := newVaultsFixture(t)
				f.runUntilReady()
				f.edit(inVault("second"))
				f.reconcileTimes(n)
				f.Expect(f.server.DropIdentity(f.name())).To(Succeed())
				f.reconcileTimes(m)
				f.edit(inVault("third"))
				f.runUntilReady()
				f.Expect(f.grants()).To(Equal([]string{"third"}))
				f.Expect(f.recorded()).To(Equal([]string{"third"}))
				f.delete()
				f.runUntilDeleted()
				f.Expect(f.grants()).To(BeEmpty(), "grants in the cloud")
				f.expectNothingLeft()
			})
		}
	}
}

// The number of recorded grants stays below the limit of the schema.
func TestManyChangesLeaveOneGrant(t *testing.T) {
	const many = 20
	for n := range 4 {
		t.Run(fmt.Sprintf("after %d reconciles each", n), func(t *testing.T) {
			f := newVaultsFixture(t)
			f.runUntilReady()
			most := 0
			for i := range many {
				name := fmt.Sprintf("vault-%d", i)
				f.addVault(name, fakecloud.VaultSpec{PurgeProtection: true})
				f.edit(inVault(name))
				for range n {
					f.reconcileTimes(1)
					most = max(most, len(f.recorded()))
				}
				if i%3 == 2 {
					f.Expect(f.server.DropIdentity(f.name())).To(Succeed())
				}
			}
			f.runUntilReady()
			t.Logf("%d grants recorded at most", most)
			f.Expect(most).To(BeNumerically("<=", 8))
			f.Expect(f.grants()).To(Equal([]string{fmt.Sprintf("vault-%d", many-1)}))
		})
	}
}
