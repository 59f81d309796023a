package plugin_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// createEncrypted creates an account as a user does, with an identity, a grant and a key.
func createEncrypted(ctx context.Context, azure *cloud.Client, demo fakecloud.Demo, name string) error {
	_, err := azure.CreateAccount(ctx, cloud.NewAccount{
		Group: demo.Group, Name: name, Location: demo.Location, SKU: "Standard_GRS", Tags: map[string]string{"team": "billing"},
	}, nil)
	if err != nil {
		return err
	}
	account, err := azure.Account(ctx, demo.Group, name)
	if err != nil {
		return err
	}
	if _, err := azure.CreateGrant(ctx, name, demo.VaultID, account.PrincipalID); err != nil {
		return err
	}
	_, err = azure.UpdateAccount(ctx, demo.Group, account, cloud.Change{Encryption: &cloud.Encryption{
		KeySource: cloud.CustomerManaged, VaultURI: "https://" + demo.Vault + ".vault.azure.net", KeyName: demo.Key,
	}})
	return err
}

// TestImportedAccountsAreManagedWithoutAChange imports 200 accounts, and then manages them: the owner tag is the only write.
func TestImportedAccountsAreManagedWithoutAChange(t *testing.T) {
	const size = 200
	w := newFixture(t)
	// given accounts in a cloud with small pages and the request limits of Azure
	server := fakecloud.New(fakecloud.Options{Seed: 1})
	demo := server.SeedDemo()
	endpoint := server.StartHTTP()
	t.Cleanup(endpoint.Close)
	config, err := cloud.Endpoint(endpoint.URL)
	w.Expect(err).NotTo(HaveOccurred())
	const unlimited = 1000000
	config.Limits = cloud.Limits{WritesPerSecond: unlimited, ReadsPerSecond: unlimited, WritesBurst: unlimited, ReadsBurst: unlimited}
	azure, err := cloud.New(config).Client(demo.Subscription, cloud.Credential{Name: "seed", Token: fakecloud.StaticToken(fakecloud.Token("seed")), Scopes: []cloud.Scope{cloud.Anywhere}})
	w.Expect(err).NotTo(HaveOccurred())
	group, ctx := errgroup.WithContext(w.Ctx)
	group.SetLimit(8)
	for n := range size {
		group.Go(func() error { return createEncrypted(ctx, azure, demo, fmt.Sprintf("account%03d", n)) })
	}
	w.Expect(group.Wait()).To(Succeed())
	w.Expect(server.SeedAccount(demo.Subscription, demo.Group, "platformkeys", nil)).To(Succeed())
	realistic := fakecloud.Realistic()
	server.Turn(func(k *fakecloud.Knobs) { k.PageSize, k.Reads, k.Writes = 30, realistic.Reads, realistic.Writes })
	server.ResetCounts()
	before := len(server.Ledger())

	// when they are imported
	ended := w.kubectlFixpoint("import", "securestorage", "--subscription", demo.Subscription, "--credentials-secret", "azure", "--management-policy", "Manage",
		"--cloud-endpoint", endpoint.URL, "--cloud-token-file", w.file("token", fakecloud.Token("user")))

	// then nothing is written, within the request limits
	w.Expect(ended.code).To(Equal(2), "an account cannot be imported: %s", ended.err)
	w.Expect(ended.err).To(ContainSubstring("201 storage accounts found, 200 SecureStorages planned"))
	w.Expect(ended.out).To(ContainSubstring("# Not imported: storage account platformkeys: "))
	w.Expect(server.Ledger()[before:]).To(BeEmpty())
	w.Expect(server.Total("").EarlyRetries).To(BeZero())
	w.Expect(server.Total("").Throttled).To(BeZero())

	// and when they are managed
	server.Turn(func(k *fakecloud.Knobs) { k.Reads, k.Writes = fakecloud.Bucket{}, fakecloud.Bucket{} })
	w.Expect(api.Create(w.Ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "azure", Namespace: w.Namespace},
		StringData: map[string]string{v1beta1.CredentialTenantID: "tenant", v1beta1.CredentialClientID: "client", v1beta1.CredentialClientSecret: fakecloud.Token("manager")},
	})).To(Succeed())
	created := 0
	for document := range strings.SplitSeq(ended.out, "---\n") {
		if !strings.Contains(document, "\nkind: SecureStorage\n") {
			continue
		}
		storage := &v1beta1.SecureStorage{}
		w.Expect(yaml.UnmarshalStrict([]byte(document), storage)).To(Succeed())
		w.Expect(api.Create(w.Ctx, storage)).To(Succeed())
		created++
	}
	w.Expect(created).To(Equal(size))
	w.startManager(endpoint)

	// then they are Ready, and the owner tag is the only write for each
	w.Eventually(func(g Gomega) {
		list := &v1beta1.SecureStorageList{}
		g.Expect(api.List(w.Ctx, list, client.InNamespace(w.Namespace))).To(Succeed())
		ready := slices.DeleteFunc(list.Items, func(s v1beta1.SecureStorage) bool {
			return !strings.HasPrefix(harness.Conditions(&s)[v1beta1.ConditionReady], "True")
		})
		g.Expect(ready).To(HaveLen(size))
	}).WithPolling(time.Second).Should(Succeed())
	tagged := map[string]int{}
	for _, entry := range server.Ledger()[before:] {
		w.Expect(entry.Method).To(Equal("PATCH"), "%+v", entry)
		w.Expect(entry.Detail).To(Equal("tags"), "%+v", entry)
		tagged[entry.Resource]++
	}
	w.Expect(tagged).To(HaveLen(size))
	w.Expect(tagged).To(HaveEach(1))
}
