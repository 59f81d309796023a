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
	flags.Func("tool-scopes", "`tool`, or the beginning of names followed by *, and the scopes that its calls need in addition, separated by spaces; may be repeated", func(value string) error {
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

// isSet reports whether any of the flags is set.
func (a *authorizationFlags) isSet() bool {
	o := a.options
	return len(o.Issuers)+len(o.Resources)+len(o.Tools) > 0 || a.scopes != ""
}

// authorizer returns nil if authorization is not configured.
func (a *authorizationFlags) authorizer(log logr.Logger, maxMessageBytes int) (*authorization.Authorizer, error) {
	if !a.isSet() {
		return nil, nil
	}
	options := a.options
	options.Log, options.MaxMessageBytes, options.Scopes = log, maxMessageBytes, strings.Fields(a.scopes)
	var err error
	if options.Roots, err = authorization.LoadRoots(a.roots); err != nil {
		return nil, fmt.Errorf("configuring authorization: %w", err)
	}
	return authorization.New(options)
}
