package campaign

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
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
)

const (
	crdFolder = "../../config/crd/bases"
	// patience is how long a test waits for what is bound to come.
	patience = time.Minute
	interval = 20 * time.Millisecond
)

// seed makes everything that is left to chance: the same seed, the same specs in the same order.
var seed = flag.Uint64("campaign.seed", 1, "`seed` of the specs that are chosen at random")

var (
	shared *cluster.Cluster
	// api is the client by which tests act and look.
	api   client.WithWatch
	kinds []specs.Kind
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // client-go tells there of every watch that ends with a manager
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(interval)
	var err error
	kinds, err = specs.Read(crdFolder)
	must(err)
	gateways, err := gatewayCRDs()
	must(err)
	options := cluster.Options{CRDPaths: append(gateways, crdFolder)}
	cluster.RunTests(m, options, func(c *cluster.Cluster) {
		shared = c
		api, err = client.NewWithWatch(c.Admin(), client.Options{Scheme: controllers.NewScheme()})
		must(err)
	})
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// gatewayCRDs is where the definitions of the Gateway API lie: in the module that their Go types are of.
func gatewayCRDs() ([]string, error) {
	folder, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		return nil, fmt.Errorf("looking for the module of the Gateway API: %w", err)
	}
	var files []string
	for _, name := range []string{"gateways", "httproutes"} {
		files = append(files, strings.TrimSpace(string(folder))+"/config/crd/standard/gateway.networking.k8s.io_"+name+".yaml")
	}
	return files, nil
}

// scale is how many times the counts of CI are run: FIXPOINT_CAMPAIGN=10 for ten times as many.
func scale(t *testing.T) int {
	t.Helper()
	text := os.Getenv("FIXPOINT_CAMPAIGN")
	if text == "" {
		return 1
	}
	times, err := strconv.Atoi(text)
	if err != nil || times < 1 {
		t.Fatalf("FIXPOINT_CAMPAIGN is %q: write how many times the counts of CI are to be run, such as 10", text)
	}
	return times
}

// chance is what a part of the campaign draws from. Parts do not disturb each other.
func chance(t *testing.T, part uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %d: -campaign.seed=%[1]d runs the same again", *seed)
	return chanceOf(part)
}

func chanceOf(part uint64) *rand.Rand {
	return rand.New(rand.NewPCG(*seed, part)) //nolint:gosec // chance has to be repeatable here
}
