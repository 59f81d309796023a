package ha_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// unguarded makes this program a manager whose election is client-go's own.
const unguarded = "FIXPOINT_HA_UNGUARDED"

func isUnguarded() bool { return os.Getenv(unguarded) != "" }

// TestWithoutGuardLeadersOverlap shows that these tests would notice.
func TestWithoutGuardLeadersOverlap(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	f := newFleet(t, short, self, unguarded+"=1")
	traffic := startTraffic(f, newSeed(t))
	f.taken(time.Time{})

	const tries = 5
	for try := range tries {
		frozen(f, f.eventuallyWhole())
		if late := overlaps(f.acts()); len(late) > 0 {
			t.Logf("frozen %d times: %d writes overlap with those of another leader, for instance\n%s", try+1, len(late), late[0])
			break
		}
	}

	f.Expect(overlaps(f.acts())).NotTo(BeEmpty())
	traffic.stop()
}

// runUnguarded is the main function of such a manager.
func runUnguarded() int {
	if err := serveUnguarded(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serveUnguarded(ctx context.Context) error {
	o := controllers.Options{Unguarded: true}
	flags := flag.NewFlagSet("unguarded", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "")
	namespace := flags.String("namespaces", "", "")
	endpoint := flags.String("cloud-endpoint", "", "")
	token := flags.String("cloud-token-file", "", "")
	flags.String("ambient-credentials", "", "")
	flags.StringVar(&o.Metrics.BindAddress, "metrics-bind-address", "0", "")
	flags.StringVar(&o.HealthProbeAddress, "health-probe-bind-address", "0", "")
	flags.BoolVar(&o.LeaderElection, "leader-elect", false, "")
	flags.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", "", "")
	flags.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 0, "")
	flags.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 0, "")
	flags.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 0, "")
	flags.String("zap-log-level", "", "")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	var err error
	if o.Cloud, err = cloud.Endpoint(*endpoint); err != nil {
		return err
	}
	o.Namespaces, o.Credentials = strings.Split(*namespace, ","), cloud.FileCredentials{Path: *token}
	o.AmbientScopes = harness.AmbientScopes()
	o.Logger = funcr.New(func(prefix, args string) { fmt.Println(prefix, args) }, funcr.Options{LogTimestamp: true})
	ctrl.SetLogger(logr.Discard())
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	mgr, err := controllers.NewManager(ctx, cfg, o)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
