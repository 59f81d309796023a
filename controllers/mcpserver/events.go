package mcpserver

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Parameter types of event handler functions.
type (
	updateEvent  = event.TypedUpdateEvent[client.Object]
	deleteEvent  = event.TypedDeleteEvent[client.Object]
	requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]
)
