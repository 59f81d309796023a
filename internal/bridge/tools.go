package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// toolsMaxAge is how old a list of tools may be.
	toolsMaxAge = time.Minute
	// toolsMinAge is how old a list is at least when a request that does not match it makes the bridge list again.
	toolsMinAge = time.Second
	// toolsMaxPages and toolsMaxBytes bound what is read and kept of a list. A list that exceeds them fails.
	toolsMaxPages = 64
	toolsMaxBytes = 256 << 10
	// toolsMaxReported is how many invalid tools are logged, toolsMaxReport how much of each, in bytes.
	toolsMaxReported = 10
	toolsMaxReport   = 300
)

// tools are the tools of a server with marked parameters.
type tools struct {
	params map[string][]param
	bytes  int
	// invalid are the tools that clients must reject. Their headers are not checked, as no client may call them.
	invalid []string
	listed  time.Time
}

// checkParams checks the headers of a call. If they do not match, the tools may have changed.
func (w *worker) checkParams(r *http.Request, e *envelope) *failure {
	if e.Method != "tools/call" {
		return nil
	}
	name := text(e.Params.Name)
	check := func(params []param) *failure { return checkParams(params, r.Header, e.Params.Arguments) }
	params := w.toolsWithin(r.Context(), toolsMaxAge).params[name]
	if check(params) == nil && recognized(params, r.Header) {
		return nil
	}
	return check(w.toolsWithin(r.Context(), toolsMinAge).params[name])
}

// recognized reports whether each Mcp-Param header is that of a parameter.
func recognized(params []param, headers http.Header) bool {
	for name := range headers {
		if strings.HasPrefix(name, headerParam) && !slices.ContainsFunc(params, func(p param) bool { return p.header == name }) {
			return false
		}
	}
	return true
}

// toolsWithin returns a list of tools that is not older than the age. If the server does not list them, it is the last
// list, or an empty one.
func (w *worker) toolsWithin(ctx context.Context, age time.Duration) *tools {
	if !acquire(ctx, w.listing) {
		return &tools{}
	}
	defer func() { <-w.listing }()
	if time.Since(w.tools.listed) <= age {
		return w.tools
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.shared.bridge.opts.StartTimeout, errListTimeout)
	defer cancel()
	fresh := &tools{params: map[string][]param{}}
	switch err := w.list(ctx, fresh); {
	case err == nil:
		w.reportInvalid(fresh)
		w.tools = fresh
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), errListTimeout):
		return w.tools // the client has disconnected
	default:
		w.log.Info("Failed to list the tools; Mcp-Param headers are checked by the previous list, if there is one", "error", err.Error())
		w.tools = &tools{params: w.tools.params, invalid: w.tools.invalid}
	}
	w.tools.listed = time.Now()
	return w.tools
}

var errListTimeout = errors.New("the server did not list its tools in time")

// reportInvalid logs tools with an invalid definition, once.
func (w *worker) reportInvalid(fresh *tools) {
	if len(fresh.invalid) > 0 && !slices.Equal(fresh.invalid, w.tools.invalid) {
		w.log.Info("Tools have invalid definitions, for which clients do not list them", "tools", strings.Join(fresh.invalid, "; "))
	}
}

// list lists the tools page by page.
func (w *worker) list(ctx context.Context, into *tools) error {
	cursor := ""
	for range toolsMaxPages {
		result, err := w.call(ctx, "tools/list", cursor)
		if err != nil {
			return fmt.Errorf("listing tools: %w", err)
		}
		if cursor, err = into.add(result); err != nil || cursor == "" {
			return err
		}
	}
	return fmt.Errorf("listing tools: more than %d pages", toolsMaxPages)
}

// add adds the tools of a page, and returns the cursor of the next one.
func (t *tools) add(result json.RawMessage) (next string, err error) {
	var page struct {
		Tools []struct {
			Name        string          `json:"name"`
			InputSchema json.RawMessage `json:"inputSchema"`
		} `json:"tools"`
		NextCursor string `json:"nextCursor"`
	}
	if len(result) > 0 {
		if err := json.Unmarshal(result, &page); err != nil {
			return "", fmt.Errorf("reading a list of tools: %w", err)
		}
	}
	for _, tool := range page.Tools {
		params, err := markedParams(tool.InputSchema)
		switch {
		case err != nil && len(t.invalid) < toolsMaxReported:
			message := tool.Name + ": " + err.Error()
			t.invalid = append(t.invalid, message[:min(len(message), toolsMaxReport)])
		case len(params) > 0:
			t.keep(len(tool.Name))
			t.params[tool.Name] = params
		}
		for _, p := range params {
			t.keep(len(p.header) + len(strings.Join(p.path, ".")))
		}
		if t.bytes > toolsMaxBytes {
			return "", fmt.Errorf("reading a list of tools: the marked parameters take more than %d bytes", toolsMaxBytes)
		}
	}
	return page.NextCursor, nil
}

// keep counts the bytes of a string that is kept, with what its entry takes.
func (t *tools) keep(length int) { t.bytes += length + 100 }

// call sends a request of the bridge to the shared child, and returns the result; nil if the server does not have the
// method.
func (w *worker) call(ctx context.Context, method, cursor string) (json.RawMessage, error) {
	message := wire{Version: json.RawMessage(`"2.0"`), ID: json.RawMessage("0"), Method: method, Params: json.RawMessage(`{"_meta":{` + statelessMeta + `}}`)}
	if cursor != "" {
		message.Params = json.RawMessage(`{"cursor":` + quoted(cursor) + `,"_meta":{` + statelessMeta + `}}`)
	}
	c := newSharedCall(&envelope{ID: message.ID})
	number, f := w.add(c)
	if f != nil {
		return nil, f
	}
	message.ID = json.RawMessage(number)
	out, err := marshal(message)
	if err != nil {
		w.take(number)
		return nil, err
	}
	if err := w.child.send(out); err != nil {
		w.log.V(1).Info("Failed to send a message to the server", "error", err.Error()) // its exit fails the call
	}
	answer, err := c.wait(ctx)
	if err != nil {
		w.cancel(number, "the bridge does not wait any longer")
		return nil, err
	}
	e, err := parse(answer)
	switch {
	case err != nil:
		return nil, err
	case e.errorCode() == codeMethodNotFound:
		return nil, nil
	case present(e.Error):
		return nil, fmt.Errorf("the server responded with error %d", e.errorCode())
	}
	return e.Result, nil
}

// wait returns the response to the call.
func (c *sharedCall) wait(ctx context.Context) ([]byte, error) {
	for {
		select {
		case m, ok := <-c.box:
			switch {
			case !ok:
				return nil, c.failed
			case m.last:
				return m.message, nil
			}
			c.taken(m)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
