package fakecloud

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The data plane of key vaults, as far as the life of a key needs it: each key vault is a host of its own, and a
// client that sends no token is told where to get one.

const (
	vaultDomain = ".vault.azure.net"
	keyActions  = vaultKind + "/keys/"
)

// keyVaultVersions are the API versions of the data plane.
var keyVaultVersions = []string{"7.4", "7.5", "7.6", "2025-07-01"}

// dataCall is a request to the data plane of a key vault.
type dataCall struct {
	*call
	vault *Vault
	// name and version are those of the key in the path; empty without one.
	name    string
	version string
}

// dataRoute is a supported request. A segment of its path in braces stands for a name or a version.
type dataRoute struct {
	method string
	path   string
	action string
	serve  func(*Server, *dataCall) reply
}

var dataRoutes = []dataRoute{
	{http.MethodGet, "keys", "read", (*Server).listDataKeys},
	{http.MethodGet, "keys/{name}", "read", (*Server).getDataKey},
	{http.MethodGet, "keys/{name}/versions", "read", (*Server).listDataVersions},
	{http.MethodGet, "keys/{name}/{version}", "read", (*Server).getDataKey},
	{http.MethodPost, "keys/{name}/create", "create/action", (*Server).createDataKey},
	{http.MethodPost, "keys/{name}/rotate", "rotate/action", (*Server).rotateDataKey},
	{http.MethodPatch, "keys/{name}", "update/action", (*Server).patchDataKey},
	{http.MethodPatch, "keys/{name}/{version}", "update/action", (*Server).patchDataKey},
	{http.MethodDelete, "keys/{name}", "delete", (*Server).deleteDataKey},
	{http.MethodGet, "deletedkeys", "read", (*Server).listDeletedKeys},
	{http.MethodGet, "deletedkeys/{name}", "read", (*Server).getDeletedKey},
	{http.MethodPost, "deletedkeys/{name}/recover", "recover/action", (*Server).recoverDataKey},
	{http.MethodDelete, "deletedkeys/{name}", "purge/action", (*Server).purgeDataKey},
}

// match returns the name and the version in a path, and whether the route serves it.
func (r dataRoute) match(method string, segments []string) (name, version string, matches bool) {
	pattern := strings.Split(r.path, "/")
	if method != r.method || len(pattern) != len(segments) {
		return "", "", false
	}
	for i, segment := range pattern {
		switch {
		case segment == "{name}":
			name = segments[i]
		case segment == "{version}":
			version = segments[i]
		case !same(segment, segments[i]):
			return "", "", false
		}
	}
	return name, version, true
}

// vaultOfHost returns the name of the key vault that a host is the data plane of; false for other hosts.
func vaultOfHost(host string) (string, bool) {
	parsed := url.URL{Host: host}
	return strings.CutSuffix(strings.ToLower(parsed.Hostname()), vaultDomain)
}

// decideData runs the checks of the data plane in order, and then serves the request.
func (s *Server) decideData(c *call, vault string) reply {
	segments := c.path.segments
	d := &dataCall{call: c, vault: s.vaultNamed(vault, c.now)}
	if d.vault != nil {
		// Faults, counts and the ledger name the key vault, as for requests to Azure Resource Manager.
		c.path = parsePath(d.vault.ID() + c.path.id())
	}
	if err := s.challenged(c); err != nil {
		return refused(err)
	}
	route, err := d.route(segments)
	if err != nil {
		return refused(err)
	}
	for _, check := range []func(*call) *Error{s.faulted, s.stumbled} {
		if err := check(c); err != nil {
			return refused(err)
		}
	}
	for _, denial := range s.knobs.Denied {
		if denial.covers(c.who.name, keyActions+route.action, c.path.id()) && (!denial.Lists || d.name == "") {
			return refused(forbiddenByRBAC(c.who.name, keyActions+route.action))
		}
	}
	return s.mishap(c, route.serve(s, d))
}

func (d *dataCall) route(segments []string) (dataRoute, *Error) {
	if version := url.Values(d.query).Get("api-version"); !slices.Contains(keyVaultVersions, version) {
		return dataRoute{}, badRequest("BadParameter", "The specified version (%s) is not recognized. Consider using the latest supported version (%s).", version, keyVaultVersions[len(keyVaultVersions)-1])
	}
	if d.vault == nil {
		return dataRoute{}, notFound("VaultNotFound", "The key vault of this host does not exist.")
	}
	for _, route := range dataRoutes {
		if name, version, matches := route.match(d.method, segments); matches {
			d.name, d.version = name, version
			return route, nil
		}
	}
	return dataRoute{}, badRequest("BadParameter", "Method %s does not allow operation '%s'", d.method, strings.Join(segments, "/"))
}

// challenged identifies the caller. Without a token, the response names the authority and the resource to get one for.
func (s *Server) challenged(c *call) *Error {
	if err := s.authenticate(c); err != nil {
		challenge := refuse(http.StatusUnauthorized, "Unauthorized", "AKV10000: Request is missing a Bearer or PoP token.")
		if c.header.Get("Authorization") != "" {
			challenge.Message = "AKV10032: Invalid issuer or token."
		}
		challenge.challenge = `Bearer authorization="https://login.microsoftonline.com/` + Tenant + `", resource="https://vault.azure.net"`
		return challenge
	}
	return nil
}

func forbiddenByRBAC(who, action string) *Error {
	err := refuse(http.StatusForbidden, "Forbidden", "Caller is not authorized to perform action on resource.\r\nIf role assignments, deny assignments or role definitions were changed recently, please observe propagation time.\r\nCaller: name=%s\r\nAction: '%s'", who, action)
	err.inner = "ForbiddenByRbac"
	return err
}

// dataKey serves a request for a live key, or one of its versions.
func (d *dataCall) dataKey(serve func(*Key, *KeyVersion) reply) reply {
	key := d.vault.liveKey(d.name)
	if key == nil {
		return refused(keyNotFound(d.name))
	}
	version := key.newest()
	if d.version != "" {
		version = key.version(d.version)
	}
	if version == nil {
		return refused(keyNotFound(d.name + "/" + d.version))
	}
	return serve(key, version)
}

func (*Server) getDataKey(d *dataCall) reply {
	return d.dataKey(func(key *Key, version *KeyVersion) reply { return ok(d.vault.bundle(key, version)) })
}

func (s *Server) listDataKeys(d *dataCall) reply {
	var items []any
	for _, name := range sortedKeys(d.vault.Keys) {
		if key := d.vault.liveKey(name); key != nil {
			items = append(items, d.vault.keyItem(key, key.newest(), ""))
		}
	}
	return s.list(d.call, items)
}

func (s *Server) listDataVersions(d *dataCall) reply {
	return d.dataKey(func(key *Key, _ *KeyVersion) reply {
		var items []any
		for _, version := range key.Versions {
			items = append(items, d.vault.keyItem(key, version, "/"+version.ID))
		}
		return s.list(d.call, items)
	})
}

type dataKeyRequest struct {
	Kty        *string             `json:"kty"`
	Size       *int                `json:"key_size"`
	Ops        []string            `json:"key_ops"`
	Tags       map[string]*string  `json:"tags"`
	Attributes *dataAttributesBody `json:"attributes"`
}

type dataAttributesBody struct {
	Enabled *bool  `json:"enabled"`
	Expires *int64 `json:"exp"`
}

func (a *dataAttributesBody) apply(version *KeyVersion) {
	if a != nil && a.Enabled != nil {
		version.Enabled = *a.Enabled
	}
	if a != nil && a.Expires != nil {
		expires := time.Unix(*a.Expires, 0)
		version.ExpiresAt = &expires
	}
}

// createDataKey creates a key, or a new version of it.
func (s *Server) createDataKey(d *dataCall) reply {
	var request dataKeyRequest
	if err := d.decode(&request); err != nil {
		return refused(err)
	}
	if request.Kty == nil || !slices.Contains(keyTypes, *request.Kty) {
		return refused(badRequest("BadParameter", "Property kty has invalid value"))
	}
	key := d.vault.Keys[strings.ToLower(d.name)]
	if key != nil && key.DeletedAt != nil {
		// The data plane has a code for all conflicts, and says which one it is with an inner error.
		taken := keyIsDeleted(d.name)
		taken.Code, taken.inner = "Conflict", taken.Code
		return refused(taken)
	}
	spec := KeySpec{Type: *request.Kty, Ops: request.Ops}
	if request.Size != nil {
		spec.Size = *request.Size
	}
	if key == nil {
		key = s.addKey(d.vault, d.name, spec, d.now)
	} else {
		key.become(spec)
		s.addVersion(d.vault, key, d.now)
	}
	if request.Tags != nil {
		key.Tags = plainTags(request.Tags)
	}
	request.Attributes.apply(key.newest())
	d.did(Created, "version "+key.newest().ID)
	return ok(d.vault.bundle(key, key.newest()))
}

func (s *Server) rotateDataKey(d *dataCall) reply {
	return d.dataKey(func(key *Key, _ *KeyVersion) reply {
		version := s.addVersion(d.vault, key, d.now)
		d.did(Created, "version "+version.ID)
		return ok(d.vault.bundle(key, version))
	})
}

func (s *Server) patchDataKey(d *dataCall) reply {
	var request dataKeyRequest
	if err := d.decode(&request); err != nil {
		return refused(err)
	}
	return d.dataKey(func(key *Key, version *KeyVersion) reply {
		request.Attributes.apply(version)
		version.UpdatedAt = d.now
		if request.Tags != nil {
			key.Tags = plainTags(request.Tags)
		}
		if request.Ops != nil {
			key.Ops = request.Ops
		}
		s.changed()
		d.did(Updated, "version "+version.ID)
		return ok(d.vault.bundle(key, version))
	})
}

// deleteDataKey soft-deletes a key. The deleted key is found after a while.
func (s *Server) deleteDataKey(d *dataCall) reply {
	return d.dataKey(func(key *Key, version *KeyVersion) reply {
		s.changed()
		d.did(Deleted, "")
		if !d.vault.SoftDelete {
			delete(d.vault.Keys, strings.ToLower(d.name))
			return ok(d.vault.bundle(key, version))
		}
		key.DeletedAt = &d.now
		key.FoundDeletedAt = s.later(d.now, s.knobs.ReadAfterWrite, "deleted key", d.vault.Name+"/"+key.Name)
		return ok(d.vault.deletedBundle(key))
	})
}

// deletedKey serves a request for a soft-deleted key.
func (d *dataCall) deletedKey(serve func(*Key) reply) reply {
	key := d.vault.Keys[strings.ToLower(d.name)]
	if key == nil || key.DeletedAt == nil || d.now.Before(key.FoundDeletedAt) {
		return refused(notFound("KeyNotFound", "Deleted Key not found: %s", d.name))
	}
	return serve(key)
}

func (*Server) getDeletedKey(d *dataCall) reply {
	return d.deletedKey(func(key *Key) reply { return ok(d.vault.deletedBundle(key)) })
}

func (s *Server) listDeletedKeys(d *dataCall) reply {
	var items []any
	for _, name := range sortedKeys(d.vault.Keys) {
		if key := d.vault.Keys[name]; key.DeletedAt != nil && !d.now.Before(key.FoundDeletedAt) {
			items = append(items, d.vault.deletion(key, d.vault.keyItem(key, key.newest(), "")))
		}
	}
	return s.list(d.call, items)
}

func (s *Server) recoverDataKey(d *dataCall) reply {
	return d.deletedKey(func(key *Key) reply {
		key.DeletedAt = nil
		s.changed()
		d.did(Updated, "recovered")
		return ok(d.vault.bundle(key, key.newest()))
	})
}

func (s *Server) purgeDataKey(d *dataCall) reply {
	return d.deletedKey(func(*Key) reply {
		if d.vault.PurgeProtection {
			err := refuse(http.StatusForbidden, "Forbidden", "Operation \"purge\" is not allowed on this vault because purge protection is enabled.")
			err.inner = "ForbiddenByPolicy"
			return refused(err)
		}
		delete(d.vault.Keys, strings.ToLower(d.name))
		s.changed()
		d.did(Deleted, "purged")
		return reply{status: http.StatusNoContent}
	})
}

// bundle is the response of the data plane for one version of a key.
func (v *Vault) bundle(key *Key, version *KeyVersion) map[string]any {
	jwk := map[string]any{"kid": v.URI() + "keys/" + key.Name + "/" + version.ID, "kty": key.Type, "key_ops": key.Ops}
	if key.Curve != "" {
		const coordinate = 32
		jwk["crv"], jwk["x"], jwk["y"] = key.Curve, material(version.ID+"x", coordinate), material(version.ID+"y", coordinate)
	} else {
		const bits = 8
		jwk["n"], jwk["e"] = material(version.ID, key.Size/bits), "AQAB"
	}
	return map[string]any{"key": jwk, "attributes": v.attributes(version), "tags": orEmpty(key.Tags)}
}

func (v *Vault) keyItem(key *Key, version *KeyVersion, suffix string) map[string]any {
	return map[string]any{"kid": v.URI() + "keys/" + key.Name + suffix, "attributes": v.attributes(version), "tags": orEmpty(key.Tags)}
}

func (v *Vault) deletedBundle(key *Key) map[string]any {
	return v.deletion(key, v.bundle(key, key.newest()))
}

// deletion adds what a response shows of a deleted key.
func (v *Vault) deletion(key *Key, body map[string]any) map[string]any {
	body["recoveryId"] = v.URI() + "deletedkeys/" + key.Name
	body["deletedDate"] = key.DeletedAt.Unix()
	body["scheduledPurgeDate"] = key.DeletedAt.AddDate(0, 0, v.RetentionDays).Unix()
	return body
}

func (v *Vault) attributes(version *KeyVersion) map[string]any {
	attributes := map[string]any{
		"enabled": version.Enabled, "created": version.CreatedAt.Unix(), "updated": version.UpdatedAt.Unix(),
		"exportable": false, "recoveryLevel": v.recoveryLevel(), "recoverableDays": v.RetentionDays,
	}
	if version.ExpiresAt != nil {
		attributes["exp"] = version.ExpiresAt.Unix()
	}
	return attributes
}

// material is what a public key of the fake consists of: bytes that depend on the version.
func material(seed string, size int) string {
	c := chance{}
	var bytes []byte
	for len(bytes) < size {
		bytes = append(bytes, c.digest(seed, strconv.Itoa(len(bytes)))...)
	}
	return base64.RawURLEncoding.EncodeToString(bytes[:size])
}
