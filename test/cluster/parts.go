package cluster

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
)

// serviceRange is the address range of Services. Its first address is serviceIP.
const serviceRange = "10.96.0.0/16"

// starter defines how a component starts and becomes ready.
type starter struct {
	// listens is true for a component with a port of its own. The ports of etcd and the API server are part of the cluster.
	listens bool
	args    func(c *Cluster, p *port) ([]string, error)
	ready   func(ctx context.Context, c *Cluster, p *port) error
}

// starters defines each component.
var starters = map[Part]starter{
	Etcd:              {args: etcdArgs, ready: etcdReady},
	APIServer:         {args: apiServerArgs, ready: apiServerReady},
	ControllerManager: {listens: true, args: controllerManagerArgs, ready: healthy},
	Scheduler:         {listens: true, args: schedulerArgs, ready: healthy},
	Nodes:             {args: nodesArgs, ready: nodesReady},
}

func (c *Cluster) etcdURL() string { return "http://" + loopback + ":" + c.etcdPort.String() }

func etcdArgs(c *Cluster, _ *port) ([]string, error) {
	return []string{
		"--name=local",
		"--data-dir=" + c.dir.file("etcd"),
		"--listen-client-urls=" + c.etcdURL(),
		"--advertise-client-urls=" + c.etcdURL(),
		"--listen-peer-urls=http://" + loopback + ":0",
		// The data must survive a restart of etcd, but not of the machine.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}, nil
}

func etcdReady(ctx context.Context, c *Cluster, _ *port) error {
	return get(ctx, http.DefaultClient, c.etcdURL()+"/readyz")
}

func apiServerArgs(c *Cluster, _ *port) ([]string, error) {
	file := c.credentials.file
	args := []string{
		"--etcd-servers=" + c.etcdURL(),
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		"--secure-port=" + c.apiPort.String(),
		// The API server would reject an endpoint with a loopback address, repeatedly.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		"--tls-cert-file=" + file("apiserver.crt"),
		"--tls-private-key-file=" + file("apiserver.key"),
		"--client-ca-file=" + file("ca.crt"),
		c.options.authorization(),
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + file("service-account.crt"),
		"--service-account-signing-key-file=" + file("service-account.key"),
		"--requestheader-client-ca-file=" + file("front-proxy-ca.crt"),
		"--requestheader-allowed-names=" + frontProxyUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + file("front-proxy-client.crt"),
		"--proxy-client-key-file=" + file("front-proxy-client.key"),
		"--kubelet-client-certificate=" + file("kubelet-client.crt"),
		"--kubelet-client-key=" + file("kubelet-client.key"),
	}
	if !c.options.Parts.has(ControllerManager) {
		// No controller creates service accounts, which the admission plugin requires.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if c.options.Audit {
		args = append(args,
			"--audit-policy-file="+file("audit-policy.yaml"),
			"--audit-log-path="+c.audit.path,
			"--audit-log-mode=blocking",
			// In megabytes. After a rotation, earlier entries would not be found.
			"--audit-log-maxsize=1000000",
		)
	}
	return append(args, c.options.APIServerArgs...), nil
}

func apiServerReady(ctx context.Context, c *Cluster, _ *port) error {
	clientset, err := client(c.Admin())
	if err != nil {
		return err
	}
	return clientset.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func controllerManagerArgs(c *Cluster, p *port) ([]string, error) {
	file := c.credentials.file
	args, err := c.controllerArgs("system:kube-controller-manager", p)
	return append(args,
		// Each controller has a user of its own, as on most clusters, in the audit log and for RBAC.
		"--use-service-account-credentials",
		"--root-ca-file="+file("ca.crt"),
		"--service-account-private-key-file="+file("service-account.key"),
		"--cluster-signing-cert-file="+file("ca.crt"),
		"--cluster-signing-key-file="+file("ca.key"),
		"--node-monitor-period=1s",
		"--horizontal-pod-autoscaler-sync-period=1s",
		"--horizontal-pod-autoscaler-initial-readiness-delay=1s",
	), err
}

func schedulerArgs(c *Cluster, p *port) ([]string, error) {
	return c.controllerArgs("system:kube-scheduler", p)
}

// controllerArgs are shared by the clients of the API server.
func (c *Cluster) controllerArgs(user string, p *port) ([]string, error) {
	kubeconfig, err := c.kubeconfigOf(user, nil)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback,
		"--secure-port=" + p.String(),
		"--leader-elect=false",
		// A rate limit would only slow tests down.
		"--kube-api-qps=2000",
		"--kube-api-burst=4000",
	}, err
}

// healthy checks the health endpoint of the controller manager or the scheduler, which have self-signed certificates.
func healthy(ctx context.Context, _ *Cluster, p *port) error {
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	return get(ctx, &http.Client{Transport: transport}, "https://"+loopback+":"+p.String()+"/healthz")
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("requesting %s: %w", url, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("requesting %s: %s", url, response.Status)
	}
	return nil
}
