package cloud

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
)

// Pages is a list that is read page by page. Each page is a request of its own; one that failed can be requested again.
type Pages[T any] struct {
	more func() bool
	next func(context.Context) ([]T, error)
}

// More says whether more pages follow.
func (p Pages[T]) More() bool { return p.more() }

// Next reads the next page.
func (p Pages[T]) Next(ctx context.Context) ([]T, error) { return p.next(ctx) }

// Accounts lists the accounts of a resource group, or of the subscription if the group is empty.
func (c *Client) Accounts(group string) Pages[*Account] {
	if group == "" {
		r := request{"", OnAccount, "/subscriptions/" + c.subscription, "listing the storage accounts"}
		return pagesOf(c, r, c.accounts.NewListPager(nil), func(p armstorage.AccountsClientListResponse) []*Account {
			return eachOf(p.Value, accountOf)
		})
	}
	r := c.requestFor(list{kind: accountsOfGroup, group: group})
	return pagesOf(c, r, c.accounts.NewListByResourceGroupPager(group, nil), func(p armstorage.AccountsClientListByResourceGroupResponse) []*Account {
		return eachOf(p.Value, accountOf)
	})
}

// Vaults lists the key vaults of the subscription.
func (c *Client) Vaults() Pages[*Vault] {
	r := request{"", OnVault, "/subscriptions/" + c.subscription, "listing the key vaults"}
	return pagesOf(c, r, c.vaults.NewListBySubscriptionPager(nil), func(p armkeyvault.VaultsClientListBySubscriptionResponse) []*Vault {
		return eachOf(p.Value, vaultOf)
	})
}

func pagesOf[P, T any](c *Client, r request, pager *runtime.Pager[P], items func(P) []T) Pages[T] {
	return Pages[T]{more: pager.More, next: func(ctx context.Context) (found []T, err error) {
		err = c.read(r, func() error {
			page, err := pager.NextPage(ctx)
			if err == nil {
				found = items(page)
			}
			return err
		})
		return found, err
	}}
}

func eachOf[S, T any](items []*S, of func(S) T) []T {
	all := make([]T, 0, len(items))
	for _, item := range items {
		if item != nil {
			all = append(all, of(*item))
		}
	}
	return all
}
