package campaign

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const (
	crdDirectory = "../../config/crd/bases"
	// timeout limits every wait.
	timeout  = 3 * time.Minute
	interval = 20 * time.Millisecond
	// gcPercent trades memory for fewer garbage collections.
	gcPercent = 400
)

// seed determines the specs and their order.
var seed = flag.Uint64("campaign.seed", 1, "`seed` of the random specs")

var (
	shared *cluster.Cluster
	// api is the client of the tests.
	api   client.WithWatch
	kinds []specs.Kind
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // client-go logs every watch that ends with a manager
	SetDefaultEventuallyTimeout(timeout)
	SetDefaultEventuallyPollingInterval(interval)
	var err error
	kinds, err = specs.Read(crdDirectory)
	harness.Must(err)
	gateways, err := gatewayCRDs()
	harness.Must(err)
	debug.SetGCPercent(gcPercent)
	options := cluster.Options{CRDPaths: append(gateways, crdDirectory)}
	cluster.RunTests(m, options, func(c *cluster.Cluster) {
		shared = c
		api, err = client.NewWithWatch(c.Admin(), client.Options{Scheme: controllers.NewScheme()})
		harness.Must(err)
	})
}

// gatewayCRDs returns the CRDs of the Gateway API, which are part of its module.
func gatewayCRDs() ([]string, error) {
	directory, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the module of the Gateway API: %w", err)
	}
	var files []string
	for _, name := range []string{"gateways", "httproutes"} {
		files = append(files, strings.TrimSpace(string(directory))+"/config/crd/standard/gateway.networking.k8s.io_"+name+".yaml")
	}
	return files, nil
}

// scale returns the factor for the number of trials: FIXPOINT_CAMPAIGN=10 runs ten times as many.
func scale(t *testing.T) int {
	t.Helper()
	text := os.Getenv("FIXPOINT_CAMPAIGN")
	if text == "" {
		return 1
	}
	times, err := strconv.Atoi(text)
	if err != nil || times < 1 {
		t.Fatalf("FIXPOINT_CAMPAIGN is %q, want a factor such as 10", text)
	}
	return times
}

// newRandom returns an independent random source for each part of the campaign.
func newRandom(t *testing.T, part uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %d; replay with -campaign.seed=%[1]d", *seed)
	return randomOf(part)
}

func randomOf(part uint64) *rand.Rand {
	return rand.New(rand.NewPCG(*seed, part)) //nolint:gosec // it must be reproducible
}
