package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/metricsauth"
	"github.com/fixpoint-dev/fixpoint/internal/portforward"
	"github.com/fixpoint-dev/fixpoint/internal/releases"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// settings are the values of the flags.
type settings struct {
	options    controllers.Options
	kubeconfig string
	context    string

	metricsAddress  string
	metricsSecure   bool
	metricsCertPath string
	http2           bool

	version bool

	cloudEndpoint, cloudTokenFile string
	probeEndpoint                 string
}

func (s *settings) retryFlags(flags *flag.FlagSet) {
	flags.DurationVar(&s.options.RetryMinDelay, "retry-min-delay", phases.DefaultRetryMinDelay, "Delay before the first retry of a failed reconcile. The delay doubles with each further failure.")
	flags.DurationVar(&s.options.RetryMaxDelay, "retry-max-delay", phases.DefaultRetryMaxDelay, "Maximum delay between retries of a failed reconcile.")
}

func (s *settings) webhookFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.options.WebhookAddress, "webhook-bind-address", "0", "Address of the webhook that converts objects between API versions, such as :9443. 0 disables it.")
	flags.StringVar(&s.options.WebhookService, "webhook-service", "fixpoint-webhook", "Name of the Service in the namespace of the manager through which API servers reach the webhook.")
	flags.StringVar(&s.options.WebhookCertDir, "webhook-cert-path", "", "Directory with tls.crt and tls.key for the webhook, reloaded when they change; the CA bundle of the CustomResourceDefinitions must then be set otherwise, for example by cert-manager. By default, the manager issues and rotates a certificate, and sets the CA bundle.")
}

func (s *settings) metricsFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.metricsAddress, "metrics-bind-address", "0", "Address of the metrics endpoint, such as :8443. 0 disables it.")
	flags.BoolVar(&s.metricsSecure, "metrics-secure", true, "Serve metrics over HTTPS, with authentication and authorization.")
	flags.StringVar(&s.metricsCertPath, "metrics-cert-path", "", "Directory with tls.crt and tls.key for the metrics endpoint, reloaded when they change. Defaults to a self-signed certificate in memory.")
	flags.BoolVar(&s.http2, "enable-http2", false, "Allow HTTP/2 on the metrics endpoint.")
}

// parse parses the command line. Errors name the flag and a valid value.
func parse(args []string, usage io.Writer) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var names string
	var qps float64

	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "Kubeconfig `file`. Defaults to the service account in a pod, and to the kubeconfig of kubectl otherwise.")
	flags.StringVar(&s.context, "context", "", "Context of the kubeconfig. Defaults to the current context.")
	flags.Func("namespaces", "Comma-separated `list` of namespaces to watch. Defaults to all namespaces.", func(text string) (err error) {
		s.options.Namespaces, err = parseNamespaces(text)
		return err
	})
	flags.Func("namespace-selector", "Label `selector` of the namespaces to watch, such as team=a. A namespace whose labels change is reconciled, or no longer reconciled, without a restart. The namespace of the manager is not selected. Requires --leader-elect.", func(text string) (err error) {
		s.options.NamespaceSelector, err = parseSelector(text)
		return err
	})
	flags.StringVar(&s.options.ClaimsNamespace, "claims-namespace", releases.LeaseNamespace, "Namespace of the Lease in which all releases in a cluster claim their namespaces. It must be the same for all of them, and only administrators should be able to write in it.")
	flags.StringVar(&names, "controllers", "", "Comma-separated list of controllers to run. Defaults to all: "+strings.Join(controllers.Names(), ", ")+".")
	flags.BoolVar(&s.options.NoClusterRights, "no-cluster-rights", false, "Do not access cluster-scoped resources, such as IngressClasses. For a manager with permissions in the namespaces of --namespaces only.")
	flags.IntVar(&s.options.Concurrency, "concurrency", 10, "Maximum number of concurrent reconciles per kind.")
	flags.Float64Var(&qps, "kube-api-qps", 0, "Maximum number of requests per second to the API server. 0 disables client-side throttling.")
	flags.IntVar(&s.options.Burst, "kube-api-burst", 0, "Maximum burst of requests to the API server. Requires --kube-api-qps.")
	flags.DurationVar(&s.options.SyncPeriod, "sync-period", 10*time.Hour, "Interval at which all objects are reconciled even if nothing has changed.")
	s.retryFlags(flags)
	s.electionFlags(flags)
	s.metricsFlags(flags)
	s.webhookFlags(flags)
	flags.StringVar(&s.options.ProfilingAddress, "pprof-bind-address", "0", "Loopback address of the pprof endpoint, such as 127.0.0.1:6060. 0 disables it.")
	flags.StringVar(&s.options.HealthProbeAddress, "health-probe-bind-address", ":8081", "Address of /healthz and /readyz. 0 disables them.")

	flags.StringVar(&s.options.BridgeImage, "bridge-image", controllers.DefaultBridgeImage, "Image that contains the bridge for MCPServers with transport stdio, and the proxy for others with authorization, limits, selected tools, telemetry or session routing.")
	s.registerPod(flags)
	flags.StringVar(&s.probeEndpoint, "mcp-probe-endpoint", "", "URL that replaces the scheme and host of every MCPServer that is probed. Only for clusters with simulated nodes.")
	s.cloudFlags(flags)
	flags.BoolVar(&s.version, "version", false, "Print the version, commit and date, and exit.")

	var log logging
	log.bind(flags)

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(usage)
			flags.Usage()
			return nil, err
		}
		return nil, suggestFlag(err, flags)
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: use flags for all settings, see --help", flags.Arg(0))
	}
	s.options.Controllers = list(names)
	s.options.QPS = float32(qps)
	logger, level, err := log.build()
	if err != nil {
		return nil, err
	}
	s.options.Logger, s.options.Metrics = logger, s.metricsOptions(level)
	if err := s.completeCloud(); err != nil {
		return nil, err
	}
	if err := s.completeProbes(); err != nil {
		return nil, err
	}
	return s, s.check()
}

func (s *settings) completeProbes() error {
	if s.probeEndpoint == "" {
		return nil
	}
	endpoint, err := url.Parse(s.probeEndpoint)
	if err != nil || endpoint.Host == "" {
		return fmt.Errorf("--mcp-probe-endpoint is %q: set a URL such as http://127.0.0.1:8080", s.probeEndpoint)
	}
	s.options.ProbeEndpoint = endpoint
	return nil
}

// completeProbeDial connects probes to pods through the API server, with the permissions of the kubeconfig, if the
// manager runs outside of a cluster. Pods have a route to pods, and need no permission for that.
func (s *settings) completeProbeDial(cfg *rest.Config) error {
	if _, err := rest.InClusterConfig(); !errors.Is(err, rest.ErrNotInCluster) || s.probeEndpoint != "" {
		return nil
	}
	dialer, err := portforward.NewDialer(cfg, s.options.Namespaces)
	if err != nil {
		return err
	}
	s.options.ProbeDial, s.options.ProbeHost = dialer.DialContext, portforward.Host
	s.options.Logger.Info("Probing MCPServers through the API server, because the manager does not run in a cluster")
	return nil
}

func (s *settings) cloudFlags(flags *flag.FlagSet) {
	flags.StringVar(&s.cloudEndpoint, "cloud-endpoint", "", "URL of the Azure Resource Manager endpoint, for example of a fake cloud. Defaults to public Azure.")
	flags.StringVar(&s.cloudTokenFile, "cloud-token-file", "", "`file` with a bearer token for --cloud-endpoint, read again for each request, for a cloud without Microsoft Entra ID.")
	flags.Var((*ambientScopes)(&s.options.AmbientScopes), "ambient-credentials", "Scope in which SecureStorages of a namespace may use the credential of the manager, as `NAMESPACE=SCOPE`: a namespace, or * for all, and the resource ID of a subscription, resource group, storage account or key vault. May be repeated. By default, every SecureStorage needs credentials of its own.")
}

func (s *settings) electionFlags(flags *flag.FlagSet) {
	flags.BoolVar(&s.options.LeaderElection, "leader-elect", false, "Enable leader election.")
	flags.StringVar(&s.options.LeaderElectionNamespace, "leader-election-namespace", "", "Namespace of the Lease. Defaults to the namespace of the pod.")
	flags.DurationVar(&s.options.LeaseDuration, "leader-elect-lease-duration", controllers.DefaultLeaseDuration, "Duration that standby replicas wait before they take over from an unresponsive leader, in whole seconds.")
	flags.DurationVar(&s.options.RenewDeadline, "leader-elect-renew-deadline", controllers.DefaultRenewDeadline, "Duration that the leader retries to renew the Lease before it exits.")
	flags.DurationVar(&s.options.RetryPeriod, "leader-elect-retry-period", controllers.DefaultRetryPeriod, "Interval between attempts to acquire the Lease. A handover takes up to 2.2 times as long. The leader renews the Lease less often.")
}

// check finds values that parse but are invalid.
func (s *settings) check() error {
	var problems []error
	if s.options.Concurrency < 1 {
		problems = append(problems, fmt.Errorf("--concurrency is %d: set at least 1", s.options.Concurrency))
	}
	if s.options.QPS < 0 {
		problems = append(problems, fmt.Errorf("--kube-api-qps is %v: set a positive number, or 0 for no limit", s.options.QPS))
	}
	if s.options.Burst > 0 && s.options.QPS == 0 {
		problems = append(problems, errors.New("--kube-api-burst requires --kube-api-qps: set both or neither"))
	}
	if s.options.SyncPeriod < time.Second {
		problems = append(problems, fmt.Errorf("--sync-period is %s: set at least 1s", s.options.SyncPeriod))
	}
	for name, delay := range map[string]time.Duration{"retry-min-delay": s.options.RetryMinDelay, "retry-max-delay": s.options.RetryMaxDelay} {
		if delay <= 0 {
			problems = append(problems, fmt.Errorf("--%s is %s: set a positive duration", name, delay))
		}
	}
	if s.options.LeaseDuration <= s.options.RenewDeadline || s.options.RenewDeadline <= s.options.RetryPeriod {
		problems = append(problems, fmt.Errorf("--leader-elect-lease-duration (%s), --leader-elect-renew-deadline (%s) and --leader-elect-retry-period (%s) must be in descending order",
			s.options.LeaseDuration, s.options.RenewDeadline, s.options.RetryPeriod))
	}
	if s.options.LeaseDuration%time.Second != 0 {
		problems = append(problems, fmt.Errorf("--leader-elect-lease-duration is %s: set whole seconds", s.options.LeaseDuration))
	}
	problems = append(problems, s.checkNamespaces()...)
	return errors.Join(append(problems, s.checkServing()...)...)
}

// checkNamespaces finds namespaces in which tenants would get the permissions of the manager.
func (s *settings) checkNamespaces() []error {
	var problems []error
	if s.options.NoClusterRights && len(s.options.Namespaces) == 0 {
		problems = append(problems, errors.New("--no-cluster-rights requires --namespaces: set the namespaces in which the manager has permissions"))
	}
	if s.options.NamespaceSelector != nil {
		problems = append(problems, s.checkSelector()...)
	}
	if own := s.options.PodNamespace; own != "" && slices.Contains(s.options.Namespaces, own) {
		problems = append(problems, fmt.Errorf("--namespaces contains %s, the namespace of the manager, in which whoever creates pods can run them with the manager's ServiceAccount: run the manager in a namespace of its own", own))
	}
	return problems
}

// checkSelector finds flags that --namespace-selector cannot be combined with.
func (s *settings) checkSelector() []error {
	var problems []error
	if len(s.options.Namespaces) > 0 {
		problems = append(problems, errors.New("--namespace-selector and --namespaces are both set: set one of them"))
	}
	if !s.options.LeaderElection {
		problems = append(problems, errors.New("--namespace-selector requires --leader-elect: without a Lease, several managers could reconcile a namespace whose labels change"))
	}
	if s.options.NoClusterRights {
		problems = append(problems, errors.New("--namespace-selector requires the permission to list and watch all namespaces: remove --no-cluster-rights, or set --namespaces"))
	}
	return problems
}

// parseNamespaces rejects what no namespace is called, such as a variable that is not set, and a list without names, which
// would be all namespaces.
func parseNamespaces(text string) ([]string, error) {
	names := list(text)
	if text != "" && len(names) == 0 {
		return nil, errors.New("list the namespaces to watch, or remove the flag to watch all")
	}
	for _, name := range names {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("%q is no name of a namespace: list names of lower-case letters, digits and '-', separated by commas", name)
		}
	}
	return names, nil
}

// parseSelector rejects a selector that selects all namespaces.
func parseSelector(text string) (labels.Selector, error) {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("set a label selector, such as team=a or team in (a,b): %w", err)
	}
	if selector.Empty() {
		return nil, errors.New("set a label selector, such as team=a, or remove the flag to watch all namespaces")
	}
	return selector, nil
}

// checkServing finds invalid addresses and files of the endpoints.
func (s *settings) checkServing() []error {
	var problems []error
	for name, address := range map[string]string{"metrics-bind-address": s.metricsAddress, "health-probe-bind-address": s.options.HealthProbeAddress, "webhook-bind-address": s.options.WebhookAddress} {
		if _, _, err := net.SplitHostPort(address); address != "0" && err != nil {
			problems = append(problems, fmt.Errorf("--%s is %q: set host:port, :port, or 0 to disable it", name, address))
		}
	}
	if address := s.options.ProfilingAddress; address != "0" && !isLoopback(address) {
		problems = append(problems, fmt.Errorf("--pprof-bind-address is %q: the pprof endpoint has no authentication; set a loopback address, such as 127.0.0.1:6060, or 0 to disable it", address))
	}
	// If a file is missing, the metrics endpoint would silently generate a self-signed certificate.
	for name, dir := range map[string]string{"metrics-cert-path": s.metricsCertPath, "webhook-cert-path": s.options.WebhookCertDir} {
		if dir != "" {
			problems = append(problems, checkCertificate(name, dir)...)
		}
	}
	return problems
}

// checkCertificate finds missing files in the directory of a certificate.
func checkCertificate(flagName, dir string) []error {
	var problems []error
	for _, name := range []string{"tls.crt", "tls.key"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			problems = append(problems, fmt.Errorf("--%s is %q, but %s in it cannot be read (%w): mount the file, or remove the flag to use a self-signed certificate", flagName, dir, name, err))
		}
	}
	return problems
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (s *settings) metricsOptions(logLevel http.Handler) metricsserver.Options {
	options := metricsserver.Options{BindAddress: s.metricsAddress, SecureServing: s.metricsSecure, CertDir: s.metricsCertPath}
	if s.metricsSecure {
		options.FilterProvider = metricsauth.NewFilter
		options.ExtraHandlers = map[string]http.Handler{logLevelPath: logLevel} // only with authorization
	}
	if !s.http2 {
		// HTTP/2 is disabled because of its denial-of-service vulnerabilities:
		// https://github.com/advisories/GHSA-qppj-fm5r-hxr3.
		options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
	}
	return options
}

// restConfig loads the kubeconfig as kubectl does, and the in-cluster config without a kubeconfig.
func (s *settings) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: s.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig (--kubeconfig, --context): %w", err)
	}
	return cfg, nil
}

func list(commas string) []string {
	var items []string
	for item := range strings.SplitSeq(commas, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

var undefined = regexp.MustCompile(`^flag provided but not defined: -+(.*)$`)

// suggestFlag adds the most similar flag to the error for an unknown flag.
func suggestFlag(err error, flags *flag.FlagSet) error {
	match := undefined.FindStringSubmatch(err.Error())
	if match == nil {
		return fmt.Errorf("%w: see --help", err)
	}
	best, distance := "", len(match[1])
	flags.VisitAll(func(f *flag.Flag) {
		if d := editDistance(match[1], f.Name); d < distance {
			best, distance = f.Name, d
		}
	})
	if best == "" || distance > len(match[1])/2 {
		return fmt.Errorf("unknown flag --%s: see --help", match[1])
	}
	return fmt.Errorf("unknown flag --%s: did you mean --%s? See --help", match[1], best)
}

// editDistance returns the number of characters to add, remove or change.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
