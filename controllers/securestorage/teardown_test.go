package securestorage

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// outcome is what a verdict, or an error, means for the phase.
func outcome(verdict phases.Verdict, err error) string {
	switch {
	case err != nil:
		return "error: " + err.Error()
	case verdict.IsWait():
		return "wait: " + verdict.Reason()
	case verdict.IsStalled():
		return "stalled: " + verdict.Reason()
	case verdict.IsDone():
		return "done"
	default:
		return "undecided"
	}
}

// scope is that of a reconcile that begins now.
func (f *fixture) scope() *scope {
	return &scope{storage: f.storage.DeepCopy(), access: f.process.access, clock: f.clock}
}

// connected is a scope that has read the account.
func (f *fixture) connected() *scope {
	f.t.Helper()
	s := f.scope()
	f.Expect(s.connectAndRead(f.t.Context())).To(Succeed())
	return s
}

// deletedFor is the time since the deletion began.
func deletedFor(s *scope, since time.Duration) {
	s.storage.DeletionTimestamp = &metav1.Time{Time: s.clock.Now().Add(-since)}
}

// Only what cannot be deleted is left behind: a teardown that progresses is waited for, for two minutes.
func TestAbandonOnRequest(t *testing.T) {
	const annotated = "true"
	failure := errors.New("the Secret cannot be read")
	for name, c := range map[string]struct {
		annotation string
		since      time.Duration
		verdict    phases.Verdict
		err        error
		want       string
		abandoned  bool
	}{
		"done":                           {annotation: annotated, since: time.Hour, verdict: phases.Done("deleted"), want: "done"},
		"stalled, not asked for":         {since: time.Hour, verdict: phases.Stalled(v1beta1.ReasonDeletionBlocked, "x"), want: "stalled: DeletionBlocked"},
		"stalled, the annotation is off": {annotation: "false", since: time.Hour, verdict: phases.Stalled(v1beta1.ReasonDeletionBlocked, "x"), want: "stalled: DeletionBlocked"},
		"stalled":                        {annotation: annotated, verdict: phases.Stalled(v1beta1.ReasonDeletionBlocked, "x"), want: "done", abandoned: true},
		"terminating":                    {annotation: annotated, since: 2*time.Minute - 1, verdict: phases.Wait(v1beta1.ReasonTerminating, "x", 1), want: "wait: Terminating"},
		"an operation is in progress":    {annotation: annotated, verdict: phases.Wait(v1beta1.ReasonOperationInProgress, "x", 1), want: "wait: OperationInProgress"},
		"throttled":                      {annotation: annotated, verdict: phases.Wait(v1beta1.ReasonThrottled, "x", 1), want: "wait: Throttled"},
		"terminating for long":           {annotation: annotated, since: 2 * time.Minute, verdict: phases.Wait(v1beta1.ReasonTerminating, "x", 1), want: "done", abandoned: true},
		"unreachable":                    {annotation: annotated, verdict: phases.Wait(v1beta1.ReasonCloudUnavailable, "x", 1), want: "done", abandoned: true},
		"an error":                       {annotation: annotated, err: failure, want: "done", abandoned: true},
		"an error, not asked for":        {since: time.Hour, err: failure, want: "error: the Secret cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), newScope()
			deletedFor(s, c.since)
			s.storage.Annotations = map[string]string{v1beta1.AnnotationAbandon: c.annotation}
			verdict, err := s.abandonOnRequest(c.verdict, c.err, "the account")
			g.Expect(outcome(verdict, err)).To(Equal(c.want))
			if err == nil && verdict.IsStalled() {
				g.Expect(verdict.Message()).To(Equal("x; to leave the resources in Azure, set spec.deletionPolicy to Retain, or the annotation fixpoint.dev/abandon=true"))
			}
			if c.abandoned {
				g.Expect(s.abandoned).To(Equal([]string{"the account"}))
			} else {
				g.Expect(s.abandoned).To(BeEmpty())
			}
		})
	}
}

// An account that cannot be seen may exist: only its name tells.
func TestConfirmAbsence(t *testing.T) {
	denied := &fakecloud.Fault{Method: http.MethodPost, Status: http.StatusForbidden, Code: "AuthorizationFailed"}
	locked := &fakecloud.Fault{Method: http.MethodPost, Status: http.StatusConflict, Code: "ScopeLocked"}
	down := &fakecloud.Fault{Method: http.MethodPost, Status: http.StatusServiceUnavailable, Code: "ServerTimeout"}
	for name, c := range map[string]struct {
		since    time.Duration
		had      bool
		isTaken  bool
		fault    *fakecloud.Fault
		want     string
		requests int
	}{
		"the name is free":                                {since: time.Minute, want: "done", requests: 1},
		"the name is taken, for two minutes":              {since: 2 * time.Minute, isTaken: true, want: "wait: Terminating", requests: 1},
		"nothing was created, after two minutes":          {since: 2*time.Minute + 1, isTaken: true, want: "done"},
		"the account was seen, and the name is free":      {since: time.Hour, had: true, want: "done", requests: 1},
		"the account was seen, and the name is taken":     {since: time.Hour, had: true, isTaken: true, want: "stalled: DeletionBlocked", requests: 1},
		"the account was seen a moment ago":               {since: time.Second, had: true, isTaken: true, want: "wait: Terminating", requests: 1},
		"the name may not be asked for":                   {since: time.Second, fault: denied, want: "wait: Terminating", requests: 1},
		"the name may not be asked for, after an hour":    {since: time.Hour, had: true, isTaken: true, fault: denied, want: "done", requests: 1},
		"the subscription is locked":                      {since: time.Second, fault: locked, want: "wait: Terminating", requests: 1},
		"the subscription is locked, after an hour":       {since: time.Hour, had: true, isTaken: true, fault: locked, want: "done", requests: 1},
		"Azure does not respond":                          {since: time.Second, fault: down, want: "wait: CloudUnavailable", requests: 1},
		"Azure does not respond, and the account existed": {since: time.Hour, had: true, fault: down, want: "wait: CloudUnavailable", requests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fastCloud(), named("coveted"))
			s := f.connected()
			if c.isTaken {
				f.server.SeedGroup(otherSubscription, "foreign", "westeurope")
				f.Expect(f.server.SeedAccount(otherSubscription, "foreign", "coveted", nil)).To(Succeed())
			}
			if c.fault != nil {
				f.server.Inject(*c.fault)
			}
			if c.had {
				s.storage.Status.AccountID = f.accountID()
			}
			deletedFor(s, c.since)
			before := f.calls
			f.Expect(outcome(s.confirmAbsence(t.Context()))).To(Equal(c.want))
			f.Expect(f.calls - before).To(Equal(c.requests))
		})
	}
}

// A moved account is asked about again after a minute, and one that may be invisible the sooner, the shorter it waits.
func TestDelaysOfATeardown(t *testing.T) {
	f := newFixture(t, fastCloud(), named("coveted"))
	s := f.connected()
	f.server.SeedGroup(otherSubscription, "foreign", "westeurope")
	f.Expect(f.server.SeedAccount(otherSubscription, "foreign", "coveted", nil)).To(Succeed())
	for since, want := range map[time.Duration]time.Duration{0: time.Second, 20 * time.Second: 10 * time.Second, 2 * time.Minute: 17 * time.Second} {
		deletedFor(s, since)
		verdict, err := s.confirmAbsence(t.Context())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(verdict.After()).To(BeNumerically("~", want, want/10))
	}
	f.Expect(s.decideMoved().Message()).To(Equal("storage account coveted is not in resource group " + f.demo.Group + ", but its name is in use; if the account was moved, move it back"))
	f.Expect(s.decideMoved().After()).To(BeNumerically("~", time.Minute, 6*time.Second))
	s.account = &cloud.Account{Name: "coveted", PrincipalID: "p"}
	f.Expect(s.recordPrincipal().After()).To(BeNumerically("~", 500*time.Millisecond, 50*time.Millisecond))
}

// Without the principal ID, the grants of a deleted account cannot be found.
func TestPrincipalIsRecordedBeforeTheAccountIsDeleted(t *testing.T) {
	for name, c := range map[string]struct{ recorded, principal, want string }{
		"no identity":       {"", "", "done"},
		"recorded":          {"p", "P", "done"},
		"not recorded":      {"", "p", "wait: Terminating"},
		"another one":       {"q", "p", "wait: Terminating"},
		"without a new one": {"q", "", "done"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.storage.Status.PrincipalID, s.account = c.recorded, &cloud.Account{Name: "a", PrincipalID: c.principal}
			NewWithT(t).Expect(outcome(s.recordPrincipal(), nil)).To(Equal(c.want))
		})
	}
}

// A grant in use is never revoked.
func TestUsesGrant(t *testing.T) {
	inUse := keyGrant{vault: vaultLocation{"s", "g", "Former"}, principal: "p", access: v1beta1.AccessRoleAssignment}
	account := cloud.Account{PrincipalID: "P", Encryption: cloud.Encryption{KeySource: cloud.CustomerManaged, VaultURI: "https://former.vault.azure.net/"}}
	for name, c := range map[string]struct {
		edit func(*cloud.Account)
		want bool
	}{
		"the key vault and the principal": {func(*cloud.Account) {}, true},
		"keys of Microsoft":               {func(a *cloud.Account) { a.Encryption.KeySource = cloud.PlatformKeys }, false},
		"another key vault":               {func(a *cloud.Account) { a.Encryption.VaultURI = "https://formers.vault.azure.net/" }, false},
		"another principal":               {func(a *cloud.Account) { a.PrincipalID = "q" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := newScope(), account
			c.edit(&now)
			s.account = &now
			NewWithT(t).Expect(s.usesGrant(inUse)).To(Equal(c.want))
		})
	}
}

func TestIsResourceGroupDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"the group":                  {&cloud.Error{Kind: cloud.GroupMissing, Code: "ResourceGroupNotFound"}, true},
		"the subscription":           {&cloud.Error{Kind: cloud.GroupMissing, Code: "SubscriptionNotFound"}, false},
		"another error of that code": {&cloud.Error{Kind: cloud.Denied, Code: "ResourceGroupNotFound"}, false},
		"not of the cloud":           {errors.New("ResourceGroupNotFound"), false},
		"none":                       {},
	} {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(isResourceGroupDeleted(c.err)).To(Equal(c.want)) })
	}
}

// What was never created is not reported as retained.
func TestMayHaveCreated(t *testing.T) {
	condition := func(kind, reason string) []metav1.Condition { return []metav1.Condition{{Type: kind, Reason: reason}} }
	for name, c := range map[string]struct {
		edit   func(*v1beta1.SecureStorageSpec)
		status v1beta1.SecureStorageStatus
		want   bool
	}{
		"the account was seen":                     {status: v1beta1.SecureStorageStatus{AccountID: "a", Conditions: condition(v1beta1.ConditionStorageAccountReady, v1beta1.ReasonAccountNotOwned)}, want: true},
		"the account was seen, and is observed":    {edit: observe, status: v1beta1.SecureStorageStatus{AccountID: "a"}, want: true},
		"only observed":                            {edit: observe, status: v1beta1.SecureStorageStatus{Conditions: condition(v1beta1.ConditionStorageAccountReady, v1beta1.ReasonObserved)}},
		"never reconciled":                         {},
		"never reconciled this phase":              {status: v1beta1.SecureStorageStatus{Conditions: condition(v1beta1.ConditionReady, v1beta1.ReasonCreating)}},
		"creating":                                 {status: v1beta1.SecureStorageStatus{Conditions: condition(v1beta1.ConditionStorageAccountReady, v1beta1.ReasonCreating)}, want: true},
		"owned by another":                         {status: v1beta1.SecureStorageStatus{Conditions: condition(v1beta1.ConditionStorageAccountReady, v1beta1.ReasonAccountNotOwned)}},
		"the name is taken":                        {status: v1beta1.SecureStorageStatus{Conditions: condition(v1beta1.ConditionStorageAccountReady, v1beta1.ReasonNameTaken)}},
		"never allowed":                            {status: v1beta1.SecureStorageStatus{Conditions: condition(v1beta1.ConditionStorageAccountReady, v1beta1.ReasonCredentialsNotAllowed)}},
		"not allowed now, with a recorded grant":   {status: v1beta1.SecureStorageStatus{Grants: []v1beta1.SecureStorageGrant{{}}, Conditions: condition(v1beta1.ConditionStorageAccountReady, v1beta1.ReasonCredentialsNotAllowed)}, want: true},
		"the permission is missing, so it may be ": {status: v1beta1.SecureStorageStatus{Conditions: condition(v1beta1.ConditionStorageAccountReady, v1beta1.ReasonPermissionMissing)}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			if c.edit != nil {
				c.edit(&s.storage.Spec)
			}
			s.storage.Status = c.status
			NewWithT(t).Expect(s.mayHaveCreated()).To(Equal(c.want))
		})
	}
}

func TestGrantsToRevoke(t *testing.T) {
	const vaults = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/"
	at := func(vault, principal string) v1beta1.SecureStorageGrant {
		return v1beta1.SecureStorageGrant{VaultID: vaults + vault, PrincipalID: principal, AccessType: v1beta1.AccessRoleAssignment}
	}
	for name, c := range map[string]struct {
		principal string
		grants    []v1beta1.SecureStorageGrant
		want      []string
	}{
		"never an identity":                     {grants: []v1beta1.SecureStorageGrant{at("v", "")}},
		"the desired one is not recorded":       {principal: "p", want: []string{"v p"}},
		"the desired one is recorded":           {principal: "p", grants: []v1beta1.SecureStorageGrant{at("V", "P")}, want: []string{"V P"}},
		"a former one":                          {principal: "p", grants: []v1beta1.SecureStorageGrant{at("w", "p")}, want: []string{"w p", "v p"}},
		"one of a former identity":              {principal: "p", grants: []v1beta1.SecureStorageGrant{at("v", "q"), at("v", "")}, want: []string{"v q", "v p"}},
		"the identity was not recorded in time": {grants: []v1beta1.SecureStorageGrant{at("w", "p")}, want: []string{"w p"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.storage.Status.PrincipalID, s.storage.Status.Grants = c.principal, c.grants
			var found []string
			for _, grant := range s.grantsToRevoke() {
				found = append(found, grant.vault.name+" "+grant.principal)
			}
			NewWithT(t).Expect(found).To(Equal(c.want))
		})
	}
}

// The grant of an account that is left behind is named, because the account needs it.
func TestReportsKeptGrants(t *testing.T) {
	former := []keyGrant{{vault: vaultLocation{"s", "g", "former"}, principal: "p"}}
	owned := &cloud.Account{Tags: map[string]string{cloud.OwnerTag: "uid"}, PrincipalID: "p"}
	for name, c := range map[string]struct {
		account   *cloud.Account
		abandoned []string
		grants    []keyGrant
		want      []string
	}{
		"nothing is abandoned":          {account: owned, grants: former},
		"a recorded one":                {abandoned: []string{"the account"}, grants: former, want: []string{"the account", "its grant on key vault former"}},
		"that of the account":           {account: owned, abandoned: []string{"the account"}, want: []string{"the account", "its grant on key vault v"}},
		"both":                          {account: owned, abandoned: []string{"the account"}, grants: former, want: []string{"the account", "its grant on key vault former, v"}},
		"none of a foreign account":     {account: &cloud.Account{PrincipalID: "p"}, abandoned: []string{"the account"}, want: []string{"the account"}},
		"none without an identity":      {account: &cloud.Account{Tags: owned.Tags}, abandoned: []string{"the account"}, want: []string{"the account"}},
		"none, and nothing is recorded": {abandoned: []string{"the account"}, want: []string{"the account"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.account, s.abandoned = c.account, c.abandoned
			s.reportKeptGrants(c.grants)
			NewWithT(t).Expect(s.abandoned).To(Equal(c.want))
		})
	}
}

// An account that is retained is released. The deletion waits for that for two minutes, and then says why it failed.
func TestRetainReleasesTheAccount(t *testing.T) {
	patch := func(status int, code string) *fakecloud.Fault {
		return &fakecloud.Fault{Method: http.MethodPatch, Status: status, Code: code, Message: "No."}
	}
	const kept = "its data and its grant remain in Azure, because spec.deletionPolicy is Retain"
	const onlyGrant = "; its grant on key vault fixpoint-demo may remain, because spec.deletionPolicy is Retain"
	for name, c := range map[string]struct {
		since time.Duration
		tags  map[string]string
		fault *fakecloud.Fault
		// change is what happens before the deletion.
		change func(*fixture)
		want   string
		// note is how the Event ends. lost is what it says instead of an account that does not remain.
		note, lost string
		patches    int
	}{
		"at once":                       {want: "done", note: kept, patches: 1},
		"the tag in another case":       {tags: map[string]string{"Fixpoint.Dev-Owner": "uid", "team": "billing"}, want: "done", note: kept, patches: 1},
		"handed over":                   {tags: map[string]string{cloud.OwnerTag: "another"}, want: "done", note: kept},
		"the tag was removed":           {tags: map[string]string{"team": "billing"}, want: "done", note: kept},
		"Azure does not respond":        {since: 2*time.Minute - 1, fault: patch(http.StatusServiceUnavailable, "ServerTimeout"), want: "wait: CloudUnavailable", patches: 1},
		"Azure does not respond at all": {since: 2 * time.Minute, fault: patch(http.StatusServiceUnavailable, "ServerTimeout"), want: "done", note: "its tag fixpoint.dev-owner may remain too, because it could not be removed: updating the storage account: Azure responded with HTTP status 503 (ServerTimeout); retrying", patches: 1},
		"not permitted":                 {fault: patch(http.StatusForbidden, "AuthorizationFailed"), want: "done", note: "to the identity of the credential", patches: 1},
		"not permitted, and never seen": {fault: &fakecloud.Fault{Method: http.MethodGet, Status: http.StatusForbidden, Code: "AuthorizationFailed", Message: "No."}, change: func(f *fixture) { f.storage.Status.AccountID = "" }, want: "done",
			lost: ", its data and its grant may remain in Azure, because spec.deletionPolicy is Retain; its tag fixpoint.dev-owner may remain too, because it could not be removed: " +
				"reading the storage account: No. (AuthorizationFailed); assign the role Storage Account Contributor on resource group fixpoint-demo to the identity of the credential"},
		"the Secret cannot be read": {change: func(f *fixture) { f.process.access.secrets = unreadable{} }, want: "error: reading the credentials in Secret own: the API server does not respond"},
		"the Secret cannot be read for long": {since: time.Hour, change: func(f *fixture) { f.process.access.secrets = unreadable{} }, want: "done",
			note: "it could not be removed: reading the credentials in Secret own: the API server does not respond"},
		"the account is being deleted": {change: func(f *fixture) { f.deleteInCloud() }, want: "done", lost: " is being deleted in Azure" + onlyGrant},
		"the group was deleted": {change: func(f *fixture) {
			f.server.Inject(fakecloud.Fault{Method: http.MethodGet, Resource: "/storageaccounts/", Status: http.StatusNotFound, Code: "ResourceGroupNotFound"})
		}, want: "done", lost: " does not exist in resource group fixpoint-demo" + onlyGrant},
		"the account is gone, and its name is free": {change: func(f *fixture) { f.deleteAtOnce() }, want: "done", lost: " does not exist in resource group fixpoint-demo" + onlyGrant},
		"the account is gone, without a grant": {change: func(f *fixture) {
			f.deleteAtOnce()
			f.storage.Status.PrincipalID, f.storage.Status.Grants = "", nil
		}, want: "done"},
		"the account was moved a moment ago": {change: func(f *fixture) {
			f.server.SeedGroup(f.demo.Subscription, "other", f.demo.Location)
			f.Expect(f.server.MoveAccount(f.name(), "other")).To(Succeed())
		}, want: "wait: Terminating"},
	} {
		t.Run(name, func(t *testing.T) {
			f := readyFixture(t, retain, withSecret("own"))
			f.clock.Step(time.Minute)
			if c.tags != nil {
				for key, value := range c.tags {
					c.tags[key] = strings.Replace(value, "uid", string(f.storage.UID), 1)
				}
				f.Expect(f.server.SetTags(f.name(), c.tags)).To(Succeed())
			}
			if c.change != nil {
				c.change(f)
			}
			if c.fault != nil {
				f.server.Inject(*c.fault)
			}
			patches := 0
			f.onRequest = func(r *http.Request) {
				if r.Method == http.MethodPatch {
					patches++
				}
			}
			s := f.scope()
			deletedFor(s, c.since)
			f.events = nil

			f.Expect(outcome(undoStorageAccount(t.Context(), s))).To(Equal(c.want))

			f.Expect(patches).To(Equal(c.patches))
			if c.lost != "" {
				f.Expect(f.events).To(HaveExactElements("Normal Retained: storage account " + f.name() + c.lost))
				return
			}
			if c.note == "" {
				f.Expect(f.events).To(BeEmpty())
				return
			}
			f.Expect(f.events).To(HaveExactElements(And(HavePrefix("Normal Retained: storage account "+f.name()+", "+kept), HaveSuffix(c.note))))
			if account, ok := f.server.Account(f.name()); ok && c.fault == nil && c.change == nil && c.patches > 0 {
				f.Expect(account.Tags).NotTo(HaveKey(BeElementOf(cloud.OwnerTag, "Fixpoint.Dev-Owner")))
			}
		})
	}
}

// deleteInCloud deletes the account as someone else does, which takes time.
func (f *fixture) deleteInCloud() {
	f.t.Helper()
	s := f.connected()
	f.Expect(s.accounts.DeleteAccount(f.t.Context(), s.group(), s.account)).To(Succeed())
}

// One grant that cannot be revoked stops no other one, and the first failure is the reason.
func TestRevokesAllGrantsThatItCan(t *testing.T) {
	remove := func(status int, code string) fakecloud.Fault {
		return fakecloud.Fault{Method: http.MethodDelete, Resource: "/vaults/", Status: status, Code: code}
	}
	for name, c := range map[string]struct {
		faults    []fakecloud.Fault
		want      string
		remaining string
	}{
		"all":                   {want: "wait: Terminating", remaining: "fixpoint-demo, second"},
		"one is denied":         {faults: []fakecloud.Fault{remove(http.StatusForbidden, "AuthorizationFailed")}, want: "stalled: PermissionMissing", remaining: "fixpoint-demo"},
		"both fail differently": {faults: []fakecloud.Fault{remove(http.StatusForbidden, "AuthorizationFailed"), remove(http.StatusServiceUnavailable, "ServerTimeout")}, want: "stalled: PermissionMissing", remaining: "fixpoint-demo, second"},
		"the key vault is gone": {faults: []fakecloud.Fault{remove(http.StatusNotFound, "ResourceNotFound")}, want: "wait: Terminating", remaining: "second"},
		"its group is gone":     {faults: []fakecloud.Fault{remove(http.StatusNotFound, "ResourceGroupNotFound")}, want: "wait: Terminating", remaining: "second"},
		// The credential may not see the subscription, in which the grant still exists.
		"its subscription is not found": {faults: []fakecloud.Fault{remove(http.StatusNotFound, "SubscriptionNotFound")}, want: "stalled: ResourceGroupMissing", remaining: "fixpoint-demo"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newVaultsFixture(t)
			f.runUntilReady()
			f.edit(inVault("second"))
			f.reconcileTimes(2)
			f.Expect(f.grants()).To(Equal([]string{f.demo.Vault, "second"}))
			s := f.connected()
			for _, fault := range c.faults {
				f.server.Inject(fault)
			}
			remaining, verdict, err := s.revokeAll(t.Context(), s.grantsToRevoke())
			f.Expect(outcome(verdict, err)).To(Equal(c.want))
			f.Expect(vaultNames(remaining)).To(Equal(c.remaining))
			if verdict.IsWait() {
				f.Expect(verdict.Message()).To(Equal("waiting for the grant on key vault " + c.remaining + " to be deleted"))
				f.Expect(verdict.After()).To(BeNumerically("~", time.Second, time.Second/10))
			}
			if len(c.faults) == 0 {
				f.clock.Step(time.Minute)
				remaining, verdict, err = s.revokeAll(t.Context(), s.grantsToRevoke())
				f.Expect(outcome(verdict, err)).To(Equal("done"))
				f.Expect(remaining).To(BeEmpty())
			}
		})
	}
}

// The remedy is about the key vault of the grant, which may not be the one of the spec.
func TestRevocationThatFailsNamesItsVault(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		code, want string
	}{
		"denied":                        {http.StatusForbidden, "AuthorizationFailed", "on key vault fixpoint-demo to the identity of the credential"},
		"its subscription is not found": {http.StatusNotFound, "SubscriptionNotFound", "create resource group fixpoint-demo in subscription 00000000-0000-4000-8000-00000000f1c5,"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newVaultsFixture(t)
			f.runUntilReady()
			f.edit(inVault("second"))
			f.reconcileTimes(2)
			s := f.connected()
			s.storage.Spec.Provider.ResourceGroup, s.storage.Spec.Provider.SubscriptionID = "another", otherSubscription
			f.server.Inject(fakecloud.Fault{Method: http.MethodDelete, Resource: "/vaults/fixpoint-demo", Status: c.status, Code: c.code})
			_, verdict, err := s.revokeAll(t.Context(), s.grantsToRevoke())
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(verdict.Message()).To(ContainSubstring(c.want))
		})
	}
}

// The grants of an account that remains are kept, and so are those of one about which nothing is known.
func TestRevokesGrantsOfADeletedAccountOnly(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(f *fixture, s *scope)
		want      string
		remaining bool
		revoked   bool
	}{
		"the account exists":  {want: "done"},
		"abandoned":           {change: func(f *fixture, s *scope) { s.abandoned = []string{"the account"}; f.deleteAtOnce() }, want: "done"},
		"the account is gone": {change: func(f *fixture, _ *scope) { f.deleteAtOnce() }, want: "wait: Terminating", remaining: true, revoked: true},
		"the account is hidden": {change: func(f *fixture, _ *scope) {
			f.server.Deny(fakecloud.Denial{Action: "Microsoft.Storage/storageAccounts/read"})
		}, want: "stalled: PermissionMissing", remaining: true},
		"the group is gone": {change: func(f *fixture, _ *scope) {
			f.deleteAtOnce()
			f.server.Inject(fakecloud.Fault{Method: http.MethodGet, Resource: "/storageaccounts/", Status: http.StatusNotFound, Code: "ResourceGroupNotFound"})
		}, want: "wait: Terminating", remaining: true, revoked: true},
		"the subscription is hidden": {change: func(f *fixture, _ *scope) {
			f.server.Inject(fakecloud.Fault{Method: http.MethodGet, Resource: "/storageaccounts/", Status: http.StatusNotFound, Code: "SubscriptionNotFound"})
		}, want: "stalled: ResourceGroupMissing", remaining: true},
		"the Secret cannot be read, and nothing was granted": {change: func(f *fixture, s *scope) {
			f.process.access.secrets = unreadable{}
			s.storage.Status.Grants, s.storage.Status.PrincipalID = nil, ""
		}, want: "done"},
		"the Secret cannot be read": {change: func(f *fixture, _ *scope) { f.process.access.secrets = unreadable{} }, want: "error: reading the credentials in Secret own: the API server does not respond", remaining: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := readyFixture(t, withSecret("own"))
			f.clock.Step(time.Minute)
			s := f.scope()
			deletedFor(s, time.Second)
			if c.change != nil {
				c.change(f, s)
			}
			remaining, verdict, err := s.revokeGrants(t.Context())
			f.Expect(outcome(verdict, err)).To(Equal(c.want))
			f.Expect(len(remaining) > 0).To(Equal(c.remaining))
			f.clock.Step(time.Minute)
			f.Expect(len(f.grants()) == 0).To(Equal(c.revoked))
		})
	}
}

func (f *fixture) deleteAtOnce() {
	f.t.Helper()
	f.Expect(f.server.DeleteAccount(f.name())).To(Succeed())
	f.clock.Step(time.Minute)
}

// The account is deleted once its principal is recorded, and only once.
func TestDeletesTheAccount(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*v1beta1.SecureStorageSpec)
		change  func(*fixture, *scope)
		want    string
		deletes int
	}{
		"at once":                       {want: "wait: Terminating", deletes: 1},
		"the principal is not recorded": {change: func(_ *fixture, s *scope) { s.storage.Status.PrincipalID = "" }, want: "wait: Terminating"},
		"is being deleted":              {change: func(f *fixture, _ *scope) { f.deleteInCloud() }, want: "wait: Terminating"},
		"handed over": {change: func(f *fixture, _ *scope) {
			f.Expect(f.server.SetTags(f.name(), map[string]string{cloud.OwnerTag: "another"})).To(Succeed())
		}, want: "done"},
		"gone":     {change: func(f *fixture, _ *scope) { f.deleteAtOnce() }, want: "done"},
		"retained": {edit: retain, want: "done"},
		"observed": {edit: observe, want: "done"},
		"not found": {change: func(f *fixture, _ *scope) {
			f.server.Deny(fakecloud.Denial{Action: "Microsoft.Storage/storageAccounts/read"})
		}, want: "stalled: PermissionMissing"},
		"not permitted": {change: func(f *fixture, _ *scope) {
			f.server.Deny(fakecloud.Denial{Action: "Microsoft.Storage/storageAccounts/delete"})
		}, want: "stalled: PermissionMissing", deletes: 1},
		"no group, and never created": {change: func(f *fixture, s *scope) {
			s.storage.Status.AccountID = ""
			f.server.Inject(fakecloud.Fault{Method: http.MethodGet, Resource: "/storageaccounts/", Status: http.StatusNotFound, Code: "ResourceGroupNotFound"})
		}, want: "done"},
		"no group, and the name is in use": {change: func(f *fixture, _ *scope) {
			f.server.Inject(fakecloud.Fault{Method: http.MethodGet, Resource: "/storageaccounts/", Status: http.StatusNotFound, Code: "ResourceGroupNotFound"})
		}, want: "wait: Terminating"},
		"never allowed": {change: func(f *fixture, s *scope) {
			f.process.access.ambient = nil
			s.storage.Status = v1beta1.SecureStorageStatus{}
		}, want: "done"},
		"not allowed now": {change: func(f *fixture, _ *scope) { f.process.access.ambient = nil }, want: "stalled: CredentialsNotAllowed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := readyFixture(t)
			f.clock.Step(time.Minute)
			s := f.scope()
			deletedFor(s, time.Second)
			if c.edit != nil {
				c.edit(&s.storage.Spec)
			}
			if c.change != nil {
				c.change(f, s)
			}
			deletes := 0
			f.onRequest = func(r *http.Request) {
				if r.Method == http.MethodDelete {
					deletes++
				}
			}
			verdict, err := undoEncryption(t.Context(), s)
			f.Expect(outcome(verdict, err)).To(Equal(c.want))
			f.Expect(deletes).To(Equal(c.deletes))
			if name == "at once" {
				f.Expect(verdict.After()).To(BeNumerically("~", time.Second, time.Second/10))
			}
		})
	}
}

// The last phase tells what remains in Azure, and nothing else.
func TestTellsWhatRemains(t *testing.T) {
	created := v1beta1.SecureStorageStatus{AccountID: "a"}
	for name, c := range map[string]struct {
		edit      func(*v1beta1.SecureStorageSpec)
		status    v1beta1.SecureStorageStatus
		abandoned []string
		want      []string
	}{
		"all is deleted":             {status: created},
		"retained, nothing created":  {edit: retain},
		"observed":                   {edit: observe, status: created, want: []string{"Normal Retained: storage account a, its data, its tags and its grant remain in Azure, because spec.managementPolicy is Observe"}},
		"observed, nothing created":  {edit: observe},
		"abandoned":                  {status: created, abandoned: []string{"storage account a", "its grant"}, want: []string{"Warning Abandoned: storage account a and its grant may still exist in Azure, because fixpoint.dev/abandon is set; delete them manually if they are not needed"}},
		"observed, and is abandoned": {edit: observe, status: created, abandoned: []string{"x"}, want: []string{"Normal Retained: storage account a, its data, its tags and its grant remain in Azure, because spec.managementPolicy is Observe"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fastCloud(), named("a"))
			if c.edit != nil {
				c.edit(&f.storage.Spec)
			}
			s := f.scope()
			deletedFor(s, time.Second)
			s.storage.Status, s.abandoned = c.status, c.abandoned
			f.Expect(outcome(undoStorageAccount(t.Context(), s))).To(Equal("done"))
			f.Expect(f.events).To(HaveLen(len(c.want)))
			f.Expect(f.events).To(ConsistOf(c.want))
			f.Expect(f.calls).To(BeZero())
		})
	}
}
