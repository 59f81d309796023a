package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/keyvault/armkeyvault"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

// Config configures a Cloud.
type Config struct {
	// Cloud is the cloud's endpoints. The zero value is the Azure public cloud.
	Cloud azcloud.Configuration
	// Transport sends requests. Optional.
	Transport policy.Transporter
	// Guard decides whether write requests are sent. Optional.
	Guard *lease.Guard
	// AllowHTTP permits sending the credential over plain HTTP, for a local fake cloud.
	AllowHTTP bool
	// Limits are the request limits of a subscription. Zero fields default to the limits of Azure.
	Limits Limits
	// Clock is the clock of the request budget. Optional.
	Clock clock.PassiveClock
}

// Limits are the request limits of a subscription for one principal, as token buckets.
type Limits struct {
	WritesPerSecond, ReadsPerSecond float64
	WritesBurst, ReadsBurst         int
}

func (l Limits) withDefaults() Limits {
	l.WritesPerSecond = cmp.Or(l.WritesPerSecond, writesPerSecond)
	l.WritesBurst = cmp.Or(l.WritesBurst, writesBurst)
	l.ReadsPerSecond = cmp.Or(l.ReadsPerSecond, readsPerSecond)
	l.ReadsBurst = cmp.Or(l.ReadsBurst, readsBurst)
	return l
}

// callTimeout is the timeout of one request. No call waits for a long-running operation.
const callTimeout = 20 * time.Second

// Cloud creates clients and shares between them the connections and tokens of the SDK and the request
// budget of each subscription.
type Cloud struct {
	config      Config
	mu          sync.Mutex
	connections map[string]*usedConnection
	// records hold what was seen of the objects that need nothing.
	records *cache.LRUExpireCache
}

// usedConnection is a connection, and when it was last used.
type usedConnection struct {
	*connection
	at time.Time
}

// connectionTimeout is how long an unused connection is kept: its subscription may have no objects any
// more, or its credential may have been rotated. Creating it again costs one token request.
const connectionTimeout = 2 * time.Hour

// New returns a Cloud.
func New(config Config) *Cloud {
	if config.Guard != nil {
		config.Transport = guarded(config.Guard, config.Transport)
	}
	config.Limits = config.Limits.withDefaults()
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return &Cloud{config: config, connections: map[string]*usedConnection{}, records: cache.NewLRUExpireCacheWithClock(maxRecords, config.Clock)}
}

// Credential is a token source, and the name by which its connections are shared. The name contains
// nothing secret. Credentials that must not share a token, such as those of different namespaces, need
// different names.
type Credential struct {
	Name  string
	Token azcore.TokenCredential
	// Scopes are the scopes in which the credential may be used. No request is sent for a resource in
	// none of them.
	Scopes []Scope
}

// Client returns the client for a subscription and a credential. Clients of the same subscription and
// the same name of the credential share the tokens and the request budget.
func (c *Cloud) Client(subscription string, credential Credential) (*Client, error) {
	shared, err := c.connectionOf(subscription, credential)
	if err != nil {
		return nil, err
	}
	return &Client{connection: shared, scopes: credential.Scopes}, nil
}

func (c *Cloud) connectionOf(subscription string, credential Credential) (*connection, error) {
	key := subscription + "/" + credential.Name
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.config.Clock.Now()
	if used, ok := c.connections[key]; ok {
		used.at = now
		return used.connection, nil
	}
	created, err := newConnection(c.config, subscription, credential.Token)
	if err != nil {
		return nil, fmt.Errorf("creating a client for subscription %s: %w", subscription, err)
	}
	// The map grows only here, so stale connections are dropped here.
	maps.DeleteFunc(c.connections, func(_ string, other *usedConnection) bool { return now.Sub(other.at) >= connectionTimeout })
	c.connections[key] = &usedConnection{connection: created, at: now}
	return created, nil
}

// IsBusy says whether any object has to wait for a request, in any subscription.
func (c *Cloud) IsBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, used := range c.connections {
		if used.budget.isBusy() {
			return true
		}
	}
	return false
}

// Client sends requests for one subscription and one principal, for resources in the scopes of the
// credential. It is safe for concurrent use.
type Client struct {
	*connection
	scopes []Scope
	// seen is where to add what is read, or nil.
	seen *Seen
}

// connection is what clients of one subscription and one principal share.
type connection struct {
	subscription string
	budget       *budget
	accounts     *armstorage.AccountsClient
	vaults       *armkeyvault.VaultsClient
	keys         *armkeyvault.KeysClient
	roles        *armauthorization.RoleAssignmentsClient

	// lists hold a *[listState] by [listKey]. listsMu guards the states, and flights share the requests.
	lists   *cache.LRUExpireCache
	listsMu sync.Mutex
	flights singleflight.Group
}

func newConnection(config Config, subscription string, credential azcore.TokenCredential) (*connection, error) {
	options := &arm.ClientOptions{
		// Registering resource providers is up to the owner of the subscription.
		DisableRPRegistration: true,
		ClientOptions: policy.ClientOptions{
			Cloud:     config.Cloud,
			Transport: config.Transport,
			// The SDK would block in a retry; the callers requeue instead.
			Retry:                           policy.RetryOptions{MaxRetries: -1, TryTimeout: callTimeout},
			Telemetry:                       policy.TelemetryOptions{ApplicationID: "fixpoint"},
			InsecureAllowCredentialWithHTTP: config.AllowHTTP,
		},
	}
	accounts, err1 := armstorage.NewAccountsClient(subscription, credential, options)
	vaults, err2 := armkeyvault.NewVaultsClient(subscription, credential, options)
	keys, err3 := armkeyvault.NewKeysClient(subscription, credential, options)
	roles, err4 := armauthorization.NewRoleAssignmentsClient(subscription, credential, options)
	return &connection{
		subscription: subscription,
		budget:       newBudget(config.Clock, config.Limits),
		accounts:     accounts, vaults: vaults, keys: keys, roles: roles,
		lists: cache.NewLRUExpireCacheWithClock(maxLists, config.Clock),
	}, errors.Join(err1, err2, err3, err4)
}

// ReserveReads reserves the reads of a reconcile of an object, or returns a [Throttled] error with the
// time to wait. Reads without a reservation may be throttled halfway through a reconcile.
func (c *Client) ReserveReads(object string, reads int) error {
	if wait := c.budget.reserveReads(object, reads); wait > 0 {
		return throttled("beginning", wait)
	}
	return nil
}

// request describes a request: the object for which it is sent, and the resource that it reads or changes.
type request struct {
	object   string
	target   Target
	resource string
	doing    string
}

// read sends a read request.
func (c *Client) read(r request, call func() error) error {
	err := c.sendRead(r, call)
	if err != nil {
		c.seen.spoil()
	}
	return err
}

func (c *Client) sendRead(r request, call func() error) error {
	if err := c.checkScope(r); err != nil {
		return err
	}
	if wait := c.budget.read(r.object); wait > 0 {
		return throttled(r.doing, wait)
	}
	return c.outcome(r, call())
}

// write sends a request that changes a resource.
func (c *Client) write(r request, call func() error) error {
	c.seen.spoil()
	return c.sendWrite(r, r.object, call)
}

// post sends a request that changes nothing, but counts against the write limit. Its reservations are its own: a reconcile
// repeats such a request, which would take the reservation of the write after it each time, so that it is never sent.
func (c *Client) post(r request, call func() error) error {
	return c.sendWrite(r, r.object+" "+r.doing, call)
}

// sendWrite sends a request that is reserved for a holder.
func (c *Client) sendWrite(r request, holder string, call func() error) error {
	if err := c.checkScope(r); err != nil {
		return err
	}
	if wait := c.budget.reserveWrite(holder); wait > 0 {
		return throttled(r.doing, wait)
	}
	return c.outcome(r, call())
}

// checkScope refuses a request for a resource for which the credential may not be used.
func (c *Client) checkScope(r request) error {
	if ContainedIn(c.scopes, r.resource) {
		return nil
	}
	return &Error{Kind: OutOfScope, Target: r.target, Resource: r.resource, doing: r.doing, Message: r.resource + " is outside of the scopes in which the credential may be used"}
}

func (c *Client) outcome(r request, err error) error {
	err = classify(r.target, r.doing, err)
	typed, failed := AsError(err)
	if failed {
		typed.Resource = r.resource
	}
	if !failed || typed.Kind != Throttled {
		c.budget.answered()
		return err
	}
	typed.RetryAfter = cmp.Or(typed.RetryAfter, time.Second)
	typed.RetryAfter = c.budget.refused(typed.RetryAfter)
	return err
}

func (c *Client) forAccount(group, name, doing string) request {
	return request{name, OnAccount, AccountID(c.subscription, group, name), doing}
}

func (c *Client) forVault(object, group, name, doing string) request {
	return request{object, OnVault, VaultID(c.subscription, group, name), doing}
}

func throttled(doing string, wait time.Duration) error {
	return &Error{Kind: Throttled, doing: doing, Message: "the request limit of the subscription is used up", RetryAfter: wait}
}

// Account reads an account. The error is [NotFound] if the account does not exist.
func (c *Client) Account(ctx context.Context, group, name string) (*Account, error) {
	var answer armstorage.AccountsClientGetPropertiesResponse
	var response *http.Response
	err := c.read(c.forAccount(group, name, "reading the storage account"), func() (err error) {
		answer, err = c.accounts.GetProperties(policy.WithCaptureResponse(ctx, &response), group, name, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	account := accountOf(answer.Account)
	account.etag = etagOf(response)
	c.seen.add(reading{
		subscription: c.subscription, fingerprint: fingerprintOfAccount(account),
		list: list{kind: accountsOfGroup, group: group}, single: list{kind: singleAccount, group: group, name: name},
	})
	return account, nil
}

// etagOf returns the ETag of a response, or "".
func etagOf(response *http.Response) string {
	return response.Header.Get("ETag")
}

// withIfMatch makes a write conditional on the ETag that was read, so that it does not overwrite a concurrent
// change, and does not create or delete anything else. Without an ETag the write is unconditional.
func withIfMatch(ctx context.Context, etag string) context.Context {
	if etag == "" {
		return ctx
	}
	return policy.WithHTTPHeader(ctx, http.Header{"If-Match": {etag}})
}

// NewAccount describes an account to create. The encryption is set later, by an update.
type NewAccount struct {
	Group, Name, Location, SKU string
	Tags                       map[string]string
}

// CreateAccount requests an account with a system-assigned identity. The creation continues after the
// call. An existing account of the name is not changed: the error is [InProgress]. Only a failed account
// is replaced, if it is given as failed.
func (c *Client) CreateAccount(ctx context.Context, desired NewAccount, failed *Account) (Accepted, error) {
	if failed != nil {
		ctx = withIfMatch(ctx, failed.etag)
	} else {
		ctx = policy.WithHTTPHeader(ctx, http.Header{"If-None-Match": {"*"}})
	}
	var response *http.Response
	err := c.write(c.forAccount(desired.Group, desired.Name, "creating the storage account"), func() error {
		_, err := c.accounts.BeginCreate(policy.WithCaptureResponse(ctx, &response), desired.Group, desired.Name, armstorage.AccountCreateParameters{
			Kind:     to.Ptr(armstorage.KindStorageV2),
			Location: &desired.Location,
			SKU:      &armstorage.SKU{Name: to.Ptr(armstorage.SKUName(desired.SKU))},
			Tags:     pointers(desired.Tags),
			Identity: &armstorage.Identity{Type: to.Ptr(armstorage.IdentityTypeSystemAssigned)},
			Properties: &armstorage.AccountPropertiesCreateParameters{
				EnableHTTPSTrafficOnly: to.Ptr(true),
				MinimumTLSVersion:      to.Ptr(armstorage.MinimumTLSVersionTLS12),
				AllowBlobPublicAccess:  to.Ptr(false),
				Encryption:             newEncryption(desired.SKU),
			},
		}, nil)
		return err
	})
	return Accepted{RetryAfter: retryAfter(response)}, err
}

// newEncryption gives queues and tables the key of the account, as blobs and files have it, so that it can be the
// customer's later. By default, they have keys of their own, which Azure manages. Only a creation can choose. Premium
// accounts have neither. See https://learn.microsoft.com/azure/storage/common/account-encryption-key-create.
func newEncryption(sku string) *armstorage.Encryption {
	if isPremium(sku) {
		return nil
	}
	keyed := &armstorage.EncryptionService{KeyType: to.Ptr(armstorage.KeyTypeAccount)}
	return &armstorage.Encryption{
		KeySource: to.Ptr(armstorage.KeySource(PlatformKeys)), Services: &armstorage.EncryptionServices{Queue: keyed, Table: keyed},
	}
}

func isPremium(sku string) bool { return strings.HasPrefix(sku, "Premium_") }

// Change is a change of an account. Nil fields do not change.
type Change struct {
	// SKU and Tags replace the current values.
	SKU  *string
	Tags map[string]string
	// Identity enables the system-assigned identity. User-assigned identities stay.
	Identity bool
	// Encryption is the desired encryption.
	Encryption *Encryption
}

// UpdateAccount changes an account that was read, and returns the result. An account that was changed
// concurrently is not changed: the error is [InProgress].
func (c *Client) UpdateAccount(ctx context.Context, group string, account *Account, change Change) (*Account, error) {
	parameters := armstorage.AccountUpdateParameters{Tags: pointers(change.Tags)}
	if change.SKU != nil {
		parameters.SKU = &armstorage.SKU{Name: to.Ptr(armstorage.SKUName(*change.SKU))}
	}
	if change.Identity {
		parameters.Identity = &armstorage.Identity{Type: to.Ptr(withSystemIdentity(account))}
	}
	if change.Encryption != nil {
		parameters.Properties = &armstorage.AccountPropertiesUpdateParameters{Encryption: encryptionFor(*change.Encryption, account.Encryption)}
	}
	var answer armstorage.AccountsClientUpdateResponse
	var response *http.Response
	err := c.write(c.forAccount(group, account.Name, "updating the storage account"), func() (err error) {
		ctx := policy.WithCaptureResponse(withIfMatch(ctx, account.etag), &response)
		answer, err = c.accounts.Update(ctx, group, account.Name, parameters, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	changed := accountOf(answer.Account)
	changed.etag = etagOf(response)
	return changed, nil
}

func withSystemIdentity(account *Account) armstorage.IdentityType {
	if account.hasUserIdentity {
		return armstorage.IdentityTypeSystemAssignedUserAssigned
	}
	return armstorage.IdentityTypeSystemAssigned
}

func encryptionFor(e, now Encryption) *armstorage.Encryption {
	encryption := &armstorage.Encryption{
		KeySource: to.Ptr(armstorage.KeySource(e.KeySource)),
		Services: &armstorage.EncryptionServices{
			Blob: &armstorage.EncryptionService{Enabled: to.Ptr(true)},
			File: &armstorage.EncryptionService{Enabled: to.Ptr(true)},
		},
	}
	if e.KeySource == CustomerManaged {
		encryption.KeyVaultProperties = &armstorage.KeyVaultProperties{
			KeyVaultURI: &e.VaultURI, KeyName: &e.KeyName, KeyVersion: &e.KeyVersion,
		}
		if e.UserIdentity != now.UserIdentity { // empty resets it, and what is left out stays
			encryption.EncryptionIdentity = &armstorage.EncryptionIdentity{EncryptionUserAssignedIdentity: &e.UserIdentity}
		}
	}
	return encryption
}

// DeleteAccount deletes an account that was read. An account that was changed concurrently is not
// deleted: the error is [InProgress]. An account that does not exist is no error.
func (c *Client) DeleteAccount(ctx context.Context, group string, account *Account) error {
	err := c.write(c.forAccount(group, account.Name, "deleting the storage account"), func() error {
		_, err := c.accounts.Delete(withIfMatch(ctx, account.etag), group, account.Name, nil)
		return err
	})
	return ignoreNotFound(err)
}

// IsNameAvailable says whether no storage account in Azure has the name of an account of the group. It is a POST request, which
// counts against the write limit.
func (c *Client) IsNameAvailable(ctx context.Context, group, name string) (bool, error) {
	var answer armstorage.AccountsClientCheckNameAvailabilityResponse
	err := c.post(c.forAccount(group, name, "checking the availability of the storage account name"), func() (err error) {
		answer, err = c.accounts.CheckNameAvailability(ctx, armstorage.AccountCheckNameAvailabilityParameters{
			Name: &name,
		}, nil)
		return err
	})
	return value(answer.NameAvailable), err
}

// AccountKeys lists the access keys of an account. It changes nothing, but it is a POST request, which counts against the write
// limit.
func (c *Client) AccountKeys(ctx context.Context, group, name string) (AccountKeys, error) {
	var answer armstorage.AccountsClientListKeysResponse
	err := c.post(c.forAccount(group, name, "listing the keys of the storage account"), func() (err error) {
		answer, err = c.accounts.ListKeys(ctx, group, name, nil)
		return err
	})
	if err != nil {
		c.seen.spoil()
		return AccountKeys{}, err
	}
	return accountKeysOf(answer.AccountListKeysResult)
}

// Vault reads a key vault. The error is [NotFound] if the key vault does not exist.
func (c *Client) Vault(ctx context.Context, object, group, name string) (*Vault, error) {
	var answer armkeyvault.VaultsClientGetResponse
	err := c.read(c.forVault(object, group, name, "reading the key vault"), func() (err error) {
		answer, err = c.vaults.Get(ctx, group, name, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	vault := vaultOf(answer.Vault)
	c.seen.add(reading{
		subscription: c.subscription, fingerprint: fingerprintOf(vault),
		single: list{kind: singleVault, group: group, name: name},
	})
	return vault, nil
}

// Key reads a version of a key; an empty version means the latest one. The error is [NotFound] if it
// does not exist.
func (c *Client) Key(ctx context.Context, object, group, vault, name, version string) (*Key, error) {
	var found armkeyvault.Key
	err := c.read(c.forVault(object, group, vault, "reading the key"), func() error {
		if version == "" {
			answer, err := c.keys.Get(ctx, group, vault, name, nil)
			found = answer.Key
			return err
		}
		answer, err := c.keys.GetVersion(ctx, group, vault, name, version, nil)
		found = answer.Key
		return err
	})
	if err != nil {
		return nil, err
	}
	seen := reading{subscription: c.subscription, fingerprint: fingerprintOfVersion(found), single: list{kind: singleKey, group: group, name: vault, item: name, version: version}}
	if version == "" {
		seen.fingerprint, seen.list = fingerprintOfKey(found), list{kind: keysOfVault, group: group, name: vault}
	}
	c.seen.add(seen)
	return keyOf(found), nil
}

// Grant returns a role assignment that lets a principal use the keys of a key vault, or nil. It may have
// been created by anyone, under any name.
func (c *Client) Grant(ctx context.Context, object, vaultID, principalID string) (*Grant, error) {
	var found *Grant
	err := c.read(request{object, OnRoles, vaultID, "reading the role assignments of the key vault"}, func() error {
		// The SDK does not escape the filter.
		filter := url.PathEscape("principalId eq '" + strings.ReplaceAll(principalID, "'", "''") + "'")
		pager := c.roles.NewListForScopePager(vaultID, &armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: &filter})
		for pages := 0; pager.More() && found == nil; pages++ {
			if pages == maxPages {
				return errors.New("the list of role assignments does not end")
			}
			page, err := pager.NextPage(ctx)
			if err != nil {
				return err
			}
			found = grantIn(page.Value, vaultID, principalID)
		}
		return nil
	})
	if found == nil {
		c.seen.spoil()
		return nil, err
	}
	c.seen.add(reading{
		subscription: c.subscription, fingerprint: fingerprintOfGrant(found, principalID),
		list: list{kind: grantsOnVault, name: vaultID}, single: list{kind: grantOfPrincipal, name: vaultID, item: principalID},
	})
	return found, nil
}

// maxPages limits the pages of a list that are read. The role assignments of one principal fill one page.
const maxPages = 50

// CreateGrant lets a principal use the keys of a key vault. It is idempotent.
func (c *Client) CreateGrant(ctx context.Context, object, vaultID, principalID string) (*Grant, error) {
	var answer armauthorization.RoleAssignmentsClientCreateResponse
	err := c.write(request{object, OnRoles, vaultID, "granting access to the key vault"}, func() (err error) {
		answer, err = c.roles.Create(ctx, vaultID, grantName(vaultID, principalID), armauthorization.RoleAssignmentCreateParameters{
			Properties: &armauthorization.RoleAssignmentProperties{
				PrincipalID:      &principalID,
				PrincipalType:    to.Ptr(armauthorization.PrincipalTypeServicePrincipal),
				RoleDefinitionID: to.Ptr(c.roleID(CryptoUserRole)),
			},
		}, nil)
		return err
	})
	if Is(err, AlreadyGranted) {
		return c.Grant(ctx, object, vaultID, principalID)
	}
	if err != nil {
		return nil, err
	}
	grant := &Grant{ID: value(answer.ID)}
	if answer.Properties != nil {
		grant.CreatedOn = value(answer.Properties.CreatedOn)
	}
	return grant, nil
}

// DeleteGrant deletes the role assignment that [Client.CreateGrant] creates, also if it is not visible
// yet, and says whether it existed. Other role assignments stay.
func (c *Client) DeleteGrant(ctx context.Context, object, vaultID, principalID string) (bool, error) {
	var response *http.Response
	err := c.write(request{object, OnRoles, vaultID, "revoking the access to the key vault"}, func() error {
		_, err := c.roles.Delete(policy.WithCaptureResponse(ctx, &response), vaultID, grantName(vaultID, principalID), nil)
		return err
	})
	there := err == nil && response.StatusCode != http.StatusNoContent
	return there, ignoreNotFound(err)
}

func (c *Client) roleID(role string) string {
	return fmt.Sprintf("/subscriptions/%s/providers/Microsoft.Authorization/roleDefinitions/%s", c.subscription, role)
}

// KeyPermissions are the key permissions that a storage account needs.
var KeyPermissions = []string{"get", "wrapkey", "unwrapkey"}

// SetAccessPolicy adds the [KeyPermissions] of a principal to a key vault that uses access policies.
func (c *Client) SetAccessPolicy(ctx context.Context, object, group, vault, tenant, principalID string) error {
	return c.changeAccessPolicy(ctx, object, group, vault, tenant, principalID, armkeyvault.AccessPolicyUpdateKindAdd)
}

// RemoveAccessPolicy removes them. Permissions that do not exist are no error.
func (c *Client) RemoveAccessPolicy(ctx context.Context, object, group, vault, tenant, principalID string) error {
	return ignoreNotFound(c.changeAccessPolicy(ctx, object, group, vault, tenant, principalID, armkeyvault.AccessPolicyUpdateKindRemove))
}

func (c *Client) changeAccessPolicy(ctx context.Context, object, group, vault, tenant, principalID string, kind armkeyvault.AccessPolicyUpdateKind) error {
	return c.write(c.forVault(object, group, vault, "updating the access policies of the key vault"), func() error {
		_, err := c.vaults.UpdateAccessPolicy(ctx, group, vault, kind, armkeyvault.VaultAccessPolicyParameters{
			Properties: &armkeyvault.VaultAccessPolicyProperties{
				AccessPolicies: []*armkeyvault.AccessPolicyEntry{{
					ObjectID: &principalID,
					TenantID: &tenant,
					Permissions: &armkeyvault.Permissions{Keys: []*armkeyvault.KeyPermissions{
						to.Ptr(armkeyvault.KeyPermissionsGet), to.Ptr(armkeyvault.KeyPermissionsWrapKey), to.Ptr(armkeyvault.KeyPermissionsUnwrapKey),
					}},
				}},
			},
		}, nil)
		return err
	})
}

func ignoreNotFound(err error) error {
	if Is(err, NotFound) {
		return nil
	}
	return err
}

func pointers(values map[string]string) map[string]*string {
	if values == nil {
		return nil
	}
	pointed := make(map[string]*string, len(values))
	for key, value := range maps.All(values) {
		pointed[key] = &value
	}
	return pointed
}

// grantIn returns a role assignment that covers the whole key vault: on it, or on a parent scope.
func grantIn(assignments []*armauthorization.RoleAssignment, vaultID, principalID string) *Grant {
	for _, assignment := range assignments {
		if assignment == nil || assignment.Properties == nil {
			continue
		}
		p := assignment.Properties
		if !strings.EqualFold(value(p.PrincipalID), principalID) ||
			!strings.HasSuffix(strings.ToLower(value(p.RoleDefinitionID)), CryptoUserRole) ||
			!isWithin(vaultID, value(p.Scope)) {
			continue
		}
		return &Grant{ID: value(assignment.ID), CreatedOn: value(p.CreatedOn)}
	}
	return nil
}

func isWithin(id, scope string) bool {
	id, scope = strings.ToLower(id)+"/", strings.TrimSuffix(strings.ToLower(scope), "/")+"/"
	return strings.HasPrefix(id, scope)
}

// IsManagedGrant says whether a role assignment has the name that [Client.CreateGrant] uses. Role
// assignments that a user created have other names.
func IsManagedGrant(grantID, vaultID, principalID string) bool {
	return strings.EqualFold(path.Base(grantID), grantName(vaultID, principalID))
}

// GrantedAt returns the scope of a role assignment from its ID.
func GrantedAt(grantID string) string {
	before, _, found := strings.Cut(grantID, "/providers/Microsoft.Authorization/")
	if !found {
		return ""
	}
	return before
}
