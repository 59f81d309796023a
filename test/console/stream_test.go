package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/gomega"
)

// sent is a server-sent event.
type sent struct {
	kind, id, data string
}

// object is the namespace and name of that in an event, for both views.
func (e sent) object() string {
	var object struct {
		Namespace, Name string
		Metadata        struct{ Namespace, Name string }
	}
	_ = json.Unmarshal([]byte(e.data), &object)
	return object.Namespace + object.Metadata.Namespace + "/" + object.Name + object.Metadata.Name
}

// generation is that of the object in an event of rows.
func (e sent) generation() int {
	var row struct{ Generation int }
	_ = json.Unmarshal([]byte(e.data), &row)
	return row.Generation
}

// window reads a stream of server-sent events.
type window struct {
	response *http.Response
	close    context.CancelFunc

	mu     sync.Mutex
	events []sent
}

// watch opens a stream, from where the last event ID is if it is set.
func (w *fixture) watch(client *http.Client, url, last string) *window {
	w.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.T.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	w.Expect(err).NotTo(HaveOccurred())
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := client.Do(request)
	w.Expect(err).NotTo(HaveOccurred())
	opened := &window{response: response, close: cancel}
	if response.StatusCode == http.StatusOK {
		w.Expect(response.Header.Get("Content-Type")).To(Equal("text/event-stream"))
		go opened.read()
	}
	return opened
}

func (w *window) read() {
	defer w.response.Body.Close()
	scanner := bufio.NewScanner(w.response.Body)
	scanner.Buffer(nil, 64<<20)
	var e sent
	for scanner.Scan() {
		field, value, _ := strings.Cut(scanner.Text(), ": ")
		switch field {
		case "event":
			e.kind = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		case "":
			if value == "" && e.kind != "" {
				w.mu.Lock()
				w.events = append(w.events, e)
				w.mu.Unlock()
				e = sent{}
			}
		}
	}
}

// seen are the events so far.
func (w *window) seen() []sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]sent(nil), w.events...)
}

// kinds are the types of the events so far.
func (w *window) kinds() []string {
	var kinds []string
	for _, e := range w.seen() {
		kinds = append(kinds, e.kind)
	}
	return kinds
}

// objects are those of the events so far.
func (w *window) objects() []string {
	var objects []string
	for _, e := range w.seen() {
		objects = append(objects, e.object())
	}
	return objects
}

// last is the last event.
func (w *window) last() sent {
	events := w.seen()
	if len(events) == 0 {
		return sent{}
	}
	return events[len(events)-1]
}

// synced is the data of the first event, which has to be SYNC.
func (w *fixture) synced(opened *window) (rows []map[string]any, errors map[string]string) {
	w.T.Helper()
	w.Eventually(opened.seen).ShouldNot(BeEmpty())
	first := opened.seen()[0]
	w.Expect(first.kind).To(Equal("SYNC"))
	var data struct {
		Items  []map[string]any
		Errors []struct{ Kind, Message string }
	}
	w.Expect(json.Unmarshal([]byte(first.data), &data)).To(Succeed())
	errors = map[string]string{}
	for _, e := range data.Errors {
		errors[e.Kind] = e.Message
	}
	return data.Items, errors
}
