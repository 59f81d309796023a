package authorization

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// WellKnownPath is the path of the metadata of the resource (RFC 9728). The path of the resource follows it.
const WellKnownPath = "/.well-known/oauth-protected-resource"

// metadata is the metadata of the resource.
type metadata struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported,omitempty"`
	BearerMethods        []string `json:"bearer_methods_supported"`
}

// url is where clients find the metadata of the resource.
func (r resource) metadataURL() string { return r.origin + WellKnownPath + r.path }

// isMetadata reports whether a path is that of the metadata, which needs no token.
func isMetadata(path string) bool {
	return path == WellKnownPath || strings.HasPrefix(path, WellKnownPath+"/")
}

// serveMetadata serves the metadata of the resource at a path. Web pages may read it.
func (a *Authorizer) serveMetadata(w http.ResponseWriter, r *http.Request) {
	requestbody.Refuse(w, r)
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", "*")
	switch r.Method {
	case http.MethodOptions:
		header.Set("Access-Control-Allow-Methods", "GET, HEAD")
		header.Set("Access-Control-Allow-Headers", "*")
		header.Set("Access-Control-Max-Age", "3600")
		w.WriteHeader(http.StatusNoContent)
		return
	case http.MethodGet, http.MethodHead:
	default:
		header.Set("Allow", "GET, HEAD, OPTIONS")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	path := strings.TrimSuffix(strings.TrimPrefix(r.URL.EscapedPath(), WellKnownPath), "/")
	of, ok := a.resourceAt(r, path)
	if !ok {
		http.Error(w, "no MCP endpoint has this path: use "+a.resourceOf(r).metadataURL(), http.StatusNotFound)
		return
	}
	body, err := json.Marshal(metadata{
		Resource: of.id, AuthorizationServers: a.issuers, ScopesSupported: a.allScopes, BearerMethods: []string{"header"},
	})
	if err != nil {
		http.Error(w, "the metadata cannot be encoded", http.StatusInternalServerError)
		return
	}
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(body) // The client may be gone.
}

// resourceOf is the resource of the host that a client uses, or the first one: a proxy may have replaced the host.
func (a *Authorizer) resourceOf(r *http.Request) resource {
	for _, of := range a.resources {
		if of.servesHost(r.Host) {
			return of
		}
	}
	return a.resources[0]
}

// resourceAt is the resource with a path; that of the host for an empty path.
func (a *Authorizer) resourceAt(r *http.Request, path string) (found resource, ok bool) {
	if path == "" {
		return a.resourceOf(r), true
	}
	for _, of := range a.resources {
		if of.path != path {
			continue
		}
		if of.servesHost(r.Host) {
			return of, true
		}
		if !ok {
			found, ok = of, true
		}
	}
	return found, ok
}

func (r resource) servesHost(host string) bool {
	scheme, _, _ := strings.Cut(r.origin, ":")
	return withoutPort(host, scheme) == r.host
}
