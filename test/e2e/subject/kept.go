package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// kept sends all requests except streams over one connection until the server closes it, as a session in a terminating
// pod needs. The transport of the standard library also closes a connection when it learns 50 ms late that a request was
// written, which happens on busy machines.
type kept struct {
	streams http.RoundTripper

	mu     sync.Mutex
	conn   net.Conn
	reader *bufio.Reader
}

func (k *kept) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet {
		return k.streams.RoundTrip(request)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	response, err := k.exchange(request)
	if err != nil || response.Close {
		k.drop()
	}
	return response, err
}

func (k *kept) exchange(request *http.Request) (*http.Response, error) {
	if k.conn == nil {
		conn, err := (&net.Dialer{}).DialContext(request.Context(), "tcp", request.URL.Host)
		if err != nil {
			return nil, err
		}
		k.conn, k.reader = conn, bufio.NewReader(conn)
	}
	deadline, _ := request.Context().Deadline() // the zero time means no deadline
	if err := k.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if err := request.Write(k.conn); err != nil {
		return nil, fmt.Errorf("writing to the kept connection: %w", err)
	}
	response, err := http.ReadResponse(k.reader, request)
	if err != nil {
		return nil, fmt.Errorf("reading from the kept connection: %w", err)
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading from the kept connection: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(content))
	return response, nil
}

func (k *kept) drop() {
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn = nil
	}
}
