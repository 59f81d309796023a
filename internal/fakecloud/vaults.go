package fakecloud

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

type vaultRequest struct {
	Location   *string            `json:"location"`
	Tags       map[string]*string `json:"tags"`
	Properties *vaultProperties   `json:"properties"`
}

type vaultProperties struct {
	TenantID *string `json:"tenantId"`
	SKU      *struct {
		Name   *string `json:"name"`
		Family *string `json:"family"`
	} `json:"sku"`
	CreateMode          *string          `json:"createMode"`
	AccessPolicies      *[]policyRequest `json:"accessPolicies"`
	RBAC                *bool            `json:"enableRbacAuthorization"`
	SoftDelete          *bool            `json:"enableSoftDelete"`
	PurgeProtection     *bool            `json:"enablePurgeProtection"`
	RetentionDays       *int             `json:"softDeleteRetentionInDays"`
	PublicNetworkAccess *string          `json:"publicNetworkAccess"`
}

type policyRequest struct {
	TenantID    string              `json:"tenantId"`
	ObjectID    string              `json:"objectId"`
	Permissions map[string][]string `json:"permissions"`
}

var vaultName = regexp.MustCompile(`^[a-zA-Z](-?[a-zA-Z0-9])+$`)

// vaultNamed returns a live key vault.
func (s *Server) vaultNamed(name string, now time.Time) *Vault {
	v := s.anyVault(name, now)
	if v == nil || v.DeletedAt != nil {
		return nil
	}
	return v
}

// anyVault returns a key vault, also a soft-deleted one until its retention has passed.
func (s *Server) anyVault(name string, now time.Time) *Vault {
	key := strings.ToLower(name)
	v := s.state.Vaults[key]
	if v != nil && v.ScheduledPurgeAt != nil && !now.Before(*v.ScheduledPurgeAt) {
		delete(s.state.Vaults, key)
		return nil
	}
	return v
}

func (s *Server) liveVault(c *call) *Vault {
	v := s.vaultNamed(c.path.name(0), c.now)
	if v == nil || !same(v.Subscription, c.path.subscription) || !same(v.Group, c.path.group) {
		return nil
	}
	return v
}

func (s *Server) getVault(c *call) reply {
	v := s.liveVault(c)
	if v == nil || c.now.Before(v.VisibleAt) {
		return refused(resourceNotFound(vaultKind, c.path.name(0), c.path.group))
	}
	return ok(v.render(c.now)).with("ETag", v.etag())
}

func (s *Server) listVaults(c *call) reply {
	var items []any
	for _, key := range sortedKeys(s.state.Vaults) {
		v := s.vaultNamed(key, c.now)
		if v != nil && same(v.Subscription, c.path.subscription) && (c.path.group == "" || same(v.Group, c.path.group)) {
			items = append(items, v.render(c.now))
		}
	}
	return s.list(c, items)
}

func (s *Server) putVault(c *call) reply {
	var request vaultRequest
	if err := c.decode(&request); err != nil {
		return refused(err)
	}
	if err := s.validVault(c, request); err != nil {
		return refused(err)
	}
	existing := s.anyVault(c.path.name(0), c.now)
	switch {
	case existing == nil:
		if err := c.condition(""); err != nil {
			return refused(err)
		}
		return s.createVault(c, request)
	case !same(existing.ID(), c.path.id()):
		return refused(conflict("VaultAlreadyExists", "The vault name '%s' is already in use. Vault names are globally unique so it is possible that the name is already taken. If you are sure that the vault name was not taken then it is possible that a vault with the same name was recently deleted but not purged after being placed in a recoverable state.", existing.Name))
	case existing.DeletedAt != nil && request.Properties.recovers():
		return s.recoverVault(c, existing)
	case existing.DeletedAt != nil:
		return refused(conflict("ConflictError", "A vault with the same name already exists in deleted state. You need to either recover or purge existing key vault. Follow this link https://go.microsoft.com/fwlink/?linkid=2149745 for more information on soft delete."))
	case !same(existing.Location, normalLocation(*request.Location)):
		return refused(conflict("InvalidResourceLocation", "The resource '%s' already exists in location '%s' in resource group '%s'. A resource with the same name cannot be created in location '%s'. Please select a new resource name.", existing.Name, existing.Location, existing.Group, *request.Location))
	}
	if err := c.condition(existing.etag()); err != nil {
		return refused(err)
	}
	if request.Tags == nil {
		request.Tags = map[string]*string{}
	}
	return s.updateVault(c, existing, request)
}

func (p *vaultProperties) recovers() bool {
	return p.CreateMode != nil && same(*p.CreateMode, "recover")
}

func validVaultName(name string) bool {
	return len(name) >= 3 && len(name) <= 24 && vaultName.MatchString(name)
}

func vaultNameNotValid(name string) *Error {
	return badRequest("VaultNameNotValid", "The vault name '%s' is invalid. A vault's name must be between 3-24 alphanumeric characters. The name must begin with a letter, end with a letter or digit, and not contain consecutive hyphens.", name)
}

func (s *Server) validVault(c *call, request vaultRequest) *Error {
	name := c.path.name(0)
	p := request.Properties
	switch {
	case !validVaultName(name):
		return vaultNameNotValid(name)
	case empty(request.Location):
		return badRequest("LocationRequired", "The location property is required for this definition.")
	case !slices.Contains(s.locations, normalLocation(*request.Location)):
		return badRequest("LocationNotAvailableForResourceType", "The provided location '%s' is not available for resource type '%s'. List of available regions for the resource type is '%s'.", *request.Location, vaultKind, strings.Join(s.locations, ","))
	case p == nil || p.recovers():
		if p == nil {
			return badRequest("BadRequest", "The property 'properties' is required.")
		}
		return nil
	case p.SKU == nil || empty(p.SKU.Name):
		return badRequest("BadRequest", "An invalid value was provided for 'sku'.")
	case empty(p.TenantID):
		return badRequest("BadRequest", "An invalid value was provided for 'tenantId'.")
	case p.AccessPolicies == nil && (p.RBAC == nil || !*p.RBAC):
		return badRequest("BadRequest", "The parameter accessPolicies is not specified.")
	}
	return validVaultUpdate(request)
}

func validVaultUpdate(request vaultRequest) *Error {
	p := request.Properties
	if p != nil && p.RetentionDays != nil && (*p.RetentionDays < 7 || *p.RetentionDays > 90) {
		return badRequest("BadRequest", "The property \"softDeleteRetentionInDays\" must be between 7 and 90.")
	}
	return validTags(request.Tags, 512)
}

func (s *Server) createVault(c *call, request vaultRequest) reply {
	name, p := c.path.name(0), request.Properties
	v := &Vault{
		Subscription: c.path.subscription, Group: s.group(c.path.subscription, c.path.group).Name, Name: name,
		Location: normalLocation(*request.Location), Tags: plainTags(request.Tags), SKU: *p.SKU.Name,
		SoftDelete: true, RetentionDays: longestRetention, PublicNetwork: "Enabled", Keys: map[string]*Key{},
		Version: 1, CreatedAt: c.now,
		VisibleAt: s.later(c.now, s.knobs.ReadAfterWrite, "read after write", name),
		ReadyAt:   s.later(c.now, s.knobs.VaultCreation, "vault creation", name),
	}
	if p.SoftDelete != nil {
		v.SoftDelete = *p.SoftDelete
	}
	s.applyVault(c, v, p)
	s.generation("vault", name)
	s.state.Vaults[strings.ToLower(name)] = v
	s.changed()
	c.did(Created, "")
	status := http.StatusOK
	if v.ReadyAt.After(c.now) {
		status = http.StatusCreated
	}
	return reply{status: status, body: v.render(c.now)}.with("ETag", v.etag())
}

func (s *Server) patchVault(c *call) reply {
	var request vaultRequest
	if err := c.decode(&request); err != nil {
		return refused(err)
	}
	if err := validVaultUpdate(request); err != nil {
		return refused(err)
	}
	v := s.liveVault(c)
	if v == nil {
		return refused(resourceNotFound(vaultKind, c.path.name(0), c.path.group))
	}
	if err := c.condition(v.etag()); err != nil {
		return refused(err)
	}
	return s.updateVault(c, v, request)
}

func (s *Server) updateVault(c *call, v *Vault, request vaultRequest) reply {
	if err := v.busy(c.now); err != nil {
		return refused(err)
	}
	p := request.Properties
	if p != nil && p.PurgeProtection != nil && !*p.PurgeProtection && v.PurgeProtection {
		return refused(badRequest("BadRequest", "The property \"enablePurgeProtection\" cannot be set to false. Enabling the purge protection for a vault is an irreversible action."))
	}
	if p != nil && p.SoftDelete != nil && !*p.SoftDelete && v.SoftDelete {
		return refused(badRequest("BadRequest", "The property \"enableSoftDelete\" can be set to false only for creating new vault. Enabling the 'soft delete' functionality is an irreversible action."))
	}
	if request.Tags != nil {
		v.Tags = plainTags(request.Tags)
	}
	if p != nil {
		s.applyVault(c, v, p)
	}
	s.touchVault(c, v)
	c.did(Updated, "")
	return ok(v.render(c.now)).with("ETag", v.etag())
}

// touchVault records a write to the key vault.
func (s *Server) touchVault(c *call, v *Vault) {
	v.Version++
	v.BusyUntil = s.later(c.now, s.knobs.VaultUpdate, "vault update", v.Name)
	s.changed()
}

// busy rejects writes while another write is in progress.
func (v *Vault) busy(now time.Time) *Error {
	if !now.Before(v.BusyUntil) {
		return nil
	}
	return conflict("ConflictError", "A conflict occurred that prevented the operation from completing. The operation failed because the Key Vault '%s' changed from the point it began. This can happen if parallel operations are being performed on the Key Vault. To prevent this error, serialize the operations so that only one operation is performed on the Key Vault at a time.", v.Name)
}

func (s *Server) applyVault(c *call, v *Vault, p *vaultProperties) {
	if p.RBAC != nil {
		v.RBAC = *p.RBAC
	}
	if p.PurgeProtection != nil {
		v.PurgeProtection = *p.PurgeProtection
	}
	if p.SoftDelete != nil && *p.SoftDelete {
		v.SoftDelete = true
	}
	if p.RetentionDays != nil {
		v.RetentionDays = *p.RetentionDays
	}
	if p.PublicNetworkAccess != nil {
		v.PublicNetwork = *p.PublicNetworkAccess
	}
	if p.SKU != nil && p.SKU.Name != nil {
		v.SKU = *p.SKU.Name
	}
	if p.AccessPolicies != nil {
		s.replacePolicies(c, v, *p.AccessPolicies)
	}
}

func (s *Server) deleteVault(c *call) reply {
	v := s.liveVault(c)
	if v == nil {
		c.did(NoChange, "it was not there")
		return reply{status: http.StatusNoContent}
	}
	if err := v.busy(c.now); err != nil {
		return refused(err)
	}
	s.removeVault(v, c.now)
	c.did(Deleted, "")
	return reply{status: http.StatusOK}
}

// removeVault soft-deletes a key vault. Its role assignments are deleted permanently.
func (s *Server) removeVault(v *Vault, now time.Time) {
	for _, id := range sortedKeys(s.state.Assignments) {
		if a := s.state.Assignments[id]; a.DeletedAt == nil && within(a.Scope, v.ID()) {
			a.DeletedAt, a.EffectiveEnd = &now, &now
			s.record(Entry{Who: WhoCloud, Resource: a.ID(), Effect: Deleted, Detail: "with the vault", Principal: a.PrincipalID})
		}
	}
	s.changed()
	if !v.SoftDelete {
		delete(s.state.Vaults, strings.ToLower(v.Name))
		return
	}
	purge := now.AddDate(0, 0, v.RetentionDays)
	v.DeletedAt, v.ScheduledPurgeAt = &now, &purge
	v.Version++
}

func (s *Server) recoverVault(c *call, v *Vault) reply {
	s.restoreVault(v, c.now)
	c.did(Updated, "recovered")
	return ok(v.render(c.now)).with("ETag", v.etag())
}

func (s *Server) restoreVault(v *Vault, now time.Time) {
	v.DeletedAt, v.ScheduledPurgeAt = nil, nil
	v.ReadyAt = s.later(now, s.knobs.VaultCreation, "vault creation", v.Name)
	v.Version++
	s.changed()
}

func (s *Server) deletedVault(c *call) *Vault {
	v := s.anyVault(c.path.name(1), c.now)
	if v == nil || v.DeletedAt == nil || !same(v.Subscription, c.path.subscription) || !same(v.Location, normalLocation(c.path.name(0))) {
		return nil
	}
	return v
}

func deletedVaultNotFound(name string) *Error {
	return notFound("DeletedVaultNotFound", "The specified deleted vault '%s' does not exist.", name)
}

func (s *Server) getDeletedVault(c *call) reply {
	v := s.deletedVault(c)
	if v == nil {
		return refused(deletedVaultNotFound(c.path.name(1)))
	}
	return ok(v.renderDeleted())
}

func (s *Server) listDeletedVaults(c *call) reply {
	var items []any
	for _, key := range sortedKeys(s.state.Vaults) {
		if v := s.anyVault(key, c.now); v != nil && v.DeletedAt != nil && same(v.Subscription, c.path.subscription) {
			items = append(items, v.renderDeleted())
		}
	}
	return s.list(c, items)
}

func (s *Server) purgeVault(c *call) reply {
	v := s.deletedVault(c)
	if v == nil {
		return refused(deletedVaultNotFound(c.path.name(1)))
	}
	if v.PurgeProtection {
		return refused(refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "Operation 'DeletedVaultPurge' is not allowed."))
	}
	delete(s.state.Vaults, strings.ToLower(v.Name))
	s.changed()
	c.did(Deleted, "purged")
	return s.accepted(c, s.startPurge(c, v))
}

func (s *Server) startPurge(c *call, v *Vault) *Operation {
	op := &Operation{
		ID: s.chance.guid("operation", "purge", v.ID(), strconv.FormatUint(v.Version, 10)), Kind: "purge", Location: v.Location, Resource: v.ID(),
		StartedAt: c.now, EndsAt: s.later(c.now, s.knobs.VaultCreation, "purge", v.Name),
	}
	s.state.Operations[op.ID] = op
	return op
}

func (s *Server) checkVaultName(c *call) reply {
	var request struct {
		Name string `json:"name"`
	}
	if err := c.decode(&request); err != nil {
		return refused(err)
	}
	if !validVaultName(request.Name) {
		return ok(map[string]any{"nameAvailable": false, "reason": "AccountNameInvalid", "message": vaultNameNotValid(request.Name).Message})
	}
	if s.anyVault(request.Name, c.now) != nil {
		return ok(map[string]any{"nameAvailable": false, "reason": "AlreadyExists", "message": fmt.Sprintf("The name '%s' is already in use.", request.Name)})
	}
	return ok(map[string]any{"nameAvailable": true})
}

func (v *Vault) etag() string { return etagOf(0, v.Version) }

func (v *Vault) state(now time.Time) string {
	if now.Before(v.ReadyAt) {
		return "RegisteringDns"
	}
	return "Succeeded"
}

func (v *Vault) render(now time.Time) map[string]any {
	properties := map[string]any{
		"tenantId": Tenant, "sku": map[string]any{"family": "A", "name": v.SKU},
		"accessPolicies": v.renderPolicies(), "enableRbacAuthorization": v.RBAC,
		"enableSoftDelete": v.SoftDelete, "softDeleteRetentionInDays": v.RetentionDays,
		"vaultUri": v.URI(), "provisioningState": v.state(now), "publicNetworkAccess": v.PublicNetwork,
	}
	// Azure omits the field if it is false.
	if v.PurgeProtection {
		properties["enablePurgeProtection"] = true
	}
	return map[string]any{
		"id": v.ID(), "name": v.Name, "type": vaultKind, "location": v.Location,
		"tags": orEmpty(v.Tags), "properties": properties,
	}
}

func (v *Vault) renderDeleted() map[string]any {
	return map[string]any{
		"id":   "/subscriptions/" + v.Subscription + "/providers/Microsoft.KeyVault/locations/" + v.Location + "/deletedVaults/" + v.Name,
		"name": v.Name, "type": "Microsoft.KeyVault/deletedVaults",
		"properties": map[string]any{
			"vaultId": v.ID(), "location": v.Location, "tags": orEmpty(v.Tags),
			"deletionDate": instant(*v.DeletedAt), "scheduledPurgeDate": instant(*v.ScheduledPurgeAt),
			"purgeProtectionEnabled": v.PurgeProtection,
		},
	}
}
