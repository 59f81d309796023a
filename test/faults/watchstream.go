package faults

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// gate delivers events or holds them back.
type gate struct {
	mu sync.Mutex
	// opened is closed while the gate is open.
	opened chan struct{}
	isOpen bool
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{}), isOpen: true}
	close(g.opened)
	return g
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpen {
		g.isOpen, g.opened = false, make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOpen {
		g.isOpen = true
		close(g.opened)
	}
}

// wait waits until the gate is open.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *transport) gate(resource string) *gate {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gates[resource] == nil {
		t.gates[resource] = newGate()
	}
	return t.gates[resource]
}

// stream is an open watch.
type stream struct {
	resource string
	protobuf bool
	writer   *io.PipeWriter
	cancel   context.CancelFunc
}

// roundTripWatch opens a watch and forwards it event by event.
func (t *transport) roundTripWatch(request *http.Request, call Call) (*http.Response, error) {
	if fault := t.env.decide(call); fault.Status != 0 || fault.Lost {
		return fault.answer(call, request)
	}
	ctx, cancel := context.WithCancel(request.Context())
	stop := context.AfterFunc(t.alive, cancel)
	response, err := t.base.RoundTrip(request.Clone(ctx))
	if err != nil || response.StatusCode != http.StatusOK {
		stop()
		cancel()
		return response, err
	}
	body := response.Body
	reader, writer := io.Pipe()
	s := &stream{resource: call.Resource, protobuf: isProtobuf(response), writer: writer, cancel: cancel}
	t.mu.Lock()
	t.streams[s] = struct{}{}
	t.mu.Unlock()
	go func() {
		defer stop()
		defer body.Close()
		err := forward(ctx, eventsOf(response, body), writer, t.gate(call.Resource))
		writer.CloseWithError(err)
		t.mu.Lock()
		delete(t.streams, s)
		t.mu.Unlock()
	}()
	response.Body = &streamBody{PipeReader: reader, cancel: cancel}
	return response, nil
}

func isProtobuf(response *http.Response) bool {
	return strings.Contains(response.Header.Get("Content-Type"), "protobuf")
}

// eventsOf returns a function that reads the next event. Events in protobuf, which metadata-only watches
// use, have a length prefix; events in JSON end with a newline.
func eventsOf(response *http.Response, body io.Reader) (next func() ([]byte, error)) {
	reader := bufio.NewReader(body)
	if !isProtobuf(response) {
		return func() ([]byte, error) { return reader.ReadBytes('\n') }
	}
	return func() ([]byte, error) {
		const lengthBytes = 4
		length := make([]byte, lengthBytes)
		if _, err := io.ReadFull(reader, length); err != nil {
			return nil, err
		}
		event := make([]byte, binary.BigEndian.Uint32(length))
		_, err := io.ReadFull(reader, event)
		return slices.Concat(length, event), err
	}
}

// forward passes whole events through the gate.
func forward(ctx context.Context, next func() ([]byte, error), to io.Writer, gate *gate) error {
	for {
		event, err := next()
		if err != nil {
			return err // also at the end of the watch
		}
		if err := gate.wait(ctx); err != nil {
			return err
		}
		if _, err := to.Write(event); err != nil {
			return err
		}
	}
}

// streamBody is the response body of a watch.
type streamBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close implements [io.Closer].
func (b *streamBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// cutWatches breaks the open watches of a resource.
func (t *transport) cutWatches(resource string, expired bool) {
	t.mu.Lock()
	var cut []*stream
	for s := range t.streams {
		if s.resource == resource {
			cut = append(cut, s)
		}
	}
	t.mu.Unlock()
	for _, s := range cut {
		last := expiredEvent(s.protobuf)
		if !expired {
			last = last[:len(last)/2]
		}
		_, _ = s.writer.Write(last)
		s.writer.CloseWithError(io.ErrUnexpectedEOF)
		s.cancel()
	}
}

// expiredEvent returns the event with which the API server ends a watch that fell too far behind.
func expiredEvent(inProtobuf bool) []byte {
	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Message: "too old resource version: 1 (2)", Reason: metav1.StatusReasonExpired, Code: http.StatusGone,
	}
	if !inProtobuf {
		raw, err := json.Marshal(map[string]any{"type": "ERROR", "object": status})
		mustEncode(err)
		return append(raw, '\n')
	}
	object, err := runtime.Encode(protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme), status)
	mustEncode(err)
	event := metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: object}}
	raw, err := event.Marshal()
	mustEncode(err)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...) //nolint:gosec // a few hundred bytes
}

func mustEncode(err error) {
	if err != nil {
		panic(fmt.Sprintf("encoding a watch event: %v", err))
	}
}
