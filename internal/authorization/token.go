package authorization

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	// leeway is how far the clock of an issuer may differ.
	leeway = 30 * time.Second
	// maxToken bounds a token.
	maxToken = 16 << 10
)

// identity is what a token says about its caller.
type identity struct {
	subject, issuer string
	// scopes are sorted.
	scopes []string
	// expires is when the token is no longer accepted.
	expires time.Time
}

// missing returns the scopes of required that the identity does not have.
func (i *identity) missing(required []string) (missing []string) {
	for _, scope := range required {
		if _, ok := slices.BinarySearch(i.scopes, scope); !ok {
			missing = append(missing, scope)
		}
	}
	return missing
}

// invalid is why a token is not accepted. It is shown to the client, so it has no values of the token.
type invalid string

func (i invalid) Error() string { return string(i) }

// claims are the parts of a token that are read.
type claims struct {
	Issuer    string           `json:"iss"`
	Subject   string           `json:"sub"`
	Audience  jwt.Audience     `json:"aud"`
	Expiry    *jwt.NumericDate `json:"exp"`
	NotBefore *jwt.NumericDate `json:"nbf"`
	// Scope is that of RFC 9068; some issuers use Scp.
	Scope scopes `json:"scope"`
	Scp   scopes `json:"scp"`
	// Confirmation binds a token to a key of the client (RFC 7800).
	Confirmation json.RawMessage `json:"cnf"`
}

// scopes are separated by spaces in one string, or in a list.
type scopes []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *scopes) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*s = strings.Fields(text)
		return nil
	}
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return errors.New("scopes must be a string or a list of strings")
	}
	*s = list
	return nil
}

// verifier verifies tokens.
type verifier struct {
	keys map[string]*keyring
	// audiences are the canonical URLs of the resource.
	audiences []string
	now       func() time.Time
}

// verify returns the identity in a token. The error is invalid, or [unavailable].
func (v *verifier) verify(ctx context.Context, raw string) (*identity, error) {
	token, err := parseToken(raw)
	if err != nil {
		return nil, err
	}
	// The issuer decides which keys may have signed the token; it counts only after the signature is verified.
	var unverified struct {
		Issuer string `json:"iss"`
	}
	if err := token.UnsafeClaimsWithoutVerification(&unverified); err != nil {
		return nil, invalid("the claims of the token cannot be read: request another one from the authorization server")
	}
	keys, ok := v.keys[unverified.Issuer]
	if !ok {
		return nil, invalid("the issuer of the token is not accepted here: request a token from an authorization server in the resource metadata")
	}
	var verified claims
	if err := v.verifySignature(ctx, token, keys, &verified); err != nil {
		return nil, err
	}
	if err := v.check(&verified, unverified.Issuer); err != nil {
		return nil, err
	}
	return identityOf(&verified), nil
}

func identityOf(c *claims) *identity {
	granted := slices.DeleteFunc(slices.Concat(c.Scope, c.Scp), func(s string) bool { return !isScope(s) })
	slices.Sort(granted)
	return &identity{subject: c.Subject, issuer: c.Issuer, scopes: slices.Compact(granted), expires: c.Expiry.Time().Add(leeway)}
}

// parseToken parses a JWT and checks its header.
func parseToken(raw string) (*jwt.JSONWebToken, error) {
	if len(raw) > maxToken {
		return nil, invalid(fmt.Sprintf("the token is longer than %d bytes: request one with fewer claims", maxToken))
	}
	// jwt.ParseSigned would also take the JSON serialization and white space.
	if strings.Count(raw, ".") != 2 || strings.ContainsAny(raw, " \t\r\n{") {
		return nil, invalid("the token is not a signed JWT: request one from an authorization server in the resource metadata")
	}
	token, err := jwt.ParseSigned(raw, algorithms)
	if err != nil || len(token.Headers) != 1 {
		return nil, invalid("the token is not a JWT that is signed with an accepted algorithm (RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA)")
	}
	header := token.Headers[0]
	if !isTokenType(header.ExtraHeaders[jose.HeaderType]) {
		return nil, invalid("the type of the token is neither JWT nor at+jwt: send an access token")
	}
	if _, critical := header.ExtraHeaders["crit"]; critical {
		return nil, invalid("the header of the token has critical parameters, which are not supported")
	}
	return token, nil
}

// isTokenType reports whether a typ header is absent, or that of an access token (RFC 9068).
func isTokenType(typ any) bool {
	if typ == nil {
		return true
	}
	text, ok := typ.(string)
	text = strings.TrimPrefix(strings.ToLower(text), "application/")
	return ok && (text == "jwt" || text == "at+jwt")
}

const badSignature = invalid("the signature of the token is not valid: request another one from the authorization server")

// verifySignature reads the claims that a key of the issuer has signed.
func (v *verifier) verifySignature(ctx context.Context, token *jwt.JSONWebToken, keys *keyring, into *claims) error {
	err := verifyWith(ctx, token, keys, into)
	if errors.Is(err, badSignature) && keys.renew(ctx) {
		err = verifyWith(ctx, token, keys, into)
	}
	return err
}

func verifyWith(ctx context.Context, token *jwt.JSONWebToken, keys *keyring, into *claims) error {
	header := token.Headers[0]
	algorithm := jose.SignatureAlgorithm(header.Algorithm)
	found, err := keys.find(ctx, header.KeyID)
	if err != nil {
		return err
	}
	suitable := slices.DeleteFunc(slices.Clone(found), func(key jose.JSONWebKey) bool { return !suits(key, algorithm) })
	switch {
	case len(suitable) == 0:
		return invalid("the issuer has no key with the ID and for the algorithm of the token: request another one from the authorization server")
	case header.KeyID == "" && len(suitable) > 1:
		return invalid("the token does not name its key (kid), and the issuer has several: configure the issuer to set kid")
	}
	for i := range suitable {
		var signed claims
		switch err := token.Claims(suitable[i].Key, &signed); {
		case err == nil:
			*into = signed
			return nil
		case !errors.Is(err, jose.ErrCryptoFailure):
			return invalid("the claims of the token cannot be read: request another one from the authorization server")
		}
	}
	return badSignature
}

func (v *verifier) check(c *claims, issuer string) error {
	now := v.now()
	switch {
	case c.Issuer != issuer:
		return invalid("the issuer of the token is not accepted here")
	case !slices.ContainsFunc(c.Audience, v.isOwn):
		return invalid("the token is for another resource: request one with the resource parameter set to the resource in the metadata")
	case c.Expiry == nil:
		return invalid("the token does not expire: configure the issuer to set exp")
	case !now.Before(c.Expiry.Time().Add(leeway)):
		return invalid("the token has expired: request another one from the authorization server")
	case c.NotBefore != nil && now.Add(leeway).Before(c.NotBefore.Time()):
		return invalid("the token is not valid yet: check the clock of the issuer")
	case len(c.Confirmation) > 0 && string(c.Confirmation) != "null":
		return invalid("the token is bound to a key of the client (cnf), which is not supported: request a bearer token")
	}
	return nil
}

func (v *verifier) isOwn(audience string) bool {
	return slices.Contains(v.audiences, canonicalURL(audience))
}
