package authorization

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
)

// Files in the directory of [Exchange.Credentials].
const (
	clientIDFile     = "client-id"
	clientSecretFile = "client-secret"
)

// Values of RFC 8693.
const (
	grantTokenExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeAccessToken    = "urn:ietf:params:oauth:token-type:access_token"
	typeJWT            = "urn:ietf:params:oauth:token-type:jwt"
)

const (
	// exchangeTimeout is the timeout of an exchange.
	exchangeTimeout = 10 * time.Second
	// maxExchanges bounds the number of callers whose tokens are kept.
	maxExchanges = 1024
	// exchangeMargin is how long before the expiry of either token another exchange is due.
	exchangeMargin = 15 * time.Second
	// unknownLifetime is how long a token is used whose expiry is not known.
	unknownLifetime = time.Minute
	// refusedFor is how long the refusal of an authorization server is not asked for again.
	refusedFor = 10 * time.Second
)

// Exchange configures the exchange of the tokens of callers for tokens that the server gets (RFC 8693).
type Exchange struct {
	// TokenURL is the token endpoint of the authorization server.
	TokenURL string
	// Credentials is a directory with the files client-id and client-secret. It is read for each exchange, so that a
	// rotated secret takes effect.
	Credentials string
	// Audience and Resource are what the token is for, at least one of them.
	Audience, Resource string
	// Scopes are those that the token should have; if empty, the authorization server decides.
	Scopes []string
}

// checkExchange validates the configuration of the exchange.
func (o *Options) checkExchange() error {
	e := o.Exchange
	if e == nil {
		return nil
	}
	var errs []error
	if err := o.checkURL(e.TokenURL); err != nil {
		errs = append(errs, fmt.Errorf("token endpoint %q: %w", e.TokenURL, err))
	}
	if e.Credentials == "" {
		errs = append(errs, errors.New("token exchange has no client credentials: set the directory with them"))
	}
	if e.Audience == "" && e.Resource == "" {
		errs = append(errs, errors.New("token exchange has neither an audience nor a resource: set what the server calls"))
	}
	return errors.Join(errs...)
}

// exchanger exchanges tokens.
type exchanger struct {
	opts   Exchange
	client *http.Client
	now    func() time.Time
	log    logr.Logger
	known  *cache[exchanged]
	// scopes are those that every request of a caller needs.
	scopes []string
	// running joins the exchanges of one token.
	running singleflight.Group
}

// newExchanger returns nil if tokens are not exchanged.
func newExchanger(o *Options, transport http.RoundTripper) *exchanger {
	if o.Exchange == nil {
		return nil
	}
	return &exchanger{
		opts: *o.Exchange, now: o.now, log: o.Log, known: newCache[exchanged](maxExchanges), scopes: o.Scopes,
		client: &http.Client{
			Transport: transport,
			Timeout:   exchangeTimeout,
			// Tokens and the secret are for the configured URL only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// authorize sets the token for the server in the request that is forwarded.
func (x *exchanger) authorize(r *http.Request, token string, who *identity) *refusal {
	got, refused := x.exchange(r.Context(), token, who)
	if refused == nil {
		r.Header.Set("Authorization", "Bearer "+got)
	}
	return refused
}

// exchange returns the token for the server, of the caller with a verified token.
func (x *exchanger) exchange(ctx context.Context, token string, who *identity) (string, *refusal) {
	key := digestOf(token)
	if found, ok := x.known.get(key, x.now()); ok {
		return found.token, found.refused
	}
	done := x.running.DoChan(string(key[:]), func() (any, error) {
		// Another exchange of the token may have ended since the look above.
		if found, ok := x.known.get(key, x.now()); ok {
			return found, nil
		}
		// It serves all requests with the token, so it does not end with one of them.
		ctx, cancel := context.WithTimeout(context.Background(), exchangeTimeout)
		defer cancel()
		found := x.ask(ctx, token, who)
		x.known.add(key, found, found.until)
		return found, nil
	})
	select {
	case result := <-done:
		found, _ := result.Val.(exchanged)
		return found.token, found.refused
	case <-ctx.Done():
		return "", exchangeUnavailable("the exchange of the token was not awaited")
	}
}

// ask requests a token from the authorization server.
func (x *exchanger) ask(ctx context.Context, token string, who *identity) exchanged {
	answer, err := x.request(ctx, token)
	if err != nil {
		x.log.Info("Failed to exchange a token", "error", err.Error())
		return exchanged{refused: exchangeUnavailable("the token cannot be exchanged for one for the server, because the authorization server cannot be asked: retry later")}
	}
	now := x.now()
	found := answer.read(x.opts, token, now)
	switch refused := found.refused; {
	case refused == nil:
		found.until = earlier(found.until, who.expires.Add(-leeway)).Add(-exchangeMargin)
	case refused.status == http.StatusForbidden, refused.status == http.StatusUnauthorized:
		found.until = now.Add(refusedFor)
		if refused.code == codeInvalidToken {
			refused.scopes = x.scopes
		}
		x.log.V(1).Info("The authorization server refused to exchange a token", "status", answer.status, "error", refused.description)
	default:
		x.log.Info("Failed to exchange a token", "status", answer.status, "error", refused.description)
	}
	return found
}

func exchangeUnavailable(description string) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, code: codeUnavailable, description: description}
}

// request sends the request of RFC 8693, section 2.1.
func (x *exchanger) request(ctx context.Context, token string) (answer, error) {
	authorization, err := x.credentials()
	if err != nil {
		return answer{}, err
	}
	form := url.Values{
		"grant_type": {grantTokenExchange}, "subject_token": {token}, "subject_token_type": {typeAccessToken}, "requested_token_type": {typeAccessToken},
	}
	for name, value := range map[string]string{"audience": x.opts.Audience, "resource": x.opts.Resource, "scope": strings.Join(x.opts.Scopes, " ")} {
		if value != "" {
			form.Set(name, value)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, x.opts.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return answer{}, fmt.Errorf("requesting a token: %w", err)
	}
	request.Header.Set("Authorization", authorization)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	response, err := x.client.Do(request)
	if err != nil {
		return answer{}, fmt.Errorf("requesting a token: %w", err)
	}
	defer response.Body.Close()
	body, err := bounded(response.Body)
	if err != nil {
		return answer{}, fmt.Errorf("reading the response of %s: %w", x.opts.TokenURL, err)
	}
	return answer{status: response.StatusCode, body: body}, nil
}

// credentials is the header with the client credentials: encoded twice, as RFC 6749, section 2.3.1, says.
func (x *exchanger) credentials() (string, error) {
	for {
		id, err := x.readCredential(clientIDFile)
		if err != nil {
			return "", err
		}
		secret, err := x.readCredential(clientSecretFile)
		if err != nil {
			return "", err
		}
		again, err := x.readCredential(clientIDFile)
		if err != nil {
			return "", err
		}
		// The kubelet replaces both files at once: if the first has changed, the second may be of the other version.
		if again == id {
			return "Basic " + base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(id)+":"+url.QueryEscape(secret))), nil
		}
	}
}

func (x *exchanger) readCredential(name string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(x.opts.Credentials, name))
	if err != nil {
		return "", fmt.Errorf("reading the client credentials: %w", err)
	}
	value := strings.TrimRight(string(raw), "\r\n")
	if value == "" {
		return "", fmt.Errorf("%s of the client credentials is empty: set it", name)
	}
	return value, nil
}
