package callpolicy

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

// ToolLimit limits the calls of some tools by a caller.
type ToolLimit struct {
	// Pattern is the name of a tool, in which * stands for any characters. Tools that it matches are counted together.
	Pattern        string
	CallsPerMinute int
}

// Options configure [New]. A limit that is 0 does not exist.
type Options struct {
	// RequestsPerMinute is how many requests a caller may send per minute, at once or spread over the minute.
	RequestsPerMinute int
	// Tools limit calls. If several entries match a tool, all apply.
	Tools []ToolLimit
	// MaxConcurrentCalls is how many calls of tools may be in progress.
	MaxConcurrentCalls int
	// MaxBodyBytes is the maximum size of the body of a request.
	MaxBodyBytes int
	// CallTimeout is how long a call of a tool may take.
	CallTimeout time.Duration
	// Allow are the names of the tools that clients can list and call, in which * stands for any characters; none
	// allows all. Deny are exceptions.
	Allow, Deny []string

	// MaxMessageBytes is the maximum size of a message that has to be read, if MaxBodyBytes is 0. Its default is 4 MiB.
	MaxMessageBytes int
	// Caller identifies the caller of a request; nil is the address of the client.
	Caller func(*http.Request) string
	// Refused, if set, is called with the reason of each refusal, of which there are few.
	Refused func(reason string)
	Log     logr.Logger

	// now is the time; nil is time.Now.
	now func() time.Time
}

const defaultMaxMessageBytes = 4 << 20

// IsZero reports whether there is neither a limit nor a selection of tools.
func (o *Options) IsZero() bool {
	return !o.limitsRequests() && o.MaxBodyBytes == 0 && !o.readsMessages()
}

// limitsRequests reports whether requests of callers are counted.
func (o *Options) limitsRequests() bool { return o.RequestsPerMinute > 0 || len(o.Tools) > 0 }

// readsMessages reports whether messages must be read.
func (o *Options) readsMessages() bool {
	return len(o.Tools) > 0 || o.MaxConcurrentCalls > 0 || o.CallTimeout > 0 || o.selectsTools()
}

func (o *Options) selectsTools() bool { return len(o.Allow)+len(o.Deny) > 0 }

// complete sets defaults and validates the options.
func (o *Options) complete() error {
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.MaxMessageBytes == 0 {
		o.MaxMessageBytes = defaultMaxMessageBytes
	}
	if o.MaxBodyBytes > 0 {
		o.MaxMessageBytes = o.MaxBodyBytes
	}
	if o.RequestsPerMinute < 0 || o.MaxConcurrentCalls < 0 || o.MaxBodyBytes < 0 || o.CallTimeout < 0 || o.MaxMessageBytes < 0 {
		return errors.New("limits must not be negative")
	}
	var errs []error
	for _, limit := range o.Tools {
		if limit.Pattern == "" || limit.CallsPerMinute < 1 {
			errs = append(errs, fmt.Errorf("the limit %d of calls of %q must be at least 1, and for the name of a tool: correct it", limit.CallsPerMinute, limit.Pattern))
		}
	}
	for _, pattern := range append(append([]string{}, o.Allow...), o.Deny...) {
		if pattern == "" {
			errs = append(errs, errors.New("the name of an allowed or denied tool is empty: remove it"))
		}
	}
	return errors.Join(errs...)
}
