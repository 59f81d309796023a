package fakecloud

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// accountRequest is the body of a PUT or PATCH of a storage account.
type accountRequest struct {
	Location   *string                    `json:"location"`
	Kind       *string                    `json:"kind"`
	SKU        *skuRequest                `json:"sku"`
	Tags       map[string]*string         `json:"tags"`
	Identity   *identityRequest           `json:"identity"`
	Properties map[string]json.RawMessage `json:"properties"`
}

type skuRequest struct {
	Name *string `json:"name"`
}

type identityRequest struct {
	Type *string `json:"type"`
}

var (
	accountName = regexp.MustCompile(`^[a-z0-9]{3,24}$`)

	accountKinds = []string{"Storage", "StorageV2", "BlobStorage", "FileStorage", "BlockBlobStorage"}
	accountSKUs  = []string{"Standard_LRS", "Standard_GRS", "Standard_RAGRS", "Standard_ZRS", "Premium_LRS", "Premium_ZRS", "Standard_GZRS", "Standard_RAGZRS"}
	// readOnly are properties that a request may contain and that have no effect.
	readOnly = []string{"provisioningState", "primaryEndpoints", "creationTime", "primaryLocation", "statusOfPrimary", "keyCreationTime"}
)

// liveAccount returns an account in its current state.
func (s *Server) liveAccount(c *call) *Account {
	a := s.accountNamed(c.path.name(0), c.now)
	if a == nil || !same(a.Subscription, c.path.subscription) || !same(a.Group, c.path.group) {
		return nil
	}
	return a
}

func (s *Server) accountNamed(name string, now time.Time) *Account {
	key := strings.ToLower(name)
	a := s.state.Accounts[key]
	if a != nil {
		s.settleAccount(a, now)
	}
	return s.state.Accounts[key]
}

// settleAccount applies the state changes that are due.
func (s *Server) settleAccount(a *Account, now time.Time) {
	key := strings.ToLower(a.Name)
	if a.FailsLate && !now.Before(a.ReadyAt) {
		s.failLate(a)
	}
	if a.GoneAt != nil && !now.Before(*a.GoneAt) {
		delete(s.state.Accounts, key)
		s.changed()
		return
	}
	s.followKey(a, now)
}

func (s *Server) failLate(a *Account) {
	a.FailsLate = false
	if p := s.state.Principals[a.Identity.PrincipalID]; p != nil {
		p.DeletedAt = &a.ReadyAt
	}
	a.Identity = Identity{}
	if s.knobs.FailedAccountsStay {
		a.Failed = true
	} else {
		delete(s.state.Accounts, strings.ToLower(a.Name))
	}
	s.record(Entry{Who: WhoCloud, Resource: a.ID(), Effect: Failed, Detail: "the creation that had been accepted failed"})
}

func (s *Server) getAccount(c *call) reply {
	a := s.liveAccount(c)
	if a == nil || c.now.Before(a.VisibleAt) {
		return refused(resourceNotFound(accountKind, c.path.name(0), c.path.group))
	}
	return ok(s.renderAccount(c, a)).with("ETag", a.etag())
}

func (s *Server) listAccounts(c *call) reply {
	s.settle(c.now)
	var items []any
	for _, key := range sortedKeys(s.state.Accounts) {
		a := s.state.Accounts[key]
		if same(a.Subscription, c.path.subscription) && (c.path.group == "" || same(a.Group, c.path.group)) && !c.now.Before(a.VisibleAt) {
			items = append(items, s.renderAccount(c, a))
		}
	}
	return s.list(c, items)
}

func (s *Server) putAccount(c *call) reply {
	var request accountRequest
	if err := c.decode(&request); err != nil {
		return refused(err)
	}
	if err := s.validAccount(c, request); err != nil {
		return refused(err)
	}
	if err := s.takenAccount(c); err != nil {
		return refused(err)
	}
	a := s.liveAccount(c)
	if err := c.condition(a.etag()); err != nil {
		return refused(err)
	}
	if a == nil || a.Failed {
		return s.createAccount(c, request)
	}
	if !same(a.Location, normalLocation(*request.Location)) {
		return refused(conflict("InvalidResourceLocation", "The resource '%s' already exists in location '%s' in resource group '%s'. A resource with the same name cannot be created in location '%s'. Please select a new resource name.", a.Name, a.Location, a.Group, *request.Location))
	}
	if !same(a.Kind, *request.Kind) {
		return refused(badRequest("AccountPropertyCannotBeUpdated", "The property 'kind' was specified in the input, but it cannot be updated as it is read-only. For more information, see - https://aka.ms/storageaccountupdate"))
	}
	if a.State(c.now) != "Succeeded" || c.now.Before(a.BusyUntil) {
		return refused(operationInProgress())
	}
	if request.Tags == nil {
		request.Tags = map[string]*string{}
	}
	return s.updateAccount(c, a, request)
}

// validAccount rejects requests that are invalid by themselves.
func (s *Server) validAccount(c *call, request accountRequest) *Error {
	if !accountName.MatchString(c.path.name(0)) {
		return badRequest("AccountNameInvalid", "%s is not a valid storage account name. Storage account name must be between 3 and 24 characters in length and use numbers and lower-case letters only.", c.path.name(0))
	}
	if request.Location == nil || *request.Location == "" {
		return badRequest("LocationRequired", "The location property is required for this definition.")
	}
	if !slices.Contains(s.locations, normalLocation(*request.Location)) {
		return badRequest("LocationNotAvailableForResourceType", "The provided location '%s' is not available for resource type '%s'. List of available regions for the resource type is '%s'.", *request.Location, accountKind, strings.Join(s.locations, ","))
	}
	if request.SKU == nil || request.SKU.Name == nil {
		return badRequest("InvalidValuesForRequestParameters", "Values for request parameters are invalid: sku.")
	}
	if request.Kind == nil || !slices.Contains(accountKinds, *request.Kind) {
		return badRequest("InvalidValuesForRequestParameters", "Values for request parameters are invalid: kind.")
	}
	return validUpdate(request)
}

func validUpdate(request accountRequest) *Error {
	if request.SKU != nil && request.SKU.Name != nil && !slices.Contains(accountSKUs, *request.SKU.Name) {
		return badRequest("InvalidRequestPropertyValue", "The value '%s' is not allowed for property sku.name. For more information, see - https://aka.ms/storageaccountupdate", *request.SKU.Name)
	}
	if request.Identity != nil && (request.Identity.Type == nil || *request.Identity.Type != systemAssigned && *request.Identity.Type != "None") {
		return badRequest("InvalidRequestPropertyValue", "The value is not allowed for property identity.type: this cloud knows SystemAssigned and None.")
	}
	return validTags(request.Tags, 128)
}

// takenAccount rejects a name that another account in the cloud has.
func (s *Server) takenAccount(c *call) *Error {
	name := c.path.name(0)
	a := s.accountNamed(name, c.now)
	switch {
	case a == nil && c.now.Before(s.state.Holds[strings.ToLower(name)]):
		return conflict("StorageAccountAlreadyTaken", "The storage account named %s is already taken.", name)
	case a == nil:
		return nil
	case !same(a.Subscription, c.path.subscription):
		return conflict("StorageAccountAlreadyTaken", "The storage account named %s is already taken.", name)
	case !same(a.Group, c.path.group):
		return conflict("StorageAccountInAnotherResourceGroup", "The account %s is already in another resource group in this subscription.", name)
	}
	return nil
}

func (s *Server) createAccount(c *call, request accountRequest) reply {
	name := c.path.name(0)
	group := s.group(c.path.subscription, c.path.group)
	took := s.wait(s.knobs.AccountCreation, "account creation", name)
	a := &Account{
		Subscription: c.path.subscription, Group: group.Name, Name: name,
		Location: normalLocation(*request.Location), Kind: *request.Kind, SKU: *request.SKU.Name,
		Tags: plainTags(request.Tags), Settings: map[string]json.RawMessage{},
		Encryption: Encryption{KeySource: keySourcePlatform}, Version: 1,
		CreatedAt: c.now, VisibleAt: s.later(c.now, s.knobs.ReadAfterWrite, "read after write", name),
		ReadyAt: c.now.Add(took), ResolvingAt: c.now.Add(took * 4 / 5),
	}
	a.FailsLate = s.chance.happens("creation fails", name, s.knobs.CreationFailures) || c.fault != nil && c.fault.FailLate
	// A key vault cannot be given on creation: the identity does not exist yet.
	if err := s.applySettings(c, a, request.Properties); err != nil {
		return refused(err)
	}
	keyed, err := accountKeyed(request.Properties["encryption"])
	if err != nil {
		return refused(err)
	}
	a.AccountKeyed = keyed
	a.Generation = s.generation("account", name)
	if request.Identity != nil {
		s.identify(a, *request.Identity.Type, a.ReadyAt)
	}
	s.state.Accounts[strings.ToLower(name)] = a
	s.changed()
	c.did(Created, "")
	c.key, c.principal = a.Encryption.inWords(), a.Identity.PrincipalID
	if took <= 0 && !a.FailsLate {
		return ok(s.renderAccount(c, a)).with("ETag", a.etag())
	}
	return s.accepted(c, s.startCreation(a, c.now))
}

func (s *Server) startCreation(a *Account, now time.Time) *Operation {
	op := &Operation{
		ID: s.chance.guid("operation", a.ID(), strconv.Itoa(a.Generation)), Kind: "create", Location: a.Location,
		Resource: a.ID(), StartedAt: now, EndsAt: a.ReadyAt,
	}
	if a.FailsLate {
		op.Code, op.Message = "StorageAccountOperationFailed", "The storage account could not be created because of an internal error. Please try again."
	}
	s.state.Operations[op.ID] = op
	return op
}

func (s *Server) patchAccount(c *call) reply {
	var request accountRequest
	if err := c.decode(&request); err != nil {
		return refused(err)
	}
	if request.Location != nil {
		return refused(badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: 'Could not find member 'location' on object of type 'AccountUpdateParameters''."))
	}
	if err := validUpdate(request); err != nil {
		return refused(err)
	}
	a := s.liveAccount(c)
	if a == nil {
		return refused(resourceNotFound(accountKind, c.path.name(0), c.path.group))
	}
	if err := c.condition(a.etag()); err != nil {
		return refused(err)
	}
	switch a.State(c.now) {
	case "Creating", "ResolvingDNS", "Failed":
		return refused(notProvisioned())
	case "Deleting":
		return refused(operationInProgress())
	}
	if c.now.Before(a.BusyUntil) {
		return refused(operationInProgress())
	}
	return s.updateAccount(c, a, request)
}

// updateAccount applies all changes of the request, or none.
func (s *Server) updateAccount(c *call, a *Account, request accountRequest) reply {
	changed := a.clone()
	if request.Tags != nil {
		changed.Tags = plainTags(request.Tags)
	}
	if request.SKU != nil && request.SKU.Name != nil {
		changed.SKU = *request.SKU.Name
	}
	if err := s.applySettings(c, changed, request.Properties); err != nil {
		return refused(err)
	}
	if request.Identity != nil {
		s.identify(changed, *request.Identity.Type, c.now)
	}
	c.key, c.principal = changed.Encryption.inWords(), changed.Identity.PrincipalID
	detail := a.difference(changed)
	if detail == "" {
		c.did(NoChange, "")
		return ok(s.renderAccount(c, a)).with("ETag", a.etag())
	}
	changed.Version++
	changed.BusyUntil = s.later(c.now, s.knobs.AccountUpdate, "account update", a.Name)
	s.state.Accounts[strings.ToLower(a.Name)] = changed
	s.changed()
	c.did(Updated, detail)
	return ok(s.renderAccount(c, changed)).with("ETag", changed.etag())
}

func (s *Server) applySettings(c *call, a *Account, properties map[string]json.RawMessage) *Error {
	for name, value := range properties {
		switch {
		case slices.Contains(readOnly, name):
		case name == "encryption":
			if err := s.applyEncryption(c, a, value); err != nil {
				return err
			}
		default:
			a.Settings[name] = value
		}
	}
	return nil
}

// identify enables or disables the identity of the account.
func (s *Server) identify(a *Account, kind string, since time.Time) {
	if kind == a.Identity.Type || kind == "None" && a.Identity.Type == "" {
		return
	}
	if kind == "None" {
		if p := s.state.Principals[a.Identity.PrincipalID]; p != nil {
			p.DeletedAt = &since
		}
		a.Identity = Identity{}
		return
	}
	life := strconv.Itoa(s.generation("identity", a.Name))
	id := s.chance.guid("principal", a.ID(), life)
	visible := s.later(since, s.knobs.PrincipalDelay, "principal", a.Name)
	a.Identity = Identity{Type: kind, PrincipalID: id, VisibleAt: visible}
	s.state.Principals[id] = &Principal{
		ID: id, Type: "ServicePrincipal", Resource: a.ID(),
		KnownAt: s.later(visible, s.knobs.DirectoryDelay, "directory", a.Name),
	}
}

func (s *Server) deleteAccount(c *call) reply {
	a := s.liveAccount(c)
	if a == nil {
		c.did(NoChange, "it was not there")
		return reply{status: http.StatusNoContent}
	}
	if err := c.condition(a.etag()); err != nil {
		return refused(err)
	}
	if state := a.State(c.now); state != "Succeeded" && state != "Failed" || c.now.Before(a.BusyUntil) {
		return refused(operationInProgress())
	}
	s.removeAccount(a, c.now)
	c.did(Deleted, "")
	return reply{status: http.StatusOK}
}

// removeAccount starts the deletion. It deletes the identity; the grants of the identity stay as
// orphans.
func (s *Server) removeAccount(a *Account, now time.Time) {
	gone := s.later(now, s.knobs.AccountDeletion, "account deletion", a.Name)
	a.GoneAt = &gone
	a.Version++
	if p := s.state.Principals[a.Identity.PrincipalID]; p != nil {
		p.DeletedAt = &gone
	}
	s.state.Holds[strings.ToLower(a.Name)] = s.later(gone, s.knobs.NameHold, "name hold", a.Name)
	s.settleAccount(a, now)
	s.changed()
}

func (s *Server) checkAccountName(c *call) reply {
	var request struct {
		Name *string `json:"name"`
		Type *string `json:"type"`
	}
	if err := c.decode(&request); err != nil {
		return refused(err)
	}
	if request.Name == nil || request.Type == nil || !same(*request.Type, accountKind) {
		return refused(badRequest("InvalidValuesForRequestParameters", "Values for request parameters are invalid: name, type."))
	}
	name := *request.Name
	switch {
	case !accountName.MatchString(name):
		return ok(map[string]any{"nameAvailable": false, "reason": "AccountNameInvalid", "message": name + " is not a valid storage account name. Storage account name must be between 3 and 24 characters in length and use numbers and lower-case letters only."})
	case s.accountNamed(name, c.now) != nil || c.now.Before(s.state.Holds[name]):
		return ok(map[string]any{"nameAvailable": false, "reason": "AlreadyExists", "message": "The storage account named " + name + " is already taken."})
	}
	return ok(map[string]any{"nameAvailable": true})
}

func (a *Account) etag() string {
	if a == nil {
		return ""
	}
	return etagOf(a.Generation, a.Version)
}

// renderAccount returns the body of a GET.
func (s *Server) renderAccount(c *call, a *Account) map[string]any {
	now := c.now
	properties := map[string]any{}
	for name, value := range a.Settings {
		properties[name] = value
	}
	if state := a.State(now); declaresState(c.version, state) {
		properties["provisioningState"] = state
	}
	properties["creationTime"] = instant(a.CreatedAt)
	properties["keyCreationTime"] = map[string]any{"key1": instant(a.keyCreatedAt(0)), "key2": instant(a.keyCreatedAt(1))}
	properties["primaryLocation"] = a.Location
	properties["encryption"] = a.renderEncryption()
	if !now.Before(a.ReadyAt) {
		properties["primaryEndpoints"] = a.endpoints()
		properties["statusOfPrimary"] = "available"
		if s.readable(a, now) != nil {
			properties["statusOfPrimary"] = "unavailable"
		}
	}
	body := map[string]any{
		"id": a.ID(), "name": a.Name, "type": accountKind, "location": a.Location, "kind": a.Kind,
		"sku":  map[string]any{"name": a.SKU, "tier": strings.SplitN(a.SKU, "_", 2)[0]},
		"tags": orEmpty(a.Tags), "properties": properties,
	}
	if a.Identity.Type != "" {
		identity := map[string]any{"type": a.Identity.Type}
		if !now.Before(a.Identity.VisibleAt) {
			identity["principalId"], identity["tenantId"] = a.Identity.PrincipalID, Tenant
		}
		body["identity"] = identity
	}
	return body
}

// declaresState says whether an API version has a provisioning state of accounts. Versions after 2025-01-01 have only
// those of an account that is created or ready.
func declaresState(version, state string) bool {
	return version <= "2025-01-01" || slices.Contains([]string{"Creating", "ResolvingDNS", "Succeeded"}, state)
}

func (a *Account) endpoints() map[string]any {
	endpoints := map[string]any{}
	for _, service := range []string{"blob", "dfs", "file", "queue", "table"} {
		endpoints[service] = "https://" + a.Name + "." + service + ".core.windows.net/"
	}
	endpoints["web"] = "https://" + a.Name + ".z6.web.core.windows.net/"
	return endpoints
}

func (a *Account) clone() *Account {
	copied := *a
	copied.Tags = cloneMap(a.Tags)
	copied.Settings = cloneMap(a.Settings)
	return &copied
}

// difference describes what changed; empty if nothing did.
func (a *Account) difference(b *Account) string {
	var words []string
	if !maps.Equal(a.Tags, b.Tags) {
		words = append(words, "tags")
	}
	if a.SKU != b.SKU {
		words = append(words, "sku "+a.SKU+" -> "+b.SKU)
	}
	if a.Identity.Type != b.Identity.Type {
		words = append(words, "identity "+a.Identity.Type+" -> "+b.Identity.Type)
	}
	if a.Encryption.asked() != b.Encryption.asked() || a.Encryption.Current != b.Encryption.Current {
		words = append(words, "encryption "+a.Encryption.inWords()+" -> "+b.Encryption.inWords())
	}
	if !equalSettings(a.Settings, b.Settings) {
		words = append(words, "properties")
	}
	return strings.Join(words, ", ")
}
