package plugin_test

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// The account is released also if it was managed first and is only observed now.
func TestReleaseRetainsTheAccount(t *testing.T) {
	w := newFixture(t)
	server := fakecloud.New(fakecloud.Options{Seed: 1})
	demo := server.SeedDemo()
	endpoint := server.StartHTTP()
	t.Cleanup(endpoint.Close)
	w.startManager(endpoint)
	storage := &v1beta1.SecureStorage{ObjectMeta: metav1.ObjectMeta{Name: "invoices", Namespace: w.Namespace}}
	storage.Spec = v1beta1.SecureStorageSpec{
		Provider:       v1beta1.SecureStorageProvider{SubscriptionID: demo.Subscription, ResourceGroup: demo.Group, Location: demo.Location},
		Key:            v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: demo.Vault}, Name: demo.Key},
		AccountName:    "invoices",
		DeletionPolicy: v1beta1.DeletionDelete,
	}
	ready := func() {
		w.T.Helper()
		harness.Eventually(w, "invoices", &v1beta1.SecureStorage{}, func(g Gomega, live *v1beta1.SecureStorage) {
			g.Expect(live.Status.ObservedGeneration).To(Equal(live.Generation))
			g.Expect(harness.Conditions(live)).To(HaveKeyWithValue(v1beta1.ConditionReady, HavePrefix("True")), harness.Message(live, v1beta1.ConditionReady))
		})
	}
	w.Expect(api.Create(w.Ctx, storage)).To(Succeed())
	ready()
	observe := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"managementPolicy":"Observe"}}`))
	w.Expect(api.Patch(w.Ctx, storage, observe)).To(Succeed())
	ready()
	before := len(server.Ledger())

	// when it is not confirmed, nothing is done
	w.Expect(w.succeed("release", "securestorage/invoices")).To(ContainSubstring("Storage account invoices would remain in Azure"))
	ready()
	w.Expect(server.Ledger()[before:]).To(BeEmpty())

	// when it is confirmed, only the owner tag is removed
	w.Expect(w.succeed("release", "securestorage/invoices", "--yes", waitLong)).To(ContainSubstring("Storage account invoices remains in Azure"))
	err := api.Get(w.Ctx, client.ObjectKeyFromObject(storage), &v1beta1.SecureStorage{})
	w.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	w.Expect(server.Ledger()[before:]).To(HaveExactElements(And(HaveField("Method", "PATCH"), HaveField("Detail", "tags"))))
	account, _ := server.Account("invoices")
	w.Expect(account.Tags).NotTo(HaveKey(cloud.OwnerTag))
	w.Expect(server.ReadData("invoices")).To(Succeed())
}

func TestReleaseRefusesOtherKinds(t *testing.T) {
	w := newFixture(t)
	w.createApp("web")
	ended := w.kubectlFixpoint("release", "appservice/web", "--yes")
	w.Expect(ended.code).To(Equal(1))
	w.Expect(ended.err).To(ContainSubstring("cannot be released: only a SecureStorage can"))
}
