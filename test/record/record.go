// Package record collects the versions of objects that an API server shows.
package record

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Versions collects the versions of all objects of a list, of Go type T: those that there are now, and
// each that comes until stop is called, which returns them. It can be called again. The list is filled.
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
	var versions []T
	note := func(object runtime.Object) {
		if typed, ok := object.(T); ok {
			versions = append(versions, typed)
		}
	}
	for _, object := range there {
		note(object)
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
				note(event.Object)
			}
		}
	}()
	return func() []T {
		watcher.Stop()
		<-done
		return versions
	}, nil
}
