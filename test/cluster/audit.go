package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// auditPolicy records the metadata of each request when its response is complete, and of a watch when it begins.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/metrics"]
- level: Metadata
`

// Audit reads the audit log of the API server.
//
// It is exact: the API server writes the entry of a request before it completes the response
// (--audit-log-mode=blocking), so that a client that has received a response finds its request here. Requests in
// progress are not included.
type Audit struct {
	path string

	mu       sync.Mutex
	offset   int64
	seen     map[string]struct{}
	requests Requests
}

// Mark is a position in the audit log.
type Mark int

// Request is one request to the API server.
type Request struct {
	// User is the authenticated user.
	User string
	// Pod is the pod of the service account token, if the token is bound to a pod.
	Pod string
	// Verb is the verb of the API server: get, list, watch, create, update, patch, delete, deletecollection. An apply is
	// a patch: see [Request.IsApply].
	Verb string
	// Group, Resource, Subresource, Namespace and Name identify the target. All are empty for a path that is not a resource,
	// such as discovery.
	Group, Resource, Subresource, Namespace, Name string
	// URI is the path with the query.
	URI string
	// UserAgent is the client program.
	UserAgent string
	// Code is the HTTP status of the response.
	Code int
	// Received is when the request arrived, and Answered when the response was complete (for a watch, when it began), in
	// microseconds.
	Received, Answered time.Time
}

// FieldManager is the field manager in the request, or empty.
func (r Request) FieldManager() string { return r.query().Get("fieldManager") }

// DryRun reports whether the request is a dry run.
func (r Request) DryRun() bool { return r.query().Has("dryRun") }

// IsApply reports whether the request is a patch with a field manager. The audit log does not contain the content type,
// which would distinguish a server-side apply with certainty.
func (r Request) IsApply() bool { return r.Verb == "patch" && r.FieldManager() != "" }

// IsWrite reports whether the request can change an object.
func (r Request) IsWrite() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !r.DryRun()
	}
	return false
}

// IsSingle reports whether the request is for a single object: neither a list, nor a watch, nor discovery.
func (r Request) IsSingle() bool { return r.Resource != "" && r.Verb != "list" && r.Verb != "watch" }

func (r Request) query() url.Values {
	_, query, _ := strings.Cut(r.URI, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil
	}
	return values
}

// String returns the time, the user, the target and the result in one line.
func (r Request) String() string {
	return fmt.Sprintf("%s %s %s %s %d", r.Received.Format("15:04:05.000000"), r.User, r.Verb, r.object(), r.Code)
}

func (r Request) object() string {
	if r.Resource == "" {
		return r.URI
	}
	parts := []string{r.resource()}
	for _, part := range []string{r.Namespace, r.Name, r.Subresource} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}

func (r Request) resource() string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

// Requests are in the order of their responses.
type Requests []Request

// Where returns the requests that match.
func (rs Requests) Where(match func(Request) bool) Requests {
	var kept Requests
	for _, r := range rs {
		if match(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

// By returns the requests of the users.
func (rs Requests) By(users ...string) Requests {
	return rs.Where(func(r Request) bool { return slices.Contains(users, r.User) })
}

// Verbs returns the requests with one of the verbs.
func (rs Requests) Verbs(verbs ...string) Requests {
	return rs.Where(func(r Request) bool { return slices.Contains(verbs, r.Verb) })
}

// Writes returns the mutating requests, including refused ones.
func (rs Requests) Writes() Requests { return rs.Where(Request.IsWrite) }

// WithoutWatches leaves out the watches, which the API server ends from time to time.
func (rs Requests) WithoutWatches() Requests {
	return rs.Where(func(r Request) bool { return r.Verb != "watch" })
}

// Succeeded returns the requests that the API server did not refuse.
func (rs Requests) Succeeded() Requests {
	return rs.Where(func(r Request) bool { return r.Code >= http.StatusOK && r.Code < http.StatusMultipleChoices })
}

// Applies returns the server-side applies.
func (rs Requests) Applies() Requests { return rs.Where(Request.IsApply) }

// In returns the requests in the namespace.
func (rs Requests) In(namespace string) Requests {
	return rs.Where(func(r Request) bool { return r.Namespace == namespace })
}

// Of returns the requests for the resources, which are named by plural and group ("deployments.apps"), or by plural alone
// in the core group ("services").
func (rs Requests) Of(resources ...string) Requests {
	return rs.Where(func(r Request) bool { return slices.Contains(resources, r.resource()) })
}

// Except returns the requests for other resources, named as for Of.
func (rs Requests) Except(resources ...string) Requests {
	return rs.Where(func(r Request) bool { return !slices.Contains(resources, r.resource()) })
}

// Key identifies a group of requests for Count.
type Key struct {
	User, Verb, Group, Resource, Subresource, Namespace, Name string
	Code                                                      int
}

// Count counts the requests.
func (rs Requests) Count() map[Key]int {
	counts := map[Key]int{}
	for _, r := range rs {
		counts[Key{r.User, r.Verb, r.Group, r.Resource, r.Subresource, r.Namespace, r.Name, r.Code}]++
	}
	return counts
}

// Summary counts the requests by user, verb, resource and code.
func (rs Requests) Summary() string {
	counts := map[string]int{}
	for _, r := range rs {
		what := r.resource()
		if r.Subresource != "" {
			what += "/" + r.Subresource
		}
		if what == "" {
			what, _, _ = strings.Cut(r.URI, "?")
		}
		counts[fmt.Sprintf("%s %s %s %d", r.User, r.Verb, what, r.Code)]++
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%6d %s\n", counts[line], line)
	}
	return b.String()
}

// String lists the requests, one per line.
func (rs Requests) String() string {
	var b strings.Builder
	for _, r := range rs {
		b.WriteString(r.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Mark returns the current end of the audit log.
func (a *Audit) Mark() (Mark, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.read(); err != nil {
		return 0, err
	}
	return Mark(len(a.requests)), nil
}

// Since returns the requests with a response after the mark; the zero mark is the start of the cluster. The caller owns
// the result.
func (a *Audit) Since(mark Mark) (Requests, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.read(); err != nil {
		return nil, err
	}
	return slices.Clone(a.requests[mark:]), nil
}

// read parses the entries that were added since the last call.
func (a *Audit) read() error {
	file, err := os.Open(a.path)
	if errors.Is(err, os.ErrNotExist) { // no request yet
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // the last entry is incomplete
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		if err := a.add(line); err != nil {
			return err
		}
		a.offset += int64(len(line))
	}
}

// podExtra is the user attribute with the pod of a bound token.
const podExtra = "authentication.kubernetes.io/pod-name"

// entry contains the used fields of an audit event.
type entry struct {
	AuditID          string
	Verb, RequestURI string
	UserAgent        string
	User             struct {
		Username string
		Extra    map[string][]string
	}
	ObjectRef                struct{ Resource, Namespace, Name, APIGroup, Subresource string }
	ResponseStatus           struct{ Code int }
	RequestReceivedTimestamp time.Time
	StageTimestamp           time.Time
}

func (a *Audit) add(line []byte) error {
	// A killed API server can leave an incomplete entry, which the next one continues with a complete line.
	if start := bytes.LastIndex(line, []byte(`{"kind":"Event"`)); start > 0 {
		line = line[start:]
	}
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("parsing the audit log: %w: %s", err, line)
	}
	// A watch has one entry at its start and one at its end.
	if _, seen := a.seen[e.AuditID]; seen {
		return nil
	}
	a.seen[e.AuditID] = struct{}{}
	a.requests = append(a.requests, Request{
		User: e.User.Username, Pod: strings.Join(e.User.Extra[podExtra], ","), Verb: e.Verb, URI: e.RequestURI, UserAgent: e.UserAgent,
		Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
		Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		Code: e.ResponseStatus.Code, Received: e.RequestReceivedTimestamp, Answered: e.StageTimestamp,
	})
	return nil
}
