package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
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

// schemas are the parameters that the tools of a server mark. The list is read when calls need it.
type schemas struct {
	timeout time.Duration
	log     logr.Logger
	// listing is a mutex for tools.
	listing chan struct{}
	tools   *tools
}

func newSchemas(timeout time.Duration, log logr.Logger) *schemas {
	return &schemas{timeout: timeout, log: log, listing: make(chan struct{}, 1), tools: &tools{}}
}

// listPage lists a page of tools, the first one without a cursor. The result is nil if the server does not have the method.
type listPage func(ctx context.Context, cursor string) (result json.RawMessage, err error)

// check checks the headers of a call. If they do not match, the tools may have changed.
func (s *schemas) check(r *http.Request, e *envelope, list listPage) *failure {
	if e.Method != methodCall {
		return nil
	}
	name := text(e.Params.Name)
	check := func(params []param) *failure { return checkParams(params, r.Header, e.Params.Arguments) }
	params := s.within(r.Context(), toolsMaxAge, list).params[name]
	failed := check(params)
	if failed != nil || !recognized(params, r.Header) {
		failed = check(s.within(r.Context(), toolsMinAge, list).params[name])
	}
	if r.Context().Err() != nil {
		// The list may be empty or an earlier one, by which the call must not be executed.
		return ended(reasonClientLeft, "the client disconnected")
	}
	return failed
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

// within returns a list of tools that is not older than the age. If the server does not list them, it is the last
// list, or an empty one.
func (s *schemas) within(ctx context.Context, age time.Duration, list listPage) *tools {
	if !acquire(ctx, s.listing) {
		return &tools{}
	}
	defer func() { <-s.listing }()
	if time.Since(s.tools.listed) <= age {
		return s.tools
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errListTimeout)
	defer cancel()
	fresh := s.tools.next()
	switch err := fresh.read(ctx, list); {
	case err == nil:
		s.reportInvalid(fresh)
		s.tools = fresh
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), errListTimeout):
		return s.tools // the client has disconnected
	case s.tools.params == nil && errors.Is(err, errListRefused):
		// One caller must not end the check for others, who may get the first list.
		s.log.V(1).Info("Failed to list the tools for a caller", "error", err.Error())
		return s.tools
	default:
		s.log.Info("Failed to list the tools; Mcp-Param headers are checked by the previous list, if there is one", "error", err.Error())
		s.tools = &tools{params: s.tools.params, bytes: s.tools.bytes, invalid: s.tools.invalid}
	}
	s.tools.listed = time.Now()
	return s.tools
}

var (
	errListTimeout = errors.New("the server did not list its tools in time")
	// errListRefused is the error of a list that the server may not refuse to other callers.
	errListRefused = errors.New("the server refused the list")
)

// reportInvalid logs tools with an invalid definition, once.
func (s *schemas) reportInvalid(fresh *tools) {
	if len(fresh.invalid) > 0 && !slices.Equal(fresh.invalid, s.tools.invalid) {
		s.log.Info("Tools have invalid definitions, for which clients do not list them", "tools", strings.Join(fresh.invalid, "; "))
	}
}

// next is where the next list is read. Tools that it does not have stay, because a server may list others to each caller.
func (t *tools) next() *tools {
	next := &tools{params: map[string][]param{}}
	if t.bytes <= toolsMaxBytes {
		maps.Copy(next.params, t.params)
	}
	return next
}

// read reads the tools page by page.
func (t *tools) read(ctx context.Context, list listPage) error {
	cursor := ""
	for range toolsMaxPages {
		result, err := list(ctx, cursor)
		if err != nil {
			return fmt.Errorf("listing tools: %w", err)
		}
		if cursor, err = t.add(result); err != nil {
			return err
		}
		if cursor == "" {
			t.measure()
			return nil
		}
	}
	return fmt.Errorf("listing tools: more than %d pages", toolsMaxPages)
}

// measure counts the bytes of all tools, also of those of earlier lists.
func (t *tools) measure() {
	t.bytes = 0
	for name, params := range t.params {
		t.keep(name, params)
	}
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
		delete(t.params, tool.Name)
		switch {
		case err != nil && len(t.invalid) < toolsMaxReported:
			message := tool.Name + ": " + err.Error()
			t.invalid = append(t.invalid, message[:min(len(message), toolsMaxReport)])
		case len(params) > 0:
			t.keep(tool.Name, params)
			t.params[tool.Name] = params
		}
		if t.bytes > toolsMaxBytes {
			return "", fmt.Errorf("reading a list of tools: the marked parameters take more than %d bytes", toolsMaxBytes)
		}
	}
	return page.NextCursor, nil
}

// keep counts the bytes of a tool that is kept, with what its entries take.
func (t *tools) keep(name string, params []param) {
	const entry = 100
	t.bytes += len(name) + entry
	for _, p := range params {
		t.bytes += len(p.header) + len(strings.Join(p.path, ".")) + entry
	}
}

// listTools lists a page of the tools of the shared child.
func (w *worker) listTools(ctx context.Context, cursor string) (json.RawMessage, error) {
	return w.call(ctx, "tools/list", cursor)
}

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
		w.log.V(1).Info("Failed to send a message to the server", "error", err.Error()) // its end fails the call
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
		m, ok, failed := c.take()
		switch {
		case failed != nil:
			return nil, failed
		case m.last:
			return m.message, nil
		case ok: // a notification
			continue
		}
		select {
		case <-c.arrived:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
