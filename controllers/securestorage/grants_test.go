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

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// grants are the vaults on which there are grants, once for each.
func (w *world) grants() []string {
	vaults := []string{}
	for _, a := range w.server.State().Assignments {
		vaults = append(vaults, a.Scope[strings.LastIndex(a.Scope, "/")+1:])
	}
	for _, v := range w.server.State().Vaults {
		for range v.Policies {
			vaults = append(vaults, v.Name)
		}
	}
	slices.Sort(vaults)
	return vaults
}

// noted are the vaults of the grants that the status has.
func (w *world) noted() []string {
	vaults := []string{}
	for _, g := range w.storage.Status.Grants {
		vaults = append(vaults, g.VaultID[strings.LastIndex(g.VaultID, "/")+1:])
	}
	return vaults
}

// lag answers a look at the account from the past.
func (w *world) lag(request *http.Request, now *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	if request.Method != http.MethodGet || !strings.Contains(strings.ToLower(request.URL.Path), "/storageaccounts/") {
		return now
	}
	if w.past == nil || !w.clock.Now().Before(w.pastUntil) {
		w.past = now
	}
	past := httptest.NewRecorder()
	maps.Copy(past.Header(), w.past.Header())
	past.WriteHeader(w.past.Code)
	_, err := past.Write(w.past.Body.Bytes())
	w.Expect(err).NotTo(HaveOccurred())
	return past
}

// watchGrant says whether a request asks for a grant, and holds it against what the status has noted.
func (w *world) watchGrant(request *http.Request) bool {
	path := strings.ToLower(request.URL.Path)
	vault, what, _ := strings.Cut(path, "/providers/microsoft.authorization/roleassignments/")
	access := v1alpha1.AccessRoleAssignment
	if what == "" {
		vault, what, _ = strings.Cut(path, "/accesspolicies/")
		access = v1alpha1.AccessPolicy
	}
	if request.Method != http.MethodPut || what == "" || what == "remove" {
		return false
	}
	body, err := io.ReadAll(request.Body)
	w.Expect(err).NotTo(HaveOccurred())
	request.Body = io.NopCloser(bytes.NewReader(body))
	if !slices.ContainsFunc(w.storage.Status.Grants, func(g v1alpha1.SecureStorageGrant) bool {
		return strings.EqualFold(g.VaultID, vault) && g.AccessType == access && bytes.Contains(body, []byte(g.PrincipalID))
	}) {
		w.unnoted = append(w.unnoted, string(access)+" on "+vault)
	}
	return true
}

// passes makes some passes, each when it is due.
func (w *world) passes(n int) {
	for range n {
		after := w.pass()
		w.clock.Step(after)
	}
}

// hasOneGrant is what has to hold once the object is Ready.
func (w *world) hasOneGrant(vault string) {
	w.t.Helper()
	w.Expect(w.grants()).To(Equal([]string{vault}), "grants in the cloud")
	w.Expect(w.unnoted).To(BeEmpty(), "grants that the status had not noted before")
	w.Expect(w.noted()).To(Equal([]string{vault}))
	w.Expect(w.storage.Status.Grants[0].PrincipalID).To(Equal(w.server.Principal(w.name())))
	w.Expect(w.storage.Status.GrantID).To(ContainSubstring("/vaults/" + vault))
	w.Expect(w.told("DriftCorrected")).To(BeZero(), "nobody else has changed anything")
	w.clock.Step(time.Hour)
	w.Expect(w.server.ReadData(w.name())).To(Succeed())
}

func byRole(s *v1alpha1.SecureStorageSpec) { s.Access.Type = v1alpha1.AccessRoleAssignment }

// both edits one after the other.
func both(edits ...func(*v1alpha1.SecureStorageSpec)) func(*v1alpha1.SecureStorageSpec) {
	return func(s *v1alpha1.SecureStorageSpec) {
		for _, edit := range edits {
			edit(s)
		}
	}
}

// twice are two changes that come one after the other, with the vault of the second.
var twice = map[string]struct {
	first, second func(*v1alpha1.SecureStorageSpec)
	ends          string
}{
	"the vault":                      {inVault("second"), inVault("third"), "third"},
	"the vault, and back":            {inVault("second"), inVault("fixpoint-demo"), "fixpoint-demo"},
	"the access type, and back":      {both(byPolicy, inVault("policies")), both(byRole, inVault("fixpoint-demo")), "fixpoint-demo"},
	"the access type, and the vault": {both(byPolicy, inVault("policies")), inVault("more-policies"), "more-policies"},
}

// newVaultsWorld has a vault for each of the changes.
func newVaultsWorld(t *testing.T, edits ...func(*v1alpha1.SecureStorageSpec)) *world {
	t.Helper()
	w := newWorld(t, quick(), edits...)
	w.addVault("second", fakecloud.VaultSpec{PurgeProtection: true})
	w.addVault("third", fakecloud.VaultSpec{PurgeProtection: true})
	w.addVault("policies", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
	w.addVault("more-policies", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
	return w
}

// enough passes for each change to be on its way, and most to be through.
const enough = 8

func TestTwoChangesLeaveOneGrant(t *testing.T) {
	for what, change := range twice {
		for n := range enough {
			t.Run(fmt.Sprintf("%s/after %d passes", what, n), func(t *testing.T) {
				// given
				w := newVaultsWorld(t)
				w.runUntilReady()
				// when
				w.edit(change.first)
				w.passes(n)
				w.edit(change.second)
				w.runUntilReady()
				// then
				w.hasOneGrant(change.ends)
				w.delete()
				w.runUntilGone()
				w.Expect(w.grants()).To(BeEmpty(), "grants in the cloud")
				w.leavesNothing()
				for _, grant := range w.storage.Status.Grants {
					w.Expect(grant.PrincipalID).NotTo(BeEmpty(), "nothing is to be granted any more")
				}
			})
		}
	}
}

func TestTwoChangesBeforeThereIsAnAccountLeaveOneGrant(t *testing.T) {
	for what, change := range twice {
		for n := range 2 * enough {
			t.Run(fmt.Sprintf("%s/after %d passes", what, n), func(t *testing.T) {
				w := newVaultsWorld(t)
				w.passes(n)
				w.edit(change.first)
				w.passes(n % 3)
				w.edit(change.second)
				w.runUntilReady()
				w.hasOneGrant(change.ends)
			})
		}
	}
}

func TestAProcessMayEndBetweenTwoChanges(t *testing.T) {
	t.Parallel()
	for what, change := range twice {
		for n := range 4 {
			for after, side := range sides {
				ended := true
				for at := 1; ended; at++ {
					t.Run(fmt.Sprintf("%s/after %d passes/%s call %d", what, n, side, at), func(t *testing.T) {
						// given
						w := newVaultsWorld(t)
						w.runUntilReady()
						// when
						w.cut = &cut{at: at, after: after}
						w.edit(change.first)
						w.passes(n)
						w.edit(change.second)
						w.runUntilReady()
						ended = w.cut == nil
						w.cut = nil
						// then
						w.hasOneGrant(change.ends)
					})
				}
			}
		}
	}
}

// The spec changes when a grant was just made, so that the status of that pass is refused.
func TestAChangeRightAfterAGrantLeavesOneGrant(t *testing.T) {
	for what, change := range twice {
		for isReady, when := range map[bool]string{false: "the first grant", true: "the next grant"} {
			for ends, how := range map[bool]string{false: "", true: ", and the process ends"} {
				t.Run(what+"/"+when+how, func(t *testing.T) {
					// given
					w := newVaultsWorld(t)
					last := change.first
					if isReady {
						w.runUntilReady()
						w.edit(change.first)
						last = change.second
					}
					// when
					edited := false
					w.onGrant = func() {
						if edited {
							return
						}
						edited = true
						w.edit(last)
						if ends {
							panic(crash{})
						}
					}
					w.runUntil("granted", func() bool { return edited })
					if !isReady {
						w.edit(change.second)
					}
					w.runUntilReady()
					// then
					w.hasOneGrant(change.ends)
				})
			}
		}
	}
}

func TestADeletionBetweenTwoChangesLeavesNoGrant(t *testing.T) {
	t.Parallel()
	for what, change := range twice {
		for n := range 5 {
			for m := range enough {
				t.Run(fmt.Sprintf("%s/after %d and %d passes", what, n, m), func(t *testing.T) {
					w := newVaultsWorld(t)
					w.runUntilReady()
					w.edit(change.first)
					w.passes(n)
					w.edit(change.second)
					w.passes(m)
					w.delete()
					w.runUntilGone()
					w.Expect(w.grants()).To(BeEmpty(), "grants in the cloud")
					w.leavesNothing()
				})
			}
		}
	}
}

func TestAnotherVaultLeavesNoGrantBehind(t *testing.T) {
	t.Run("of roles", func(t *testing.T) {
		w := readyWorld(t)
		w.addVault("second", fakecloud.VaultSpec{PurgeProtection: true})
		w.edit(inVault("second"))
		w.runUntilReady()
		w.Expect(w.grants()).To(Equal([]string{"second"}))
		w.Expect(w.storage.Status.GrantID).To(ContainSubstring("/vaults/second/"))
		w.Expect(w.storage.Status.KeyURI).To(ContainSubstring("second"))
		w.Expect(w.told("DriftCorrected")).To(BeZero())
	})
	t.Run("of policies", func(t *testing.T) {
		w := readyWorld(t)
		w.addVault("second", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
		w.edit(inVault("second"))
		w.edit(byPolicy)
		w.runUntilReady()
		w.Expect(w.grants()).To(Equal([]string{"second"}))
		w.addVault("third", fakecloud.VaultSpec{PurgeProtection: true, AccessPolicies: true})
		w.edit(inVault("third"))
		w.runUntilReady()
		w.Expect(w.grants()).To(Equal([]string{"third"}))
	})
	t.Run("if it is deleted half-way", func(t *testing.T) {
		const passes = 8
		for n := range passes {
			w := readyWorld(t)
			w.addVault("second", fakecloud.VaultSpec{PurgeProtection: true})
			w.edit(inVault("second"))
			for range n {
				after := w.pass()
				w.clock.Step(after)
			}
			w.delete()
			w.runUntilGone()
			w.Expect(w.grants()).To(BeEmpty(), "grants in the cloud")
			w.leavesNothing()
		}
	})
}

// Somebody drops the identity while the vault changes.
func TestAnotherIdentityHalfWayLeavesOneGrant(t *testing.T) {
	for n := range enough {
		for m := range enough {
			t.Run(fmt.Sprintf("after %d and %d passes", n, m), func(t *testing.T) {
				w := newVaultsWorld(t)
				w.runUntilReady()
				w.edit(inVault("second"))
				w.passes(n)
				w.Expect(w.server.DropIdentity(w.name())).To(Succeed())
				w.passes(m)
				w.edit(inVault("third"))
				w.runUntilReady()
				w.Expect(w.grants()).To(Equal([]string{"third"}))
				w.Expect(w.noted()).To(Equal([]string{"third"}))
				w.delete()
				w.runUntilGone()
				w.Expect(w.grants()).To(BeEmpty(), "grants in the cloud")
				w.leavesNothing()
			})
		}
	}
}

// However often the vault changes, the status can be written, and in the end there is one grant.
func TestManyChangesLeaveOneGrant(t *testing.T) {
	const many = 20
	for n := range 4 {
		t.Run(fmt.Sprintf("after %d passes each", n), func(t *testing.T) {
			w := newVaultsWorld(t)
			w.runUntilReady()
			longest := 0
			for i := range many {
				name := fmt.Sprintf("vault-%d", i)
				w.addVault(name, fakecloud.VaultSpec{PurgeProtection: true})
				w.edit(inVault(name))
				for range n {
					w.passes(1)
					longest = max(longest, len(w.noted()))
				}
				if i%3 == 2 {
					w.Expect(w.server.DropIdentity(w.name())).To(Succeed())
				}
			}
			w.runUntilReady()
			t.Logf("%d grants noted at most", longest)
			w.Expect(longest).To(BeNumerically("<=", 8))
			w.Expect(w.grants()).To(Equal([]string{fmt.Sprintf("vault-%d", many-1)}))
		})
	}
}
