// Package record collects the versions of objects that an API server shows.
package record

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Versions collects the versions of all objects of a list, of Go type T: those that there are now, and
// each that there is until stop is called, which waits for the watch to show them, and returns them. It can be
// called again. The list is filled.
//
// A watch that is given no version to begin with may begin with one of the past, as the API server's own
// cache shows it. So it is told to begin with what a list has read.
func Versions[T client.Object](ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) (stop func() []T, err error) {
	if err := api.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing what there is: %w", err)
	}
	there, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("reading what there is: %w", err)
	}
	h := &history[T]{last: map[types.UID]string{}}
	for _, object := range there {
		h.note(object, false)
	}
	kind, err := api.GroupVersionKindFor(list)
	if err != nil {
		return nil, fmt.Errorf("finding the kind: %w", err)
	}
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	watcher, err := api.Watch(ctx, list, append(options, from)...)
	if err != nil {
		return nil, fmt.Errorf("watching what comes: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			if event.Type != watch.Bookmark {
				h.note(event.Object, event.Type == watch.Deleted)
			}
		}
	}()
	end := sync.OnceFunc(func() {
		known := h.known()
		var now metav1.PartialObjectMetadataList
		now.SetGroupVersionKind(kind)
		if err := api.List(ctx, &now, options...); err == nil {
			// After a minute, the test judges what there is.
			_ = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
				return h.shows(now.Items, known), nil
			})
		}
		watcher.Stop()
		<-done
	})
	return func() []T {
		end()
		return h.versions
	}, nil
}

// history is what a watch has shown.
type history[T client.Object] struct {
	mutex    sync.Mutex
	versions []T
	last     map[types.UID]string // the resource versions; without those of objects that are gone
}

func (h *history[T]) note(object runtime.Object, isGone bool) {
	typed, ok := object.(T)
	if !ok {
		return
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.versions = append(h.versions, typed)
	if h.last[typed.GetUID()] = typed.GetResourceVersion(); isGone {
		delete(h.last, typed.GetUID())
	}
}

func (h *history[T]) known() map[types.UID]string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return maps.Clone(h.last)
}

// shows says whether the watch has shown these versions or later ones, and that all others of known are gone.
func (h *history[T]) shows(now []metav1.PartialObjectMetadata, known map[types.UID]string) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	exists := map[types.UID]bool{}
	for _, object := range now {
		exists[object.UID] = true
		order, err := resourceversion.CompareResourceVersion(h.last[object.UID], object.ResourceVersion)
		if err != nil || order < 0 {
			return false
		}
	}
	for uid := range known {
		if _, remains := h.last[uid]; remains && !exists[uid] {
			return false
		}
	}
	return true
}
