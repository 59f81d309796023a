package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

// keepAlive is how often a comment is sent, so that proxies keep streams open.
const keepAlive = 15 * time.Second

// stream is one client of server-sent events.
type stream struct {
	out       io.Writer
	control   *http.ResponseController
	user      *user
	kinds     []plugin.Kind
	feeds     []*feed
	namespace string
	summary   bool
	// sequence is that of the last event sent.
	sequence uint64
	// listed are the resource versions of the lists that were sent, by kind. Events up to them are not sent again.
	listed map[string]uint64
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, u *user) error {
	query := r.URL.Query()
	kinds, err := kindsOf(query.Get("kinds"))
	if err != nil {
		return err
	}
	view := query.Get("view")
	if view != "" && view != "summary" {
		return badRequest("view is %q: set summary, or leave it out for whole objects", view)
	}
	if err := s.confirm(r.Context(), u); err != nil {
		return err
	}
	u.hub.enter()
	defer u.hub.leave(func() { s.forget(u) })
	st := &stream{out: w, user: u, kinds: kinds, namespace: query.Get("namespace"), summary: view == "summary", listed: map[string]uint64{}}
	st.control = http.NewResponseController(w)
	if st.feeds, err = u.hub.join(r.Context(), kinds, st.namespace); err != nil {
		return err
	}
	if err := st.refused(); err != nil {
		return err
	}
	if err := endless(w); err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if err := st.run(r.Context(), s.stopping, lastEventID(r)); err != nil && r.Context().Err() == nil {
		s.log.V(1).Info("Stream ended", "reason", err.Error())
	}
	return nil
}

// lastEventID is where a client left off. Clients that cannot set headers set the parameter.
func lastEventID(r *http.Request) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return r.URL.Query().Get("lastEventId")
}

// refused is the answer to a client of whole objects who may read none of the kinds.
func (st *stream) refused() error {
	if st.summary {
		return nil
	}
	_, failures, _ := st.user.hub.snapshot(st.feeds, st.namespace)
	if len(failures) < len(st.feeds) {
		return nil
	}
	for _, f := range st.feeds {
		if !apierrors.IsForbidden(f.wait(context.Background())) {
			return nil
		}
	}
	return forbidden("%s", failures[0].Message)
}

func kindsOf(names string) ([]plugin.Kind, error) {
	all := plugin.Kinds()
	if names == "" {
		return all, nil
	}
	var found []plugin.Kind
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(k plugin.Kind) bool { return k.Resource.Resource == name })
		if i < 0 {
			return nil, badRequest("kinds has %q: set a list of appservices, mcpservers and securestorages", name)
		}
		found = append(found, all[i])
	}
	return found, nil
}

func (st *stream) run(ctx context.Context, stopping <-chan struct{}, last string) error {
	var ok bool
	if st.sequence, ok = st.user.hub.resume(last, st.feeds); !ok || last == "" {
		if err := st.sync(ctx); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	for {
		// A client that does not read is cut off, and resumes.
		if err := st.control.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
			return err
		}
		changed, err := st.catchUp(ctx)
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ticker.C:
			if _, err := io.WriteString(st.out, ": keep-alive\n\n"); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-stopping:
			return nil
		case <-st.user.hub.ctx.Done():
			return nil
		}
	}
}

// catchUp sends all events so far, and returns a channel that is closed at the next one.
func (st *stream) catchUp(ctx context.Context) (<-chan struct{}, error) {
	for {
		events, changed, ok := st.user.hub.after(st.sequence)
		var err error
		switch {
		case !ok: // the client was too slow
			err = st.sync(ctx)
		case len(events) > 0:
			err = st.sendAll(ctx, events)
		default:
			return changed, st.control.Flush()
		}
		if err != nil {
			return nil, err
		}
	}
}

func (st *stream) sendAll(ctx context.Context, events []event) error {
	for _, e := range events {
		st.sequence = e.sequence
		if !slices.Contains(st.feeds, e.feed) {
			continue
		}
		if e.kind == eventReset {
			return st.sync(ctx)
		}
		if st.namespace != "" && e.namespace != st.namespace || st.isListed(e) {
			continue
		}
		data := e.object
		if st.summary {
			data = e.row
		}
		if err := st.send(e.kind, e.sequence, data); err != nil {
			return err
		}
	}
	return nil
}

// isListed is true for events that a list sent before has in it.
func (st *stream) isListed(e event) bool {
	listed, ok := st.listed[e.feed.kind]
	version, err := strconv.ParseUint(e.version, 10, 64)
	return ok && err == nil && version <= listed
}

func (st *stream) send(kind string, sequence uint64, data []byte) error {
	_, err := fmt.Fprintf(st.out, "event: %s\nid: %s\ndata: %s\n\n", kind, st.user.hub.id(sequence), data)
	return err
}

// sync sends everything that exists.
func (st *stream) sync(ctx context.Context) error {
	rows, failures, sequence := st.user.hub.snapshot(st.feeds, st.namespace)
	st.sequence = sequence
	if err := st.user.hub.lost(st.feeds, st.namespace); err != nil {
		return err // the client opens another stream, with the credential and the rights that it has by then
	}
	if !st.summary {
		return st.list(ctx, failures)
	}
	head, err := json.Marshal(append([]failure{}, failures...))
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(st.out, "event: %s\nid: %s\ndata: {\"errors\":%s,\"items\":[", eventSync, st.user.hub.id(sequence), head); err != nil {
		return err
	}
	for i, row := range rows {
		if i > 0 {
			if _, err := st.out.Write([]byte{','}); err != nil {
				return err
			}
		}
		if _, err := st.out.Write(row); err != nil {
			return err
		}
	}
	_, err = io.WriteString(st.out, "]}\n\n")
	return err
}

// list sends whole objects, which the hub does not keep, and then the position. A client that has not received the
// position has not received all objects, and must not resume.
func (st *stream) list(ctx context.Context, failures []failure) error {
	for i, f := range st.feeds {
		if slices.ContainsFunc(failures, func(failed failure) bool { return failed.Kind == f.kind }) {
			continue
		}
		const page = 500
		options := metav1.ListOptions{Limit: page}
		for {
			list, err := st.user.api.Resource(st.kinds[i].Resource).Namespace(st.namespace).List(ctx, options)
			if err != nil {
				return err
			}
			if err := st.sendList(list); err != nil {
				return err
			}
			if st.listed[f.kind], err = strconv.ParseUint(list.GetResourceVersion(), 10, 64); err != nil {
				return err
			}
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	if len(failures) == 0 {
		_, err := fmt.Fprintf(st.out, "id: %s\n\n", st.user.hub.id(st.sequence))
		return err
	}
	data, err := json.Marshal(failures)
	if err != nil {
		return err
	}
	return st.send("ERROR", st.sequence, data)
}

func (st *stream) sendList(list *unstructured.UnstructuredList) error {
	for i := range list.Items {
		list.Items[i].SetManagedFields(nil)
		raw, err := json.Marshal(&list.Items[i])
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(st.out, "event: %s\ndata: %s\n\n", watch.Added, raw); err != nil {
			return err
		}
	}
	return nil
}
