package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errCrashed is what every call of a crashed manager ends with.
var errCrashed = errors.New("the manager has crashed")

// errBroken is what a call ends with whose answer is lost.
var errBroken = errors.New("connection reset by peer")

// wire is the one way of a manager to the API server and to the cloud.
type wire struct {
	world   *World
	manager *Manager
	base    http.RoundTripper
	alive   context.Context
	cut     context.CancelFunc

	mu      sync.Mutex
	past    Past
	gates   map[string]*gate
	streams map[*stream]struct{}
}

func newWire(w *World, m *Manager, past Past) *wire {
	line := &wire{world: w, manager: m, base: w.Bench.transport(), past: Past{}, gates: map[string]*gate{}, streams: map[*stream]struct{}{}}
	line.alive, line.cut = context.WithCancel(context.Background())
	for resource, revision := range past {
		line.past[resource] = revision
		line.gate(resource).close()
	}
	return line
}

// RoundTrip implements [http.RoundTripper], for the API server.
func (l *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	if l.alive.Err() != nil {
		return nil, errCrashed
	}
	call := describe(request)
	switch {
	case call.Verb == "discover":
		return l.world.Bench.discovery.get(request, func() (*http.Response, error) { return l.base.RoundTrip(request) })
	case call.Verb == "watch":
		return l.watch(request, call)
	case call.Cached:
		l.fromThePast(request, call.Resource)
	}
	body, err := drained(request)
	if err != nil {
		return nil, err
	}
	call.Body = body
	if call.Resource == "events" && l.world.Mute {
		return answer{header: http.Header{"Content-Type": {"application/json"}}, body: body}.response(request), nil
	}
	return l.carry(call, request, func(ctx context.Context) (*http.Response, error) {
		again := request.Clone(ctx)
		again.Body = io.NopCloser(bytes.NewReader(body))
		response, err := l.base.RoundTrip(again)
		if err != nil {
			return nil, err
		}
		return whole(response)
	})
}

// cloudWire is the wire as the SDK's transport.
type cloudWire struct{ *wire }

// Do sends a request to the cloud.
func (l cloudWire) Do(request *http.Request) (*http.Response, error) {
	body, err := drained(request)
	if err != nil {
		return nil, err
	}
	call := Call{Cloud: true, Verb: request.Method, Name: request.URL.Path, Body: body}
	return l.carry(call, request, func(ctx context.Context) (*http.Response, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		again := request.Clone(ctx)
		again.Body = io.NopCloser(bytes.NewReader(body))
		recorder := httptest.NewRecorder()
		l.world.Cloud.ServeHTTP(recorder, again)
		response := recorder.Result()
		response.Request = request
		return response, nil
	})
}

// carry sends a call as the plan has it.
func (l *wire) carry(call Call, request *http.Request, send func(context.Context) (*http.Response, error)) (*http.Response, error) {
	if l.alive.Err() != nil {
		return nil, errCrashed
	}
	call.Manager = l.manager.Number
	at := l.world.record.begin(&call)
	fault := l.world.decide(call)
	if fault.Before != nil {
		fault.Before()
	}
	if fault.Crash == CrashBefore {
		l.manager.Crash()
		return nil, errCrashed
	}
	notSent := !fault.Landed && (fault.Status != 0 || fault.Lost)
	if notSent {
		return fault.answer(call, request)
	}
	ctx, cancel := context.WithCancel(request.Context())
	defer cancel()
	defer context.AfterFunc(l.alive, cancel)()
	response, err := send(ctx)
	if err != nil {
		return nil, err
	}
	l.world.record.end(at, response.StatusCode)
	switch {
	case fault.Crash == CrashLost:
		l.manager.Crash()
		return nil, errCrashed
	case fault.Crash == CrashAfter:
		l.manager.Crash()
	case fault.Status != 0 || fault.Lost:
		return fault.answer(call, request)
	}
	return response, nil
}

// answer is what the fault answers.
func (f Fault) answer(call Call, request *http.Request) (*http.Response, error) {
	if f.Lost {
		return nil, errBroken
	}
	reason := f.Reason
	if reason == "" {
		reason = reasons[f.Status]
	}
	message := f.Message
	if message == "" {
		message = "this failure was asked for"
	}
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
		return nil, fmt.Errorf("making up an answer: %w", err)
	}
	return &http.Response{
		Status: http.StatusText(f.Status), StatusCode: f.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(raw)), ContentLength: int64(len(raw)), Request: request,
	}, nil
}

// fromThePast makes the list by which a cache is filled one of the past, if it is to be.
func (l *wire) fromThePast(request *http.Request, resource string) {
	l.mu.Lock()
	revision, ok := l.past[resource]
	l.mu.Unlock()
	if !ok {
		return
	}
	query := request.URL.Query()
	query.Set("resourceVersion", strconv.FormatInt(revision, 10))
	query.Set("resourceVersionMatch", "Exact")
	request.URL.RawQuery = query.Encode()
}

// present ends the past of a resource.
func (l *wire) present(resource string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.past, resource)
}

// drained reads a request's body.
func drained(request *http.Request) ([]byte, error) {
	if request.Body == nil {
		return nil, nil
	}
	defer request.Body.Close()
	return io.ReadAll(request.Body)
}

// whole reads a response to its end, so that it has arrived or has not.
func whole(response *http.Response) (*http.Response, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
