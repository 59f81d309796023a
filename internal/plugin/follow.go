package plugin

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// refresh is how often a terminal is drawn again without an event: children and ages change too.
	refresh = 2 * time.Second
	// rewatchDelay is the pause before a watch that ended is started again.
	rewatchDelay = time.Second
)

// follow shows the text again after every change of the objects. A terminal shows the last text only; other outputs
// get each text that differs from the one before. Once it has shown something, a failed read does not end it: it reads
// again, as its watches do, unless the user may no longer read.
func (o *options) follow(ctx context.Context, c *clients, t target, show func(context.Context) (string, error)) error {
	changed, failed := make(chan struct{}, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		failed <- o.watchKinds(ctx, c, t, func(object) {
			select {
			case changed <- struct{}{}:
			default: // one is pending already
			}
		})
	}()
	var tick <-chan time.Time
	if isTerminal(o.Out) {
		ticker := time.NewTicker(refresh)
		defer ticker.Stop()
		tick = ticker.C
	}
	for shown := (following{}); ; {
		text, err := show(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if apierrors.IsNotFound(err) && shown.text != "" {
			return o.sayDeleted()
		}
		again, err := o.showNext(&shown, text, err)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-tick:
		case <-changed:
		case err := <-failed:
			return err
		}
	}
}

// following is what was shown last: a text, and since then the failure to read the next one.
type following struct{ text, failure string }

// showNext shows a text, or that reading it failed, unless it was shown last. It returns when to read again without a
// change; nil is never. It fails if that is of no use.
func (o *options) showNext(shown *following, text string, err error) (again <-chan time.Time, fatal error) {
	if err == nil {
		if text != shown.text || shown.failure != "" && isTerminal(o.Out) {
			o.draw(text)
		}
		*shown = following{text: text}
		return nil, nil
	}
	if shown.text == "" || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return nil, err
	}
	if message := err.Error(); message != shown.failure {
		fmt.Fprintf(o.ErrOut, "Reading again, because it failed: %s\n", printable(message))
		shown.failure = message
	}
	return time.After(rewatchDelay), nil
}

func (o *options) sayDeleted() error {
	out := o.Out
	if o.output != "" { // which has documents alone
		out = o.ErrOut
	}
	_, err := fmt.Fprintln(out, "It is deleted.")
	return err
}

// draw replaces what a terminal shows.
func (o *options) draw(text string) {
	if isTerminal(o.Out) {
		const clearScreen = "\x1b[H\x1b[2J\x1b[3J"
		text = clearScreen + strings.TrimSuffix(text, "\n") + "\n"
	} else {
		text = o.separator() + text + "\n"
	}
	fmt.Fprint(o.Out, text)
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// watchKinds watches the objects that a target names. It says which of several kinds the user may not watch, and fails
// if that is all of them.
func (o *options) watchKinds(ctx context.Context, c *clients, t target, changed func(object)) error {
	ended := make(chan error, len(t.kinds))
	for _, k := range t.kinds {
		go func() {
			ended <- c.watch(ctx, k.list(), func(_ watch.EventType, live client.Object) { changed(k.object(live)) }, t.named()...)
		}()
	}
	failures := 0
	for range t.kinds {
		err := <-ended
		if err == nil {
			continue
		}
		if failures++; failures == len(t.kinds) {
			return err
		}
		fmt.Fprintf(o.ErrOut, "Not followed: %v\n", err)
	}
	return nil
}

// watch calls changed with each object of a kind that exists, changes or is deleted, until the context ends or the user
// may not watch. It watches again when a watch ends.
func (c *clients) watch(ctx context.Context, list client.ObjectList, changed func(watch.EventType, client.Object), options ...client.ListOption) error {
	for ctx.Err() == nil {
		stream, err := c.Watch(ctx, list, append(options, client.InNamespace(c.namespace))...)
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return fmt.Errorf("watching %s: %w", kindName(list), err)
		}
		if err == nil {
			forward(ctx, stream, changed)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rewatchDelay):
		}
	}
	return nil
}

func forward(ctx context.Context, stream watch.Interface, changed func(watch.EventType, client.Object)) {
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-stream.ResultChan():
			if !ok || event.Type == watch.Error {
				return
			}
			if live, isObject := event.Object.(client.Object); isObject {
				changed(event.Type, live)
			}
		}
	}
}

// named selects the objects of a watch that a target names.
func (t target) named() []client.ListOption {
	if t.name == "" {
		return nil
	}
	return []client.ListOption{client.MatchingFields{"metadata.name": t.name}}
}
