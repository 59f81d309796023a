package authproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

const (
	// listTimeout is the time for the server to list its tools.
	listTimeout = 10 * time.Second
	// maxListBytes is the size of a page of a list that is read.
	maxListBytes = 8 << 20
)

// mirrored refuses requests whose headers differ from their message: what is in front of the proxy may decide by
// headers, and the server by the message.
func (p *Proxy) mirrored(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Method, http.MethodPost) || !requestbody.Has(r) || !bridge.MirrorsMessage(r.Header) {
			next.ServeHTTP(w, r)
			return
		}
		read := *r
		read.Header = r.Header.Clone()
		message, release, failed := p.messages.Read(w, &read, requestbody.Caller(r, p.opts.Caller))
		if failed != nil {
			requestbody.Refuse(w, r)
			w.Header().Set("Connection", "close")
			respond(w, failed.Status, "invalid_request", failed.Message)
			return
		}
		defer release()
		if refused := p.params.Check(&read, message, p.exchange(&read)); refused != nil {
			p.opts.Log.V(1).Info("Refused a request", "message", refused.Error())
			refused.Write(w)
			return
		}
		next.ServeHTTP(w, &read)
	})
}

// exchange sends requests of the proxy to the server, for the caller of a request: the server may list other tools to
// each.
func (p *Proxy) exchange(of *http.Request) bridge.Exchange {
	return func(ctx context.Context, method string, message []byte) (int, []byte, error) {
		at, err := p.upstream.address(ctx)
		if err != nil {
			return 0, nil, fmt.Errorf("connecting to the server: %w", err)
		}
		r := of.Clone(ctx)
		r.URL.Scheme, r.URL.Host, r.Host, r.RequestURI = "http", at.String(), p.upstream.host(at, of.Host), ""
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(message)), int64(len(message))
		for name := range of.Header {
			if isOfMessage(name) {
				r.Header.Del(name)
			}
		}
		r.Header.Set("Mcp-Method", method)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, "+eventType)
		r.Header.Set("Mcp-Protocol-Version", bridge.StatelessVersion)
		response, err := p.transport.RoundTrip(r)
		if err != nil {
			return 0, nil, fmt.Errorf("sending %s: %w", method, err)
		}
		defer response.Body.Close()
		answer, err := readResponse(response)
		return response.StatusCode, answer, err
	}
}

// isOfMessage reports whether a header is about the message of a request, or its connection, and not about its caller.
func isOfMessage(name string) bool {
	switch name {
	case "Connection", "Upgrade", "Te", "Trailer", "Transfer-Encoding", "Content-Length", "Content-Encoding", "Accept-Encoding", "Last-Event-Id", "Expect":
		return true
	}
	return strings.HasPrefix(name, "Mcp-")
}

const eventType = "text/event-stream"

// errNoResponse is the error of a stream that ends before the response.
var errNoResponse = errors.New("the server sent no response")

// readResponse reads the JSON-RPC response, which is the body or an event. It returns nil if there is none.
func readResponse(response *http.Response) ([]byte, error) {
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // What is no type is no JSON either.
	body := io.LimitReader(response.Body, maxListBytes)
	switch media {
	case "application/json":
		message, err := io.ReadAll(body)
		if err != nil {
			return nil, fmt.Errorf("reading the response: %w", err)
		}
		return message, nil
	case eventType:
		return readEvents(body)
	default:
		return nil, nil
	}
}

// readEvents returns the first message of a stream that is a response. Others are notifications.
func readEvents(stream io.Reader) ([]byte, error) {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxListBytes)
	var data []byte
	for lines.Scan() {
		line := bytes.TrimPrefix(lines.Bytes(), []byte("\ufeff")) // It may begin a stream.
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
			continue
		}
		if len(line) > 0 {
			continue
		}
		if bridge.IsResponse(data) {
			return data, nil
		}
		data = nil
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	return nil, errNoResponse
}
