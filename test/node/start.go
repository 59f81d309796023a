package node

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const (
	// Name is the name of the node.
	Name = "node-1"
	// PauseImage is the image of the pause containers. Options.Images must contain it.
	PauseImage = "fixpoint.test/pause:1"
	// DNSImage is the image of the DNS server. Options.Images must contain it.
	DNSImage = "fixpoint.test/coredns:1"

	startTimeout = 5 * time.Minute
	// stopGrace is how long containerd may take to exit.
	stopGrace = 5 * time.Second
	proxyPort = "10256"
)

//go:embed config
var configs embed.FS

// Options configure [Start].
type Options struct {
	// Programs is the directory that [Build] returned.
	Programs string
	// Images are archives of all images that pods use, as OCI layouts or docker archives. The sandbox cannot pull images.
	Images []string
	// CRDPaths, APIServerArgs and Progress are those of package cluster.
	CRDPaths      []string
	APIServerArgs []string
	Progress      func(line string)
}

// Node is a running cluster with one real node.
type Node struct {
	// Cluster is the control plane, with an audit log of every request.
	Cluster *cluster.Cluster

	options   Options
	dir       string
	processes []*cluster.Process
}

// Start starts a cluster with one node in a sandbox and waits until the node accepts pods. An error names the failed
// component and contains the tail of its log.
func Start(ctx context.Context, o Options) (*Node, error) {
	if State() == "" {
		return nil, errors.New("starting a node: this program does not run in a sandbox, see node.Run")
	}
	n := &Node{options: o, dir: filepath.Join(State(), "node")}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a node: %w", err), n.Stop())
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := os.MkdirAll(filepath.Join(n.dir, "cni"), 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	runtime := make(chan error, 1)
	go func() { runtime <- n.startRuntime(ctx) }()
	control, err := cluster.Start(ctx, cluster.Options{
		Parts:    cluster.ControllerManager | cluster.Scheduler,
		Audit:    true,
		Dir:      filepath.Join(State(), "control-plane"),
		CRDPaths: n.options.CRDPaths,
		Progress: n.options.Progress,
		// Pods use the node's address.
		APIServerArgs: append([]string{
			"--bind-address=0.0.0.0",
			"--advertise-address=" + nodeAddress,
			"--endpoint-reconciler-type=lease",
			// The name of the node does not resolve.
			"--kubelet-preferred-address-types=InternalIP",
		}, n.options.APIServerArgs...),
	})
	n.Cluster = control
	if err := errors.Join(err, <-runtime); err != nil {
		return err
	}
	if err := n.startAgents(); err != nil {
		return err
	}
	return n.awaitReady(ctx)
}

// Stop stops the programs of the node and of the control plane. Containers, mounts and the network end with the sandbox.
func (n *Node) Stop() error {
	var errs []error
	for _, process := range slices.Backward(n.processes) {
		errs = append(errs, process.Stop(stopGrace))
	}
	if n.Cluster != nil {
		errs = append(errs, n.Cluster.Stop())
	}
	return errors.Join(errs...)
}

// startRuntime starts containerd and imports the images.
func (n *Node) startRuntime(ctx context.Context) error {
	settings, err := n.write("containerd.toml")
	if err != nil {
		return err
	}
	if _, err := n.write("cni.conflist"); err != nil {
		return err
	}
	n.report("starting containerd")
	process, err := n.launch("containerd", "--config", settings)
	if err != nil {
		return err
	}
	if err := await(ctx, func(context.Context) error { return n.ctr("version") }); err != nil {
		return process.Failure(err)
	}
	n.report("loading %d images", len(n.options.Images))
	for _, image := range n.options.Images {
		if err := n.ctr("images", "import", image); err != nil {
			return err
		}
	}
	return nil
}

// startAgents starts the kubelet and kube-proxy.
func (n *Node) startAgents() error {
	kubelet, err := n.write("kubelet.yaml")
	if err != nil {
		return err
	}
	user, err := n.Cluster.Kubeconfig("system:node:"+Name, "system:nodes")
	if err != nil {
		return err
	}
	n.report("starting kubelet")
	if _, err := n.launch("kubelet", "--config="+kubelet, "--kubeconfig="+user,
		"--root-dir="+filepath.Join(n.dir, "kubelet"), "--hostname-override="+Name, "--node-ip="+nodeAddress); err != nil {
		return err
	}
	user, err = n.Cluster.Kubeconfig("system:kube-proxy")
	if err != nil {
		return err
	}
	n.report("starting kube-proxy")
	_, err = n.launch("kube-proxy", "--kubeconfig="+user, "--hostname-override="+Name, "--proxy-mode=iptables",
		"--cluster-cidr="+podRange, "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
		"--healthz-bind-address="+net.JoinHostPort("127.0.0.1", proxyPort), "--iptables-min-sync-period=100ms")
	return err
}

// awaitReady waits until the node accepts pods and Services work.
func (n *Node) awaitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(n.Cluster.Admin())
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	agents := n.processes[len(n.processes)-2:]
	if err := await(ctx, func(ctx context.Context) error { return nodeReady(ctx, client) }); err != nil {
		return agents[0].Failure(err)
	}
	if err := await(ctx, proxyReady); err != nil {
		return agents[1].Failure(err)
	}
	n.report("starting CoreDNS")
	if err := n.startDNS(ctx, client); err != nil {
		return fmt.Errorf("starting CoreDNS: %w", err)
	}
	n.report("the node is ready")
	return nil
}

// startDNS starts CoreDNS and waits until it resolves names.
func (n *Node) startDNS(ctx context.Context, client kubernetes.Interface) error {
	manifest, err := n.write("dns.yaml")
	if err != nil {
		return err
	}
	admin, err := n.Cluster.Kubeconfig(cluster.Admin, cluster.Masters)
	if err != nil {
		return err
	}
	if err := run(n.Cluster.Kubectl(), "--kubeconfig="+admin, "apply", "--server-side", "-f", manifest); err != nil {
		return err
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(dnsAddress, "53"))
	}}
	return await(ctx, func(ctx context.Context) error {
		deployment, err := client.AppsV1().Deployments("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if deployment.Status.AvailableReplicas == 0 {
			return errors.New("the pod of CoreDNS is not available")
		}
		_, err = resolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
		return err
	})
}

func nodeReady(ctx context.Context, client kubernetes.Interface) error {
	node, err := client.CoreV1().Nodes().Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("the node is not ready: %s", condition.Message)
		}
	}
	if len(node.Status.Conditions) == 0 {
		return errors.New("the node has no conditions")
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("the node has the taint %s", node.Spec.Taints[0].Key)
	}
	return nil
}

func proxyReady(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", proxyPort)+"/healthz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("kube-proxy responds %s", response.Status)
	}
	return nil
}

func (n *Node) launch(name string, args ...string) (*cluster.Process, error) {
	env := []string{"HOME=" + n.dir, "TMPDIR=" + n.dir, "PATH=" + n.options.Programs + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	process, err := cluster.StartProcess(name, n.Log(name), env, filepath.Join(n.options.Programs, name), args...)
	if err != nil {
		return nil, err
	}
	n.processes = append(n.processes, process)
	return process, nil
}

// Log returns the path of the log of containerd, kubelet or kube-proxy.
func (n *Node) Log(name string) string { return filepath.Join(n.dir, name+".log") }

func (n *Node) report(format string, args ...any) {
	if n.options.Progress != nil {
		n.options.Progress(fmt.Sprintf(format, args...))
	}
}

func (n *Node) socket() string { return filepath.Join(n.dir, "containerd.sock") }

// ctr runs ctr in the containerd namespace of the kubelet.
func (n *Node) ctr(args ...string) error {
	return run(filepath.Join(n.options.Programs, "ctr"), append([]string{"--address", n.socket(), "--namespace", "k8s.io"}, args...)...)
}

// write renders a configuration file and returns its path.
func (n *Node) write(name string) (string, error) {
	parsed, err := template.ParseFS(configs, "config/"+name)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", name, err)
	}
	values := map[string]string{
		"Dir": n.dir, "Socket": n.socket(), "PauseImage": PauseImage, "Group": filepath.Base(State()),
		"DNS": dnsAddress, "DNSImage": DNSImage, "Bridge": bridge, "PodRange": podRange,
	}
	if n.Cluster != nil {
		values["ClientCA"] = filepath.Join(n.Cluster.Dir(), "ca.crt")
	}
	var content bytes.Buffer
	if err := parsed.Execute(&content, values); err != nil {
		return "", fmt.Errorf("rendering %s: %w", name, err)
	}
	path := filepath.Join(n.dir, name)
	if name == "cni.conflist" {
		path = filepath.Join(n.dir, "cni", "10-"+name)
	}
	if err := os.WriteFile(path, content.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("writing %s: %w", name, err)
	}
	return path, nil
}
