package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionsAtOnce is the number of sessions of a scattered load: enough that some live in each of a few pods.
const sessionsAtOnce = 30

// scattered are sessions whose calls reach any pod: each takes a new connection.
type scattered struct {
	sessions []*counted
	turn     int
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
}
