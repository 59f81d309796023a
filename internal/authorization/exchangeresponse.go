package authorization

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
)

// codeBadGateway is the error code for a response of the authorization server that cannot be used.
const codeBadGateway = "server_error"

// answer is the response of the token endpoint.
type answer struct {
	status int
	body   []byte
}

// exchanged is the result of an exchange: a token, or why there is none.
type exchanged struct {
	token   string
	refused *refusal
	// until is when it is no longer used; zero if it is not kept.
	until time.Time
}

// read decides what the response to an exchange of the token of a caller means. Until is then the expiry of the new token.
func (a answer) read(wanted Exchange, callers string, now time.Time) exchanged {
	if a.status != http.StatusOK {
		return exchanged{refused: a.refusal()}
	}
	var body struct {
		Token      string      `json:"access_token"`
		IssuedType string      `json:"issued_token_type"`
		Type       string      `json:"token_type"`
		Lifetime   json.Number `json:"expires_in"`
	}
	if json.Unmarshal(a.body, &body) != nil {
		return exchanged{refused: badExchange("it is not JSON")}
	}
	claims, wrong := claimsOf(body.Token)
	expires, err := expiry(claims.Expiry, body.Lifetime, now)
	switch {
	case !strings.EqualFold(body.Type, "Bearer"):
		wrong = "its token is not a bearer token"
	case body.IssuedType != typeAccessToken && body.IssuedType != typeJWT:
		wrong = "its token is not an access token (issued_token_type)"
	case len(body.Token) > maxToken:
		wrong = fmt.Sprintf("its token is longer than %d bytes", maxToken)
	case !isBearer(body.Token):
		wrong = "it has no token that a header can have"
	case body.Token == callers:
		wrong = "its token is that of the caller, which is not passed on"
	case wrong != "":
	case err != nil || !now.Before(expires):
		wrong = "its token has expired"
	case !wanted.isFor(claims.Audience):
		wrong = "its token is for another audience"
	}
	if wrong != "" {
		return exchanged{refused: badExchange(wrong)}
	}
	return exchanged{token: body.Token, until: expires}
}

func badExchange(wrong string) *refusal {
	return &refusal{
		status: http.StatusBadGateway, code: codeBadGateway,
		description: "the authorization server has sent a response to the exchange of the token that cannot be used, because " + wrong + ": check its configuration",
	}
}

// refusal is the response to the caller for an error of the token endpoint.
func (a answer) refusal() *refusal {
	var body struct {
		Code string `json:"error"`
	}
	_ = json.Unmarshal(a.body, &body) // Without a code, the status decides.
	switch {
	case a.status >= 500 || a.status == http.StatusTooManyRequests || a.status == http.StatusRequestTimeout:
		return exchangeUnavailable("the token cannot be exchanged for one for the server at present: retry later")
	case body.Code == "invalid_grant", body.Code == "invalid_request": // The latter is that of RFC 8693 for an invalid token.
		return &refusal{
			status: http.StatusUnauthorized, code: codeInvalidToken,
			description: "the authorization server does not exchange the token for one for the server (" + body.Code + "): request another one from it",
		}
	case body.Code == "invalid_target", body.Code == "invalid_scope", body.Code == "access_denied", body.Code == "unauthorized_client":
		return &refusal{
			status: http.StatusForbidden, code: body.Code,
			description: "the authorization server does not give the caller a token for what the server calls (" + body.Code + "): grant it there",
		}
	case body.Code == "invalid_client":
		return exchangeUnavailable("the authorization server does not accept the client credentials of the server (invalid_client): correct them in the Secret")
	default:
		return badExchange(fmt.Sprintf("its status is %d", a.status))
	}
}

// isBearer reports whether a token has the syntax of RFC 6750, section 2.1.
func isBearer(token string) bool {
	body := strings.TrimRight(token, "=")
	return body != "" && !strings.ContainsFunc(body, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~+/", c)
	})
}

// issuedClaims are the claims that are read of a token that was issued for the server.
type issuedClaims struct {
	Audience jwt.Audience     `json:"aud"`
	Expiry   *jwt.NumericDate `json:"exp"`
}

// claimsOf are the claims of a token; none if it is opaque. They are not verified: the token comes from the
// authorization server itself, and the server verifies it. The error says what is wrong with them.
func claimsOf(token string) (found issuedClaims, wrong string) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return found, ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || !json.Valid(payload) {
		return found, ""
	}
	if json.Unmarshal(payload, &found) != nil {
		return found, "the claims of its token cannot be read"
	}
	return found, ""
}

// expiry is when a token expires, by the response and by the token itself.
func expiry(own *jwt.NumericDate, lifetime json.Number, now time.Time) (time.Time, error) {
	expires := now.Add(unknownLifetime + exchangeMargin)
	if lifetime != "" {
		seconds, err := lifetime.Int64()
		if err != nil {
			return now, fmt.Errorf("reading expires_in: %w", err)
		}
		// Longer ones would overflow.
		expires = now.Add(time.Duration(min(max(seconds, 0), 365*24*3600)) * time.Second)
		if own != nil {
			expires = earlier(expires, own.Time())
		}
	} else if own != nil {
		expires = own.Time()
	}
	return expires, nil
}

// isFor reports whether one of the audiences of a token is what was asked for. A token without any is for all.
func (e Exchange) isFor(audiences []string) bool {
	return len(audiences) == 0 || slices.ContainsFunc(audiences, func(given string) bool {
		return e.Audience != "" && given == e.Audience || e.Resource != "" && canonicalURL(given) == canonicalURL(e.Resource)
	})
}
