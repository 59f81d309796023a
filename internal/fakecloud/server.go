package fakecloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Options configure a server.
type Options struct {
	// Clock is the clock; nil means the real one.
	Clock clock.Clock
	// Seed is the seed of all random decisions.
	Seed int64
	// Knobs are the initial knobs.
	Knobs Knobs
	// Tokens are the names of callers by bearer token. If empty, [Token] is the token of a caller.
	Tokens map[string]string
	// StateFile is the file that keeps the state; empty keeps it in memory only.
	StateFile string
	// Snapshot is the initial state, from [Server.Snapshot]; nil means an empty cloud.
	Snapshot []byte
	// Locations are the supported regions; empty means some common ones.
	Locations []string
}

// Server is the fake cloud. It is an http.Handler. Its methods do what the admin API does.
type Server struct {
	clock     clock.Clock
	tokens    map[string]string
	locations []string
	chance    chance
	file      *stateFile

	mu       sync.Mutex
	knobs    Knobs
	state    *state
	throttle *throttle
	faults   []*armed
	clients  map[string]string
	// grants is an index of assignments by principal.
	grants map[string]map[string]*Assignment
}

// New is like [Open], but panics on an error.
func New(options Options) *Server {
	s, err := Open(options)
	if err != nil {
		panic(err)
	}
	return s
}

// Open returns a server with the state of the state file, if the file exists.
func Open(options Options) (*Server, error) {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if len(options.Locations) == 0 {
		options.Locations = []string{"eastus", "eastus2", "westus2", "northeurope", "westeurope", "uksouth", "germanywestcentral", "swedencentral"}
	}
	s := &Server{
		clock:     options.Clock,
		tokens:    options.Tokens,
		locations: options.Locations,
		state:     newState(),
		throttle:  newThrottle(),
		clients:   map[string]string{},
		grants:    map[string]map[string]*Assignment{},
	}
	if options.Snapshot != nil {
		if err := json.Unmarshal(options.Snapshot, s.state); err != nil {
			return nil, fmt.Errorf("reading the snapshot: %w", err)
		}
	}
	if options.StateFile != "" {
		s.file = newStateFile(options.StateFile)
		if err := s.file.load(s.state); err != nil {
			return nil, err
		}
	}
	for _, a := range s.state.Assignments {
		s.indexGrant(a)
	}
	s.chance = chance{seed: options.Seed, draws: s.state.Draws}
	s.SetKnobs(options.Knobs)
	if s.file != nil {
		go s.file.keep(s.Snapshot)
	}
	return s, nil
}

// Close writes the state file a last time.
func (s *Server) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.close(s.Snapshot)
}

// call is a request that is being processed.
type call struct {
	now         time.Time
	method      string
	path        path
	query       map[string][]string
	header      http.Header
	body        []byte
	base        string
	host        string
	address     string
	who         caller
	requestID   string
	correlation string
	version     string

	fault *Fault
	early bool
	// remaining are the headers with the remaining requests of the caller.
	remaining map[string]string
	// subject is the resource that the request counts for, if it is not the one of the path.
	subject string
	// The fields of the ledger entry.
	effect    Effect
	detail    string
	key       string
	principal string
}

func (c *call) mutates() bool {
	return c.method != http.MethodGet && c.method != http.MethodHead
}

// did records the effect of the request.
func (c *call) did(effect Effect, detail string) {
	c.effect, c.detail = effect, detail
}

// reply is the response to a request.
type reply struct {
	status int
	body   any
	header http.Header
	err    *Error
	// lost closes the connection without a response.
	lost bool
}

func ok(body any) reply { return reply{status: http.StatusOK, body: body} }

func refused(err *Error) reply { return reply{status: err.Status, err: err, body: err.body()} }

func (r reply) with(key, value string) reply {
	if r.header == nil {
		r.header = http.Header{}
	}
	r.header.Set(key, value)
	return r
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/":
		servePage(w)
		return
	case r.URL.Path == "/healthz":
		w.WriteHeader(http.StatusOK)
		return
	case strings.HasPrefix(r.URL.Path, "/_"):
		s.serveAdmin(w, r)
		return
	}
	if s.serveLogin(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // The client closed the connection.
	}
	if !s.travel(r) {
		return
	}
	c := newCall(r, body)
	s.send(w, c, s.handle(c))
}

// travel waits for the latency; false if the client closed the connection.
func (s *Server) travel(r *http.Request) bool {
	s.mu.Lock()
	latency := s.wait(s.knobs.Latency, "latency", r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	if latency <= 0 {
		return true
	}
	timer := s.clock.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-r.Context().Done():
		return false
	}
}

func newCall(r *http.Request, body []byte) *call {
	scheme := "http"
	if r.TLS != nil || r.URL.Scheme == "https" {
		scheme = "https"
	}
	return &call{
		method:  r.Method,
		path:    parsePath(r.URL.Path),
		query:   r.URL.Query(),
		header:  r.Header,
		body:    body,
		base:    scheme + "://" + r.Host,
		host:    r.Host,
		address: scheme + "://" + r.Host + r.URL.Path,
	}
}

// handle processes a request. Requests are processed one at a time.
func (s *Server) handle(c *call) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.now = s.clock.Now()
	s.state.Requests++
	c.requestID = s.chance.guid("request", strconv.FormatUint(s.state.Requests, 10))
	c.correlation = c.header.Get("x-ms-correlation-request-id")
	if c.correlation == "" {
		c.correlation = c.requestID
	}
	r := s.dispatch(c)
	s.account(c, &r)
	return r
}

// dispatch serves a request to the data plane of a key vault, or to Azure Resource Manager.
func (s *Server) dispatch(c *call) reply {
	if vault, data := vaultOfHost(c.host); data {
		return s.decideData(c, vault)
	}
	return s.decide(c)
}

// decide runs the checks in order, and then serves the request.
func (s *Server) decide(c *call) reply {
	for _, check := range []func(*call) *Error{
		s.authenticate,
		s.routed,
		s.subscribed,
		s.throttled,
		s.faulted,
		s.stumbled,
		s.authorized,
		s.unlocked,
	} {
		if err := check(c); err != nil {
			return refused(err)
		}
	}
	r := s.route(c).serve(s, c)
	return s.mishap(c, r)
}

// account adds the request to the ledger and the counts.
func (s *Server) account(c *call, r *reply) {
	subject := c.subject
	if subject == "" {
		subject = c.path.id()
	}
	count := s.state.Counts.of(subject, c.who.name)
	switch {
	case r.status == http.StatusTooManyRequests:
		count.Throttled++
	case r.err != nil && r.status != http.StatusNotFound:
		count.Errors++
	}
	if c.early {
		count.EarlyRetries++
	}
	if !c.mutates() {
		count.Reads++
		return
	}
	count.Writes++
	entry := Entry{
		Who: c.who.name, Method: c.method, Resource: c.path.id(),
		RequestID: c.requestID, ClientRequestID: c.header.Get("x-ms-client-request-id"), CorrelationID: c.correlation,
		Status: r.status, Effect: c.effect, Detail: c.detail, Key: c.key, Principal: c.principal,
		Lost: r.lost, EarlyRetry: c.early,
	}
	if r.lost {
		entry.Status = 0
	}
	if r.err != nil {
		entry.Code = r.err.Code
		entry.Detail = strings.TrimSpace(entry.Detail + " " + r.err.Message)
	}
	if entry.Effect == "" {
		entry.Effect = NoChange
		if r.err != nil {
			entry.Effect = Refused
		}
	}
	s.record(entry)
}

func (s *Server) send(w http.ResponseWriter, c *call, r reply) {
	if r.lost {
		panic(http.ErrAbortHandler)
	}
	header := w.Header()
	for key, values := range r.header {
		header[key] = values
	}
	header.Set("x-ms-request-id", c.requestID)
	header.Set("x-ms-correlation-request-id", c.correlation)
	header.Set("Cache-Control", "no-cache")
	if id := c.header.Get("x-ms-client-request-id"); id != "" {
		header.Set("x-ms-client-request-id", id)
	}
	for key, value := range c.remaining {
		header.Set(key, value)
	}
	if r.err != nil {
		s.explain(header, r.err)
	}
	if r.body == nil {
		w.WriteHeader(r.status)
		return
	}
	header.Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(r.status)
	writeJSON(w, r.body)
}

func (s *Server) explain(header http.Header, err *Error) {
	if err.RetryAfter > 0 {
		s.retryAfter(header, err.RetryAfter)
	}
	if err.challenge != "" {
		header.Set("WWW-Authenticate", err.challenge)
	}
}

// retryAfter sets Retry-After: in whole seconds as Azure does, and in milliseconds if the delays are
// compressed.
func (s *Server) retryAfter(header http.Header, wait time.Duration) {
	header.Set("Retry-After", seconds(wait))
	if s.Knobs().MillisecondHints {
		header.Set("x-ms-retry-after-ms", milliseconds(wait))
	}
}

func writeJSON(w io.Writer, body any) {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	// An error means that the client closed the connection.
	_ = encoder.Encode(body)
}

// wait draws a delay.
func (s *Server) wait(delay Delay, what, resource string) time.Duration {
	if delay.Min == delay.Max && delay.Mean == 0 {
		return delay.Min
	}
	return delay.at(s.chance.next(what, resource))
}

// later is now plus a drawn delay.
func (s *Server) later(now time.Time, delay Delay, what, resource string) time.Time {
	return now.Add(s.wait(delay, what, resource))
}

// Knobs returns the current knobs.
func (s *Server) Knobs() Knobs {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.currentKnobs()
}

// SetKnobs replaces the knobs. Pending state changes keep their times.
func (s *Server) SetKnobs(knobs Knobs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knobs = knobs
	s.knobs.Denied = slices.Clone(knobs.Denied)
	s.faults = nil
	for _, fault := range knobs.Faults {
		s.arm(fault)
	}
	s.knobs.Faults = nil
}

// Turn changes some of the knobs.
func (s *Server) Turn(turn func(*Knobs)) {
	knobs := s.Knobs()
	turn(&knobs)
	s.SetKnobs(knobs)
}

func (s *Server) currentKnobs() Knobs {
	knobs := s.knobs
	knobs.Denied = slices.Clone(s.knobs.Denied)
	for _, a := range s.faults {
		knobs.Faults = append(knobs.Faults, a.left())
	}
	return knobs
}

// changed schedules a write of the state file, if one is configured.
func (s *Server) changed() {
	if s.file != nil {
		s.file.touch()
	}
}

// Snapshot returns the state as JSON, as the state file has it. Knobs, request limits in use and registered clients are no
// part of it.
func (s *Server) Snapshot() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return json.Marshal(s.state)
}

// decode parses a JSON body; fields of the wrong type are an error.
func (c *call) decode(into any) *Error {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: 'the body is empty'.")
	}
	if err := json.Unmarshal(c.body, into); err != nil {
		return invalidContent(err)
	}
	return nil
}

// condition checks If-Match and If-None-Match against the ETag of the resource; empty if it does not exist.
func (c *call) condition(etag string) *Error {
	if want := c.header.Get("If-Match"); want != "" && want != etag && (want != "*" || etag == "") {
		return preconditionFailed(want)
	}
	if c.header.Get("If-None-Match") == "*" && etag != "" {
		return preconditionFailed("If-None-Match: *")
	}
	return nil
}

func etagOf(generation int, version uint64) string {
	return `"` + strconv.Itoa(generation) + "-" + strconv.FormatUint(version, 10) + `"`
}
