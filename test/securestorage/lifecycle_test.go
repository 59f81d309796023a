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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func TestReportsEachPhaseInOrder(t *testing.T) {
	t.Parallel()
	// given a cloud in which each phase takes until its status was seen, without other operations in progress
	const untilSeen = time.Hour
	knobs := brisk()
	knobs.AccountCreation = fakecloud.Fixed(untilSeen)
	knobs.PollInterval = fakecloud.Fixed(time.Second)
	knobs.PrincipalDelay = fakecloud.Fixed(untilSeen)
	knobs.GrantDelay = fakecloud.Fixed(untilSeen)
	knobs.AccountUpdate = fakecloud.Fixed(0)
	w := newFixture(t, knobs)
	w.startManager()
	history := w.history("invoices")
	// when
	w.create("invoices")
	for _, reason := range []string{v1beta1.ReasonCreating, v1beta1.ReasonWaitingForPrincipal, v1beta1.ReasonPropagating} {
		w.eventuallyReason("invoices", reason)
		w.clock.Step(untilSeen)
	}
	ready := w.eventuallyReady("invoices")
	calls := w.cloud().Total("").Calls()
	// then each reconcile took few calls
	t.Logf("%d calls from nothing to Ready", calls)
	// With each of them, the account is read once, as often as it takes until the test has seen a phase.
	w.Expect(calls).To(BeNumerically("<=", 5*w.cloud().Total("/storageaccounts").Reads))
	// and the statuses reported each phase, in order, and since when it waited
	var reasons []string
	versions := history()
	for _, version := range versions {
		if len(version.Status.Conditions) == 0 {
			continue // the status before the first reconcile
		}
		reason := readyOf(version).Reason
		reasons = append(reasons, reason)
		w.Expect(version.Status.WaitingSince == nil).To(Equal(reason == v1beta1.ReasonReady), "waitingSince with reason %s", reason)
		w.Expect(version.Status.ObservedGeneration).To(Equal(version.Generation))
	}
	w.Expect(slices.Compact(reasons)).To(Equal([]string{
		v1beta1.ReasonCreating, v1beta1.ReasonWaitingForPrincipal, v1beta1.ReasonPropagating, v1beta1.ReasonReady,
	}))
	w.Expect(ready.Status.Phase).To(Equal(v1beta1.PhaseReady))
	account, _ := w.cloud().Account(ready.Status.AccountName)
	w.Expect(ready.Status.KeyURI).To(Equal(account.Key))
	w.Expect(ready.Status.AccountID).To(Equal(account.ResourceID))
	w.Expect(ready.Status.GrantID).To(ContainSubstring(w.demo.VaultID))
	w.eventuallyTold("invoices", "Normal Ready Ready is True")
	w.expectEncryptionReadyIsHonest(versions)
	// and between changes it sends at most three requests per poll interval
	w.cloud().ResetCounts()
	const polls = 3
	rest := readyOf(ready).LastTransitionTime.Time // the first of them may precede what follows it here
	w.Eventually(func() int { return w.cloud().Total("").Calls() }).Should(BeNumerically(">=", polls*3-2))
	w.Expect(time.Since(rest)).To(BeNumerically(">=", (polls-1)*10*time.Second), "polls are at least the poll interval apart")
	w.Expect(w.cloud().Total("").Writes).To(BeZero())
}

// expectEncryptionReadyIsHonest checks every version against the ledger: when EncryptionReady was True, the
// account was encrypted with the key. The clock of the cloud must not have been advanced since the first of them.
func (w *fixture) expectEncryptionReadyIsHonest(versions []*v1beta1.SecureStorage) {
	w.T.Helper()
	ahead := w.clock.Since(time.Now()) // the ledger has the times of the cloud
	for _, version := range versions {
		c := meta.FindStatusCondition(version.Status.Conditions, v1beta1.ConditionEncryptionReady)
		if c == nil || c.Status != metav1.ConditionTrue {
			continue
		}
		at := c.LastTransitionTime.Add(ahead + time.Second) // conditions have whole seconds
		w.Expect(w.cloud().KeyAt(version.Status.AccountName, at)).To(ContainSubstring("/keys/"), "EncryptionReady since %s", c.LastTransitionTime)
	}
}

func TestRevertsDriftAtThePollInterval(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	drifts := map[string]struct {
		path   string
		change func(account string) error
	}{
		"platform": {"encryption.keySource", func(a string) error { return w.cloud().UsePlatformKeys(a) }},
		"otherkey": {"encryption.keyName", func(a string) error { return w.cloud().UseKey(a, w.demo.Vault, "other", "") }},
		"grant":    {"/access", func(a string) error { return w.cloud().RemoveGrants(w.cloud().Principal(a)) }},
		"tags":     {"tags." + cloud.OwnerTag, func(a string) error { return w.cloud().SetTags(a, nil) }},
	}
	for name := range drifts {
		w.create(name, func(s *v1beta1.SecureStorageSpec) { s.Tags = map[string]string{"team": "billing"} })
	}
	for name, drift := range drifts {
		w.Expect(drift.change(w.eventuallyReady(name).Status.AccountName)).To(Succeed())
	}
	for name, drift := range drifts {
		w.eventuallyTold(name, "Warning DriftCorrected", drift.path)
		live := w.eventuallyReady(name)
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

func TestReportsLostAccountAtThePollInterval(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	w.create("invoices")
	live := w.eventuallyReady("invoices")
	w.Expect(w.cloud().DeleteAccount(live.Status.AccountName)).To(Succeed())
	lost := w.eventuallyReason("invoices", v1beta1.ReasonAccountLost)
	w.Expect(meta.IsStatusConditionTrue(lost.Status.Conditions, "Stalled")).To(BeTrue())
	w.eventuallyTold("invoices", "Warning AccountLost")
	w.delete("invoices")
	w.eventuallyGone("invoices")
	w.leavesNothing()
}

func TestFollowsOrPinsKeyVersion(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	first := w.cloud().State().Vaults[0].Keys[w.demo.Key].Versions[0].ID
	w.create("latest")
	w.create("pinned", func(s *v1beta1.SecureStorageSpec) { s.Key.Version = first })
	w.eventuallyReady("latest")
	w.eventuallyReady("pinned")
	// when the key has a new version, and a day has passed
	second, err := w.cloud().RotateKey(w.demo.Vault, w.demo.Key)
	w.Expect(err).NotTo(HaveOccurred())
	w.clock.Step(25 * time.Hour)
	// then only the object without a pinned version follows
	w.eventually("latest", func(g Gomega, live *v1beta1.SecureStorage) {
		g.Expect(live.Status.KeyVersion).To(Equal(second))
		g.Expect(isReady(live)).To(BeTrue())
	})
	w.Expect(w.read("pinned").Status.KeyVersion).To(Equal(first))
	// and when the pinned version is deleted, this is reported
	w.Expect(w.cloud().DeleteKeyVersion(w.demo.Vault, w.demo.Key, first)).To(Succeed())
	w.eventuallyReason("pinned", v1beta1.ReasonKeyVersionMissing)
	w.eventuallyTold("pinned", "Warning KeyVersionMissing")
	w.Expect(isReady(w.read("latest"))).To(BeTrue())
}

func TestUsesCredentialsOfTheNamespace(t *testing.T) {
	t.Parallel()
	const secret, other = "s3cr3t-of-billing", "s3cr3t-of-nobody"
	w := newFixture(t, brisk())
	w.options.Tokens = map[string]string{secret: "billing", fakecloud.Token("manager"): "manager"}
	w.net.cut()
	w.net.connect(fakecloud.New(w.options))
	w.cloud().SeedDemo()
	w.startManager()
	// given two SecureStorages, one of which has its own credential
	w.create("own", func(s *v1beta1.SecureStorageSpec) {
		s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "azure"}
	})
	w.create("shared")
	w.eventuallyReason("own", v1beta1.ReasonCredentialsMissing)
	// when the Secret is created with a wrong credential, and then corrected
	credential := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "azure", Namespace: w.Namespace},
		StringData: map[string]string{"tenantID": "tenant", "clientID": "client", "clientSecret": other},
	}
	w.Expect(api.Create(w.Ctx, credential)).To(Succeed())
	w.eventuallyReason("own", v1beta1.ReasonCredentialsInvalid)
	credential.StringData = map[string]string{"clientSecret": secret}
	w.Expect(api.Update(w.Ctx, credential)).To(Succeed())
	own, others := w.eventuallyReady("own"), w.eventuallyReady("shared")
	// then each account was created with its credential
	w.Expect(slices.Collect(maps.Keys(w.cloud().Counts(own.Status.AccountName)))).To(ContainElement("billing"))
	for _, entry := range w.cloud().Effects(fakecloud.Created, own.Status.AccountName) {
		w.Expect(entry.Who).To(Equal("billing"))
	}
	for _, entry := range w.cloud().Effects(fakecloud.Created, others.Status.AccountName) {
		w.Expect(entry.Who).To(Equal("manager"))
	}
	// and no secret appears in Events, objects or the log
	var events eventsv1.EventList
	w.Expect(api.List(w.Ctx, &events, client.InNamespace(w.Namespace))).To(Succeed())
	var storages v1beta1.SecureStorageList
	w.Expect(api.List(w.Ctx, &storages, client.InNamespace(w.Namespace))).To(Succeed())
	for name, said := range map[string]any{"Events": events, "objects": storages, "log": w.Managers[0].Log.Lines()} {
		text, err := yaml.Marshal(said)
		w.Expect(err).NotTo(HaveOccurred())
		for _, confidential := range []string{secret, other, "fakecloud:manager", "Bearer"} {
			w.Expect(strings.Contains(string(text), confidential)).To(BeFalse(), "%q is in the %s", confidential, name)
		}
	}
}

func TestUsesWorkloadIdentityOfTheNamespace(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	w.create("invoices", func(s *v1beta1.SecureStorageSpec) {
		s.Provider.WorkloadIdentity = &v1beta1.SecureStorageWorkloadIdentity{
			TenantID: "00000000-0000-4000-8000-000000000001", ClientID: "00000000-0000-4000-8000-000000000002", ServiceAccountName: "storage",
		}
	})
	// given no ServiceAccount
	missing := w.eventuallyReason("invoices", v1beta1.ReasonCredentialsMissing)
	w.Expect(readyOf(missing).Message).To(ContainSubstring("ServiceAccount storage"))
	// when the ServiceAccount exists, its token is sent to the cloud, which does not accept it
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "storage", Namespace: w.Namespace}}
	w.Expect(api.Create(w.Ctx, account)).To(Succeed())
	w.poke("invoices")
	invalid := w.eventuallyReason("invoices", v1beta1.ReasonCredentialsInvalid)
	w.Expect(readyOf(invalid).Message).NotTo(ContainSubstring("eyJ"), "messages contain no token")
}

func TestRecoversFromRestartOfManagerAndCloud(t *testing.T) {
	t.Parallel()
	// given a cloud that keeps its state in a file
	w := newFixture(t, brisk())
	w.options.StateFile = t.TempDir() + "/cloud.json"
	const creation = time.Hour
	w.options.Knobs.AccountCreation = fakecloud.Fixed(creation)
	w.net.cut()
	w.net.connect(fakecloud.New(w.options))
	w.cloud().SeedDemo()
	m := w.startManager()
	w.create("invoices")
	w.eventuallyReason("invoices", v1beta1.ReasonCreating)
	// when both stop during the creation
	w.Stop(m)
	w.net.cut()
	w.Expect(w.cloud().Close()).To(Succeed())
	// then a manager without a cloud reports it
	m = w.startManager()
	w.eventuallyReason("invoices", v1beta1.ReasonCloudUnavailable)
	// and continues when the cloud is back
	w.net.connect(fakecloud.New(w.options))
	w.clock.Step(creation)
	w.eventuallyReady("invoices")
	w.Stop(m)
	// and a deletion while no manager was running is completed
	w.delete("invoices")
	w.startManager()
	w.eventuallyGone("invoices")
	w.leavesNothing()
	w.Expect(w.cloud().Close()).To(Succeed())
}

// Two managers run without leader election, which must never happen: each account is still created once.
func TestTwoManagersCreateEachAccountOnce(t *testing.T) {
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

func TestDeletionRetainsDeletesOrAbandons(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	w.create("kept", func(s *v1beta1.SecureStorageSpec) { s.DeletionPolicy = v1beta1.DeletionRetain })
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
	w.eventuallyReason("locked", v1beta1.ReasonDeletionBlocked)
	w.Expect(w.cloud().ReadData(locked.Status.AccountName)).To(Succeed())
	w.Expect(w.cloud().Unlock(locked.Status.AccountID)).To(Succeed())
	w.poke("locked") // changing an annotation retries at once, as documented
	w.eventuallyGone("locked")
	_, exists := w.cloud().Account(locked.Status.AccountName)
	w.Expect(exists).To(BeFalse())
	// abandoned
	w.delete("abandoned")
	w.eventuallyReason("abandoned", v1beta1.ReasonDeletionBlocked)
	patch := []byte(`{"metadata":{"annotations":{"` + v1beta1.AnnotationAbandon + `":"true"}}}`)
	w.Expect(api.Patch(w.Ctx, w.storage("abandoned"), client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
	w.eventuallyGone("abandoned")
	w.eventuallyTold("abandoned", "Warning Abandoned", abandoned.Status.AccountName)
	w.Expect(w.cloud().ReadData(abandoned.Status.AccountName)).To(Succeed())
	w.Expect(w.cloud().Orphans()).To(BeEmpty())
}

// `make run` uses realistic delays, compressed a hundred times. TestDemoIsReadyWithinTenSeconds in
// controllers/securestorage tests how long that takes, with a fake clock, independently of the speed of this machine.
func TestDemoBecomesReady(t *testing.T) {
	t.Parallel()
	knobs, err := fakecloud.Preset("realistic/100")
	w := newFixture(t, knobs)
	w.Expect(err).NotTo(HaveOccurred())
	w.startManager()
	// The delays depend on the account name.
	w.create("invoices", func(s *v1beta1.SecureStorageSpec) { s.AccountName = "invoices" })
	w.eventuallyReady("invoices")
}

func TestObservesThenManagesThenReleases(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	// given an account that another SecureStorage has created and released
	w.create("first", func(s *v1beta1.SecureStorageSpec) {
		s.AccountName, s.DeletionPolicy = "handedover", v1beta1.DeletionRetain
	})
	w.eventuallyReady("first")
	w.delete("first")
	w.eventuallyGone("first")
	account, _ := w.cloud().Account("handedover")
	w.Expect(account.Tags).NotTo(HaveKey(cloud.OwnerTag))
	w.Expect(w.cloud().ReadData("handedover")).To(Succeed())
	before := len(w.cloud().Ledger())
	// when it is observed
	w.create("second", func(s *v1beta1.SecureStorageSpec) {
		s.AccountName, s.ManagementPolicy, s.Tags = "handedover", v1beta1.ManagementObserve, map[string]string{"team": "storage"}
	})
	observed := w.eventuallyReason("second", v1beta1.ReasonDiffers)
	// then the difference is reported, and nothing is written
	w.Expect(observed.Status.Drifts).To(HaveExactElements(And(HaveField("Field", "tags.team"), HaveField("Desired", "storage"), HaveField("Found", ""))))
	w.Expect(observed.Status.Phase).To(Equal(v1beta1.PhaseDegraded))
	w.Expect(w.cloud().Ledger()[before:]).To(BeEmpty())
	// and when the account is changed as desired, it matches, still without a write
	w.Expect(w.cloud().SetTags("handedover", map[string]string{"team": "storage"})).To(Succeed())
	w.poke("second")
	w.eventuallyReady("second")
	w.Expect(w.cloud().Ledger()[before:]).To(HaveEach(HaveField("Who", fakecloud.WhoMeddler)))
	// and its deletion writes nothing either
	w.delete("second")
	w.eventuallyGone("second")
	w.Expect(w.cloud().Ledger()[before:]).To(HaveEach(HaveField("Who", fakecloud.WhoMeddler)))
}

func TestExportsAccountAndKeys(t *testing.T) {
	t.Parallel()
	w := newFixture(t, brisk())
	w.startManager()
	// given a SecureStorage whose Secret would have the name of one that exists
	mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "invoices", Namespace: w.Namespace}, StringData: map[string]string{"mine": "yes"}}
	w.Expect(api.Create(w.Ctx, mine)).To(Succeed())
	w.create("invoices", func(s *v1beta1.SecureStorageSpec) {
		s.Export = &v1beta1.SecureStorageExport{AccountKeys: true}
		s.PollInterval = metav1.Duration{Duration: 24 * time.Hour} // what follows does not wait for a poll
	})
	refused := w.eventuallyReason("invoices", v1beta1.ReasonNotOwned)
	w.Expect(readyOf(refused).Message).To(ContainSubstring("Secret " + w.Namespace + "/invoices exists"))
	// when it is deleted
	w.Expect(api.Delete(w.Ctx, mine)).To(Succeed())
	// then the account is exported
	live := w.eventuallyReady("invoices")
	keys, err := w.cloud().AccountKeys(live.Status.AccountName)
	w.Expect(err).NotTo(HaveOccurred())
	secret := harness.Read(w, "invoices", &corev1.Secret{})
	w.Expect(secret.Data).To(Equal(map[string][]byte{"accountName": []byte(live.Status.AccountName), "key1": []byte(keys[0]), "key2": []byte(keys[1])}))
	exported := harness.Read(w, "invoices", &corev1.ConfigMap{})
	w.Expect(exported.Data).To(And(HaveKeyWithValue("blobEndpoint", live.Status.Endpoint), HaveKeyWithValue("keyURI", live.Status.KeyURI)))
	// and when they are changed or deleted, that is reverted at once
	changed := secret.DeepCopy()
	changed.Data["key1"] = []byte("other")
	w.Expect(api.Update(w.Ctx, changed)).To(Succeed())
	harness.Eventually(w, "invoices", &corev1.Secret{}, func(g Gomega, s *corev1.Secret) { g.Expect(s.Data).To(Equal(secret.Data)) })
	w.Expect(api.Delete(w.Ctx, exported)).To(Succeed())
	harness.Eventually(w, "invoices", &corev1.ConfigMap{}, func(g Gomega, c *corev1.ConfigMap) { g.Expect(c.Data).To(Equal(exported.Data)) })
	// and when the keys are no longer exported, the Secret is deleted
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"export":{"accountKeys":null}}}`))
	w.Expect(api.Patch(w.Ctx, w.storage("invoices"), patch)).To(Succeed())
	w.Eventually(w.IsGone("invoices", &corev1.Secret{})).Should(Succeed())
	// and no key is in Events, objects or the log
	var events eventsv1.EventList
	w.Expect(api.List(w.Ctx, &events, client.InNamespace(w.Namespace))).To(Succeed())
	text, err := yaml.Marshal([]any{events, w.eventuallyReady("invoices"), w.Managers[0].Log.Lines(), w.cloud().Ledger()})
	w.Expect(err).NotTo(HaveOccurred())
	for _, key := range keys {
		w.Expect(strings.Contains(string(text), key)).To(BeFalse())
	}
	// and the ConfigMap is deleted with the SecureStorage
	w.delete("invoices")
	w.eventuallyGone("invoices")
	w.Eventually(w.IsGone("invoices", &corev1.ConfigMap{})).Should(Succeed())
	w.leavesNothing()
}
