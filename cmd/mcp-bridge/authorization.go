package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/go-logr/logr"

	"github.com/fixpoint-dev/fixpoint/internal/authorization"
)

// authorizationFlags configure who may use the endpoint.
type authorizationFlags struct {
	options authorization.Options
	scopes  string
	roots   string
	// exchange is used if its URL is set.
	exchange       authorization.Exchange
	exchangeScopes string
}

func (a *authorizationFlags) register(flags *flag.FlagSet) {
	o := &a.options
	flags.Func("issuer", "`issuer` whose access tokens are accepted; after a space, the URL or the file of its JSON Web Key Set (default: discovered); may be repeated", func(value string) error {
		url, keys, _ := strings.Cut(value, " ")
		o.Issuers = append(o.Issuers, authorization.Issuer{URL: url, Keys: keys})
		return nil
	})
	flags.Func("resource", "`URL` of the MCP endpoint that tokens must be for; may be repeated", func(value string) error {
		o.Resources = append(o.Resources, value)
		return nil
	})
	flags.StringVar(&a.scopes, "scopes", "", "`scopes` that every request needs, separated by spaces")
	flags.Func("tool-scopes", "name of a `tool`, in which * stands for any characters, and the scopes that its calls need in addition, separated by spaces; may be repeated", func(value string) error {
		fields := strings.Fields(value)
		if len(fields) < 2 {
			return errors.New("use a value such as 'delete_* admin'")
		}
		o.Tools = append(o.Tools, authorization.ToolScopes{Pattern: fields[0], Scopes: fields[1:]})
		return nil
	})
	flags.StringVar(&a.roots, "issuer-ca", "", "`file` with CA certificates of issuers in PEM format, in addition to those of the system; it need not exist")
	flags.BoolVar(&o.AllowHTTP, "allow-http-issuers", false, "allow issuers at http URLs other than localhost; who can change their responses can sign tokens")
}

// registerExchange registers the flags of the proxy: a server on stdio has no headers.
func (a *authorizationFlags) registerExchange(flags *flag.FlagSet) {
	x := &a.exchange
	flags.StringVar(&x.TokenURL, "exchange-url", "", "`URL` of the token endpoint at which tokens of callers are exchanged for those that the server gets (default: the server gets none)")
	flags.StringVar(&x.Credentials, "exchange-credentials", "", "`directory` with the files client-id and client-secret")
	flags.StringVar(&x.Audience, "exchange-audience", "", "`audience` of the tokens that the server gets")
	flags.StringVar(&x.Resource, "exchange-resource", "", "`URL` that the tokens that the server gets are for")
	flags.StringVar(&a.exchangeScopes, "exchange-scopes", "", "`scopes` of the tokens that the server gets, separated by spaces")
}

// isSet reports whether any of the flags is set.
func (a *authorizationFlags) isSet() bool {
	o, x := a.options, a.exchange
	return len(o.Issuers)+len(o.Resources)+len(o.Tools) > 0 || a.scopes+x.TokenURL+x.Credentials+x.Audience+x.Resource+a.exchangeScopes != ""
}

// authorizer returns nil if authorization is not configured.
func (a *authorizationFlags) authorizer(log logr.Logger, maxMessageBytes int) (*authorization.Authorizer, error) {
	if !a.isSet() {
		return nil, nil
	}
	options := a.options
	options.Log, options.MaxMessageBytes, options.Scopes = log, maxMessageBytes, strings.Fields(a.scopes)
	if a.exchange.TokenURL != "" {
		exchange := a.exchange
		exchange.Scopes = strings.Fields(a.exchangeScopes)
		options.Exchange = &exchange
	}
	var err error
	if options.Roots, err = authorization.LoadRoots(a.roots); err != nil {
		return nil, fmt.Errorf("configuring authorization: %w", err)
	}
	return authorization.New(options)
}
