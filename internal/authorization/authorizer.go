package authorization

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fixpoint-dev/fixpoint/internal/callrecord"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
	"github.com/fixpoint-dev/fixpoint/internal/toolname"
)

// Authorizer protects an MCP endpoint. Create it with [New].
type Authorizer struct {
	opts      Options
	resources []resource
	issuers   []string
	allScopes []string
	verifier  verifier
	cache     *cache[*identity]
	messages  *requestbody.Reader
	// exchange is nil if tokens are not exchanged.
	exchange *exchanger
}

// New returns an Authorizer. It does not read from the issuers before the first token of each, or [Authorizer.Prefetch].
func New(opts Options) (*Authorizer, error) {
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("configuring authorization: %w", err)
	}
	a := &Authorizer{
		opts: opts, allScopes: opts.allScopes(), cache: newCache[*identity](maxCached), messages: requestbody.NewReader(opts.MaxMessageBytes),
		verifier: verifier{keys: map[string]*keyring{}, now: opts.now},
	}
	for _, given := range opts.Resources {
		of, err := newResource(given)
		if err != nil {
			return nil, fmt.Errorf("configuring authorization: %w", err)
		}
		a.resources = append(a.resources, of)
		a.verifier.audiences = append(a.verifier.audiences, of.canonical)
	}
	fetcher := newFetcher(&opts)
	a.exchange = newExchanger(&opts, fetcher.client.Transport)
	for _, issuer := range opts.Issuers {
		a.issuers = append(a.issuers, issuer.URL)
		a.verifier.keys[issuer.URL] = opts.newKeyring(issuer, fetcher)
	}
	return a, nil
}

// Prefetch loads the keys of all issuers, so that the first request does not wait for them. It returns when they are
// loaded or loading has failed, which is logged.
func (a *Authorizer) Prefetch(ctx context.Context) {
	for _, keys := range a.verifier.keys {
		keys.renew(ctx)
	}
}

// Protect returns a handler that serves the metadata of the resource, and passes only authorized requests to next,
// with the identity of the caller in the headers, and without their token, or with the one that it is exchanged for.
func (a *Authorizer) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isMetadata(r.URL.Path) {
			a.serveMetadata(w, r)
			return
		}
		token, who, refused := a.authenticate(r)
		if refused == nil {
			callrecord.SetCaller(r.Context(), who.issuer, who.subject)
			refused = a.checkScopes(who, a.opts.Scopes, "")
		}
		if refused != nil {
			a.refuse(w, r, refused)
			return
		}
		out := withIdentity(r, who)
		if len(a.opts.Tools) > 0 && requestbody.Has(r) {
			release, refused := a.checkMessage(w, out, who)
			if refused != nil {
				a.refuse(w, r, refused)
				return
			}
			defer release()
		}
		if a.exchange != nil {
			if refused := a.exchange.authorize(out, token, who); refused != nil {
				a.refuse(w, r, refused)
				return
			}
		}
		next.ServeHTTP(w, out)
	})
}

func (a *Authorizer) refuse(w http.ResponseWriter, r *http.Request, f *refusal) {
	a.opts.Log.V(1).Info("Refused a request", "status", f.status, "error", f.code, "description", f.description)
	callrecord.SetRefusal(r.Context(), f.name())
	if a.opts.Refused != nil {
		a.opts.Refused(f.name())
	}
	requestbody.Refuse(w, r)
	f.write(w, a.resourceOf(r))
}

// authenticate returns the token of a request, and the identity in it.
func (a *Authorizer) authenticate(r *http.Request) (token string, who *identity, refused *refusal) {
	if r.URL.Query().Has("access_token") {
		return "", nil, badRequest("tokens in the URL end up in logs: send the token in the Authorization header, and revoke this one")
	}
	if token, refused = a.bearer(r); refused != nil {
		return "", nil, refused
	}
	now, key := a.opts.now(), digestOf(token)
	if who, ok := a.cache.get(key, now); ok {
		return token, who, nil
	}
	who, err := a.verifier.verify(r.Context(), token)
	var down *unavailable
	switch {
	case errors.As(err, &down):
		return "", nil, &refusal{
			status: http.StatusServiceUnavailable, code: codeUnavailable,
			description: "the keys of the issuer cannot be loaded, so the token cannot be verified: retry later",
		}
	case err != nil:
		return "", nil, &refusal{status: http.StatusUnauthorized, code: codeInvalidToken, description: err.Error(), scopes: a.opts.Scopes}
	}
	a.cache.add(key, who, verifiedUntil(who, now))
	return token, who, nil
}

// bearer is the token in the Authorization header.
func (a *Authorizer) bearer(r *http.Request) (string, *refusal) {
	sent := r.Header.Values("Authorization")
	if len(sent) > 1 {
		return "", badRequest("the Authorization header is repeated: send it once")
	}
	scheme, token, _ := strings.Cut(strings.Join(sent, ""), " ")
	token = strings.Trim(token, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", &refusal{
			status: http.StatusUnauthorized, scopes: a.opts.Scopes,
			description: "this MCP server requires an access token: request one from an authorization server in the resource metadata, and send it as Authorization: Bearer <token>",
		}
	}
	return token, nil
}

// checkScopes refuses a request that needs scopes that the token does not have. The response has all scopes that the
// request needs, so that one more authorization suffices. Its size does not depend on the name of the tool: a large message
// has given up its place when the response is sent.
func (a *Authorizer) checkScopes(who *identity, required []string, tool string) *refusal {
	missing := who.missing(required)
	if len(missing) == 0 {
		return nil
	}
	what := "requests to this MCP server need"
	if tool != "" {
		what = fmt.Sprintf("calls of the tool %.128q need", tool)
	}
	return &refusal{
		status: http.StatusForbidden, code: codeInsufficientScope, scopes: required,
		description: what + " the scope " + strings.Join(missing, " ") + ", which the token does not have: request a token with the scopes " + strings.Join(required, " "),
	}
}

// scopesOf are the scopes that a call of a tool needs.
func (a *Authorizer) scopesOf(tool string) []string {
	required := slices.Clone(a.opts.Scopes)
	for _, rule := range a.opts.Tools {
		if !toolname.Matches(rule.Pattern, tool) {
			continue
		}
		for _, scope := range rule.Scopes {
			if !slices.Contains(required, scope) {
				required = append(required, scope)
			}
		}
	}
	return required
}
