package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	loopback = "127.0.0.1"
	// startTimeout is for one part. A part needs a second or three; the rest is
	// for machines that do a lot else.
	startTimeout = 2 * time.Minute
	pollInterval = 50 * time.Millisecond
	// stopGrace is how long a single part that is stopped may take to end by itself.
	stopGrace = 5 * time.Second
)

// Cluster is a running cluster. Its methods may be called concurrently.
type Cluster struct {
	options     Options
	dir         *directory
	bin         string
	credentials *credentials
	apiPort     *port
	audit       *Audit

	mu        sync.Mutex
	parts     map[Part]*running
	users     map[string]pair
	etcdPort  *port
	stopped   bool
	stopError error
}

// running is a part with the ports that it keeps over a restart.
type running struct {
	process *Process
	port    *port
}

// Start brings up a cluster and returns once all of it is ready to be used. If a
// part fails, the error names it and has the end of its log, and nothing is left.
// The cluster stops with [Cluster.Stop] or with this process, not with ctx.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("starting a local cluster: %w", err)
	}
	bin, err := binaries(ctx, o)
	if err != nil {
		return nil, err
	}
	dir, err := newDirectory(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("starting a local cluster: %w", err)
	}
	c := &Cluster{options: o, dir: dir, bin: bin, parts: map[Part]*running{}, users: map[string]pair{}}
	c.audit = &Audit{path: c.dir.file("audit.log"), seen: map[string]struct{}{}}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a local cluster: %w", err), c.Stop())
	}
	return c, nil
}

// binaries is the folder of the programs that the options need.
func binaries(ctx context.Context, o Options) (string, error) {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" && o.Parts == EtcdAndAPI {
		return filepath.Abs(assets)
	}
	return Build(ctx, o.buildProgress())
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	for _, part := range allParts {
		if !c.options.Parts.has(part) {
			continue
		}
		if err := c.StartPart(ctx, part); err != nil {
			return err
		}
		if part == APIServer && len(c.options.CRDPaths) > 0 {
			c.options.report("installing custom resource definitions")
			if err := c.InstallCRDs(ctx, c.options.CRDPaths...); err != nil {
				return err
			}
		}
	}
	return c.awaitUsable(ctx)
}

// prepare does what has to be there before the first part starts.
func (c *Cluster) prepare() (err error) {
	if c.credentials, err = newCredentials(c.dir.path); err != nil {
		return err
	}
	if c.etcdPort, err = freePort(); err != nil {
		return err
	}
	if c.apiPort, err = freePort(); err != nil {
		return err
	}
	if err := c.credentials.write("audit-policy.yaml", []byte(auditPolicy)); err != nil {
		return err
	}
	return c.credentials.write("kwok.yaml", stages)
}

// Dir is the folder with the cluster's data, certificates and logs.
func (c *Cluster) Dir() string { return c.dir.path }

// Kubectl is the path of a kubectl of the cluster's version. It is missing from
// the folder that KUBEBUILDER_ASSETS names, if that one was put together without.
func (c *Cluster) Kubectl() string { return filepath.Join(c.bin, "kubectl") }

// Log is the path of the log of a single part.
func (c *Cluster) Log(part Part) string { return c.dir.file(programOf[part] + ".log") }

// Audit is the record of requests. Without Options.Audit it stays empty.
func (c *Cluster) Audit() *Audit { return c.audit }

// Ended is closed when the single part ends for whatever reason; nil, which blocks
// forever, for a part that was never started.
func (c *Cluster) Ended(part Part) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.parts[part]; r != nil {
		return r.process.Ended()
	}
	return nil
}

// Stop ends the cluster and removes its folder, unless Options.Dir named it. The
// programs are killed, since nothing of them is to be kept. Stopping twice is one
// stop.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return c.stopError
	}
	c.stopped = true
	var errs []error
	for i := len(allParts) - 1; i >= 0; i-- {
		if r := c.parts[allParts[i]]; r != nil {
			errs = append(errs, r.process.Stop(0))
			r.port.release()
		}
	}
	c.etcdPort.release()
	c.apiPort.release()
	errs = append(errs, c.dir.remove())
	if err := errors.Join(errs...); err != nil {
		c.stopError = fmt.Errorf("stopping a local cluster: %w", err)
	}
	return c.stopError
}

// StopPart ends a single part and waits until it is gone. The rest runs on.
func (c *Cluster) StopPart(part Part) error {
	c.mu.Lock()
	r := c.parts[part]
	c.mu.Unlock()
	if r == nil {
		return fmt.Errorf("stopping %s: it was not started", part)
	}
	return r.process.Stop(stopGrace)
}

// KillPart ends a single part with SIGKILL, as a crash would.
func (c *Cluster) KillPart(part Part) error {
	c.mu.Lock()
	r := c.parts[part]
	c.mu.Unlock()
	if r == nil {
		return fmt.Errorf("killing %s: it was not started", part)
	}
	return r.process.Stop(0)
}

// StartPart starts a single part that does not run, where it ran before if it did,
// and returns once it is ready.
func (c *Cluster) StartPart(ctx context.Context, part Part) error {
	how, known := starters[part]
	if !known {
		return fmt.Errorf("starting %s: not a single part", part)
	}
	c.options.report("starting %s", part)
	r, err := c.launch(part, how)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := r.process.awaitReady(ctx, func(ctx context.Context) error { return how.ready(ctx, c, r.port) }); err != nil {
		return fmt.Errorf("starting %w", err)
	}
	return nil
}

// RestartPart stops a single part and starts it again, with the same address.
func (c *Cluster) RestartPart(ctx context.Context, part Part) error {
	if err := c.StopPart(part); err != nil {
		return err
	}
	return c.StartPart(ctx, part)
}

func (c *Cluster) launch(part Part, how starter) (*running, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, fmt.Errorf("starting %s: the cluster was stopped", part)
	}
	r := c.parts[part]
	if r != nil && r.process.Running() {
		return nil, fmt.Errorf("starting %s: it runs already", part)
	}
	if r == nil {
		r = &running{}
		if how.listens {
			var err error
			if r.port, err = freePort(); err != nil {
				return nil, err
			}
		}
	}
	args, err := how.args(c, r.port)
	if err != nil {
		return nil, err
	}
	r.process, err = StartProcess(programOf[part], c.Log(part), c.environment(), filepath.Join(c.bin, programOf[part]), args...)
	if err != nil {
		r.port.release()
		return nil, err
	}
	c.parts[part] = r
	return r, nil
}

// environment is nearly empty: neither a proxy nor a configuration in the user's
// home is to reach the programs.
func (c *Cluster) environment() []string {
	environment := []string{"HOME=" + c.dir.path, "TMPDIR=" + c.dir.path, "PATH=/usr/bin:/bin"}
	if c.options.GCPercent != 0 {
		environment = append(environment, "GOGC="+strconv.Itoa(c.options.GCPercent))
	}
	return environment
}

// client makes a client for a config of this cluster.
func client(config *rest.Config) (kubernetes.Interface, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return clientset, nil
}
