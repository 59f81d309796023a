package fakecloud

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

type keyRequest struct {
	Tags       map[string]*string `json:"tags"`
	Properties *struct {
		Kty        *string  `json:"kty"`
		KeySize    *int     `json:"keySize"`
		CurveName  *string  `json:"curveName"`
		KeyOps     []string `json:"keyOps"`
		Attributes *struct {
			Enabled *bool  `json:"enabled"`
			Expires *int64 `json:"exp"`
		} `json:"attributes"`
	} `json:"properties"`
}

var (
	keyTypes = []string{"RSA", "RSA-HSM", "EC", "EC-HSM"}
	keyOps   = []string{"encrypt", "decrypt", "sign", "verify", "wrapKey", "unwrapKey"}
)

func keyNotFound(name string) *Error {
	return notFound("KeyNotFound", "A key with (name/id) %s was not found in this key vault. If you recently deleted this key you may be able to recover it using the correct recovery command. For help resolving this issue, please see https://go.microsoft.com/fwlink/?linkid=2125182", name)
}

func keyIsDeleted(name string) *Error {
	return conflict("ObjectIsDeletedButRecoverable", "Key %s is currently in a deleted but recoverable state, and its name cannot be reused; in this state, the key can only be recovered or purged.", name)
}

func (v *Vault) liveKey(name string) *Key {
	key := v.Keys[strings.ToLower(name)]
	if key == nil || key.DeletedAt != nil {
		return nil
	}
	return key
}

func (k *Key) newest() *KeyVersion {
	if len(k.Versions) == 0 {
		return nil
	}
	return k.Versions[len(k.Versions)-1]
}

func (k *Key) version(id string) *KeyVersion {
	for _, version := range k.Versions {
		if same(version.ID, id) {
			return version
		}
	}
	return nil
}

// withKey returns the key vault and the key of a request.
func (s *Server) withKey(c *call, serve func(*Vault, *Key) reply) reply {
	v := s.liveVault(c)
	if v == nil {
		return refused(resourceNotFound(vaultKind, c.path.name(0), c.path.group))
	}
	key := v.liveKey(c.path.name(1))
	if key == nil {
		return refused(keyNotFound(c.path.name(1)))
	}
	return serve(v, key)
}

func (s *Server) getKey(c *call) reply {
	return s.withKey(c, func(v *Vault, key *Key) reply { return ok(v.renderKey(key, key.newest(), false)) })
}

func (s *Server) getKeyVersion(c *call) reply {
	return s.withKey(c, func(v *Vault, key *Key) reply {
		version := key.version(c.path.name(2))
		if version == nil {
			return refused(keyNotFound(c.path.name(1) + "/" + c.path.name(2)))
		}
		return ok(v.renderKey(key, version, true))
	})
}

func (s *Server) listKeys(c *call) reply {
	v := s.liveVault(c)
	if v == nil {
		return refused(resourceNotFound(vaultKind, c.path.name(0), c.path.group))
	}
	var items []any
	for _, name := range sortedKeys(v.Keys) {
		if key := v.liveKey(name); key != nil {
			items = append(items, v.renderListedKey(key, key.newest(), false))
		}
	}
	return s.list(c, items)
}

func (s *Server) listKeyVersions(c *call) reply {
	return s.withKey(c, func(v *Vault, key *Key) reply {
		var items []any
		for _, version := range key.Versions {
			items = append(items, v.renderListedKey(key, version, true))
		}
		return s.list(c, items)
	})
}

// putKey creates the first version of a key. An existing key is returned unchanged, because Azure Resource
// Manager cannot change keys.
func (s *Server) putKey(c *call) reply {
	var request keyRequest
	if err := c.decode(&request); err != nil {
		return refused(err)
	}
	v := s.liveVault(c)
	if v == nil {
		return refused(resourceNotFound(vaultKind, c.path.name(0), c.path.group))
	}
	name := c.path.name(1)
	key := v.Keys[strings.ToLower(name)]
	if key != nil && key.DeletedAt != nil {
		return refused(keyIsDeleted(name))
	}
	if key != nil {
		c.did(NoChange, "the key is there already")
		return ok(v.renderKey(key, key.newest(), false))
	}
	p := request.Properties
	if p == nil || p.Kty == nil || !slices.Contains(keyTypes, *p.Kty) {
		return refused(badRequest("BadParameter", "Property 'kty' is missing or is not one of %s.", strings.Join(keyTypes, ", ")))
	}
	spec := KeySpec{Type: *p.Kty, Ops: p.KeyOps}
	if p.KeySize != nil {
		spec.Size = *p.KeySize
	}
	key = s.addKey(v, name, spec, c.now)
	key.Tags = plainTags(request.Tags)
	if attributes := p.Attributes; attributes != nil && attributes.Enabled != nil {
		key.newest().Enabled = *attributes.Enabled
	}
	if attributes := p.Attributes; attributes != nil && attributes.Expires != nil {
		expires := time.Unix(*attributes.Expires, 0)
		key.newest().ExpiresAt = &expires
	}
	c.did(Created, "")
	return reply{status: http.StatusOK, body: v.renderKey(key, key.newest(), false)}
}

func (s *Server) addKey(v *Vault, name string, spec KeySpec, now time.Time) *Key {
	key := &Key{Name: name}
	key.become(spec)
	v.Keys[strings.ToLower(name)] = key
	s.addVersion(v, key, now)
	return key
}

// become sets what all versions of a key have in common.
func (k *Key) become(spec KeySpec) {
	k.Type, k.Size, k.Curve, k.Ops = spec.Type, spec.Size, "", spec.Ops
	if k.Type == "" {
		k.Type = "RSA"
	}
	if k.Size == 0 && strings.HasPrefix(k.Type, "RSA") {
		k.Size = 2048
	}
	if strings.HasPrefix(k.Type, "EC") {
		k.Curve, k.Size = "P-256", 0
	}
	if k.Ops == nil {
		k.Ops = slices.Clone(keyOps)
	}
}

func (s *Server) addVersion(v *Vault, key *Key, now time.Time) *KeyVersion {
	number := s.generation("key", v.Name+"/"+key.Name)
	version := &KeyVersion{ID: s.chance.version("version", v.ID(), key.Name, strconv.Itoa(number)), Enabled: true, CreatedAt: now, UpdatedAt: now}
	key.Versions = append(key.Versions, version)
	s.changed()
	return version
}

func (v *Vault) renderKey(key *Key, version *KeyVersion, versioned bool) map[string]any {
	attributes := map[string]any{
		"enabled": version.Enabled, "created": version.CreatedAt.Unix(), "updated": version.UpdatedAt.Unix(),
		"exportable": false, "recoveryLevel": v.recoveryLevel(),
	}
	if version.ExpiresAt != nil {
		attributes["exp"] = version.ExpiresAt.Unix()
	}
	properties := map[string]any{
		"attributes": attributes, "kty": key.Type, "keyOps": key.Ops,
		"keyUri": v.URI() + "keys/" + key.Name, "keyUriWithVersion": v.URI() + "keys/" + key.Name + "/" + version.ID,
	}
	if key.Size > 0 {
		properties["keySize"] = key.Size
	}
	if key.Curve != "" {
		properties["curveName"] = key.Curve
	}
	body := map[string]any{
		"id": v.ID() + "/keys/" + key.Name, "name": key.Name, "type": vaultKind + "/keys",
		"location": v.Location, "tags": orEmpty(key.Tags), "properties": properties,
	}
	if versioned {
		body["id"], body["name"], body["type"] = fmt.Sprintf("%s/keys/%s/versions/%s", v.ID(), key.Name, version.ID), version.ID, vaultKind+"/keys/versions"
	}
	return body
}

// renderListedKey returns what a list shows of a key: only its attributes and its URI.
func (v *Vault) renderListedKey(key *Key, version *KeyVersion, versioned bool) map[string]any {
	body := v.renderKey(key, version, versioned)
	maps.DeleteFunc(body["properties"].(map[string]any), func(name string, _ any) bool { //nolint:errcheck // renderKey returns this type
		return name != "attributes" && name != "keyUri" && (!versioned || name != "keyUriWithVersion")
	})
	return body
}

// longestRetention is the retention of deleted keys in days, unless the key vault customizes it.
const longestRetention = 90

func (v *Vault) recoveryLevel() string {
	if !v.SoftDelete {
		return "Purgeable"
	}
	level := "Recoverable"
	if v.RetentionDays < longestRetention {
		level = "CustomizedRecoverable"
	}
	if !v.PurgeProtection {
		level += "+Purgeable"
	}
	return level
}
