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
	// clusterVariable chooses the cluster: current is that of KUBECONFIG, anything
	// else one that is brought up for the tests.
	clusterVariable = "E2E_CLUSTER"
	// keepVariable keeps the state folder of a run, with all logs.
	keepVariable = "E2E_KEEP"
	// imagesToVariable names a folder to write the images to, and nothing else is done.
	imagesToVariable = "E2E_IMAGES_TO"
	// holdVariable keeps the cluster up after the tests, until Ctrl-C.
	holdVariable = "E2E_HOLD"
	// imagesVariable and programsVariable tell the program in the sandbox what the
	// one outside has built.
	// imageVariable names the project's image on a cluster of the user's; on one that
	// is brought up for the tests it is built. The images of the tests
	// have to be in its nodes' reach under their own names: make e2e-images.
	imageVariable    = "E2E_IMAGE"
	subjectVariable  = "E2E_SUBJECT_IMAGE"
	imagesVariable   = "FIXPOINT_E2E_IMAGES"
	programsVariable = "FIXPOINT_E2E_PROGRAMS"
)

// local is the cluster that was brought up for the tests; nil on one of the user's.
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

// writeImages does nothing but make the images.
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
	progress("load these into the nodes: " + strings.Join(archives, " "))
	return 0, nil
}

// runOutside builds what needs a network, and runs the tests in a sandbox.
func runOutside() (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	state, err := newState()
	if err != nil {
		return 1, err
	}
	defer state.remove()
	programs, err := node.Build(ctx, progress)
	if err != nil {
		return 1, err
	}
	if _, err := cluster.Build(ctx, progress); err != nil {
		return 1, err
	}
	progress("making the images")
	images := filepath.Join(state.dir, "images")
	if err := os.Mkdir(images, 0o755); err != nil {
		return 1, err
	}
	archives, err := makeImages(ctx, programs, images)
	if err != nil {
		return 1, err
	}
	progress(fmt.Sprintf("everything is built, after %s", time.Since(began).Round(time.Second)))
	if err := os.Setenv(imagesVariable, strings.Join(archives, ":")); err != nil {
		return 1, err
	}
	if err := os.Setenv(programsVariable, programs); err != nil {
		return 1, err
	}
	stop() // the sandbox has its own way with signals
	code, err := node.Run(context.Background(), state.dir)
	progress(fmt.Sprintf("over after %s", time.Since(began).Round(time.Second)))
	return code, err
}

// runInside brings up the cluster and runs the tests. Whatever it leaves, the end of
// the sandbox removes.
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
		hold()
	}
	return code, nil
}

// hold keeps the cluster for somebody to look at, until a signal ends it.
func hold() {
	progress(fmt.Sprintf("the cluster stays until Ctrl-C; look at it, as root, with\n  nsenter --target $(pgrep -f e2e.test | tail -1) --all %s --kubeconfig=%s/control-plane/kubeconfig-admin* get pods -A",
		local.Cluster.Kubectl(), node.State()))
	select {}
}

// runOnCurrent runs the tests on the cluster that KUBECONFIG names, but for those that
// do to a node what a user's node must not suffer.
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
	progress("on a cluster of yours: without the tests that kill, freeze or cut off what runs on its nodes")
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
