package cloud

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	"k8s.io/apimachinery/pkg/util/sets"
)

// list identifies a list of resources in a subscription, or a single resource.
type list struct {
	kind listKind
	// group and name locate the storage account or the key vault. For role assignments, name is the resource
	// ID of the key vault.
	group, name string
	// item is the name of the key or the ID of the principal, and version the version of the key.
	item, version string
}

type listKind string

const (
	accountsOfGroup  listKind = "accounts"
	singleAccount    listKind = "account"
	grantsOnVault    listKind = "grants"
	grantOfPrincipal listKind = "grant"
	keysOfVault      listKind = "keys"
	singleKey        listKind = "key"
	singleVault      listKind = "vault"
)

func (l list) isZero() bool { return l == list{} }

func (l list) isSingle() bool {
	return l.kind != accountsOfGroup && l.kind != grantsOnVault && l.kind != keysOfVault
}

// accountPageCost is how many storage accounts have to be looked up in a page of a list for the list to be worth it:
// Azure allows 100 lists of accounts and 800 reads in 5 minutes, and up to 500 accounts, per subscription and region.
// See https://learn.microsoft.com/azure/storage/common/scalability-targets-resource-provider.
const accountPageCost = 5

// pageCost is how many single reads a page of the list is worth.
func (l list) pageCost() int {
	if l.kind == accountsOfGroup {
		return accountPageCost
	}
	return 1
}

// requestFor describes the request for a list. Its requests belong to no object.
func (c *Client) requestFor(l list) request {
	switch l.kind {
	case accountsOfGroup:
		return request{"", OnAccount, GroupID(c.subscription, l.group), "listing the storage accounts"}
	case singleAccount:
		return c.forAccount(l.group, l.name, "reading the storage account")
	case grantsOnVault, grantOfPrincipal:
		return request{"", OnRoles, l.name, "listing the role assignments of the key vault"}
	default:
		return c.forVault("", l.group, l.name, "listing the keys of the key vault")
	}
}

// fetch requests all pages of a list.
func (c *Client) fetch(ctx context.Context, l list) (*snapshot, error) {
	r := c.requestFor(l)
	switch l.kind {
	case accountsOfGroup:
		return readPages(ctx, c, r, c.accounts.NewListByResourceGroupPager(l.group, nil), func(p armstorage.AccountsClientListByResourceGroupResponse) []fingerprint {
			return eachOf(p.Value, func(a armstorage.Account) fingerprint { return fingerprintOfAccount(accountOf(a)) })
		})
	case grantsOnVault:
		options := &armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: to.Ptr("atScope()")}
		return readPages(ctx, c, r, c.roles.NewListForScopePager(l.name, options), func(p armauthorization.RoleAssignmentsClientListForScopeResponse) []fingerprint {
			return eachOf(p.Value, fingerprintOfAssignment)
		})
	case keysOfVault:
		return readPages(ctx, c, r, c.keys.NewListPager(l.group, l.name, nil), func(p armkeyvault.KeysClientListResponse) []fingerprint {
			return eachOf(p.Value, fingerprintOfKey)
		})
	default:
		return c.fetchSingle(ctx, l)
	}
}

// fetchSingle reads a resource as the reconcile did.
func (c *Client) fetchSingle(ctx context.Context, l list) (*snapshot, error) {
	seen := &Seen{}
	var err error
	switch again := c.Observing(seen); l.kind {
	case singleAccount:
		_, err = again.Account(ctx, l.group, l.name)
	case grantOfPrincipal:
		_, err = again.Grant(ctx, "", l.name, l.item)
	case singleKey:
		_, err = again.Key(ctx, "", l.group, l.name, l.item, l.version)
	case singleVault:
		_, err = again.Vault(ctx, "", l.group, l.name)
	}
	if err != nil && !Is(err, NotFound) {
		return nil, err
	}
	s := &snapshot{pages: 1, fingerprints: sets.New[fingerprint]()}
	for _, r := range seen.readings {
		s.fingerprints.Insert(r.fingerprint)
	}
	return s, nil
}

// readPages reads the pages of a list. Each is a request of its own.
func readPages[P any](ctx context.Context, c *Client, r request, pager *runtime.Pager[P], fingerprintsIn func(P) []fingerprint) (*snapshot, error) {
	s := &snapshot{fingerprints: sets.New[fingerprint]()}
	for ; pager.More(); s.pages++ {
		if s.pages == maxPages {
			return nil, errors.New(r.doing + ": the list does not end")
		}
		err := c.read(r, func() error {
			page, err := pager.NextPage(ctx)
			if err == nil {
				s.fingerprints.Insert(fingerprintsIn(page)...)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// fingerprint is a hash of the fields of a resource that a reconcile depends on. Lists are kept as fingerprints, which
// take little memory.
type fingerprint [sha256.Size]byte

func fingerprintOf(fields ...any) fingerprint {
	encoded, _ := json.Marshal(fields) // cannot fail: text, numbers, and times that were parsed
	return sha256.Sum256(encoded)
}

func fingerprintOfAccount(account *Account) fingerprint {
	// Azure writes resource IDs in a list with other letter cases than elsewhere.
	normal := *account
	normal.ID = strings.ToLower(account.ID)
	return fingerprintOf(normal)
}

func fingerprintOfGrant(grant *Grant, principalID string) fingerprint {
	return fingerprintOf(strings.ToLower(grant.ID), strings.ToLower(principalID), grant.CreatedOn)
}

func fingerprintOfAssignment(assignment armauthorization.RoleAssignment) fingerprint {
	p := value(assignment.Properties)
	return fingerprintOfGrant(&Grant{ID: value(assignment.ID), CreatedOn: value(p.CreatedOn)}, value(p.PrincipalID))
}

// fingerprintOfKey has the fields that a list of keys shows. They change with every new version, and the time of the
// update with every change of a version.
func fingerprintOfKey(k armkeyvault.Key) fingerprint {
	p := value(k.Properties)
	a := value(p.Attributes)
	return fingerprintOf(strings.ToLower(withoutPort(p.KeyURI)), a.Enabled, value(a.Created), value(a.Updated), value(a.Expires), value(a.NotBefore))
}

// fingerprintOfVersion also has the fields that only a single read shows.
func fingerprintOfVersion(k armkeyvault.Key) fingerprint {
	return fingerprintOf(fingerprintOfKey(k), keyOf(k))
}
