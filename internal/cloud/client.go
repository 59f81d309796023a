package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
	"k8s.io/utils/clock"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

// Config says which cloud, and with which manners.
type Config struct {
	// Cloud is the endpoint. Azure's public cloud if it is the zero value.
	Cloud azcloud.Configuration
	// Transport sends requests. Optional.
	Transport policy.Transporter
	// Guard, if there is one, decides whether requests that change something are sent.
	Guard *lease.Guard
	// AllowHTTP lets the credential go over plain HTTP: for a fake cloud on this machine.
	AllowHTTP bool
	// Limits are what a subscription allows. Azure's own where they are 0.
	Limits Limits
	// Clock is for the budget. Optional.
	Clock clock.PassiveClock
}

// Limits are the requests that a subscription allows one principal: a bucket, and what refills it.
type Limits struct {
	WritesPerSecond, ReadsPerSecond float64
	WritesBurst, ReadsBurst         int
}

func (l Limits) withDefaults() Limits {
	if l.WritesPerSecond == 0 {
		l.WritesPerSecond = writesPerSecond
	}
	if l.WritesBurst == 0 {
		l.WritesBurst = writesBurst
	}
	if l.ReadsPerSecond == 0 {
		l.ReadsPerSecond = readsPerSecond
	}
	if l.ReadsBurst == 0 {
		l.ReadsBurst = readsBurst
	}
	return l
}

// callTimeout is for one request and its answer: nothing here waits for a long-running operation.
const callTimeout = 20 * time.Second

// Cloud makes clients, and keeps what they share: the SDK's clients with their connections and
// tokens, and the budget of writes of each subscription.
type Cloud struct {
	config  Config
	mu      sync.Mutex
	clients map[string]*usedClient
}

// usedClient is a client, and when it was last asked for.
type usedClient struct {
	*Client
	at time.Time
}

// longestIdle is how long a client is kept that nobody asks for: its subscription has no object any
// more, or its credential was rotated. To make it anew costs a token, and its budget is full by then.
const longestIdle = 2 * time.Hour

// New makes a Cloud.
func New(config Config) *Cloud {
	if config.Cloud.Services == nil {
		config.Cloud = azcloud.AzurePublic
	}
	if config.Guard != nil {
		config.Transport = guarded(config.Guard, config.Transport)
	}
	config.Limits = config.Limits.withDefaults()
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return &Cloud{config: config, clients: map[string]*usedClient{}}
}

// Credential is a way to prove who one is, with a name by which its clients are shared. The name
// holds nothing secret.
type Credential struct {
	Name  string
	Token azcore.TokenCredential
}

// Client returns the client of a subscription for a credential: the same one for the same two.
func (c *Cloud) Client(subscription string, credential Credential) (*Client, error) {
	key := subscription + "/" + credential.Name
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.config.Clock.Now()
	if client, ok := c.clients[key]; ok {
		client.at = now
		return client.Client, nil
	}
	client, err := newClient(c.config, subscription, credential.Token)
	if err != nil {
		return nil, fmt.Errorf("making a client of subscription %s: %w", subscription, err)
	}
	// Only here do they become more.
	maps.DeleteFunc(c.clients, func(_ string, other *usedClient) bool { return now.Sub(other.at) >= longestIdle })
	c.clients[key] = &usedClient{Client: client, at: now}
	return client, nil
}

// IsBusy says whether somebody has to wait for a request, in any subscription.
func (c *Cloud) IsBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range c.clients {
		if client.budget.isBusy() {
			return true
		}
	}
	return false
}

// Client calls the cloud for one subscription as one principal. It is safe for concurrent use.
type Client struct {
	subscription string
	budget       *budget
	accounts     *armstorage.AccountsClient
	vaults       *armkeyvault.VaultsClient
	keys         *armkeyvault.KeysClient
	roles        *armauthorization.RoleAssignmentsClient
}

func newClient(config Config, subscription string, credential azcore.TokenCredential) (*Client, error) {
	options := &arm.ClientOptions{
		// Registering resource providers is the subscription's owner's to do.
		DisableRPRegistration: true,
		ClientOptions: policy.ClientOptions{
			Cloud:     config.Cloud,
			Transport: config.Transport,
			// The SDK would wait here; our caller comes back instead.
			Retry:                           policy.RetryOptions{MaxRetries: -1, TryTimeout: callTimeout},
			Telemetry:                       policy.TelemetryOptions{ApplicationID: "fixpoint"},
			InsecureAllowCredentialWithHTTP: config.AllowHTTP,
		},
	}
	accounts, err1 := armstorage.NewAccountsClient(subscription, credential, options)
	vaults, err2 := armkeyvault.NewVaultsClient(subscription, credential, options)
	keys, err3 := armkeyvault.NewKeysClient(subscription, credential, options)
	roles, err4 := armauthorization.NewRoleAssignmentsClient(subscription, credential, options)
	return &Client{
		subscription: subscription,
		budget:       newBudget(config.Clock, config.Limits),
		accounts:     accounts, vaults: vaults, keys: keys, roles: roles,
	}, errors.Join(err1, err2, err3, err4)
}

// Enter lets an object begin a pass of so many reads, or fails as [Throttled] with the time to wait.
// Who comes without it may be refused half-way.
func (c *Client) ReserveReads(object string, reads int) error {
	if wait := c.budget.reserveReads(object, reads); wait > 0 {
		return throttled("beginning", wait)
	}
	return nil
}

// read runs a call that changes nothing, in the name of an object.
func (c *Client) read(object string, target Target, doing string, call func() error) error {
	if wait := c.budget.read(object); wait > 0 {
		return throttled(doing, wait)
	}
	return c.outcome(target, doing, call())
}

// write runs a call that counts against the subscription's writes, in the name of an object.
func (c *Client) write(object string, target Target, doing string, call func() error) error {
	if wait := c.budget.reserveWrite(object); wait > 0 {
		return throttled(doing, wait)
	}
	return c.outcome(target, doing, call())
}

func (c *Client) outcome(target Target, doing string, err error) error {
	err = classify(target, doing, err)
	typed, failed := AsError(err)
	if !failed || typed.Kind != Throttled {
		c.budget.answered()
		return err
	}
	if typed.RetryAfter == 0 {
		typed.RetryAfter = time.Second
	}
	typed.RetryAfter = c.budget.refused(typed.RetryAfter)
	return err
}

func throttled(doing string, wait time.Duration) error {
	return &Error{Kind: Throttled, doing: doing, Message: "the subscription's budget of requests is used up for the moment", RetryAfter: wait}
}

// Account reads an account; the error is [NotFound] if there is none.
func (c *Client) Account(ctx context.Context, group, name string) (*Account, error) {
	var answer armstorage.AccountsClientGetPropertiesResponse
	var response *http.Response
	err := c.read(name, OnAccount, "reading the storage account", func() (err error) {
		answer, err = c.accounts.GetProperties(policy.WithCaptureResponse(ctx, &response), group, name, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	account := accountOf(answer.Account)
	account.etag = etagOf(response)
	return account, nil
}

// etagOf is the version of what was read, where the cloud tells one.
func etagOf(response *http.Response) string {
	if response == nil {
		return ""
	}
	return response.Header.Get("ETag")
}

// onlyIf makes a write conditional on the version that was read, so that it does not undo what
// somebody else wrote meanwhile, and touches nothing that was not there. A cloud that tells no
// versions takes the write as it is.
func onlyIf(ctx context.Context, etag string) context.Context {
	if etag == "" {
		return ctx
	}
	return policy.WithHTTPHeader(ctx, http.Header{"If-Match": {etag}})
}

// NewAccount is what an account is created with. What it is encrypted with follows later.
type NewAccount struct {
	Group, Name, Location, SKU string
	Tags                       map[string]string
}

// CreateAccount asks for an account with an identity of its own. The cloud goes on by itself. If
// there is an account of the name, seen or not seen yet, it is left as it is: [InProgress]. Only the
// remains of a creation that failed are replaced, where they are given.
func (c *Client) CreateAccount(ctx context.Context, wanted NewAccount, remains *Account) (Accepted, error) {
	if remains != nil {
		ctx = onlyIf(ctx, remains.etag)
	} else {
		ctx = policy.WithHTTPHeader(ctx, http.Header{"If-None-Match": {"*"}})
	}
	var response *http.Response
	err := c.write(wanted.Name, OnAccount, "creating the storage account", func() error {
		_, err := c.accounts.BeginCreate(policy.WithCaptureResponse(ctx, &response), wanted.Group, wanted.Name, armstorage.AccountCreateParameters{
			Kind:     to.Ptr(armstorage.KindStorageV2),
			Location: &wanted.Location,
			SKU:      &armstorage.SKU{Name: to.Ptr(armstorage.SKUName(wanted.SKU))},
			Tags:     pointers(wanted.Tags),
			Identity: &armstorage.Identity{Type: to.Ptr(armstorage.IdentityTypeSystemAssigned)},
			Properties: &armstorage.AccountPropertiesCreateParameters{
				EnableHTTPSTrafficOnly: to.Ptr(true),
				MinimumTLSVersion:      to.Ptr(armstorage.MinimumTLSVersionTLS12),
				AllowBlobPublicAccess:  to.Ptr(false),
			},
		}, nil)
		return err
	})
	return Accepted{RetryAfter: retryAfter(response)}, err
}

// Change is a change of an account; what is nil stays.
type Change struct {
	// SKU and Tags replace what is there.
	SKU  *string
	Tags map[string]string
	// Identity asks for a system-assigned identity. Those that the account has beside it stay.
	Identity bool
	// Encryption is what the account is to be encrypted with.
	Encryption *Encryption
}

// UpdateAccount changes an account that was read, and returns it as it is then. If somebody else has
// changed it meanwhile, it is left as it is: [InProgress].
func (c *Client) UpdateAccount(ctx context.Context, group string, account *Account, change Change) (*Account, error) {
	parameters := armstorage.AccountUpdateParameters{Tags: pointers(change.Tags)}
	if change.SKU != nil {
		parameters.SKU = &armstorage.SKU{Name: to.Ptr(armstorage.SKUName(*change.SKU))}
	}
	if change.Identity {
		parameters.Identity = &armstorage.Identity{Type: to.Ptr(identityBeside(account))}
	}
	if change.Encryption != nil {
		parameters.Properties = &armstorage.AccountPropertiesUpdateParameters{Encryption: encryptionFor(*change.Encryption)}
	}
	var answer armstorage.AccountsClientUpdateResponse
	var response *http.Response
	err := c.write(account.Name, OnAccount, "changing the storage account", func() (err error) {
		ctx := policy.WithCaptureResponse(onlyIf(ctx, account.etag), &response)
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

func identityBeside(account *Account) armstorage.IdentityType {
	if account.hasUserIdentity {
		return armstorage.IdentityTypeSystemAssignedUserAssigned
	}
	return armstorage.IdentityTypeSystemAssigned
}

func encryptionFor(e Encryption) *armstorage.Encryption {
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
	}
	return encryption
}

// DeleteAccount deletes an account that was read. That it is gone already is no error.
func (c *Client) DeleteAccount(ctx context.Context, group string, account *Account) error {
	err := c.write(account.Name, OnAccount, "deleting the storage account", func() error {
		_, err := c.accounts.Delete(onlyIf(ctx, account.etag), group, account.Name, nil)
		return err
	})
	return ignoreNotFound(err)
}

// IsNameAvailable says whether nobody in the whole cloud has the name of a storage account. It is a POST,
// which the cloud counts as a write.
func (c *Client) IsNameAvailable(ctx context.Context, name string) (bool, error) {
	var answer armstorage.AccountsClientCheckNameAvailabilityResponse
	err := c.write(name, OnAccount, "looking whether the name of the storage account is free", func() (err error) {
		answer, err = c.accounts.CheckNameAvailability(ctx, armstorage.AccountCheckNameAvailabilityParameters{
			Name: &name, Type: to.Ptr("Microsoft.Storage/storageAccounts"),
		}, nil)
		return err
	})
	return value(answer.NameAvailable), err
}

// Vault reads a vault; the error is [NotFound] if there is none.
func (c *Client) Vault(ctx context.Context, object, group, name string) (*Vault, error) {
	var answer armkeyvault.VaultsClientGetResponse
	err := c.read(object, OnVault, "reading the key vault", func() (err error) {
		answer, err = c.vaults.Get(ctx, group, name, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	return vaultOf(answer.Vault), nil
}

// Key reads a version of a key, or the latest one without a version; the error is [NotFound] if
// there is none.
func (c *Client) Key(ctx context.Context, object, group, vault, name, version string) (*Key, error) {
	var found armkeyvault.Key
	err := c.read(object, OnVault, "reading the key", func() error {
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
	return keyOf(found), nil
}

// Grant finds the role assignment by which a principal may use a vault's keys, or nil. Whoever made
// it counts: it may stand under another name than ours.
func (c *Client) Grant(ctx context.Context, object, vaultID, principalID string) (*Grant, error) {
	var found *Grant
	err := c.read(object, OnRoles, "reading the role assignments of the key vault", func() error {
		// The SDK puts the filter into the URL as it is, where a space has no place.
		filter := fmt.Sprintf("principalId%%20eq%%20'%s'", principalID)
		pager := c.roles.NewListForScopePager(vaultID, &armauthorization.RoleAssignmentsClientListForScopeOptions{Filter: &filter})
		for pager.More() && found == nil {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return err
			}
			found = grantIn(page.Value, vaultID, principalID)
		}
		return nil
	})
	return found, err
}

// CreateGrant lets a principal use a vault's keys. Granting again is the same grant.
func (c *Client) CreateGrant(ctx context.Context, object, vaultID, principalID string) (*Grant, error) {
	var answer armauthorization.RoleAssignmentsClientCreateResponse
	err := c.write(object, OnRoles, "granting access to the key vault", func() (err error) {
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

// DeleteGrant takes back the role assignment that [Client.CreateGrant] makes, whether or not it can
// be seen yet, and says whether there was one. Those of others stay.
func (c *Client) DeleteGrant(ctx context.Context, object, vaultID, principalID string) (bool, error) {
	var response *http.Response
	err := c.write(object, OnRoles, "taking back the access to the key vault", func() error {
		_, err := c.roles.Delete(policy.WithCaptureResponse(ctx, &response), vaultID, grantName(vaultID, principalID), nil)
		return err
	})
	there := err == nil && response != nil && response.StatusCode != http.StatusNoContent
	return there, ignoreNotFound(err)
}

func (c *Client) roleID(role string) string {
	return fmt.Sprintf("/subscriptions/%s/providers/Microsoft.Authorization/roleDefinitions/%s", c.subscription, role)
}

// KeyPermissions are what an access policy has to allow.
var KeyPermissions = []string{"get", "wrapkey", "unwrapkey"}

// SetAccessPolicy adds the [KeyPermissions] of a principal to a vault that works with access policies.
func (c *Client) SetAccessPolicy(ctx context.Context, object, group, vault, tenant, principalID string) error {
	return c.changeAccessPolicy(ctx, object, group, vault, tenant, principalID, armkeyvault.AccessPolicyUpdateKindAdd)
}

// RemoveAccessPolicy takes them away. That they are gone already is no error.
func (c *Client) RemoveAccessPolicy(ctx context.Context, object, group, vault, tenant, principalID string) error {
	return ignoreNotFound(c.changeAccessPolicy(ctx, object, group, vault, tenant, principalID, armkeyvault.AccessPolicyUpdateKindRemove))
}

func (c *Client) changeAccessPolicy(ctx context.Context, object, group, vault, tenant, principalID string, kind armkeyvault.AccessPolicyUpdateKind) error {
	return c.write(object, OnVault, "changing the access policies of the key vault", func() error {
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

// grantIn finds a grant that covers the whole vault: on the vault itself, or on what it is in.
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

// IsManagedGrant says whether a grant is one that [Client.CreateGrant] makes, and not somebody else's.
func IsManagedGrant(grantID, vaultID, principalID string) bool {
	return strings.EqualFold(path.Base(grantID), grantName(vaultID, principalID))
}

// GrantedAt is the vault that a role assignment is made at, from its id.
func GrantedAt(grantID string) string {
	before, _, found := strings.Cut(grantID, "/providers/Microsoft.Authorization/")
	if !found {
		return ""
	}
	return before
}
