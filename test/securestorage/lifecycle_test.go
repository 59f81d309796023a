package securestorage_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

func TestBecomesReadyPhaseByPhase(t *testing.T) {
	t.Parallel()
	// given a cloud that takes five polls to make an account, and two seconds to honour a grant
	knobs := brisk()
	knobs.AccountCreation = fakecloud.Fixed(5 * time.Second)
	knobs.PollInterval = fakecloud.Fixed(time.Second)
	knobs.GrantDelay = fakecloud.Fixed(2 * time.Second)
	w := newFixture(t, knobs)
	w.startManager()
	history := w.history("invoices")
	// when
	w.create("invoices")
	ready := w.eventuallyReady("invoices")
	calls := w.cloud().Total("").Calls()
	// then it took few calls
	t.Logf("%d calls from nothing to Ready", calls)
	w.Expect(calls).To(BeNumerically("<=", 25))
	// and every status on the way said where it stood, in order, and since when
	order := []string{v1alpha1.ReasonCreating, v1alpha1.ReasonWaitingForPrincipal, v1alpha1.ReasonPropagating, v1alpha1.ReasonOperationInProgress, v1alpha1.ReasonReady}
	at := 0
	versions := history()
	for _, version := range versions {
		if len(version.Status.Conditions) == 0 {
			continue
		}
		reason := readyOf(version).Reason
		w.Expect(order[at:]).To(ContainElement(reason))
		at += slices.Index(order[at:], reason)
		w.Expect(version.Status.WaitingSince == nil).To(Equal(reason == v1alpha1.ReasonReady), "since when, while %s", reason)
		w.Expect(version.Status.ObservedGeneration).To(Equal(version.Generation))
	}
	w.Expect(len(versions)).To(BeNumerically(">=", 4))
	w.Expect(ready.Status.Phase).To(Equal(v1alpha1.SecureStorageReady))
	account, _ := w.cloud().Account(ready.Status.AccountName)
	w.Expect(ready.Status.KeyURI).To(Equal(account.Key))
	w.Expect(ready.Status.AccountID).To(Equal(account.ResourceID))
	w.Expect(ready.Status.GrantID).To(ContainSubstring(w.demo.VaultID))
	w.eventuallyTold("invoices", "Normal Ready Ready is True")
	w.neverClaimsAKeyThatIsNotUsed(versions)
	// and at rest it asks no more than three times for each poll interval
	w.cloud().ResetCounts()
	const polls = 3
	rest := time.Now()
	w.Eventually(func() int { return w.cloud().Total("").Calls() }).Should(BeNumerically(">=", polls*3-2))
	w.Expect(time.Since(rest)).To(BeNumerically(">=", (polls-1)*10*time.Second), "the looks come no closer than the poll interval")
	w.Expect(w.cloud().Total("").Writes).To(BeZero())
}

// neverClaimsAKeyThatIsNotUsed holds every version against the ledger: when the status said that
// EncryptionReady is True, the account was encrypted with the key.
func (w *fixture) neverClaimsAKeyThatIsNotUsed(versions []*v1alpha1.SecureStorage) {
	w.T.Helper()
	for _, version := range versions {
		c := meta.FindStatusCondition(version.Status.Conditions, v1alpha1.ConditionEncryptionReady)
		if c == nil || c.Status != metav1.ConditionTrue {
			continue
		}
		at := c.LastTransitionTime.Add(time.Second) // conditions have whole seconds
		w.Expect(w.cloud().KeyAt(version.Status.AccountName, at)).To(ContainSubstring("/keys/"), "EncryptionReady since %s", c.LastTransitionTime)
	}
}

func TestRevertsDriftAndReportsIt(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	for name, drift := range map[string]struct {
		path   string
		meddle func(account string) error
	}{
		"platform": {"encryption.keySource", func(a string) error { return w.cloud().UsePlatformKeys(a) }},
		"otherkey": {"encryption.keyName", func(a string) error { return w.cloud().UseKey(a, w.demo.Vault, "other", "") }},
		"grant":    {"/access", func(a string) error { return w.cloud().RemoveGrants(w.cloud().Principal(a)) }},
		"tags":     {"tags." + cloud.OwnerTag, func(a string) error { return w.cloud().SetTags(a, nil) }},
	} {
		w.create(name, func(s *v1alpha1.SecureStorageSpec) { s.Tags = map[string]string{"team": "billing"} })
		live := w.eventuallyReady(name)
		w.Expect(drift.meddle(live.Status.AccountName)).To(Succeed())
		w.poke(name)
		w.eventuallyTold(name, "Warning DriftCorrected", drift.path)
		w.eventuallyReady(name)
		account, _ := w.cloud().Account(live.Status.AccountName)
		w.Expect(account.Key).To(Equal(live.Status.KeyURI))
		w.Expect(account.Tags).To(HaveKeyWithValue("team", "billing"))
		w.Expect(account.Tags).To(HaveKeyWithValue(cloud.OwnerTag, string(live.UID)))
	}
	for _, name := range []string{"platform", "otherkey", "grant", "tags"} {
		w.delete(name)
		w.eventuallyGone(name)
	}
	w.leavesNothing()
}

func TestStallsWhenTheAccountIsLost(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	w.create("invoices")
	live := w.eventuallyReady("invoices")
	w.Expect(w.cloud().DeleteAccount(live.Status.AccountName)).To(Succeed())
	w.poke("invoices")
	lost := w.eventuallyReason("invoices", v1alpha1.ReasonAccountLost)
	w.Expect(meta.IsStatusConditionTrue(lost.Status.Conditions, "Stalled")).To(BeTrue())
	w.eventuallyTold("invoices", "Warning AccountLost")
	w.delete("invoices")
	w.eventuallyGone("invoices")
	w.leavesNothing()
}

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	first := w.cloud().State().Vaults[0].Keys[w.demo.Key].Versions[0].ID
	w.create("latest")
	w.create("pinned", func(s *v1alpha1.SecureStorageSpec) { s.Key.Version = first })
	w.eventuallyReady("latest")
	w.eventuallyReady("pinned")
	// when there is a new version, and a day has passed
	second, err := w.cloud().RotateKey(w.demo.Vault, w.demo.Key)
	w.Expect(err).NotTo(HaveOccurred())
	w.clock.Step(25 * time.Hour)
	w.poke("latest")
	w.poke("pinned")
	// then one follows and one does not
	w.eventually("latest", func(g Gomega, live *v1alpha1.SecureStorage) {
		g.Expect(live.Status.KeyVersion).To(Equal(second))
		g.Expect(isReady(live)).To(BeTrue())
	})
	w.Expect(w.read("pinned").Status.KeyVersion).To(Equal(first))
	// and when the pinned one disappears it is an alarm
	w.Expect(w.cloud().DeleteKeyVersion(w.demo.Vault, w.demo.Key, first)).To(Succeed())
	w.poke("pinned")
	w.eventuallyReason("pinned", v1alpha1.ReasonKeyVersionMissing)
	w.eventuallyTold("pinned", "Warning KeyVersionMissing")
	w.Expect(isReady(w.read("latest"))).To(BeTrue())
}

func TestCredentialsAreOfTheNamespace(t *testing.T) {
	t.Parallel()
	const secret, other = "s3cr3t-of-billing", "s3cr3t-of-nobody"
	w := newFixture(t, brisk())
	w.options.Tokens = map[string]string{secret: "billing", fakecloud.Token("manager"): "manager"}
	w.net.cut()
	w.net.connect(fakecloud.New(w.options))
	w.cloud().SeedDemo()
	w.startManager()
	// given two SecureStorages, of which one has a credential of its own
	w.create("own", func(s *v1alpha1.SecureStorageSpec) {
		s.Provider.CredentialsRef = &v1alpha1.SecureStorageCredentialsRef{Name: "azure"}
	})
	w.create("shared")
	w.eventuallyReason("own", v1alpha1.ReasonCredentialsMissing)
	// when it is wrong, and then right
	credential := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "azure", Namespace: w.Namespace},
		StringData: map[string]string{"tenantID": "tenant", "clientID": "client", "clientSecret": other},
	}
	w.Expect(api.Create(w.Ctx, credential)).To(Succeed())
	w.poke("own")
	w.eventuallyReason("own", v1alpha1.ReasonCredentialsInvalid)
	credential.StringData = map[string]string{"clientSecret": secret}
	w.Expect(api.Update(w.Ctx, credential)).To(Succeed())
	w.poke("own")
	own, others := w.eventuallyReady("own"), w.eventuallyReady("shared")
	// then each was made in its own name
	w.Expect(slices.Collect(maps.Keys(w.cloud().Counts(own.Status.AccountName)))).To(ContainElement("billing"))
	for _, entry := range w.cloud().Effects(fakecloud.Created, own.Status.AccountName) {
		w.Expect(entry.Who).To(Equal("billing"))
	}
	for _, entry := range w.cloud().Effects(fakecloud.Created, others.Status.AccountName) {
		w.Expect(entry.Who).To(Equal("manager"))
	}
	// and no secret is to be found anywhere
	var events eventsv1.EventList
	w.Expect(api.List(w.Ctx, &events, client.InNamespace(w.Namespace))).To(Succeed())
	var storages v1alpha1.SecureStorageList
	w.Expect(api.List(w.Ctx, &storages, client.InNamespace(w.Namespace))).To(Succeed())
	for name, said := range map[string]any{"Events": events, "objects": storages, "log": w.Managers[0].Log.Lines()} {
		text, err := yaml.Marshal(said)
		w.Expect(err).NotTo(HaveOccurred())
		for _, confidential := range []string{secret, other, "fakecloud:manager", "Bearer"} {
			w.Expect(strings.Contains(string(text), confidential)).To(BeFalse(), "%q is in the %s", confidential, name)
		}
	}
}

func TestWorkloadIdentityIsOfTheNamespace(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	w.create("invoices", func(s *v1alpha1.SecureStorageSpec) {
		s.Provider.WorkloadIdentity = &v1alpha1.SecureStorageWorkloadIdentity{
			TenantID: "00000000-0000-4000-8000-000000000001", ClientID: "00000000-0000-4000-8000-000000000002", ServiceAccountName: "storage",
		}
	})
	// given no ServiceAccount
	missing := w.eventuallyReason("invoices", v1alpha1.ReasonCredentialsMissing)
	w.Expect(readyOf(missing).Message).To(ContainSubstring("ServiceAccount storage"))
	// when there is one, its token is taken to the cloud, which does not know it
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "storage", Namespace: w.Namespace}}
	w.Expect(api.Create(w.Ctx, account)).To(Succeed())
	w.poke("invoices")
	invalid := w.eventuallyReason("invoices", v1alpha1.ReasonCredentialsInvalid)
	w.Expect(readyOf(invalid).Message).NotTo(ContainSubstring("eyJ"), "no token is in a message")
}

func TestSurvivesRestartsOfManagerAndCloud(t *testing.T) {
	t.Parallel()
	// given a cloud that keeps its state in a file
	w := newFixture(t, brisk())
	w.options.StateFile = t.TempDir() + "/cloud.json"
	w.options.Knobs.AccountCreation = fakecloud.Fixed(3 * time.Second)
	w.net.cut()
	w.net.connect(fakecloud.New(w.options))
	w.cloud().SeedDemo()
	m := w.startManager()
	w.create("invoices")
	w.eventuallyReason("invoices", v1alpha1.ReasonCreating)
	// when both end in the middle of it
	w.Stop(m)
	w.net.cut()
	w.Expect(w.cloud().Close()).To(Succeed())
	// then a manager without a cloud says so
	m = w.startManager()
	w.eventuallyReason("invoices", v1alpha1.ReasonCloudUnavailable)
	// and with it, goes on
	w.net.connect(fakecloud.New(w.options))
	w.poke("invoices")
	w.eventuallyReady("invoices")
	w.Stop(m)
	// and a deletion while nobody was there is not forgotten
	w.delete("invoices")
	w.startManager()
	w.eventuallyGone("invoices")
	w.leavesNothing()
	w.Expect(w.cloud().Close()).To(Succeed())
}

// Two managers that both work, as they never should: neither makes a second account.
func TestTwoActiveManagersCreateOneAccount(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	w.startManager()
	for _, name := range []string{"a", "b", "c", "d"} {
		w.create(name)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		w.eventuallyReady(name)
		w.delete(name)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		w.eventuallyGone(name)
	}
	w.leavesNothing()
}

func TestDeletionPaths(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	w.create("kept", func(s *v1alpha1.SecureStorageSpec) { s.DeletionPolicy = v1alpha1.DeletionRetain })
	w.create("locked")
	w.create("abandoned")
	kept, locked, abandoned := w.eventuallyReady("kept"), w.eventuallyReady("locked"), w.eventuallyReady("abandoned")
	w.Expect(w.cloud().Lock(locked.Status.AccountID, "keep", "CanNotDelete")).To(Succeed())
	w.Expect(w.cloud().Lock(abandoned.Status.AccountID, "keep", "CanNotDelete")).To(Succeed())
	// retained
	w.delete("kept")
	w.eventuallyGone("kept")
	w.eventuallyTold("kept", "Normal Retained")
	w.Expect(w.cloud().ReadData(kept.Status.AccountName)).To(Succeed())
	// locked
	w.delete("locked")
	w.eventuallyReason("locked", v1alpha1.ReasonDeletionBlocked)
	w.Expect(w.cloud().ReadData(locked.Status.AccountName)).To(Succeed())
	w.Expect(w.cloud().Unlock(locked.Status.AccountID)).To(Succeed())
	w.poke("locked")
	w.eventuallyGone("locked")
	_, there := w.cloud().Account(locked.Status.AccountName)
	w.Expect(there).To(BeFalse())
	// abandoned
	w.delete("abandoned")
	w.eventuallyReason("abandoned", v1alpha1.ReasonDeletionBlocked)
	patch := []byte(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationAbandon + `":"true"}}}`)
	w.Expect(api.Patch(w.Ctx, w.storage("abandoned"), client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
	w.eventuallyGone("abandoned")
	w.eventuallyTold("abandoned", "Warning Abandoned", abandoned.Status.AccountName)
	w.Expect(w.cloud().ReadData(abandoned.Status.AccountName)).To(Succeed())
	w.Expect(w.cloud().Orphans()).To(BeEmpty())
}

// The demo of `make run`: realistic delays, compressed a hundred times.
func TestDemoIsReadyInTenSeconds(t *testing.T) {
	t.Parallel()
	knobs, err := fakecloud.Preset("realistic/100")
	w := newFixture(t, knobs)
	w.Expect(err).NotTo(HaveOccurred())
	w.startManager()
	began := time.Now()
	// How long each thing takes hangs on the account's name.
	w.create("invoices", func(s *v1alpha1.SecureStorageSpec) { s.AccountName = "invoices" })
	w.eventuallyReady("invoices")
	t.Logf("Ready after %s", time.Since(began).Round(time.Millisecond))
	w.Expect(time.Since(began)).To(BeNumerically("<", 10*time.Second))
}
