package fakecloud

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// caller is the owner of a token.
type caller struct {
	name     string
	objectID string
}

const tokenPrefix = "fakecloud:"

// Token returns the bearer token of a caller, for a server without configured tokens.
func Token(who string) string { return tokenPrefix + who }

// WriteToken writes the bearer token of a caller to a file in a directory, for --cloud-token-file of the
// manager, and returns its path.
func WriteToken(dir, who string) (string, error) {
	path := filepath.Join(dir, "cloud-token-"+who)
	if err := os.WriteFile(path, []byte(Token(who)), 0o600); err != nil {
		return "", fmt.Errorf("writing the token of %s: %w", who, err)
	}
	return path, nil
}

// authenticate identifies the caller by the token.
func (s *Server) authenticate(c *call) *Error {
	header := c.header.Get("Authorization")
	token, bearer := strings.CutPrefix(header, "Bearer ")
	if !bearer {
		return unauthorized("AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing or is not a bearer token.")
	}
	name, expiry, known := s.owner(token)
	switch {
	case !known:
		return unauthorized("InvalidAuthenticationToken", "The access token is invalid.")
	case !expiry.IsZero() && !c.now.Before(expiry):
		return unauthorized("ExpiredAuthenticationToken", fmt.Sprintf("The access token expiry UTC time '%s' is earlier than current UTC time '%s'.", instant(expiry), instant(c.now)))
	}
	c.who = caller{name: name, objectID: s.chance.guid("caller", name)}
	return nil
}

// owner returns the caller that a token belongs to, and when the token expires; zero if it does not.
func (s *Server) owner(token string) (name string, expiry time.Time, known bool) {
	if name, expiry, issued := s.issuedTo(token); issued {
		return name, expiry, true
	}
	if s.tokens != nil {
		name, known := s.tokens[token]
		return name, time.Time{}, known
	}
	name, found := strings.CutPrefix(token, tokenPrefix)
	return name, time.Time{}, found && name != ""
}

func unauthorized(code, message string) *Error {
	err := refuse(http.StatusUnauthorized, code, "%s", message)
	err.challenge = `Bearer authorization_uri="https://login.microsoftonline.com/` + Tenant + `", error="invalid_token", error_description="` + message + `"`
	return err
}

// subscribed rejects requests for a subscription or resource group that does not exist.
func (s *Server) subscribed(c *call) *Error {
	if c.path.subscription == "" {
		return nil
	}
	if s.state.Subscriptions[strings.ToLower(c.path.subscription)] == nil {
		return notFound("SubscriptionNotFound", "The subscription '%s' could not be found.", c.path.subscription)
	}
	if c.path.group != "" && c.path.kind() != "subscriptions/resourcegroups" && s.group(c.path.subscription, c.path.group) == nil {
		return notFound("ResourceGroupNotFound", "Resource group '%s' could not be found.", c.path.group)
	}
	return nil
}

// authorized rejects actions that are denied to the caller.
func (s *Server) authorized(c *call) *Error {
	action := s.route(c).action(c)
	for _, denial := range s.knobs.Denied {
		if denial.covers(c.who.name, action, c.path.id()) && (!denial.Lists || !c.path.item()) {
			return refuse(http.StatusForbidden, "AuthorizationFailed", "The client '%s' with object id '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.", c.who.name, c.who.objectID, action, c.path.id())
		}
	}
	return nil
}

func (d Denial) covers(who, action, scope string) bool {
	return (d.Who == "" || d.Who == who) && matchesAction(d.Action, action) && (d.Scope == "" || within(scope, d.Scope))
}

func matchesAction(pattern, action string) bool {
	pattern, action = strings.ToLower(pattern), strings.ToLower(action)
	if prefix, wild := strings.CutSuffix(pattern, "*"); wild {
		return strings.HasPrefix(action, prefix)
	}
	return pattern == "" || pattern == action
}

// Deny removes a permission.
func (s *Server) Deny(denial Denial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knobs.Denied = append(s.knobs.Denied, denial)
}

// Allow removes all denials of a caller; of all callers if who is empty.
func (s *Server) Allow(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knobs.Denied = slices.DeleteFunc(s.knobs.Denied, func(d Denial) bool { return who == "" || d.Who == who })
}
