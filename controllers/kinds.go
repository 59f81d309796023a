package controllers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// kindsInterval is how often a manager that waits for its kinds asks for them.
const kindsInterval = 2 * time.Second

// awaitKinds waits until the API server serves the kinds of the controllers, for a manager that starts before the API
// server responds, or before its CustomResourceDefinitions are installed or updated. Meanwhile the manager is healthy,
// and not ready. The manager must use the same mapper: another one may read a discovery document that is older, because
// an API server updates several of them one after the other.
func (o Options) awaitKinds(ctx context.Context, mapper meta.RESTMapper, interval time.Duration) error {
	reason, err := o.whyKindsAreMissing(mapper)
	if reason == "" {
		return err
	}
	stop, err := serveWaiting(o.HealthProbeAddress)
	if err != nil {
		return err
	}
	defer stop()
	for logged := ""; reason != ""; reason, err = o.whyKindsAreMissing(mapper) {
		if reason != logged {
			logged = reason
			o.Logger.Info("Waiting for the kinds of Fixpoint", "groupVersion", v1beta1.SchemeGroupVersion.String(), "reason", reason)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the kinds of Fixpoint: %s: %w", reason, ctx.Err())
		case <-time.After(interval):
		}
	}
	if err != nil {
		return err
	}
	o.Logger.Info("All kinds are served", "groupVersion", v1beta1.SchemeGroupVersion.String())
	return nil
}

// whyKindsAreMissing is the reason to wait, or empty. An error means that waiting does not help.
func (o Options) whyKindsAreMissing(mapper meta.RESTMapper) (reason string, err error) {
	var missing []string
	for _, kind := range o.migratedKinds() {
		_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case err == nil:
		case meta.IsNoMatchError(err):
			missing = append(missing, kind.Resource)
		case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
			return "", fmt.Errorf("reading the kinds that the API server serves: %w", err)
		default:
			return "the API server does not respond: " + err.Error(), nil
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	slices.Sort(missing)
	return "apply install.yaml of this version: missing " + strings.Join(missing, ", "), nil
}

// discoveryTimeout limits a request for what the API server serves.
const discoveryTimeout = 10 * time.Second

// newMapper returns a mapper that reads what the API server serves when it is first asked.
func newMapper(cfg *rest.Config) (meta.RESTMapper, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = discoveryTimeout
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for discovery: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating a client for discovery: %w", err)
	}
	return mapper, nil
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
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "waiting for the API server to serve the kinds of Fixpoint: apply install.yaml of this version", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // until it is stopped
	}()
	return func() {
		_ = server.Close()
		<-ended // the listener is closed
	}, nil
}
