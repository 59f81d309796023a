// Command textbook runs the controller of package textbook, with the flags and defaults that kubebuilder generates.
package main

import (
	"flag"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/textbook"
)

func main() {
	metricsAddress := flag.String("metrics-bind-address", "0", "Address of the metrics endpoint. 0 disables it.")
	probeAddress := flag.String("health-probe-bind-address", ":8081", "Address of /healthz and /readyz. 0 disables them.")
	pprofAddress := flag.String("pprof-bind-address", "0", "Address of the pprof endpoint. 0 disables it.")
	leaderElect := flag.Bool("leader-elect", false, "Enable leader election.")
	workers := flag.Int("concurrency", 10, "Maximum number of concurrent reconciles.")
	syncPeriod := flag.Duration("sync-period", 10*time.Hour, "Interval at which all objects are reconciled even if nothing has changed.")
	var logging zap.Options
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))
	err := run(ctrl.Options{
		Cache:                  cache.Options{SyncPeriod: syncPeriod},
		Metrics:                metricsserver.Options{BindAddress: *metricsAddress},
		HealthProbeBindAddress: *probeAddress,
		PprofBindAddress:       *pprofAddress,
		LeaderElection:         *leaderElect,
		LeaderElectionID:       "textbook.fixpoint.dev",
	}, *workers)
	if err != nil {
		ctrl.Log.Error(err, "Failed to run the manager")
		os.Exit(1)
	}
}

func run(options ctrl.Options, workers int) error {
	options.Scheme = runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(options.Scheme))
	utilruntime.Must(v1beta1.AddToScheme(options.Scheme))
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return err
	}
	reconciler := &textbook.Reconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}
	if err := reconciler.SetupWithManager(mgr, workers); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
