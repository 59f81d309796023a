package controllers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/certificates"
	"github.com/fixpoint-dev/fixpoint/internal/conversion"
)

const (
	// webhookLinger is how long a replica that terminates goes on serving the webhook, until no API server sends it
	// requests any more.
	webhookLinger = 5 * time.Second
	// webhookShutdown is how long running requests have to complete afterwards.
	webhookShutdown = 2 * time.Second
)

// webhook serves conversions. It starts before everything else, and ends after everything else: the caches, and with
// them leader election, need it to read objects that are stored in an older version.
type webhook struct {
	address string
	server  *http.Server
	logger  logr.Logger
	// after is [time.After], except in tests.
	after func(time.Duration) <-chan time.Time
	// terminating says that responses end their connection, so that API servers connect to another replica.
	terminating atomic.Bool
	// keeper keeps the certificate, unless watcher reads it from files.
	keeper  *certificates.Keeper
	watcher *certwatcher.CertWatcher
}

// newWebhook returns nil if the webhook is disabled. The config must not depend on leader election, because all
// replicas keep the certificate.
func (o Options) newWebhook(cfg *rest.Config) (*webhook, error) {
	if o.WebhookAddress == "" || o.WebhookAddress == "0" {
		return nil, nil
	}
	w := &webhook{address: o.WebhookAddress, after: time.After, logger: o.Logger.WithName("webhook")}
	certificate, err := w.certificates(o, cfg)
	if err != nil {
		return nil, err
	}
	metrics, err := conversion.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return nil, err
	}
	handler := http.NewServeMux()
	handler.Handle(conversion.Path, w.endConnections(conversion.Handler(w.logger, metrics)))
	w.server = &http.Server{
		Handler: handler,
		// HTTP/2 would send all requests of an API server to one replica, also while that one does not respond.
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: certificate},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		// API servers close idle connections after 90 seconds. If the webhook did, a request could be on its way.
		IdleTimeout:    3 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		// Handshakes that fail, and connections that clients abandon.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(w.logger.V(1)), slog.LevelDebug),
	}
	return w, nil
}

func (w *webhook) certificates(o Options, cfg *rest.Config) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if dir := o.WebhookCertDir; dir != "" {
		watcher, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("reading the certificate of the webhook: %w", err)
		}
		w.watcher = watcher
	}
	keeper, err := certificates.New(certificates.Options{
		Config: cfg, Namespace: o.PodNamespace, Service: o.WebhookService, Provided: w.watcher != nil, Definitions: o.definitions(), Cached: o.cachedDefinitions(),
		Current: v1beta1.SchemeGroupVersion.Version, Logger: w.logger,
	})
	if err != nil {
		return nil, err
	}
	w.keeper = keeper
	if w.watcher != nil {
		return w.watcher.GetCertificate, nil
	}
	return keeper.GetCertificate, nil
}

// definitions are the CustomResourceDefinitions whose CA bundle the manager sets. A manager without permissions on
// cluster-scoped resources sets none.
func (o Options) definitions() []string {
	if o.NoClusterRights {
		return nil
	}
	var names []string
	for _, resource := range []string{"appservices", "mcpservers", "securestorages"} {
		names = append(names, v1beta1.Resource(resource).String())
	}
	return names
}

// cachedDefinitions are those of the controllers that the manager runs.
func (o Options) cachedDefinitions() []string {
	var names []string
	for _, kind := range o.migratedKinds() {
		names = append(names, v1beta1.Resource(kind.Resource).String())
	}
	return names
}

// start serves the webhook until stop is called. Before that, ctx ends: stop then waits until no API server sends
// requests any more.
func (w *webhook) start(ctx context.Context) (stop func(), err error) {
	if w == nil {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", w.address)
	if err != nil {
		return nil, fmt.Errorf("serving the webhook: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go w.keeper.Run(running)
	if w.watcher != nil {
		go func() {
			if err := w.watcher.Start(running); err != nil {
				w.logger.Error(err, "Failed to watch the certificate of the webhook")
			}
		}()
	}
	go func() {
		if err := w.server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			w.logger.Error(err, "Failed to serve the webhook")
		}
	}()
	w.address = listener.Addr().String()
	w.logger.Info("Serving the conversion webhook", "address", w.address)
	terminating := make(chan time.Time, 1)
	release := context.AfterFunc(ctx, func() {
		w.terminating.Store(true)
		terminating <- time.Now()
	})
	return sync.OnceFunc(func() {
		defer cancel()
		if !release() {
			select {
			case <-w.after(time.Until((<-terminating).Add(webhookLinger))):
			case <-running.Done():
			}
		}
		bounded, cancel := context.WithTimeout(running, webhookShutdown)
		defer cancel()
		_ = w.server.Shutdown(bounded)
		_ = w.server.Close()
	}), nil
}

func (w *webhook) endConnections(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if w.terminating.Load() {
			response.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(response, request)
	})
}

// ready is a readiness check.
func (w *webhook) ready(request *http.Request) error {
	if w == nil || w.watcher != nil {
		return nil
	}
	return w.keeper.Ready(request)
}

// isNeededByCaches reports whether the caches need the webhook to sync, because objects are stored in an older version.
func (w *webhook) isNeededByCaches() bool { return w != nil && w.keeper.StoresOlder() }
