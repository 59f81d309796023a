// Command website is an operator for Websites, built on pkg/phases.
package main

import (
	"context"
	"errors"
	"flag"
	"net/http/httptest"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	websitesv1 "github.com/fixpoint-dev/fixpoint/examples/website/api/v1"
	"github.com/fixpoint-dev/fixpoint/examples/website/registry"
)

func main() {
	registryURL := flag.String("registry", "", "URL of the DNS registry. Empty: one in memory.")
	metrics := flag.String("metrics-bind-address", "0", "Address of the metrics. 0: none.")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), *registryURL, *metrics); err != nil {
		ctrl.Log.Error(err, "The manager stopped")
		os.Exit(1)
	}
}

func run(ctx context.Context, registryURL, metrics string) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), websitesv1.AddToScheme(scheme)); err != nil {
		return err
	}
	kubeconfig, err := config.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(kubeconfig, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: metrics}})
	if err != nil {
		return err
	}
	if registryURL == "" {
		inMemory := httptest.NewServer(&registry.Server{})
		defer inMemory.Close()
		registryURL = inMemory.URL
	}
	if err := setup(mgr, registry.Client{URL: registryURL}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
