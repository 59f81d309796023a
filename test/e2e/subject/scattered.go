package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fixpoint-dev/fixpoint/internal/requestbody"
)

// sessionsAtOnce is the number of sessions of a scattered load.
const sessionsAtOnce = 200

// scattered are sessions whose calls reach any pod, because the proxy before the pods has no affinity.
type scattered struct {
	proxy    *httptest.Server
	sessions []*counted
	turn     int
}

// behindProxy returns the load of scattered sessions. The proxy takes a new connection for each request, so that the
// Service chooses a pod for it.
func behindProxy(endpoint string) *caller {
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			target, err := url.Parse(endpoint)
			if err != nil {
				return // Without a host, the request fails.
			}
			r.Out.URL, r.Out.Host = target, target.Host
			requestbody.EndAtLength(r.Out)
		},
		Transport:     &http.Transport{DisableKeepAlives: true},
		FlushInterval: -1,
	})
	return &caller{url: proxy.URL, call: ofNextSession, version: withSessions, transport: &http.Transport{}, scattered: scattered{proxy: proxy}}
}

// counted is a session with the number of its calls, which its server counts, too.
type counted struct {
	session *mcp.ClientSession
	calls   int64
}

// ofNextSession calls in one session after the other, which it starts with the first calls. A session that does not
// continue where it was is lost.
func ofNextSession(ctx context.Context, c *caller) (json.RawMessage, string, error) {
	if len(c.scattered.sessions) < sessionsAtOnce {
		session, err := connect(context.WithoutCancel(ctx), c, c.transport)
		if err != nil {
			return nil, "", err
		}
		c.scattered.sessions = append(c.scattered.sessions, &counted{session: session})
	}
	c.scattered.turn++
	chosen := c.scattered.sessions[c.scattered.turn%len(c.scattered.sessions)]
	result, server, err := count(ctx, chosen.session)
	if err != nil {
		return nil, "", err
	}
	var found answer
	if err := json.Unmarshal(result, &found); err != nil {
		return nil, "", fmt.Errorf("decoding the result: %w", err)
	}
	chosen.calls++
	if found.Calls != chosen.calls {
		return nil, "", fmt.Errorf("the session was lost: call %d is number %d of pod %s", chosen.calls, found.Calls, found.Pod)
	}
	return result, server, nil
}

func (s *scattered) end() {
	for _, each := range s.sessions {
		_ = each.session.Close()
	}
	if s.proxy != nil {
		s.proxy.CloseClientConnections()
		s.proxy.Close()
	}
}
