package cloud

import (
	"context"
	"encoding/json"
	"errors"

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
		first := func() *runtime.Pager[armstorage.AccountsClientListResponse] { return c.accounts.NewListPager(nil) }
		return pagesOf(c, r, first, func(p armstorage.AccountsClientListResponse) []*Account {
			return eachOf(p.Value, accountOf)
		})
	}
	r := c.requestFor(list{kind: accountsOfGroup, group: group})
	first := func() *runtime.Pager[armstorage.AccountsClientListByResourceGroupResponse] {
		return c.accounts.NewListByResourceGroupPager(group, nil)
	}
	return pagesOf(c, r, first, func(p armstorage.AccountsClientListByResourceGroupResponse) []*Account {
		return eachOf(p.Value, accountOf)
	})
}

// Vaults lists the key vaults of the subscription.
func (c *Client) Vaults() Pages[*Vault] {
	r := request{"", OnVault, "/subscriptions/" + c.subscription, "listing the key vaults"}
	first := func() *runtime.Pager[armkeyvault.VaultsClientListBySubscriptionResponse] {
		return c.vaults.NewListBySubscriptionPager(nil)
	}
	return pagesOf(c, r, first, func(p armkeyvault.VaultsClientListBySubscriptionResponse) []*Vault {
		return eachOf(p.Value, vaultOf)
	})
}

// pagesOf reads pages with the SDK's pagers, which begin with the first page. One that failed never goes on, so another
// takes its place.
func pagesOf[P, T any](c *Client, r request, newPager func() *runtime.Pager[P], items func(P) []T) Pages[T] {
	pager, last := newPager(), (*P)(nil)
	return Pages[T]{more: func() bool { return pager.More() }, next: func(ctx context.Context) (found []T, err error) {
		err = c.read(r, func() error {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return errors.Join(err, resume(ctx, &pager, newPager(), last))
			}
			found, last = items(page), &page
			return nil
		})
		return found, err
	}}
}

// resume replaces a pager by a new one, which goes on after the last page.
func resume[P any](ctx context.Context, pager **runtime.Pager[P], by *runtime.Pager[P], last *P) error {
	*pager = by
	if last == nil {
		return nil
	}
	encoded, err := json.Marshal(last)
	if err == nil {
		err = json.Unmarshal(encoded, by)
	}
	if err == nil {
		_, err = by.NextPage(ctx) // answers with the page that it was given, and sends nothing
	}
	return err
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
