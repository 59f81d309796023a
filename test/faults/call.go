package faults

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Call is one request of a manager to the API server or to the cloud.
type Call struct {
	// Number counts the mutating calls of the environment from 1; it is 0 for all other calls.
	Number int
	// Cloud is true for a call to the cloud, where Name is the path of the resource.
	Cloud bool
	// Verb is get, list, watch, create, apply, patch or delete, or the HTTP method of a cloud call.
	Verb string
	// Resource, Name and Subresource identify the target, such as deployments, web and scale.
	Resource, Name, Subresource string
	// Cached is true for the lists and watches that fill caches.
	Cached bool
	// Body is the request body.
	Body []byte
	// Status is the HTTP status of the response, 0 without a response. Landed is true if the request reached
	// the server.
	Status int
	Landed bool
	At     time.Time
	// Manager is the number of the manager in its environment.
	Manager int
}

// listKeys ends the path of the request for the keys of an account. It is a POST, but changes nothing.
const listKeys = "/listkeys"

// Mutates reports whether the call can change an object. Events and Leases do not count.
func (c Call) Mutates() bool {
	if c.Cloud {
		isQuestion := strings.HasSuffix(strings.ToLower(c.Name), "/checknameavailability") || strings.HasSuffix(strings.ToLower(c.Name), listKeys)
		return c.Verb != http.MethodGet && c.Verb != http.MethodHead && !isQuestion
	}
	switch c.Verb {
	case "create", "update", "apply", "patch", "delete":
		return c.Resource != "events" && c.Resource != "leases"
	default:
		return false
	}
}

// Class returns the kind of call, such as "apply deployments/status".
func (c Call) Class() string {
	if c.Cloud {
		return fmt.Sprintf("cloud %s %s", c.Verb, resourceTypeOf(c.Name))
	}
	class := c.Verb + " " + c.Resource
	if c.Subresource != "" {
		class += "/" + c.Subresource
	}
	return class
}

// resourceTypeOf returns the type of a cloud resource: every other segment of its ID.
func resourceTypeOf(id string) string {
	parts := strings.Split(strings.Trim(strings.ToLower(id), "/"), "/")
	if i := slices.Index(parts, "microsoft.authorization"); i >= 0 {
		return strings.Join(parts[i+1:min(i+2, len(parts))], "/")
	}
	if i := slices.Index(parts, "providers"); i >= 0 && i+2 < len(parts) {
		kind := parts[i+2]
		for j := i + 4; j < len(parts); j += 2 {
			kind += "/" + parts[j]
		}
		return kind
	}
	return path.Base(id)
}

// String returns, for example, "#7 apply deployments/web: 200".
func (c Call) String() string {
	var b strings.Builder
	if c.Number > 0 {
		fmt.Fprintf(&b, "#%d ", c.Number)
	}
	if c.Cloud {
		b.WriteString("cloud ")
	}
	b.WriteString(c.Verb + " ")
	if c.Resource != "" {
		b.WriteString(c.Resource + "/")
	}
	b.WriteString(c.Name)
	if c.Subresource != "" {
		b.WriteString("/" + c.Subresource)
	}
	switch {
	case !c.Landed:
		b.WriteString(": not sent")
	case c.Status != 0:
		fmt.Fprintf(&b, ": %d", c.Status)
	}
	return b.String()
}

// describe classifies a request to the API server.
func describe(request *http.Request) Call {
	call := Call{At: time.Now()}
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		call.Verb, call.Resource = "discover", request.URL.Path
		return call
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	call.Resource = parts[0]
	if len(parts) > 1 {
		call.Name = parts[1]
	}
	if len(parts) > 2 {
		call.Subresource = parts[2]
	}
	call.Verb = verbOf(request, call.Name)
	query := request.URL.Query()
	// Only reflectors list with a resource version.
	call.Cached = call.Verb == "watch" || call.Verb == "list" && query.Get("resourceVersion") != ""
	return call
}

func verbOf(request *http.Request, name string) string {
	switch request.Method {
	case http.MethodGet:
		switch {
		case request.URL.Query().Get("watch") != "":
			return "watch"
		case name == "":
			return "list"
		default:
			return "get"
		}
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		if strings.Contains(request.Header.Get("Content-Type"), "apply-patch") {
			return "apply"
		}
		return "patch"
	case http.MethodDelete:
		return "delete"
	default:
		return strings.ToLower(request.Method)
	}
}

// record holds all calls of the managers of an environment, except those that fill caches.
type record struct {
	mu     sync.Mutex
	calls  []Call
	writes int
	last   time.Time
}

// begin numbers and stores a call. It returns the index of the call for end.
func (r *record) begin(call *Call) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if call.Mutates() {
		r.writes++
		call.Number = r.writes
	}
	r.last = time.Now()
	r.calls = append(r.calls, *call)
	return len(r.calls) - 1
}

func (r *record) end(at, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[at].Landed, r.calls[at].Status = true, status
	r.last = time.Now()
}

func (r *record) all() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// quietSince returns when the last call began or ended.
func (r *record) quietSince() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
