package securestorage

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/lease"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func exporting(s *v1beta1.SecureStorageSpec) { s.Export = &v1beta1.SecureStorageExport{} }

func exportingKeys(s *v1beta1.SecureStorageSpec) {
	s.Export = &v1beta1.SecureStorageExport{AccountKeys: true}
}

func notExporting(s *v1beta1.SecureStorageSpec) { s.Export = nil }

// child reads an exported object, and says whether it exists.
func child[T client.Object](f *fixture, into T) (T, bool) {
	f.t.Helper()
	err := f.children.Get(context.Background(), client.ObjectKeyFromObject(f.storage), into)
	f.Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
	return into, err == nil
}

func (f *fixture) exported() map[string]string {
	f.t.Helper()
	live, ok := child(f, &corev1.ConfigMap{})
	f.Expect(ok).To(BeTrue(), "the ConfigMap exists")
	return live.Data
}

func (f *fixture) exportedKeys() map[string]string {
	f.t.Helper()
	live, ok := child(f, &corev1.Secret{})
	f.Expect(ok).To(BeTrue(), "the Secret exists")
	f.Expect(live.Type).To(BeEquivalentTo(v1beta1.SecretTypeAccountKeys))
	data := map[string]string{}
	for key, value := range live.Data {
		data[key] = string(value)
	}
	return data
}

func (f *fixture) wantKeys() map[string]string {
	f.t.Helper()
	keys, err := f.server.AccountKeys(f.name())
	f.Expect(err).NotTo(HaveOccurred())
	return map[string]string{"accountName": f.name(), "key1": keys[0], "key2": keys[1]}
}

// listsOfKeys counts the requests for the keys of an account, including refused ones.
func (f *fixture) listsOfKeys() int {
	count := 0
	for _, entry := range f.server.Ledger() {
		if strings.HasSuffix(strings.ToLower(entry.Resource), "/listkeys") {
			count++
		}
	}
	return count
}

func TestExportsAccount(t *testing.T) {
	// given an account that is exported, as it is only observed or managed
	for name, edits := range map[string][]func(*v1beta1.SecureStorageSpec){"managed": {exporting}, "observed": {exporting, observe}} {
		t.Run(name, func(t *testing.T) {
			f := releasedFixture(t, "role", edits...)
			// when
			f.runUntilReady()
			// then
			account, _ := f.server.Account("coveted")
			f.Expect(f.exported()).To(Equal(map[string]string{
				"accountName":   "coveted",
				"blobEndpoint":  "https://coveted.blob.core.windows.net/",
				"dfsEndpoint":   "https://coveted.dfs.core.windows.net/",
				"fileEndpoint":  "https://coveted.file.core.windows.net/",
				"queueEndpoint": "https://coveted.queue.core.windows.net/",
				"tableEndpoint": "https://coveted.table.core.windows.net/",
				"webEndpoint":   "https://coveted.z6.web.core.windows.net/",
				"keyURI":        account.Key,
			}))
			// and no keys, which nobody asked for
			_, exists := child(f, &corev1.Secret{})
			f.Expect(exists).To(BeFalse())
			f.Expect(f.listsOfKeys()).To(BeZero())
			f.Expect(f.condition(v1beta1.ConditionExportReady).Status).To(Equal(metav1.ConditionTrue))
			f.Expect(f.condition(v1beta1.ConditionAccountKeysReady)).To(BeNil())
		})
	}
}

func TestExportsNothingBeforeAccountIsEncrypted(t *testing.T) {
	f := newFixture(t, fastCloud(), exportingKeys)
	f.runUntil("granted", func() bool {
		_, exists := child(f, &corev1.ConfigMap{})
		f.Expect(exists).To(Equal(isEncrypted(f.storage.Status) || exists && f.isEncryptedInCloud()))
		return f.isReady()
	})
}

func (f *fixture) isEncryptedInCloud() bool {
	account, _ := f.server.Account(f.name())
	return account.Key != cloud.PlatformKeys
}

func TestExportedKeysAreInSecretAlone(t *testing.T) {
	// given
	f := readyFixture(t)
	before := f.listsOfKeys()
	// when
	f.edit(exportingKeys)
	f.runUntilReady()
	// then
	keys := f.wantKeys()
	f.Expect(f.exportedKeys()).To(Equal(keys))
	f.Expect(before).To(BeZero())
	labeled, _ := child(f, &corev1.Secret{})
	f.Expect(labeled.Labels).To(And(HaveKeyWithValue("app.kubernetes.io/name", "invoices"), HaveKeyWithValue("app.kubernetes.io/managed-by", "fixpoint")))
	// and when another client changes the Secret, so that the drift is reported
	secret, _ := child(f, &corev1.Secret{})
	secret.Data["key1"] = []byte("changed by someone")
	f.Expect(f.children.Update(t.Context(), secret, client.FieldOwner("kubectl-edit"))).To(Succeed())
	f.reconcile()
	f.Expect(f.exportedKeys()).To(Equal(keys))
	f.Expect(f.eventsWith("DriftCorrected", "Secret", "kubectl-edit")).To(Equal(1))
	// then nothing else has them
	text, err := yaml.Marshal([]any{f.statuses, f.events, f.server.Ledger(), f.exported()})
	f.Expect(err).NotTo(HaveOccurred())
	for _, key := range []string{keys["key1"], keys["key2"], "changed by someone"} {
		f.Expect(strings.Contains(string(text), key)).To(BeFalse())
	}
}

func TestExportIsPruned(t *testing.T) {
	// given
	f := newFixture(t, fastCloud(), exportingKeys)
	f.runUntilReady()
	f.exportedKeys()
	// when the keys are no longer exported
	f.edit(exporting)
	f.runUntilReady()
	// then
	_, exists := child(f, &corev1.Secret{})
	f.Expect(exists).To(BeFalse())
	f.Expect(f.condition(v1beta1.ConditionAccountKeysReady)).To(BeNil())
	f.exported()
	// and when nothing is
	f.edit(notExporting)
	f.runUntilReady()
	_, exists = child(f, &corev1.ConfigMap{})
	f.Expect(exists).To(BeFalse())
	f.Expect(f.condition(v1beta1.ConditionExportReady)).To(BeNil())
}

func TestExportIsDeletedWithItsOwner(t *testing.T) {
	for name, policy := range map[string]func(*v1beta1.SecureStorageSpec){"Retain": retain, "Delete": func(*v1beta1.SecureStorageSpec) {}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fastCloud(), exportingKeys, policy)
			f.runUntilReady()
			f.delete()
			f.runUntilDeleted()
			_, hasConfigMap := child(f, &corev1.ConfigMap{})
			_, hasSecret := child(f, &corev1.Secret{})
			f.Expect([]bool{hasConfigMap, hasSecret}).To(Equal([]bool{false, false}))
		})
	}
}

// A settled account is polled by lists. What happens to the exported objects is corrected all the same, and at once.
func TestDriftOfExportIsCorrectedAtRest(t *testing.T) {
	for name, change := range map[string]func(f *fixture) error{
		"ConfigMap changed": func(f *fixture) error {
			live, _ := child(f, &corev1.ConfigMap{})
			live.Data["blobEndpoint"] = "https://elsewhere.test/"
			return f.children.Update(f.t.Context(), live, client.FieldOwner("kubectl-edit"))
		},
		"ConfigMap deleted": func(f *fixture) error {
			live, _ := child(f, &corev1.ConfigMap{})
			return f.children.Delete(f.t.Context(), live)
		},
		"Secret changed": func(f *fixture) error {
			live, _ := child(f, &corev1.Secret{})
			live.Data["key2"] = nil
			return f.children.Update(f.t.Context(), live, client.FieldOwner("kubectl-edit"))
		},
		"Secret deleted": func(f *fixture) error {
			live, _ := child(f, &corev1.Secret{})
			return f.children.Delete(f.t.Context(), live)
		},
	} {
		t.Run(name, func(t *testing.T) {
			// given
			f := newFixture(t, fastCloud(), exportingKeys)
			f.runUntilReady()
			f.poll()
			f.poll()
			data, keys, lists, calls := f.exported(), f.exportedKeys(), f.listsOfKeys(), f.calls
			// when nothing changes, a poll lists no keys
			f.poll()
			f.Expect(f.listsOfKeys()).To(Equal(lists))
			f.Expect(f.calls - calls).To(BeNumerically("<=", 3))
			// when it is changed, and its event triggers a reconcile
			f.Expect(change(f)).To(Succeed())
			f.reconcile()
			// then
			f.Expect(f.exported()).To(Equal(data))
			f.Expect(f.exportedKeys()).To(Equal(keys))
			f.Expect(f.isReady()).To(BeTrue())
		})
	}
}

func TestRegeneratedKeyIsExportedAtThePollInterval(t *testing.T) {
	for _, name := range []string{"key1", "key2"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fastCloud(), exportingKeys)
			f.runUntilReady()
			f.poll()
			f.poll()
			before := f.exportedKeys()
			f.Expect(f.server.RegenerateKey(f.name(), name)).To(Succeed())
			f.poll()
			after := f.exportedKeys()
			f.Expect(after).To(Equal(f.wantKeys()))
			f.Expect(after[name]).NotTo(Equal(before[name]))
			f.Expect(f.eventsWith("DriftCorrected")).To(BeZero(), "a new key is no drift")
		})
	}
}

func TestExportAdoptsNothing(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "invoices", Namespace: "billing"}
	for name, existing := range map[string]client.Object{
		"ConfigMap": &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"mine": "yes"}},
		"Secret":    &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"mine": []byte("yes")}},
	} {
		t.Run(name, func(t *testing.T) {
			// given
			f := newFixture(t, fastCloud(), exportingKeys, adopt)
			f.Expect(f.children.Create(t.Context(), existing)).To(Succeed())
			// when
			refused := f.runUntilReason(v1beta1.ReasonNotOwned)
			// then
			f.Expect(refused.Message).To(ContainSubstring(name + " billing/invoices exists"))
			f.Expect(refused.Message).NotTo(ContainSubstring("adoptionPolicy"), "which is about accounts")
			live, _ := existing.DeepCopyObject().(client.Object)
			live, _ = child(f, live)
			f.Expect(live.GetResourceVersion()).To(Equal(existing.GetResourceVersion()))
			f.Expect(isEncrypted(f.storage.Status)).To(BeTrue())
			// and when it is deleted, and an event or a poll triggers a reconcile
			f.Expect(f.children.Delete(t.Context(), existing)).To(Succeed())
			f.runUntilReady()
			f.Expect(f.exportedKeys()).To(Equal(f.wantKeys()))
		})
	}
}

// Keys are listed only of an account that this SecureStorage manages.
func TestKeysOfOtherAccountsAreNotListed(t *testing.T) {
	for name, c := range map[string]struct {
		edits  []func(*v1beta1.SecureStorageSpec)
		change func(*fixture) error
	}{
		"another owner": {change: func(f *fixture) error { return f.server.SetTags("coveted", map[string]string{cloud.OwnerTag: "other"}) }},
		"not adopted":   {edits: []func(*v1beta1.SecureStorageSpec){func(s *v1beta1.SecureStorageSpec) { s.AdoptionPolicy = v1beta1.AdoptionNever }}},
		"credential of the manager": {edits: []func(*v1beta1.SecureStorageSpec){func(s *v1beta1.SecureStorageSpec) {
			s.Provider.CredentialsSecretRef = nil
		}}},
		// The schema refuses this.
		"observed": {edits: []func(*v1beta1.SecureStorageSpec){observe}},
		"deleted":  {change: func(f *fixture) error { return f.server.DeleteAccount("coveted") }, edits: []func(*v1beta1.SecureStorageSpec){observe}},
	} {
		t.Run(name, func(t *testing.T) {
			f := releasedFixture(t, "role", append(c.edits, exportingKeys)...)
			if c.change != nil {
				f.Expect(c.change(f)).To(Succeed())
			}
			for range 10 {
				f.poll()
			}
			f.Expect(f.ready()).NotTo(BeNil())
			f.Expect(f.listsOfKeys()).To(BeZero())
			_, exists := child(f, &corev1.Secret{})
			f.Expect(exists).To(BeFalse())
		})
	}
}

func TestExportOfKeysNeedsThePermission(t *testing.T) {
	// given
	f := newFixture(t, fastCloud(), exportingKeys)
	f.server.Deny(fakecloud.Denial{Action: "Microsoft.Storage/storageAccounts/listKeys/*"})
	// when
	refused := f.runUntilReason(v1beta1.ReasonPermissionMissing)
	// then the account can be used, and the message says what is missing
	f.Expect(refused.Message).To(And(ContainSubstring("AccountKeys"), ContainSubstring("listing the keys"), ContainSubstring("Storage Account Contributor")))
	f.exported()
	// and with the permission
	f.server.Allow("")
	f.runUntilReady()
	f.Expect(f.exportedKeys()).To(Equal(f.wantKeys()))
}

// Workloads keep what they use while nothing is known about the account.
func TestExportStaysWhileAccountCannotBeRead(t *testing.T) {
	f := newFixture(t, fastCloud(), exportingKeys)
	f.runUntilReady()
	data, keys := f.exported(), f.exportedKeys()
	f.server.Deny(fakecloud.Denial{Action: "Microsoft.Storage/storageAccounts/read"})
	f.runUntilReason(v1beta1.ReasonPermissionMissing)
	f.poll()
	f.Expect(f.exported()).To(Equal(data))
	f.Expect(f.exportedKeys()).To(Equal(keys))
	f.Expect(f.condition(v1beta1.ConditionAccountKeysReady)).To(HaveField("Status", metav1.ConditionUnknown))
	f.server.Allow("")
	f.runUntilReady()
	f.Expect(f.exportedKeys()).To(Equal(keys))
}

func TestExportRecoversFromCrashAtAnyCall(t *testing.T) {
	for after, side := range sides {
		crashed := true
		for at := 1; crashed; at++ {
			crashed = false // a test that fails, or does not run with -failfast, is the last one
			t.Run(fmt.Sprintf("%s call %d", side, at), func(t *testing.T) {
				f := newFixture(t, fastCloud())
				f.runUntilReady()
				f.edit(exportingKeys)
				f.crashAt = &crashPoint{at: at, after: after}
				f.runUntilReady()
				crashed = f.crashAt == nil
				f.exported()
				f.Expect(f.exportedKeys()).To(Equal(f.wantKeys()))
				f.crashAt = nil
				f.delete()
				f.runUntilDeleted()
				err := f.children.Get(t.Context(), client.ObjectKeyFromObject(f.storage), &corev1.Secret{})
				f.Expect(apierrors.IsNotFound(err)).To(BeTrue())
			})
		}
	}
}

// A ConfigMap has no empty values, and of an account that is not known, the name alone.
func TestExportedData(t *testing.T) {
	g, s := NewWithT(t), newScope(exporting, named("a"))
	g.Expect(s.exportedData()).To(Equal(map[string]string{"accountName": "a"}))
	s.account = &cloud.Account{Endpoints: cloud.Endpoints{Blob: "blob"}}
	g.Expect(s.exportedData()).To(Equal(map[string]string{"accountName": "a", "blobEndpoint": "blob"}))
	desired := s.desiredExport()
	g.Expect(desired.Labels).To(Equal(map[string]string{"app.kubernetes.io/name": "invoices", "app.kubernetes.io/managed-by": "fixpoint"}))
	g.Expect([]string{*desired.Namespace, *desired.Name}).To(Equal([]string{"billing", "invoices"}))
	notExporting(&s.storage.Spec)
	g.Expect(s.desiredExport()).To(BeNil())
}

// The Secret is desired before the keys are known, so that it is not deleted.
func TestDesiredKeys(t *testing.T) {
	for name, c := range map[string]struct {
		edits []func(*v1beta1.SecureStorageSpec)
		keys  *cloud.AccountKeys
		want  map[string][]byte
		none  bool
	}{
		"not exported":        {edits: []func(*v1beta1.SecureStorageSpec){exporting}, keys: &cloud.AccountKeys{Key1: "1"}, none: true},
		"of an observed one":  {edits: []func(*v1beta1.SecureStorageSpec){exportingKeys, observe}, none: true},
		"not read yet":        {edits: []func(*v1beta1.SecureStorageSpec){exportingKeys}},
		"not known in a plan": {edits: []func(*v1beta1.SecureStorageSpec){exportingKeys}, keys: &cloud.AccountKeys{}, want: map[string][]byte{"accountName": []byte("a")}},
		"known": {edits: []func(*v1beta1.SecureStorageSpec){exportingKeys}, keys: &cloud.AccountKeys{Key1: "1", Key2: "2"}, want: map[string][]byte{
			"accountName": []byte("a"), "key1": []byte("1"), "key2": []byte("2"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), newScope(append(c.edits, named("a"))...)
			s.keys = c.keys
			desired := s.desiredKeys()
			if c.none {
				g.Expect(desired).To(BeNil())
				return
			}
			g.Expect(desired.Data).To(Equal(c.want))
			g.Expect(*desired.Type).To(BeEquivalentTo(v1beta1.SecretTypeAccountKeys))
			g.Expect(desired.Labels).To(HaveKeyWithValue("app.kubernetes.io/name", "invoices"))
		})
	}
}

// The keys are listed once in a reconcile, and a failure to do so stops it.
func TestReadsKeysOnce(t *testing.T) {
	f := newFixture(t, fastCloud(), exportingKeys)
	f.runUntilReady()
	s, listed := f.connected(), f.listsOfKeys()
	for range 2 {
		f.Expect(outcome(s.readKeys(t.Context(), nil))).To(Equal("done"))
	}
	f.Expect(f.listsOfKeys() - listed).To(Equal(1))
	f.Expect(map[string]string{"accountName": f.name(), "key1": s.keys.Key1, "key2": s.keys.Key2}).To(Equal(f.wantKeys()))
	f.refuse = func(*http.Request) error { return &lease.Error{Reason: lease.Lost} }
	f.Expect(outcome(f.connectedBefore().readKeys(t.Context(), nil))).To(ContainSubstring("error: listing the keys"))
}

// connectedBefore has clients, and has read nothing.
func (f *fixture) connectedBefore() *scope {
	f.t.Helper()
	s := f.scope()
	f.Expect(s.connect(f.t.Context())).To(Succeed())
	return s
}

// A plan asks nothing about keys that are not exported and never were.
func TestPlanSkipsKeysThatAreNotExported(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*v1beta1.SecureStorageSpec)
		before []metav1.Condition
		plans  bool
		asked  bool
	}{
		"a plan":                     {edit: exporting, plans: true},
		"a plan, exported":           {edit: exportingKeys, plans: true, asked: true},
		"a plan, exported before":    {edit: exporting, before: []metav1.Condition{{Type: v1beta1.ConditionAccountKeysReady}}, plans: true, asked: true},
		"a plan, another condition":  {edit: exporting, before: []metav1.Condition{{Type: v1beta1.ConditionExportReady}}, plans: true},
		"a reconcile deletes a copy": {edit: exporting, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, s, asked := NewWithT(t), newScope(c.edit), false
			s.access = &cloudAccess{plans: c.plans}
			question := inPlan(func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
				asked = true
				return phases.Stalled("x", "x"), nil
			})
			next, err := question(t.Context(), phases.Reconcile[*scope]{Scope: s, Before: c.before})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(asked).To(Equal(c.asked))
			if !c.asked {
				g.Expect(next).To(Equal(phases.NotConfigured()))
			}
		})
	}
	_, err := accountKeys.Declare(runtime.NewScheme())
	NewWithT(t).Expect(err).To(HaveOccurred(), "the scheme has no Secrets")
}
