package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errCrashed is the error of every call of a crashed manager.
var errCrashed = errors.New("the manager has crashed")

// errConnectionReset is the error of a call whose response is lost.
var errConnectionReset = errors.New("connection reset by peer")

// transport carries all requests of a manager to the API server and to the cloud.
type transport struct {
	env     *Environment
	manager *Manager
	base    http.RoundTripper
	alive   context.Context
	cut     context.CancelFunc

	mu      sync.Mutex
	stale   StaleCache
	gates   map[string]*gate
	streams map[*stream]struct{}
}

func newTransport(env *Environment, m *Manager, stale StaleCache) *transport {
	t := &transport{env: env, manager: m, base: env.Cluster.connection(), stale: StaleCache{}, gates: map[string]*gate{}, streams: map[*stream]struct{}{}}
	t.alive, t.cut = context.WithCancel(context.Background())
	for resource, revision := range stale {
		t.stale[resource] = revision
		t.gate(resource).close()
	}
	return t
}

// RoundTrip implements [http.RoundTripper], for the API server.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.alive.Err() != nil {
		return nil, errCrashed
	}
	call := describe(request)
	switch {
	case call.Verb == "discover":
		return t.env.Cluster.discovery.get(request, func() (*http.Response, error) { return t.base.RoundTrip(request) })
	case call.Verb == "watch":
		return t.roundTripWatch(request, call)
	case call.Cached:
		t.setStaleRevision(request, call.Resource)
	}
	body, err := readBody(request)
	if err != nil {
		return nil, err
	}
	call.Body = body
	if call.Resource == "events" && t.env.DiscardEvents {
		return answer{header: http.Header{"Content-Type": {"application/json"}}, body: body}.response(request), nil
	}
	return t.roundTrip(call, request, func(ctx context.Context) (*http.Response, error) {
		again := request.Clone(ctx)
		again.Body = io.NopCloser(bytes.NewReader(body))
		response, err := t.base.RoundTrip(again)
		if err != nil {
			return nil, err
		}
		return readResponse(response)
	})
}

// cloudTransport is the transport for the cloud's SDK.
type cloudTransport struct{ *transport }

// Do sends a request to the cloud.
func (l cloudTransport) Do(request *http.Request) (*http.Response, error) {
	body, err := readBody(request)
	if err != nil {
		return nil, err
	}
	call := Call{Cloud: true, Verb: request.Method, Name: request.URL.Path, Body: body}
	return l.roundTrip(call, request, func(ctx context.Context) (*http.Response, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		again := request.Clone(ctx)
		again.Body = io.NopCloser(bytes.NewReader(body))
		return l.env.Cloud.Do(again)
	})
}

// roundTrip sends a call and injects the fault of the plan.
func (t *transport) roundTrip(call Call, request *http.Request, send func(context.Context) (*http.Response, error)) (*http.Response, error) {
	if t.alive.Err() != nil {
		return nil, errCrashed
	}
	call.Manager = t.manager.Number
	at := t.env.record.begin(&call)
	fault := t.env.decide(call)
	if fault.Before != nil {
		fault.Before()
	}
	if fault.Crash == CrashBefore {
		t.manager.Crash()
		return nil, errCrashed
	}
	notSent := !fault.Landed && (fault.Status != 0 || fault.Lost)
	if notSent {
		return fault.answer(call, request)
	}
	ctx, cancel := context.WithCancel(request.Context())
	defer cancel()
	defer context.AfterFunc(t.alive, cancel)()
	response, err := send(ctx)
	if err != nil {
		return nil, err
	}
	t.env.record.end(at, response.StatusCode)
	switch {
	case fault.Crash == CrashLost:
		t.manager.Crash()
		return nil, errCrashed
	case fault.Crash == CrashAfter:
		t.manager.Crash()
	case fault.Status != 0 || fault.Lost:
		return fault.answer(call, request)
	}
	return response, nil
}

// answer returns the response of the fault.
func (f Fault) answer(call Call, request *http.Request) (*http.Response, error) {
	if f.Lost {
		return nil, errConnectionReset
	}
	reason := f.Reason
	if reason == "" {
		reason = reasons[f.Status]
	}
	message := cmp.Or(f.Message, "injected failure")
	header := http.Header{"Content-Type": {"application/json"}}
	if f.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(f.RetryAfter.Seconds())))
	}
	var body any = &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: message, Reason: metav1.StatusReason(reason), Code: int32(f.Status), //nolint:gosec // an HTTP status
		Details: &metav1.StatusDetails{Name: call.Name, Kind: call.Resource, RetryAfterSeconds: int32(f.RetryAfter.Seconds())},
	}
	if call.Cloud {
		body = map[string]any{"error": map[string]any{"code": reason, "message": message}}
		header.Set("x-ms-error-code", reason)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding a response: %w", err)
	}
	return &http.Response{
		Status: http.StatusText(f.Status), StatusCode: f.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(raw)), ContentLength: int64(len(raw)), Request: request,
	}, nil
}

// setStaleRevision changes the list that fills a cache to the old revision, if the cache is stale.
func (t *transport) setStaleRevision(request *http.Request, resource string) {
	t.mu.Lock()
	revision, ok := t.stale[resource]
	t.mu.Unlock()
	if !ok {
		return
	}
	query := request.URL.Query()
	query.Set("resourceVersion", strconv.FormatInt(revision, 10))
	query.Set("resourceVersionMatch", "Exact")
	request.URL.RawQuery = query.Encode()
}

// clearStale ends the stale cache of a resource.
func (t *transport) clearStale(resource string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.stale, resource)
}

// readBody reads a request body.
func readBody(request *http.Request) ([]byte, error) {
	if request.Body == nil {
		return nil, nil
	}
	defer request.Body.Close()
	return io.ReadAll(request.Body)
}

// readResponse reads a response completely.
func readResponse(response *http.Response) (*http.Response, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
