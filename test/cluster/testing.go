package cluster

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// interrupted is the exit code after an interrupt.
const interrupted = 130

// RunTests runs the tests of a package against one cluster and exits with their result. It is the only call in TestMain. use
// receives the cluster before the first test. An interrupt stops the cluster.
func RunTests(tests interface{ Run() int }, o Options, use func(*Cluster)) {
	os.Exit(runTests(tests, o, use))
}

func runTests(tests interface{ Run() int }, o Options, use func(*Cluster)) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	c, err := startUnless(signals, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Waiting tests would not notice an interrupt.
	go func() {
		<-signals
		_ = c.Stop()
		os.Exit(interrupted)
	}()
	use(c)
	code := tests.Run()
	if err := c.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// startUnless starts a cluster, or stops at a signal.
func startUnless(signals <-chan os.Signal, o Options) (*Cluster, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := make(chan struct{})
	defer close(started)
	go func() {
		select {
		case <-signals:
			cancel()
		case <-started:
		}
	}()
	return Start(ctx, o)
}
