package fakecloud

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The token endpoint: enough of OAuth for azidentity's client credentials, with a secret or an assertion.

var loginPath = regexp.MustCompile(`^/([^/]+)/(oauth2/v2\.0/token|v2\.0/\.well-known/openid-configuration)$`)

const tokenLife = time.Hour

// RegisterClient registers an application. The ledger shows its client ID. An empty secret permits only
// assertions.
func (s *Server) RegisterClient(clientID, secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[clientID] = secret
}

// serveLogin serves the token endpoint; false for other requests.
func (s *Server) serveLogin(w http.ResponseWriter, r *http.Request) bool {
	match := loginPath.FindStringSubmatch(r.URL.Path)
	if match == nil {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	if match[2] != "oauth2/v2.0/token" {
		base := newCall(r, nil).base + "/" + match[1]
		writeJSON(w, map[string]any{
			"issuer":                 base + "/v2.0",
			"token_endpoint":         base + "/oauth2/v2.0/token",
			"authorization_endpoint": base + "/oauth2/v2.0/authorize",
			"jwks_uri":               base + "/discovery/v2.0/keys",
		})
		return true
	}
	clientID := r.PostFormValue("client_id")
	if refusal := s.admits(clientID, r.PostFormValue("client_secret"), r.PostFormValue("client_assertion")); refusal != nil {
		w.WriteHeader(refusal.status)
		writeJSON(w, refusal.body(s.clock.Now()))
		return true
	}
	writeJSON(w, map[string]any{"token_type": "Bearer", "expires_in": int(tokenLife.Seconds()), "access_token": s.issue(clientID)})
	return true
}

// loginError is an error response of the token endpoint.
type loginError struct {
	status  int
	name    string
	code    int
	message string
}

func (e *loginError) body(now time.Time) any {
	const trace = "00000000-0000-0000-0000-000000000000"
	at := now.UTC().Format("2006-01-02 15:04:05Z")
	return map[string]any{
		"error": e.name, "error_codes": []int{e.code}, "timestamp": at, "trace_id": trace, "correlation_id": trace,
		"error_description": fmt.Sprintf("AADSTS%d: %s Trace ID: %s Correlation ID: %s Timestamp: %s", e.code, e.message, trace, trace, at),
	}
}

// admits returns nil if the secret or the assertion of an application is accepted.
func (s *Server) admits(clientID, secret, assertion string) *loginError {
	s.mu.Lock()
	defer s.mu.Unlock()
	want, known := s.clients[clientID]
	switch {
	case !known:
		return &loginError{http.StatusBadRequest, "unauthorized_client", 700016, "Application with identifier '" + clientID + "' was not found in the directory."}
	case secret == "" && assertion == "":
		return &loginError{http.StatusUnauthorized, "invalid_client", 7000218, "The request body must contain the following parameter: 'client_assertion' or 'client_secret'."}
	case assertion == "" && (want == "" || !hmac.Equal([]byte(want), []byte(secret))):
		return &loginError{http.StatusUnauthorized, "invalid_client", 7000215, "Invalid client secret provided."}
	}
	return nil
}

// issue returns a token that contains its owner, so that it stays valid after a restart of the server.
func (s *Server) issue(clientID string) string {
	expires := strconv.FormatInt(s.clock.Now().Add(tokenLife).Unix(), 10)
	name := base64.RawURLEncoding.EncodeToString([]byte(clientID))
	return "issued." + name + "." + expires + "." + s.sign(name, expires)
}

func (s *Server) sign(name, expires string) string {
	return hex.EncodeToString(s.chance.digest("token", name, expires))
}

// issuedTo returns the owner of an issued token, and when it expires; false for other tokens.
func (s *Server) issuedTo(token string) (name string, expiry time.Time, issued bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 4 || parts[0] != "issued" || !hmac.Equal([]byte(parts[3]), []byte(s.sign(parts[1], parts[2]))) {
		return "", time.Time{}, false
	}
	owner, errOwner := base64.RawURLEncoding.DecodeString(parts[1])
	seconds, errExpiry := strconv.ParseInt(parts[2], 10, 64)
	return string(owner), time.Unix(seconds, 0), errOwner == nil && errExpiry == nil
}
