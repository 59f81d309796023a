package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// auditPolicy records who asked for what. Each request is recorded when it is
// answered; a watch, which may never end, when it begins.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/metrics"]
- level: Metadata
`

// Audit reads what the API server recorded of the requests it served.
//
// It is exact: the API server writes a request's entry before it ends the answer
// (--audit-log-mode=blocking), so whoever has had the whole answer to a request
// finds it here. Requests that are still under way are not in it.
type Audit struct {
	path string

	mu       sync.Mutex
	offset   int64
	seen     map[string]struct{}
	requests Requests
}

// Mark is a position in the record.
type Mark int

// Request is one request to the API server.
type Request struct {
	// User is who sent it, as authenticated.
	User string
	// Pod is whose token it came with, if that was a pod's.
	Pod string
	// Verb is the API server's word: get, list, watch, create, update, patch,
	// delete, deletecollection. An apply is a patch: see [Request.IsApply].
	Verb string
	// Group, Resource, Subresource, Namespace and Name say of what. All are empty
	// for a path that is no resource, such as discovery.
	Group, Resource, Subresource, Namespace, Name string
	// URI is the path and the query.
	URI string
	// UserAgent is the client program.
	UserAgent string
	// Code is the HTTP status of the answer.
	Code int
	// Received is when it arrived, and Answered when the answer was complete (for
	// a watch, when it began). Both have microseconds.
	Received, Answered time.Time
}

// FieldManager is the manager that the request names, "" if it names none.
func (r Request) FieldManager() string { return r.query().Get("fieldManager") }

// DryRun tells whether the request was to change nothing.
func (r Request) DryRun() bool { return r.query().Has("dryRun") }

// IsApply tells whether it looks like a server-side apply: a patch that names a
// field manager. The record does not have the content type, which would be proof.
func (r Request) IsApply() bool { return r.Verb == "patch" && r.FieldManager() != "" }

// IsWrite tells whether the request was to change something.
func (r Request) IsWrite() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !r.DryRun()
	}
	return false
}

func (r Request) query() url.Values {
	_, query, _ := strings.Cut(r.URI, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil
	}
	return values
}

// String is one line: when, who, what, and how it ended.
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

// Requests are in the order in which they were answered.
type Requests []Request

// Where keeps the requests that match.
func (rs Requests) Where(match func(Request) bool) Requests {
	var kept Requests
	for _, r := range rs {
		if match(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

// By keeps the requests of the users.
func (rs Requests) By(users ...string) Requests {
	return rs.Where(func(r Request) bool { return slices.Contains(users, r.User) })
}

// Verbs keeps the requests with one of the verbs.
func (rs Requests) Verbs(verbs ...string) Requests {
	return rs.Where(func(r Request) bool { return slices.Contains(verbs, r.Verb) })
}

// Writes keeps the requests that were to change something, refused ones included.
func (rs Requests) Writes() Requests { return rs.Where(Request.IsWrite) }

// Applies keeps the server-side applies.
func (rs Requests) Applies() Requests { return rs.Where(Request.IsApply) }

// In keeps the requests in the namespace.
func (rs Requests) In(namespace string) Requests {
	return rs.Where(func(r Request) bool { return r.Namespace == namespace })
}

// Of keeps the requests for the resources, which are named by plural and group
// ("deployments.apps"), the core group's by plural alone ("services").
func (rs Requests) Of(resources ...string) Requests {
	return rs.Where(func(r Request) bool { return slices.Contains(resources, r.resource()) })
}

// Except leaves out the requests for the resources, named as for Of.
func (rs Requests) Except(resources ...string) Requests {
	return rs.Where(func(r Request) bool { return !slices.Contains(resources, r.resource()) })
}

// Key is what Count tells requests apart by.
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

// Summary counts the requests in a few lines, by user, verb, resource and code.
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

// String lists the requests, a line each.
func (rs Requests) String() string {
	var b strings.Builder
	for _, r := range rs {
		b.WriteString(r.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Mark returns the end of what is recorded now.
func (a *Audit) Mark() (Mark, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.read(); err != nil {
		return 0, err
	}
	return Mark(len(a.requests)), nil
}

// Since returns the requests answered after the mark was taken; the zero mark is
// the start of the cluster. The caller owns the result.
func (a *Audit) Since(mark Mark) (Requests, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.read(); err != nil {
		return nil, err
	}
	return slices.Clone(a.requests[mark:]), nil
}

// read takes in what was recorded since it was last called.
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
		if errors.Is(err, io.EOF) { // what is left is being written
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

// podExtra is what a token that is bound to a pod says of it.
const podExtra = "authentication.kubernetes.io/pod-name"

// entry is the part of an audit event that is of use here.
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
	// An API server that was killed may have left half an entry, which the next
	// one continues with a line of its own.
	if start := bytes.LastIndex(line, []byte(`{"kind":"Event"`)); start > 0 {
		line = line[start:]
	}
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("parsing the audit log: %w: %s", err, line)
	}
	// A watch has an entry when it begins and one when it ends.
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
