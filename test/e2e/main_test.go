package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/node"
)

const (
	// clusterVariable selects the cluster: "current" is that of KUBECONFIG; otherwise a cluster is started.
	clusterVariable = "E2E_CLUSTER"
	// keepVariable keeps the state directory of a run, with all logs.
	keepVariable = "E2E_KEEP"
	// imagesToVariable names a directory; the tests then only write the images there.
	imagesToVariable = "E2E_IMAGES_TO"
	// holdVariable keeps the cluster running after the tests, until Ctrl-C.
	holdVariable = "E2E_HOLD"
	// imageVariable names the project's image on the current cluster. The images of the tests must exist there under
	// their own names (target e2e-images). imagesVariable and programsVariable pass what was built to the program in the
	// sandbox.
	imageVariable    = "E2E_IMAGE"
	subjectVariable  = "E2E_SUBJECT_IMAGE"
	imagesVariable   = "FIXPOINT_E2E_IMAGES"
	programsVariable = "FIXPOINT_E2E_PROGRAMS"
)

// local is the cluster that was started for the tests; nil on the current cluster.
var local *node.Node

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: "+err.Error())
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	switch {
	case node.Inside():
		return runInside(m)
	case os.Getenv(imagesToVariable) != "":
		return writeImages(os.Getenv(imagesToVariable))
	case os.Getenv(clusterVariable) == "current":
		return runOnCurrent(m)
	default:
		return runOutside()
	}
}

// writeImages only builds the images.
func writeImages(dir string) (int, error) {
	ctx := context.Background()
	programs, err := node.Build(ctx, progress)
	if err != nil {
		return 1, err
	}
	archives, err := makeImages(ctx, programs, dir)
	if err != nil {
		return 1, err
	}
	progress("load these archives into the nodes: " + strings.Join(archives, " "))
	return 0, nil
}

// runOutside builds everything that needs a network, and runs the tests in a sandbox.
func runOutside() (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	state, err := newStateDir()
	if err != nil {
		return 1, err
	}
	defer endStateDir(state)
	programs, err := node.Build(ctx, progress)
	if err != nil {
		return 1, err
	}
	if _, err := cluster.Build(ctx, progress); err != nil {
		return 1, err
	}
	progress("building the images")
	images := filepath.Join(state.Path, "images")
	if err := os.Mkdir(images, 0o755); err != nil {
		return 1, err
	}
	archives, err := makeImages(ctx, programs, images)
	if err != nil {
		return 1, err
	}
	progress(fmt.Sprintf("built everything in %s", time.Since(began).Round(time.Second)))
	if err := os.Setenv(imagesVariable, strings.Join(archives, ":")); err != nil {
		return 1, err
	}
	if err := os.Setenv(programsVariable, programs); err != nil {
		return 1, err
	}
	stop() // the sandbox handles signals itself
	code, err := node.Run(context.Background(), state.Path)
	progress(fmt.Sprintf("finished after %s", time.Since(began).Round(time.Second)))
	return code, err
}

// runInside starts the cluster and runs the tests. The end of the sandbox removes what remains.
func runInside(m *testing.M) (int, error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		fmt.Fprintln(os.Stderr, "e2e: interrupted")
		os.Exit(130)
	}()
	ctx := context.Background()
	var err error
	local, err = node.Start(ctx, node.Options{
		Programs: os.Getenv(programsVariable),
		Images:   strings.Split(os.Getenv(imagesVariable), ":"),
		Progress: progress,
	})
	if err != nil {
		return 1, err
	}
	if err := connect(local.Cluster.Admin()); err != nil {
		return 1, err
	}
	if err := deploy(ctx, node.State()); err != nil {
		return 1, err
	}
	code := m.Run()
	if os.Getenv(holdVariable) != "" {
		holdCluster()
	}
	return code, nil
}

// holdCluster keeps the cluster running until a signal.
func holdCluster() {
	progress(fmt.Sprintf("the cluster runs until Ctrl-C; access it as root with\n  nsenter --target $(pgrep -f e2e.test | tail -1) --all %s --kubeconfig=%s/control-plane/kubeconfig-admin* get pods -A",
		local.Cluster.Kubectl(), node.State()))
	select {}
}

// runOnCurrent runs the tests on the cluster of KUBECONFIG, except those that harm a node.
func runOnCurrent(m *testing.M) (int, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return 1, fmt.Errorf("finding the current cluster: %w", err)
	}
	if err := connect(config); err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", statePrefix)
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := deploy(context.Background(), dir); err != nil {
		return 1, err
	}
	flag.Parse()
	progress("on the current cluster: skipping the tests that kill, freeze or disconnect processes on its nodes")
	skip := "^TestNode"
	if given := flag.Lookup("test.skip").Value.String(); given != "" {
		skip += "|" + given
	}
	if err := flag.Set("test.skip", skip); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func progress(line string) {
	fmt.Fprintf(os.Stderr, "%s e2e: %s\n", time.Now().Format("15:04:05"), line)
}
