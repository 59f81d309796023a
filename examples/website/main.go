// Command website is an operator for Websites, built on pkg/phases.
package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	websitesv1 "github.com/fixpoint-dev/fixpoint/examples/website/api/v1"
)

func main() {
	dns := flag.String("registry", "", "URL of the DNS registry. Empty: one in memory.")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), registry(*dns)); err != nil {
		ctrl.Log.Error(err, "The manager stopped")
		os.Exit(1)
	}
}

func run(ctx context.Context, dns registry) error {
	kubeconfig, err := config.GetConfig()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), websitesv1.AddToScheme(scheme)); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(kubeconfig, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	if dns == "" {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		dns = registry("http://" + listener.Addr().String())
		inMemory := &http.Server{Handler: &inMemory{}, ReadHeaderTimeout: time.Second}
		if err := mgr.Add(&manager.Server{Name: "registry", Server: inMemory, Listener: listener}); err != nil {
			return err
		}
	}
	if err := setup(mgr, dns); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
