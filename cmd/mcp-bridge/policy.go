package main

import (
	"errors"
	"flag"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-logr/logr"

	"github.com/fixpoint-dev/fixpoint/internal/authorization"
	"github.com/fixpoint-dev/fixpoint/internal/callpolicy"
	"github.com/fixpoint-dev/fixpoint/internal/telemetry"
)

// policyFlags configure what callers may send, and which tools they can use.
type policyFlags struct {
	options callpolicy.Options
}

func (p *policyFlags) register(flags *flag.FlagSet) {
	o := &p.options
	flags.IntVar(&o.RequestsPerMinute, "requests-per-minute", 0, "maximum `number` of requests of a caller per minute (default: no limit)")
	flags.Func("calls-per-minute", "`name` of a tool, in which * stands for any characters, and after a space the maximum number of its calls by a caller per minute; may be repeated", func(value string) error {
		pattern, number, _ := strings.Cut(value, " ")
		calls, err := strconv.Atoi(number)
		if err != nil || pattern == "" {
			return errors.New("use a value such as 'delete_* 10'")
		}
		o.Tools = append(o.Tools, callpolicy.ToolLimit{Pattern: pattern, CallsPerMinute: calls})
		return nil
	})
	flags.IntVar(&o.MaxConcurrentCalls, "max-concurrent-calls", 0, "maximum `number` of calls of tools in progress (default: no limit)")
	flags.IntVar(&o.MaxBodyBytes, "max-body-bytes", 0, "maximum size of the body of a request, in `bytes` (default: no limit)")
	flags.DurationVar(&o.CallTimeout, "call-timeout", 0, "maximum `duration` of a call of a tool (default: no limit)")
	flags.Var((*list)(&o.Allow), "allow-tool", "`name` of a tool that clients can list and call, in which * stands for any characters; may be repeated (default: all)")
	flags.Var((*list)(&o.Deny), "deny-tool", "`name` of a tool that clients can neither list nor call, in which * stands for any characters; may be repeated")
}

// isSet reports whether any of the flags is set.
func (p *policyFlags) isSet() bool { return !p.options.IsZero() }

// policy returns nil if there is neither a limit nor a selection of tools. Callers are those of tokens, if they are
// checked.
func (p *policyFlags) policy(log logr.Logger, maxMessageBytes int, authorized bool) (*callpolicy.Policy, error) {
	if !p.isSet() {
		return nil, nil
	}
	options := p.options
	options.Log, options.MaxMessageBytes = log, maxMessageBytes
	if authorized {
		options.Caller = authorization.Caller
	}
	return callpolicy.New(options)
}

// protectionFlags configure what stands in front of the endpoint.
type protectionFlags struct {
	authorization authorizationFlags
	policy        policyFlags
	telemetry     telemetryFlags
}

func (f *protectionFlags) register(flags *flag.FlagSet) {
	f.authorization.register(flags)
	f.policy.register(flags)
	f.telemetry.register(flags)
}

// isComplete reports whether there is something to do, here or elsewhere, and an issuer if tokens are checked.
func (f *protectionFlags) isComplete(elsewhere bool) bool {
	if len(f.authorization.options.Issuers) > 0 {
		return true
	}
	return !f.authorization.isSet() && (f.policy.isSet() || f.telemetry.isSet() || elsewhere)
}

// protection is what stands in front of the endpoint.
type protection struct {
	// authorizer, policy and recorder are nil if they are not configured.
	authorizer *authorization.Authorizer
	policy     *callpolicy.Policy
	recorder   *telemetry.Recorder
	metrics    *telemetry.Metrics
}

func newProtection(stdout io.Writer, log logr.Logger, flags *protectionFlags, maxMessageBytes int) (*protection, error) {
	p := &protection{metrics: telemetry.NewMetrics()}
	flags.authorization.options.Refused = p.metrics.Refused(telemetry.ByAuthorization)
	flags.policy.options.Refused = p.metrics.Refused(telemetry.ByPolicy)
	var err error
	if p.authorizer, err = flags.authorization.authorizer(log, maxMessageBytes); err != nil {
		return nil, err
	}
	if p.policy, err = flags.policy.policy(log, maxMessageBytes, p.authorizer != nil); err != nil {
		return nil, err
	}
	p.recorder, err = flags.telemetry.recorder(stdout, log, p.metrics, maxMessageBytes)
	return p, err
}

// protectProxy is protect in front of the server of the proxy.
func (p *protection) protectProxy(next http.Handler) http.Handler {
	if p.recorder != nil {
		next = p.recorder.Forward(next)
	}
	return p.protect(next)
}

// protect records all requests, and checks tokens before limits, which are those of the caller that the token names.
func (p *protection) protect(next http.Handler) http.Handler {
	if p.policy != nil {
		next = p.policy.Protect(next)
	}
	if p.authorizer != nil {
		next = p.authorizer.Protect(next)
	}
	return recorded(p.recorder, next)
}
