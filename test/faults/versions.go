package faults

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startWatches records every version of every object in all namespaces, with one watch per kind.
func (c *Cluster) startWatches(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	for _, kind := range watchedKinds {
		list := listOf(kind)
		if err := c.API.List(ctx, list); err != nil {
			return fmt.Errorf("listing %s: %w", kind.Kind, err)
		}
		c.done.Go(func() { c.follow(running, kind, list.GetResourceVersion()) })
	}
	return nil
}

func listOf(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// follow passes every event of a kind to its environment, in order, until the cluster is closed.
func (c *Cluster) follow(ctx context.Context, kind schema.GroupVersionKind, from string) {
	for ctx.Err() == nil {
		watcher, err := c.API.Watch(ctx, listOf(kind), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true}})
		if err != nil {
			continue // the cluster is being closed, or the API server is busy
		}
		from = c.drain(watcher, from)
	}
}

func (c *Cluster) drain(watcher watch.Interface, from string) string {
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return from // the API server closed the watch
		}
		from = object.GetResourceVersion()
		if event.Type == watch.Bookmark {
			continue
		}
		if env := c.environment(object.GetNamespace()); env != nil {
			env.recordVersion(event.Type, object)
			env.controllers.enqueue(object)
		}
	}
	return from
}
