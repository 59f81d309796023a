package fakecloud

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// resourceType is a supported resource type.
type resourceType struct {
	// name is the name in Azure's spelling.
	name     string
	versions []string
	// item serves one resource; collection serves lists and actions.
	item       map[string]handler
	collection map[string]handler
}

type handler func(*Server, *call) reply

// The API versions that the SDK's clients of the last years send.
var (
	storageVersions       = []string{"2022-09-01", "2023-01-01", "2023-04-01", "2023-05-01", "2024-01-01", "2025-01-01", "2025-08-01"}
	vaultVersions         = []string{"2022-07-01", "2023-02-01", "2023-07-01", "2024-11-01", "2025-05-01", "2026-02-01"}
	authorizationVersions = []string{"2018-01-01-preview", "2020-04-01-preview", "2022-04-01"}
	lockVersions          = []string{"2016-09-01", "2020-05-01"}
	resourceVersions      = []string{"2021-04-01", "2022-09-01", "2024-03-01", "2025-04-01"}
)

// resourceTypes are the supported types by their kind in lower case.
var resourceTypes = map[string]resourceType{
	"subscriptions": {name: "Microsoft.Resources/subscriptions", versions: resourceVersions,
		item: map[string]handler{http.MethodGet: (*Server).getSubscription}},
	"subscriptions/resourcegroups": {name: "Microsoft.Resources/subscriptions/resourceGroups", versions: resourceVersions,
		item:       map[string]handler{http.MethodGet: (*Server).getGroup, http.MethodHead: (*Server).headGroup, http.MethodPut: (*Server).putGroup, http.MethodDelete: (*Server).deleteGroup},
		collection: map[string]handler{http.MethodGet: (*Server).listGroups}},

	"microsoft.storage/storageaccounts": {name: accountKind, versions: storageVersions,
		item: map[string]handler{
			http.MethodPut: (*Server).putAccount, http.MethodGet: (*Server).getAccount,
			http.MethodPatch: (*Server).patchAccount, http.MethodDelete: (*Server).deleteAccount},
		collection: map[string]handler{http.MethodGet: (*Server).listAccounts}},
	"microsoft.storage/storageaccounts/listkeys": {name: accountKind + "/listKeys", versions: storageVersions,
		collection: map[string]handler{http.MethodPost: (*Server).listAccountKeys}},
	"microsoft.storage/checknameavailability": {name: "Microsoft.Storage/checkNameAvailability", versions: storageVersions,
		collection: map[string]handler{http.MethodPost: (*Server).checkAccountName}},
	"microsoft.storage/locations/asyncoperations": {name: "Microsoft.Storage/locations/asyncoperations", versions: storageVersions,
		item: map[string]handler{http.MethodGet: (*Server).getOperation}},

	"microsoft.keyvault/vaults": {name: vaultKind, versions: vaultVersions,
		item: map[string]handler{
			http.MethodPut: (*Server).putVault, http.MethodGet: (*Server).getVault,
			http.MethodPatch: (*Server).patchVault, http.MethodDelete: (*Server).deleteVault},
		collection: map[string]handler{http.MethodGet: (*Server).listVaults}},
	"microsoft.keyvault/vaults/accesspolicies": {name: vaultKind + "/accessPolicies", versions: vaultVersions,
		item: map[string]handler{http.MethodPut: (*Server).putPolicies}},
	"microsoft.keyvault/vaults/keys": {name: vaultKind + "/keys", versions: vaultVersions,
		item:       map[string]handler{http.MethodPut: (*Server).putKey, http.MethodGet: (*Server).getKey},
		collection: map[string]handler{http.MethodGet: (*Server).listKeys}},
	"microsoft.keyvault/vaults/keys/versions": {name: vaultKind + "/keys/versions", versions: vaultVersions,
		item:       map[string]handler{http.MethodGet: (*Server).getKeyVersion},
		collection: map[string]handler{http.MethodGet: (*Server).listKeyVersions}},
	"microsoft.keyvault/checknameavailability": {name: "Microsoft.KeyVault/checkNameAvailability", versions: vaultVersions,
		collection: map[string]handler{http.MethodPost: (*Server).checkVaultName}},
	"microsoft.keyvault/deletedvaults": {name: "Microsoft.KeyVault/deletedVaults", versions: vaultVersions,
		collection: map[string]handler{http.MethodGet: (*Server).listDeletedVaults}},
	"microsoft.keyvault/locations/deletedvaults": {name: "Microsoft.KeyVault/locations/deletedVaults", versions: vaultVersions,
		item: map[string]handler{http.MethodGet: (*Server).getDeletedVault}},
	"microsoft.keyvault/locations/deletedvaults/purge": {name: "Microsoft.KeyVault/locations/deletedVaults/purge", versions: vaultVersions,
		collection: map[string]handler{http.MethodPost: (*Server).purgeVault}},
	"microsoft.keyvault/locations/asyncoperations": {name: "Microsoft.KeyVault/locations/asyncoperations", versions: vaultVersions,
		item: map[string]handler{http.MethodGet: (*Server).getOperation}},

	"microsoft.authorization/roleassignments": {name: assignmentKind, versions: authorizationVersions,
		item: map[string]handler{
			http.MethodPut: (*Server).putAssignment, http.MethodGet: (*Server).getAssignment,
			http.MethodDelete: (*Server).deleteAssignment},
		collection: map[string]handler{http.MethodGet: (*Server).listAssignments}},
	"microsoft.authorization/roledefinitions": {name: "Microsoft.Authorization/roleDefinitions", versions: authorizationVersions,
		item:       map[string]handler{http.MethodGet: (*Server).getRole},
		collection: map[string]handler{http.MethodGet: (*Server).listRoles}},
	"microsoft.authorization/locks": {name: lockKind, versions: lockVersions,
		item: map[string]handler{
			http.MethodPut: (*Server).putLock, http.MethodGet: (*Server).getLock,
			http.MethodDelete: (*Server).deleteLock},
		collection: map[string]handler{http.MethodGet: (*Server).listLocks}},
}

// route returns the resource type of a request.
type route struct {
	resourceType
	handler handler
}

func (r route) serve(s *Server, c *call) reply { return r.handler(s, c) }

// action returns the permission that the request needs.
func (r route) action(c *call) string {
	switch c.method {
	case http.MethodGet, http.MethodHead:
		return r.name + "/read"
	case http.MethodDelete:
		return r.name + "/delete"
	case http.MethodPost:
		return r.name + "/action"
	default:
		return r.name + "/write"
	}
}

func (s *Server) route(c *call) route {
	known := resourceTypes[c.path.kind()]
	handlers := known.collection
	if c.path.item() {
		handlers = known.item
	}
	return route{resourceType: known, handler: handlers[c.method]}
}

// routed rejects unsupported types, versions and methods.
func (s *Server) routed(c *call) *Error {
	version := ""
	if values := c.query["api-version"]; len(values) > 0 {
		version = values[0]
	}
	if version == "" {
		return badRequest("MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	}
	c.version = version
	r := s.route(c)
	if r.name == "" {
		return s.unknownType(c)
	}
	if !slices.Contains(r.versions, version) {
		namespace, resource, _ := strings.Cut(r.name, "/")
		return badRequest("InvalidResourceType", "The resource type '%s' could not be found in the namespace '%s' for api version '%s'. The supported api-versions are '%s'.", resource, namespace, version, strings.Join(r.versions, ","))
	}
	if r.handler == nil {
		return refuse(http.StatusMethodNotAllowed, "HttpMethodNotAllowed", "The HTTP method '%s' is not supported at scope '%s'.", c.method, c.path.id())
	}
	return nil
}

func (s *Server) unknownType(c *call) *Error {
	if c.path.provider == "" {
		return notFound("InvalidRequestUri", "The request URI '%s' does not name a resource.", c.path.id())
	}
	prefix := strings.ToLower(c.path.provider) + "/"
	for kind := range resourceTypes {
		if strings.HasPrefix(kind, prefix) {
			return notFound("InvalidResourceType", "The resource type '%s' could not be found in the namespace '%s' for api version '%s'.", strings.Join(c.path.types, "/"), c.path.provider, c.version)
		}
	}
	return notFound("InvalidResourceNamespace", "The resource namespace '%s' is invalid.", c.path.provider)
}

// skipToken is the query parameter of a nextLink. Its value is the number of items on the pages before.
const skipToken = "$skiptoken"

// list returns a page of the items, and a nextLink if more follow. An item that is created or deleted between two pages
// can make the next page miss or repeat another item.
func (s *Server) list(c *call, items []any) reply {
	before := 0
	if token := url.Values(c.query).Get(skipToken); token != "" {
		n, err := strconv.Atoi(token)
		if err != nil || n < 0 {
			return refused(badRequest("InvalidSkipToken", "The skip token '%s' is invalid.", token))
		}
		before = min(n, len(items))
	}
	rest := items[before:]
	if s.knobs.PageSize <= 0 || len(rest) <= s.knobs.PageSize {
		return ok(map[string]any{"value": append([]any{}, rest...)})
	}
	query := maps.Clone(url.Values(c.query))
	query.Set(skipToken, strconv.Itoa(before+s.knobs.PageSize))
	return ok(map[string]any{"value": rest[:s.knobs.PageSize], "nextLink": c.address + "?" + query.Encode()})
}
