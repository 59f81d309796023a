package securestorage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

const fleetPoll = 5 * time.Minute

// layout says where the accounts and the key vaults of a fleet are.
type layout struct {
	subscriptions, groups, vaults int
	// keyOfEach gives each object a key of its own.
	keyOfEach bool
}

func (l layout) subscription(i int) string {
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", i%l.subscriptions)
}

// newFleetAt has a fleet that is Ready, each vault in the subscription of its accounts. The objects use a credential of
// their namespace.
func newFleetAt(t *testing.T, size int, l layout) []*fixture {
	t.Helper()
	fleet := newFleet(t, size, fakecloud.Instant(), func(i int, storage *v1beta1.SecureStorage) {
		storage.Spec.Provider.SubscriptionID = l.subscription(i)
		storage.Spec.Provider.ResourceGroup = fmt.Sprintf("group%d", i%l.groups)
		storage.Spec.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "own"}
		// Each object sees only itself, so one that does not need the Secret yet would release it for all: a new credential.
		storage.Finalizers = []string{Finalizer}
		storage.Spec.Key.Vault = &v1beta1.SecureStorageVault{Name: fmt.Sprintf("vault%d", i%l.vaults), ResourceGroup: "keys"}
		if l.keyOfEach {
			storage.Spec.Key.Name = fmt.Sprintf("key%d", i)
		}
	})
	server := fleet[0].server
	for i, f := range fleet {
		spec := f.storage.Spec
		server.SeedGroup(spec.Provider.SubscriptionID, spec.Provider.ResourceGroup, f.demo.Location)
		server.SeedGroup(spec.Provider.SubscriptionID, "keys", f.demo.Location)
		server.SeedVault(l.subscription(i%l.vaults), "keys", spec.Key.Vault.Name, fakecloud.VaultSpec{PurgeProtection: true})
		_, err := server.SeedKey(spec.Key.Vault.Name, spec.Key.Name, fakecloud.KeySpec{})
		f.Expect(err).NotTo(HaveOccurred())
	}
	newDueQueue(fleet).run((*fixture).isReady)
	return fleet
}

// The bar for 2,500 objects is 5 requests a second, which are 0.6 for each object and poll interval.
func TestFleetAtRestPollsByListing(t *testing.T) {
	const bar = 0.6
	for name, c := range map[string]struct {
		size   int
		layout layout
		edit   func(*fakecloud.Knobs)
		want   float64
	}{
		"500 in one subscription":   {500, layout{subscriptions: 1, groups: 2, vaults: 5}, nil, bar / 5},
		"500 in five subscriptions": {500, layout{subscriptions: 5, groups: 5, vaults: 15}, nil, bar / 5},
		"a key for each object":     {250, layout{subscriptions: 1, groups: 1, vaults: 3, keyOfEach: true}, nil, bar / 5},
		"small resource groups":     {200, layout{subscriptions: 1, groups: 50, vaults: 2}, nil, 2*bar + 1},
		"a credential that may not list": {200, layout{subscriptions: 1, groups: 2, vaults: 5}, func(k *fakecloud.Knobs) {
			k.Denied = []fakecloud.Denial{{Action: "Microsoft.Storage/storageAccounts/read", Lists: true}}
		}, 2 * bar},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const polls = 2
			// given a fleet with the request limits of Azure
			fleet := newFleetAt(t, c.size, c.layout)
			server := fleet[0].server
			server.Turn(func(k *fakecloud.Knobs) {
				azure := realistic()
				k.Reads, k.AccountLists, k.PageSize = azure.Reads, azure.AccountLists, azure.PageSize
				if c.edit != nil {
					c.edit(k)
				}
			})
			due := newDueQueue(fleet)
			due.runFor(2 * fleetPoll) // every object is read itself, and then polled
			server.ResetCounts()
			statuses := 0
			for _, f := range fleet {
				statuses -= len(f.statuses)
			}
			// when
			due.runFor(polls * fleetPoll)
			// then
			total := server.Total("")
			each := float64(total.Calls()) / polls / float64(c.size)
			t.Logf("%d requests in %d poll intervals: %.2f for each object and interval, %.2f a second for 2,500 objects", total.Calls(), polls, each, each*2500/fleetPoll.Seconds())
			g := NewWithT(t)
			g.Expect(each).To(BeNumerically("<=", c.want))
			g.Expect(total.Writes + total.Throttled).To(BeZero())
			for _, f := range fleet {
				statuses += len(f.statuses)
			}
			g.Expect(statuses).To(BeZero(), "objects that were reconciled")
		})
	}
}

// driftOf is a change in Azure, and how it shows that the controller noticed it.
type driftOf struct {
	change  func(f *fixture) error
	noticed func(f *fixture) bool
}

func corrected(f *fixture) bool { return f.eventsWith("DriftCorrected") > 0 }

func isReported(reason string) func(*fixture) bool {
	return func(f *fixture) bool { return f.ready().Reason == reason }
}

var drifts = map[string]driftOf{
	"platform-managed keys": {func(f *fixture) error { return f.server.UsePlatformKeys(f.name()) }, corrected},
	"tags removed":          {func(f *fixture) error { return f.server.SetTags(f.name(), nil) }, corrected},
	"another identity for the key": {func(f *fixture) error {
		return f.server.UseIdentity(f.name(), "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/other")
	}, corrected},
	"identity removed":  {func(f *fixture) error { return f.server.DropIdentity(f.name()) }, corrected},
	"grant removed":     {func(f *fixture) error { return f.server.RemoveGrants(f.server.Principal(f.name())) }, corrected},
	"account deleted":   {func(f *fixture) error { return f.server.DeleteAccount(f.name()) }, isReported(v1beta1.ReasonAccountLost)},
	"key deleted":       {func(f *fixture) error { return f.server.DeleteKey(f.vault(), f.demo.Key) }, isReported(v1beta1.ReasonKeyMissing)},
	"key disabled":      {func(f *fixture) error { return f.server.EnableKey(f.vault(), f.demo.Key, "", false) }, isReported(v1beta1.ReasonKeyDisabled)},
	"key vault deleted": {func(f *fixture) error { return f.server.DeleteVault(f.vault()) }, isReported(v1beta1.ReasonVaultMissing)},
	"handed over": {func(f *fixture) error {
		return f.server.SetTags(f.name(), map[string]string{"fixpoint.dev-owner": "x"})
	}, isReported(v1beta1.ReasonAccountNotOwned)},
}

func (f *fixture) vault() string { return f.storage.Spec.Key.Vault.Name }

// A change in Azure is noticed within the poll interval and its jitter, whenever it comes.
func TestFleetNoticesDriftWithinPollInterval(t *testing.T) {
	const size, moments = 10, 4
	for name, drift := range drifts {
		t.Run(name, func(t *testing.T) {
			for moment := range moments {
				// given a fleet that polls by lists
				fleet := newFleetAt(t, size, layout{subscriptions: 1, groups: 1, vaults: 1})
				f, due := fleet[moment], newDueQueue(fleet)
				due.runFor(3 * fleetPoll)
				// when
				due.runFor(fleetPoll * time.Duration(moment) / moments)
				f.Expect(drift.change(f)).To(Succeed())
				due.runFor(fleetPoll + fleetPoll/jitterShare)
				// then
				f.Expect(drift.noticed(f)).To(BeTrue(), "at moment %d", moment)
			}
		})
	}
}

// Lists are a reason to do nothing, and never to write.
func TestFleetReadsAccountBeforeItWrites(t *testing.T) {
	const size = 20
	fleet := newFleetAt(t, size, layout{subscriptions: 1, groups: 1, vaults: 1})
	f, due := fleet[size-1], newDueQueue(fleet)
	due.runFor(3 * fleetPoll)
	var requests []string
	f.transport.onRequest = func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/storageAccounts/"+f.name()) {
			requests = append(requests, r.Method)
		}
	}
	// when its tags are changed
	f.Expect(f.server.SetTags(f.name(), nil)).To(Succeed())
	due.runFor(fleetPoll + fleetPoll/jitterShare)
	// then it is read before it is changed
	f.Expect(corrected(f)).To(BeTrue())
	f.Expect(requests).To(Equal([]string{http.MethodGet, http.MethodPatch}))
	// and after the write, it is read again, although the lists show it as desired
	due.runFor(fleetPoll + fleetPoll/jitterShare)
	f.Expect(requests).To(Equal([]string{http.MethodGet, http.MethodPatch, http.MethodGet}))
	// and then it is at rest
	due.runFor(3 * fleetPoll)
	f.Expect(requests).To(HaveLen(3))
}

// Every change of the object in Kubernetes makes the next poll read the account.
func TestChangedObjectIsRead(t *testing.T) {
	for name, change := range map[string]func(f *fixture){
		"annotation": func(f *fixture) { f.storage.Annotations = map[string]string{"reconcile": "now"} },
		"spec":       func(f *fixture) { f.storage.Spec.Tags = map[string]string{"team": "billing"}; f.storage.Generation++ },
		"status":     func(f *fixture) { f.storage.Status.KeyVersion = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			// given
			const size = 10
			fleet := newFleetAt(t, size, layout{subscriptions: 1, groups: 1, vaults: 1})
			f, due := fleet[size-1], newDueQueue(fleet)
			due.runFor(3 * fleetPoll)
			f.server.ResetCounts()
			reads := func() int { return f.server.Total("/storageaccounts/" + f.name()).Reads }
			f.reconcile()
			f.Expect(reads()).To(BeZero())
			// when
			change(f)
			f.stored()
			f.reconcile()
			// then
			f.Expect(reads()).To(Equal(1))
			f.Expect(f.isReady()).To(BeTrue())
		})
	}
}

// Two namespaces have accounts in the same resource group, with credentials of their own.
func TestNamespacesDoNotShareLists(t *testing.T) {
	const size = 20
	fleet := newFleetAt(t, size, layout{subscriptions: 1, groups: 1, vaults: 1})
	f := fleet[0]
	f.secrets["shipping/own"] = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{UID: "2", ResourceVersion: "1"},
		Data:       map[string][]byte{"tenantID": []byte("t"), "clientID": []byte("c"), "clientSecret": []byte(fakecloud.Token("shipping"))},
	}
	for i := range size / 2 {
		fleet[i].storage.Namespace = "shipping"
	}
	due := newDueQueue(fleet)
	due.runFor(3 * fleetPoll)
	f.server.ResetCounts()
	due.runFor(fleetPoll)
	// then each lists with its own credential
	f.Expect(f.server.Counts("")).To(Equal(map[string]fakecloud.Count{"billing": {Reads: 3}, "shipping": {Reads: 3}}))
	// and one that loses its permissions is not answered with the lists of the other
	f.server.Deny(fakecloud.Denial{Who: "shipping"})
	due.runFor(fleetPoll + fleetPoll/jitterShare)
	for i, f := range fleet {
		f.Expect(f.isReady()).To(Equal(i >= size/2))
	}
}

func TestRecoversFromCrashWhileCorrectingDrift(t *testing.T) {
	for name, drift := range drifts {
		if name == "account deleted" || strings.HasPrefix(name, "key") || name == "handed over" {
			continue // reported, not corrected
		}
		// given a process that polls
		whole := readyFixture(t)
		for range 3 {
			whole.poll()
		}
		account, _ := whole.server.Account(whole.name())
		isCorrected := func(f *fixture) func() bool {
			return func() bool {
				now, _ := f.server.Account(f.name())
				return f.isReady() && now.Key == account.Key && now.Encryption.UserIdentity == "" && now.Tags["fixpoint.dev-owner"] != "" && len(f.grants()) == 1 && len(f.server.Orphans()) == 0
			}
		}
		whole.Expect(drift.change(whole)).To(Succeed())
		for _, crash := range whole.crashesUntil(func() { whole.runUntil("corrected", isCorrected(whole)) }) {
			t.Run(name+"/"+crash.call, func(t *testing.T) {
				// when it crashes during the poll that notices the drift
				f := crash.restart(t)
				f.runUntil("corrected", isCorrected(f))
				// then nothing was created twice
				f.Expect(f.created()).To(Equal(1))
			})
		}
	}
}

// settled is a scope of an object at rest, after a reconcile that has read everything, with the status that it desires.
func settled(t *testing.T, edits ...func(*v1beta1.SecureStorageSpec)) (*fixture, *scope, phases.Summary) {
	t.Helper()
	f := newFixture(t, fastCloud(), edits...)
	f.runUntilReady()
	f.clock.Step(2 * f.storage.Spec.PollInterval.Duration)
	f.process.access.cloud.Forget(string(f.storage.UID))
	s := f.connected()
	f.Expect(observed(observeKeyAccess(t.Context(), s))).To(Equal("done"))
	exported, err := s.cachedExport(t.Context())
	f.Expect(err).NotTo(HaveOccurred())
	s.exported = exported
	return f, s, phases.Summary{Ready: true, ObservedGeneration: s.storage.Generation, Conditions: s.storage.Status.Conditions}
}

// isRemembered says whether the next poll finds that nothing changed.
func (f *fixture) isRemembered() bool {
	s := f.scope()
	return s.isUnchanged(f.t.Context(), s.currentPoll())
}

// Only a reconcile that found nothing to do is remembered. Any other one makes the next poll read the account itself.
func TestRemembersWhatFoundNothingToDo(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*phases.Summary)
		status  func(*fixpointac.SecureStorageStatusApplyConfiguration)
		settled bool
	}{
		"at rest":             {settled: true},
		"not ready":           {edit: func(s *phases.Summary) { s.Ready = false }},
		"deleting":            {edit: func(s *phases.Summary) { s.Deleting = true }},
		"suspended":           {edit: func(s *phases.Summary) { s.Suspended = true }},
		"the status changes":  {status: func(s *fixpointac.SecureStorageStatusApplyConfiguration) { s.WithKeyVersion("next") }},
		"the status is first": {status: func(s *fixpointac.SecureStorageStatusApplyConfiguration) { s.WithGrantID("first") }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, was := range []bool{false, true} {
				f, s, summary := settled(t)
				if was {
					s.rememberIfSettled(summary, desiredStatus(s, summary))
					f.Expect(f.isRemembered()).To(BeTrue())
				}
				desired := desiredStatus(s, summary)
				if c.status != nil {
					c.status(desired.Status)
				}
				if c.edit != nil {
					c.edit(&summary)
				}
				s.rememberIfSettled(summary, desired)
				f.Expect(f.isRemembered()).To(Equal(c.settled))
			}
		})
	}
}

// What was exported is compared in the cache. What cannot be compared counts as changed.
func TestComparesExportedObjects(t *testing.T) {
	for name, c := range map[string]struct {
		edit      func(*v1beta1.SecureStorageSpec)
		cache     func(*fixture) client.Reader
		unchanged bool
	}{
		"both":                             {exportingKeys, func(f *fixture) client.Reader { return f }, true},
		"a ConfigMap, and not the Secret":  {exporting, func(f *fixture) client.Reader { return unreadableOf{f, is[*corev1.Secret]} }, true},
		"nothing":                          {notExporting, func(*fixture) client.Reader { return unreadable{} }, true},
		"the ConfigMap cannot be read":     {exportingKeys, func(f *fixture) client.Reader { return unreadableOf{f, is[*corev1.ConfigMap]} }, false},
		"the Secret cannot be read":        {exportingKeys, func(f *fixture) client.Reader { return unreadableOf{f, is[*corev1.Secret]} }, false},
		"the ConfigMap is another version": {exporting, func(f *fixture) client.Reader { return otherVersionOf{f, is[*corev1.ConfigMap]} }, false},
		"the Secret is another version":    {exportingKeys, func(f *fixture) client.Reader { return otherVersionOf{f, is[*corev1.Secret]} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, s, summary := settled(t, c.edit)
			s.rememberIfSettled(summary, desiredStatus(s, summary))
			f.process.access.cache = c.cache(f)
			f.Expect(f.isRemembered()).To(Equal(c.unchanged))
		})
	}
	t.Run("the credential cannot be read", func(t *testing.T) {
		f, s, summary := settled(t, withSecret("own"))
		s.rememberIfSettled(summary, desiredStatus(s, summary))
		f.Expect(f.isRemembered()).To(BeTrue())
		f.process.access.secrets = unreadable{}
		f.Expect(f.isRemembered()).To(BeFalse())
	})
	t.Run("they do not exist", func(t *testing.T) {
		f := newFixture(t, fastCloud(), exportingKeys)
		exported, err := f.scope().cachedExport(t.Context())
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(exported).To(Equal(exportedVersions{}))
	})
}

// unreadableOf and otherVersionOf are readers for which this holds of some objects.
type unreadableOf struct {
	client.Reader
	these func(any) bool
}

// Get implements [client.Reader].
func (u unreadableOf) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := u.Reader.Get(ctx, key, into, options...)
	if u.these(into) {
		return errors.New("the cache is not synced") // what it has may be old
	}
	return err
}

type otherVersionOf struct {
	client.Reader
	these func(any) bool
}

// Get implements [client.Reader].
func (o otherVersionOf) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := o.Reader.Get(ctx, key, into, options...)
	if o.these(into) {
		into.SetResourceVersion("other")
	}
	return err
}

// The accounts of a resource group are polled together, whatever the case of its name, and begin in the past.
func TestPollsOfAGroupBeginTogether(t *testing.T) {
	g := NewWithT(t)
	poll := func(subscription, group string) cloud.Poll {
		s := newScope(func(spec *v1beta1.SecureStorageSpec) {
			spec.Provider.SubscriptionID, spec.Provider.ResourceGroup, spec.PollInterval.Duration = subscription, group, time.Hour
		})
		return s.currentPoll()
	}
	g.Expect(poll("s", "g")).To(Equal(poll("S", "G")))
	g.Expect(poll("s", "g").Began).NotTo(Equal(poll("s", "h").Began))
	g.Expect(poll("s", "g").Began).NotTo(Equal(poll("t", "g").Began))
	for _, group := range []string{"a", "b", "c", "d"} {
		found := poll("s", group)
		g.Expect(found.Interval).To(Equal(time.Hour))
		g.Expect(found.Began).To(And(BeTemporally("<=", noon), BeTemporally(">", noon.Add(-time.Hour))))
	}
}
