package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	"k8s.io/apimachinery/pkg/util/wait"
)

const keyName = "storage"

// surroundings are what a SecureStorage needs in the cloud, and the clients that create, read and remove it: a resource
// group with a key vault and a key.
type surroundings struct {
	target
	group string
	vault string

	groups   *armresources.ResourceGroupsClient
	vaults   *armkeyvault.VaultsClient
	keys     *armkeyvault.KeysClient
	accounts *armstorage.AccountsClient
	roles    *armauthorization.RoleAssignmentsClient
}

// newSurroundings creates nothing yet. The name is unique in Azure.
func newSurroundings(t target, name string) (*surroundings, error) {
	credential, options, err := t.client()
	if err != nil {
		return nil, err
	}
	s := &surroundings{target: t, group: name, vault: name}
	var errs [5]error
	s.groups, errs[0] = armresources.NewResourceGroupsClient(t.subscription, credential, options)
	s.vaults, errs[1] = armkeyvault.NewVaultsClient(t.subscription, credential, options)
	s.keys, errs[2] = armkeyvault.NewKeysClient(t.subscription, credential, options)
	s.accounts, errs[3] = armstorage.NewAccountsClient(t.subscription, credential, options)
	s.roles, errs[4] = armauthorization.NewRoleAssignmentsClient(t.subscription, credential, options)
	return s, errors.Join(errs[:]...)
}

// scope is the resource ID of the resource group.
func (s *surroundings) scope() string {
	return "/subscriptions/" + s.subscription + "/resourceGroups/" + s.group
}

func (s *surroundings) vaultID() string {
	return s.scope() + "/providers/Microsoft.KeyVault/vaults/" + s.vault
}

// create creates the resource group, the key vault and the key.
func (s *surroundings) create(ctx context.Context) error {
	tags := map[string]*string{"purpose": to.Ptr("make test-azure"), "created": to.Ptr(time.Now().UTC().Format(time.RFC3339))}
	if _, err := s.groups.CreateOrUpdate(ctx, s.group, armresources.ResourceGroup{Location: &s.location, Tags: tags}, nil); err != nil {
		return fmt.Errorf("creating resource group %s: %w", s.group, err)
	}
	if err := s.repeat(ctx, s.createVault); err != nil {
		return fmt.Errorf("creating key vault %s: %w", s.vault, err)
	}
	if err := s.repeat(ctx, s.createKey); err != nil {
		return fmt.Errorf("creating key %s: %w", keyName, err)
	}
	return nil
}

func (s *surroundings) createVault(ctx context.Context) error {
	const shortestRetention = 7
	creation, err := s.vaults.BeginCreateOrUpdate(ctx, s.group, s.vault, armkeyvault.VaultCreateOrUpdateParameters{
		Location: &s.location,
		Properties: &armkeyvault.VaultProperties{
			TenantID: &s.tenant, EnableRbacAuthorization: to.Ptr(true), EnablePurgeProtection: to.Ptr(true),
			SoftDeleteRetentionInDays: to.Ptr[int32](shortestRetention),
			SKU:                       &armkeyvault.SKU{Family: to.Ptr(armkeyvault.SKUFamilyA), Name: to.Ptr(armkeyvault.SKUNameStandard)},
		},
	}, nil)
	if err == nil {
		_, err = creation.PollUntilDone(ctx, s.polls())
	}
	return err
}

func (s *surroundings) createKey(ctx context.Context) error {
	_, err := s.keys.CreateIfNotExist(ctx, s.group, s.vault, keyName, armkeyvault.KeyCreateParameters{Properties: &armkeyvault.KeyProperties{
		Kty: to.Ptr(armkeyvault.JSONWebKeyTypeRSA), KeySize: to.Ptr[int32](2048),
		KeyOps: []*armkeyvault.JSONWebKeyOperation{to.Ptr(armkeyvault.JSONWebKeyOperationWrapKey), to.Ptr(armkeyvault.JSONWebKeyOperationUnwrapKey)},
	}}, nil)
	return err
}

func (s *surroundings) polls() *runtime.PollUntilDoneOptions {
	return &runtime.PollUntilDoneOptions{Frequency: max(s.interval, time.Second)}
}

// remove removes all accounts and the key vault, and then the resource group. Requests that are refused because another
// operation is in progress are repeated.
func (s *surroundings) remove(ctx context.Context) error {
	for doing, remove := range map[string]func(context.Context) error{"the accounts": s.removeAccounts, "the key vault": s.removeVault} {
		if err := s.repeat(ctx, remove); err != nil {
			return fmt.Errorf("removing %s of resource group %s: %w", doing, s.group, err)
		}
	}
	if err := s.repeat(ctx, s.removeGroup); err != nil {
		return fmt.Errorf("removing resource group %s: %w", s.group, err)
	}
	return nil
}

// repeat repeats a request as long as it is refused because another operation is in progress, or because a resource is
// not found right after its creation.
func (s *surroundings) repeat(ctx context.Context, send func(context.Context) error) error {
	var refusal error
	err := wait.PollUntilContextTimeout(ctx, s.interval, s.endPatience, true, func(ctx context.Context) (bool, error) {
		refusal = send(ctx)
		switch statusOf(refusal) {
		case http.StatusConflict, http.StatusNotFound:
			return false, nil
		}
		return true, refusal
	})
	if wait.Interrupted(err) {
		return errors.Join(err, refusal)
	}
	return err
}

func (s *surroundings) removeAccounts(ctx context.Context) error {
	names, err := s.accountNames(ctx)
	for _, name := range names {
		if _, err := s.accounts.Delete(ctx, s.group, name, nil); err != nil {
			return err
		}
	}
	return ignoreMissing(err)
}

func (s *surroundings) accountNames(ctx context.Context) ([]string, error) {
	var names []string
	for pages := s.accounts.NewListByResourceGroupPager(s.group, nil); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return names, err
		}
		for _, account := range page.Value {
			names = append(names, *account.Name)
		}
	}
	return names, nil
}

func (s *surroundings) removeVault(ctx context.Context) error {
	_, err := s.vaults.Delete(ctx, s.group, s.vault, nil)
	return ignoreMissing(err)
}

func (s *surroundings) removeGroup(ctx context.Context) error {
	deletion, err := s.groups.BeginDelete(ctx, s.group, nil)
	if err != nil {
		return ignoreMissing(err)
	}
	_, err = deletion.PollUntilDone(ctx, s.polls())
	return ignoreMissing(err)
}

func ignoreMissing(err error) error {
	if statusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// statusOf returns the HTTP status that Azure refused a request with; zero for other errors.
func statusOf(err error) int {
	var refused *azcore.ResponseError
	if errors.As(err, &refused) {
		return refused.StatusCode
	}
	return 0
}
