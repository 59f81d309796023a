package fakecloud

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	. "github.com/onsi/gomega"
)

func TestListsHavePages(t *testing.T) {
	// given five accounts, role assignments and keys, and pages of two
	f := newFixture(t, Knobs{PageSize: 2})
	for i := range 5 {
		f.Expect(f.create(fmt.Sprintf("data%d", i))).To(Succeed())
		f.Expect(f.grant(fmt.Sprintf("%08d-2222-4333-8444-555555555555", i), f.cloud.Principal(fmt.Sprintf("data%d", i)), servicePrincipal())).To(Succeed())
		_, err := f.cloud.SeedKey(f.demo.Vault, fmt.Sprintf("key%d", i), KeySpec{})
		f.Expect(err).NotTo(HaveOccurred())
	}
	// then the SDK follows the links, with the filter
	accounts, pages := 0, 0
	for pager := f.accounts.NewListByResourceGroupPager(f.demo.Group, nil); pager.More(); pages++ {
		page, err := pager.NextPage(f.ctx())
		f.Expect(err).NotTo(HaveOccurred())
		accounts += len(page.Value)
	}
	f.Expect([]int{accounts, pages}).To(Equal([]int{5, 3}))

	grants, pages := 0, 0
	options := &armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: to.Ptr("atScope()")}
	for pager := f.roles.NewListForScopePager(f.demo.VaultID, options); pager.More(); pages++ {
		page, err := pager.NextPage(f.ctx())
		f.Expect(err).NotTo(HaveOccurred())
		grants += len(page.Value)
	}
	f.Expect([]int{grants, pages}).To(Equal([]int{5, 3}))

	keys, pages := 0, 0
	for pager := f.keys.NewListPager(f.demo.Group, f.demo.Vault, nil); pager.More(); pages++ {
		page, err := pager.NextPage(f.ctx())
		f.Expect(err).NotTo(HaveOccurred())
		keys += len(page.Value)
	}
	f.Expect([]int{keys, pages}).To(Equal([]int{6, 3}), "with the key of the demo")

	response, body := f.raw("GET", strings.TrimSuffix(f.accountPath(""), "/")+"?api-version=2024-01-01&$skiptoken=x", "")
	f.Expect(response.StatusCode).To(Equal(http.StatusBadRequest))
	f.Expect(body).To(ContainSubstring("InvalidSkipToken"))
}

// A list of keys shows what the examples of Azure's API show.
func TestListedKeysHaveOnlyAttributes(t *testing.T) {
	f := newFixture(t, Instant())
	page, err := f.keys.NewListPager(f.demo.Group, f.demo.Vault, nil).NextPage(f.ctx())
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(page.Value).To(HaveLen(1))
	key, err := f.keys.Get(f.ctx(), f.demo.Group, f.demo.Vault, f.demo.Key, nil)
	f.Expect(err).NotTo(HaveOccurred())
	listed, read := page.Value[0].Properties, key.Properties
	f.Expect(listed.Attributes).To(Equal(read.Attributes))
	f.Expect(listed.KeyURI).To(Equal(read.KeyURI))
	f.Expect(read.Kty).NotTo(BeNil())
	f.Expect([]any{listed.Kty, listed.KeySize, listed.KeyURIWithVersion, listed.KeyOps}).To(HaveEach(BeNil()))
}

func TestListsOfAccountsHaveTheirOwnLimit(t *testing.T) {
	f := newFixture(t, Knobs{AccountLists: Bucket{Capacity: 2, PerSecond: 1. / 3}})
	list := func() error {
		_, err := f.accounts.NewListByResourceGroupPager(f.demo.Group, nil).NextPage(f.ctx())
		return err
	}
	f.Expect(list()).To(Succeed())
	// The limit is that of the subscription, for all callers.
	f.as("another")
	f.Expect(list()).To(Succeed())
	f.Expect(code(list())).To(Equal("TooManyRequests"))
	f.Expect(f.err404("missing")).To(HaveField("StatusCode", http.StatusNotFound), "single reads are not limited")
	f.clock.Step(3 * time.Second)
	f.Expect(list()).To(Succeed())
	f.Expect(f.cloud.Total("")).To(HaveField("EarlyRetries", 0))
}

func TestListsCanBeDenied(t *testing.T) {
	f := newFixture(t, Knobs{Denied: []Denial{{Action: "Microsoft.Storage/storageAccounts/read", Lists: true}}})
	f.Expect(f.create("data1")).To(Succeed())
	_, err := f.accounts.NewListByResourceGroupPager(f.demo.Group, nil).NextPage(f.ctx())
	f.Expect(code(err)).To(Equal("AuthorizationFailed"))
	f.Expect(f.err404("data1")).To(Succeed())
}
