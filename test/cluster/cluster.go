package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	loopback = "127.0.0.1"
	// startTimeout limits the start of one component. It takes seconds on an idle machine, and minutes on one that is busy
	// with work of a higher priority.
	startTimeout = 5 * time.Minute
	pollInterval = 50 * time.Millisecond
	// stopGrace is how long one component may take to stop.
	stopGrace = 5 * time.Second
)

// Cluster is a running cluster. Its methods can be called concurrently.
type Cluster struct {
	options     Options
	dir         *directory
	bin         string
	credentials *credentials
	apiPort     *port
	conversion  *conversionWebhook
	audit       *Audit

	mu        sync.Mutex
	parts     map[Part]*running
	users     map[string]pair
	etcdPort  *port
	stopped   bool
	stopError error
}

// running is a component with its ports, which it keeps when it is restarted.
type running struct {
	process *Process
	port    *port
}

// Start starts a cluster and waits until it is ready. If a component fails, the error contains its name and the tail of its
// log, and nothing remains. The cluster stops with [Cluster.Stop] or when this process exits, not with ctx.
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

// binaries returns the directory of the required binaries.
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

// prepare writes the files that components need.
func (c *Cluster) prepare() (err error) {
	if c.credentials, err = newCredentials(c.dir.path); err != nil {
		return err
	}
	if c.conversion, err = startConversion(c.credentials.ca); err != nil {
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

// Dir is the directory with the cluster's data, certificates and logs.
func (c *Cluster) Dir() string { return c.dir.path }

// Kubectl is the path of a kubectl with the cluster's version. The directory in KUBEBUILDER_ASSETS may not contain it.
func (c *Cluster) Kubectl() string { return filepath.Join(c.bin, "kubectl") }

// Log is the path of the log of one component.
func (c *Cluster) Log(part Part) string { return c.dir.file(programOf[part] + ".log") }

// Audit is the audit log. It is empty without Options.Audit.
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

// Stop stops the cluster and removes its directory, unless Options.Dir names it. The processes are killed, because their
// data is not kept. Repeated calls have no effect.
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
	c.conversion.stop()
	c.etcdPort.release()
	c.apiPort.release()
	errs = append(errs, c.dir.remove())
	if err := errors.Join(errs...); err != nil {
		c.stopError = fmt.Errorf("stopping a local cluster: %w", err)
	}
	return c.stopError
}

// StopPart stops one component. The others continue.
func (c *Cluster) StopPart(part Part) error {
	c.mu.Lock()
	r := c.parts[part]
	c.mu.Unlock()
	if r == nil {
		return fmt.Errorf("stopping %s: it was not started", part)
	}
	return r.process.Stop(stopGrace)
}

// KillPart kills one component with SIGKILL.
func (c *Cluster) KillPart(part Part) error {
	c.mu.Lock()
	r := c.parts[part]
	c.mu.Unlock()
	if r == nil {
		return fmt.Errorf("killing %s: it was not started", part)
	}
	return r.process.Stop(0)
}

// StartPart starts one component that is not running, with its previous ports, and waits until it is ready.
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

// RestartPart stops one component and starts it with the same address.
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
		return nil, fmt.Errorf("starting %s: it is already running", part)
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

// environment contains neither proxies nor the user's home directory. GOGC trades memory for fewer garbage
// collections, which would take a fifth of the processor time.
func (c *Cluster) environment() []string {
	return []string{"HOME=" + c.dir.path, "TMPDIR=" + c.dir.path, "PATH=/usr/bin:/bin", "GOGC=400"}
}

// client returns a client for a config of this cluster.
func client(config *rest.Config) (kubernetes.Interface, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return clientset, nil
}
