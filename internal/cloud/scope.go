package cloud

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Scope is a scope in Azure: the resource ID of a subscription, a resource group or a resource. It
// contains itself and everything below it. The zero value contains nothing.
type Scope string

// Anywhere contains every resource. It is the scope of a credential of a user, which Azure alone limits.
const Anywhere Scope = "/"

// validScope matches the scopes that [ParseScope] accepts. Nothing wider than a subscription is a scope.
var validScope = regexp.MustCompile(`(?i)^/subscriptions/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}` +
	`(/resourceGroups/[-0-9a-z_.()]{0,89}[-0-9a-z_()]` +
	`(/providers/(Microsoft[.]Storage/storageAccounts|Microsoft[.]KeyVault/vaults)/[-0-9a-z]{3,24})?)?$`)

// ParseScope parses the scope of a subscription, a resource group, a storage account or a key vault.
func ParseScope(id string) (Scope, error) {
	if !validScope.MatchString(id) {
		return "", fmt.Errorf("%q is not a scope: set the resource ID of a subscription, resource group, storage account or key vault, such as /subscriptions/<UUID>/resourceGroups/<name>", id)
	}
	return Scope(strings.ToLower(id)), nil
}

// Contains says whether a resource is in the scope. Resource IDs ignore case. An ID with an empty part, a
// dot segment or an escape is in no scope, because a server may take it for another resource.
func (s Scope) Contains(id string) bool {
	return s != "" && isCanonical(id) && isWithin(id, string(s))
}

func isCanonical(id string) bool {
	return !strings.ContainsAny(id, `%?#\`) && !slices.ContainsFunc(strings.Split(strings.TrimPrefix(id, "/"), "/"), func(part string) bool {
		return part == "" || part == "." || part == ".."
	})
}

// ContainedIn says whether a resource is in one of the scopes.
func ContainedIn(scopes []Scope, id string) bool {
	return slices.ContainsFunc(scopes, func(s Scope) bool { return s.Contains(id) })
}

// AccountID returns the resource ID of a storage account.
func AccountID(subscription, group, name string) string {
	return GroupID(subscription, group) + "/providers/Microsoft.Storage/storageAccounts/" + name
}

// VaultID returns the resource ID of a key vault.
func VaultID(subscription, group, name string) string {
	return GroupID(subscription, group) + "/providers/Microsoft.KeyVault/vaults/" + name
}

// GroupID returns the resource ID of a resource group.
func GroupID(subscription, group string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/" + group
}
