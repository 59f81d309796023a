package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// kindsInterval is how often a manager that waits for its kinds asks for them.
const kindsInterval = 2 * time.Second

// awaitKinds waits until the API server serves the kinds of the controllers, for a manager that starts before its
// CustomResourceDefinitions are installed or updated. Meanwhile the manager is healthy, and not ready.
func (o Options) awaitKinds(ctx context.Context, cfg *rest.Config, interval time.Duration) error {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("creating a client for discovery: %w", err)
	}
	missing := o.missingKinds(client)
	if len(missing) == 0 {
		return nil
	}
	stop, err := serveWaiting(o.HealthProbeAddress)
	if err != nil {
		return err
	}
	defer stop()
	for announced := ""; len(missing) > 0; missing = o.missingKinds(client) {
		if text := strings.Join(missing, ", "); text != announced {
			announced = text
			o.Logger.Info("Waiting for the CustomResourceDefinitions: apply install.yaml of this version", "groupVersion", v1beta1.SchemeGroupVersion.String(), "missing", announced)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the CustomResourceDefinitions of %s: %w", announced, ctx.Err())
		case <-time.After(interval):
		}
	}
	o.Logger.Info("All kinds are served", "groupVersion", v1beta1.SchemeGroupVersion.String())
	return nil
}

// missingKinds are the resources of the controllers that the API server is known not to serve. What it does not tell,
// because it does not respond, is left to the manager, which retries.
func (o Options) missingKinds(client discovery.ServerResourcesInterface) []string {
	served, err := client.ServerResourcesForGroupVersion(v1beta1.SchemeGroupVersion.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return nil
	}
	var missing []string
	for _, kind := range o.migratedKinds() {
		isServed := served != nil && slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == kind.Resource })
		if !isServed {
			missing = append(missing, kind.Resource)
		}
	}
	slices.Sort(missing)
	return missing
}

// serveWaiting serves the health probes of a manager that has not started: it is healthy, and not ready.
func serveWaiting(address string) (stop func(), err error) {
	if address == "" || address == "0" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving health probes: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "waiting for the CustomResourceDefinitions of Fixpoint: apply install.yaml of this version", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			_ = listener.Close()
		}
	}, nil
}
