package deploy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// DeploymentName is the manager's in all manifests.
const DeploymentName = "fixpoint-controller-manager"

// WebhookService is the name of the Service of the conversion webhook in all manifests.
const WebhookService = "fixpoint-webhook"

// grace is how long a manager may take to end by itself. One that is killed does not release its Lease.
const grace = time.Minute

// PatientElection are arguments for managers that nobody restarts: on a busy machine, the API server may not answer for
// longer than the leader retries by default.
var PatientElection = []string{"--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=110s"}

// Build builds cmd/manager from the source in root into dir.
func Build(ctx context.Context, root, dir string) (string, error) {
	program := filepath.Join(dir, "manager")
	// As the image is built, with which it shares the compiled packages. With -trimpath they are also shared among copies of
	// the source in different directories.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./cmd/manager")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the manager: %w\n%s", err, output)
	}
	return program, nil
}

// Manager is a process that stands for one of the Deployment's pods.
type Manager struct {
	// User is whom the API server and its audit log know it as.
	User string
	// Log is the path of its log.
	Log string
	// Metrics, Health and Webhook are the addresses of its endpoints; those that it does not have are empty.
	Metrics, Health, Webhook string
	process                  *cluster.Process
	// release gives the ports of the endpoints back.
	release []func()
	// endpoints removes the manager from the Service of the webhook; nil if it is not part of it.
	endpoints func() error
}

// Pod says which program is to run as the Deployment in the namespace says, and under which name.
// Arguments that are added win over those of the Deployment, as variables of the environment do.
type Pod struct {
	Program, Namespace, Name string
	// Account is the service account, if it is not that of the Deployment.
	Account   string
	Args, Env []string
}

// Start runs it.
func (p Pod) Start(ctx context.Context, c *cluster.Cluster) (*Manager, error) {
	clientset, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	deployment, err := clientset.AppsV1().Deployments(p.Namespace).Get(ctx, DeploymentName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the manager's Deployment: %w", err)
	}
	if p.Account != "" {
		deployment.Spec.Template.Spec.ServiceAccountName = p.Account
	}
	m := &Manager{
		User: "system:serviceaccount:" + p.Namespace + ":" + deployment.Spec.Template.Spec.ServiceAccountName,
		Log:  filepath.Join(c.Dir(), fmt.Sprintf("manager-%s-%s-%d.log", p.Namespace, p.Name, time.Now().UnixNano())),
	}
	kubeconfig, err := writeKubeconfig(ctx, c, clientset, deployment, p.Name)
	if err != nil {
		return nil, err
	}
	env, err := environment(deployment, p.Name)
	if err != nil {
		return nil, err
	}
	args, err := m.arguments(deployment, env)
	if err != nil {
		return nil, err
	}
	if slices.Contains(p.Args, "--webhook-bind-address=0") {
		m.Webhook = ""
	}
	args = append(append(args, "--kubeconfig="+kubeconfig), p.Args...)
	variables := append(append(list(env), "HOME="+c.Dir(), "TMPDIR="+c.Dir()), p.Env...)
	m.process, err = cluster.StartProcess("manager", m.Log, variables, p.Program, args...)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// writeKubeconfig is what a pod has in the folder of its service account.
func writeKubeconfig(ctx context.Context, c *cluster.Cluster, clientset kubernetes.Interface, deployment *appsv1.Deployment, pod string) (string, error) {
	const day = 24 * 60 * 60
	seconds := int64(day)
	account := deployment.Spec.Template.Spec.ServiceAccountName
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	token, err := clientset.CoreV1().ServiceAccounts(deployment.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking for a token of the manager's ServiceAccount: %w", err)
	}
	const name = "in-cluster"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthorityData: c.Admin().CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(c.Dir(), fmt.Sprintf("kubeconfig-%s-%s", deployment.Namespace, pod))
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing the manager's kubeconfig: %w", err)
	}
	return path, nil
}

// environment is what the kubelet makes of the container's.
func environment(deployment *appsv1.Deployment, pod string) (map[string]string, error) {
	env := map[string]string{}
	for _, variable := range container(deployment).Env {
		value := variable.Value
		if from := variable.ValueFrom; from != nil {
			switch {
			case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
				value = deployment.Namespace
			case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.name":
				value = pod
			case from.ResourceFieldRef != nil && from.ResourceFieldRef.Resource == "limits.memory":
				limits := container(deployment).Resources.Limits
				value = strconv.FormatInt(limits.Memory().Value(), 10)
			default:
				return nil, fmt.Errorf("the variable %s comes from %s, which this does not know", variable.Name, from)
			}
		}
		env[variable.Name] = value
	}
	return env, nil
}

var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// arguments are the container's, with endpoints on the loopback address; but the webhook on an address that the
// endpoints of a Service may have.
func (m *Manager) arguments(deployment *appsv1.Deployment, env map[string]string) ([]string, error) {
	var args []string
	for _, arg := range container(deployment).Args {
		arg = reference.ReplaceAllStringFunc(arg, func(found string) string { return env[reference.FindStringSubmatch(found)[1]] })
		name, value, _ := strings.Cut(arg, "=")
		var endpoint *string
		switch name {
		case "--metrics-bind-address":
			endpoint = &m.Metrics
		case "--health-probe-bind-address":
			endpoint = &m.Health
		case "--webhook-bind-address":
			endpoint = &m.Webhook
		}
		if endpoint != nil && value != "0" {
			address, release, err := cluster.FreeAddress()
			if err != nil {
				return nil, err
			}
			m.release = append(m.release, release)
			if endpoint == &m.Webhook {
				if address, err = onMachine(address); err != nil {
					return nil, err
				}
			}
			*endpoint, arg = address, name+"="+address
		}
		args = append(args, arg)
	}
	return args, nil
}

// onMachine replaces the host of an address.
func onMachine(address string) (string, error) {
	host, err := cluster.MachineAddress()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(address)
	return net.JoinHostPort(host, port), err
}

// Serve makes the manager an endpoint of the Service of the webhook, as pods become when they are ready. It does
// nothing for a manager without the webhook. API servers need the flag --enable-aggregator-routing, because no
// kube-proxy runs, and the pods of the Deployment must not be endpoints, because nothing runs in them.
func (m *Manager) Serve(ctx context.Context, c *cluster.Cluster, namespace string) error {
	if m.Webhook == "" {
		return nil
	}
	clientset, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	host, service, err := net.SplitHostPort(m.Webhook)
	if err != nil {
		return err
	}
	port, err := strconv.ParseInt(service, 10, 32)
	if err != nil {
		return err
	}
	endpoints := clientset.DiscoveryV1().EndpointSlices(namespace)
	slice, err := endpoints.Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{GenerateName: WebhookService + "-", Labels: map[string]string{discoveryv1.LabelServiceName: WebhookService}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(port))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{host}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("adding the manager to the Service of the webhook: %w", err)
	}
	m.endpoints = func() error { return endpoints.Delete(context.WithoutCancel(ctx), slice.Name, metav1.DeleteOptions{}) }
	return nil
}

// Leave ends what Serve did, as for pods that are not ready.
func (m *Manager) Leave() error {
	if m.endpoints == nil {
		return nil
	}
	end := m.endpoints
	m.endpoints = nil
	if err := end(); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the manager from the Service of the webhook: %w", err)
	}
	return nil
}

func container(deployment *appsv1.Deployment) corev1.Container {
	return deployment.Spec.Template.Spec.Containers[0]
}

func list(env map[string]string) []string {
	var entries []string
	for name, value := range env {
		entries = append(entries, name+"="+value)
	}
	return entries
}

// Stop ends the manager as a kubelet does, after it is no longer an endpoint.
func (m *Manager) Stop() error {
	err := errors.Join(m.Leave(), m.process.Stop(grace))
	for _, release := range m.release {
		release()
	}
	m.release = nil
	return err
}

// Signal sends a signal to the process.
func (m *Manager) Signal(signal syscall.Signal) error { return syscall.Kill(m.PID(), signal) }

// Frozen tells whether the process does not run because of SIGSTOP, which takes effect when the kernel next schedules it.
func (m *Manager) Frozen() (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.PID()))
	if err != nil {
		return false, fmt.Errorf("reading the state of the process: %w", err)
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the name of the program is in parentheses
	return strings.HasPrefix(after, "T"), nil
}

// PID is the process's number.
func (m *Manager) PID() int { return m.process.PID() }

// Running tells whether it has not ended.
func (m *Manager) Running() bool { return m.process.Running() }

// Failure adds the end of its log to an error.
func (m *Manager) Failure(cause error) error { return m.process.Failure(cause) }

// Ready asks the readiness probe.
func (m *Manager) Ready(ctx context.Context) error {
	_, err := ask(ctx, "http://"+m.Health+"/readyz", "")
	return err
}

// Scrape reads the metrics as the bearer of the token.
func (m *Manager) Scrape(ctx context.Context, token string) (string, error) {
	if m.Metrics == "" {
		return "", errors.New("the Deployment serves no metrics")
	}
	return ask(ctx, "https://"+m.Metrics+"/metrics", token)
}

// StatusError is an answer other than 200.
type StatusError int

func (e StatusError) Error() string { return fmt.Sprintf("the answer is %d", int(e)) }

func ask(ctx context.Context, url, token string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The certificate is of the manager's own making.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", StatusError(response.StatusCode)
	}
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
