package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/go-logr/zapr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// settings are what the command line says.
type settings struct {
	options    controllers.Options
	kubeconfig string
	context    string

	metricsAddress  string
	metricsSecure   bool
	metricsCertPath string
	http2           bool

	version bool

	cloudEndpoint, cloudToken string
	probeEndpoint             string
}

// parse reads the command line. An error says which flag is wrong and what would be right.
func parse(args []string, usage io.Writer) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var namespaces, names string
	var qps float64

	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "Kubeconfig `file`; without it, in a pod, the pod's service account, and elsewhere what kubectl uses.")
	flags.StringVar(&s.context, "context", "", "Context of the kubeconfig; the current one if it is not given.")
	flags.StringVar(&namespaces, "namespaces", "", "Namespaces to watch, separated by commas; all if it is not given.")
	flags.StringVar(&names, "controllers", "", "Controllers to run, separated by commas, out of: "+strings.Join(controllers.Names(), ", ")+"; all if it is not given.")
	flags.BoolVar(&s.options.NoClusterRights, "no-cluster-rights", false, "Do not look at what is of the whole cluster, such as IngressClasses: for a manager that has rights in some namespaces alone. See --namespaces.")
	flags.IntVar(&s.options.Concurrency, "concurrency", 10, "How many objects of one kind are reconciled at the same time.")
	flags.Float64Var(&qps, "kube-api-qps", 0, "Requests per second to the API server; 0 leaves the throttling to the API server.")
	flags.IntVar(&s.options.Burst, "kube-api-burst", 0, "Requests to the API server that may come at once; for --kube-api-qps.")
	flags.DurationVar(&s.options.SyncPeriod, "sync-period", 10*time.Hour, "How often everything is looked at although nothing changed.")

	s.electionFlags(flags)
	flags.StringVar(&s.metricsAddress, "metrics-bind-address", "0", "Address of the metrics endpoint, such as :8443; 0 serves none.")
	flags.BoolVar(&s.metricsSecure, "metrics-secure", true, "Serve metrics over HTTPS, to those only who may read them.")
	flags.StringVar(&s.metricsCertPath, "metrics-cert-path", "", "Folder with tls.crt and tls.key for the metrics endpoint, which are read again when they change; if it is not given, a certificate is made in memory.")
	flags.BoolVar(&s.http2, "enable-http2", false, "Allow HTTP/2 on the metrics endpoint.")
	flags.StringVar(&s.options.ProfilingAddress, "pprof-bind-address", "0", "Address of this machine alone, such as 127.0.0.1:6060, where profiles are served; 0 serves none.")
	flags.StringVar(&s.options.HealthProbeAddress, "health-probe-bind-address", ":8081", "Address of /healthz and /readyz; 0 serves none.")

	flags.StringVar(&s.options.BridgeImage, "bridge-image", controllers.DefaultBridgeImage, "Image that brings the bridge for MCPServers with transport stdio.")
	s.registerPod(flags)
	flags.StringVar(&s.probeEndpoint, "mcp-probe-endpoint", "", "URL whose host is asked in place of every MCPServer's; only for clusters whose nodes are simulated.")
	flags.StringVar(&s.cloudEndpoint, "cloud-endpoint", "", "URL of another resource manager than Azure's public one, such as that of a fake cloud.")
	flags.StringVar(&s.cloudToken, "cloud-token", "", "Bearer token for --cloud-endpoint, for a cloud without a directory.")

	flags.BoolVar(&s.version, "version", false, "Print version, commit and date, and end.")

	var logging zap.Options
	logging.BindFlags(flags)

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(usage)
			flags.Usage()
			return nil, err
		}
		return nil, explain(err, flags)
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: every setting is a flag, see --help", flags.Arg(0))
	}
	s.options.Namespaces, s.options.Controllers = list(namespaces), list(names)
	s.options.QPS = float32(qps)
	s.options.Metrics = s.metricsOptions()
	if err := s.completeCloud(); err != nil {
		return nil, err
	}
	if s.probeEndpoint != "" {
		endpoint, err := url.Parse(s.probeEndpoint)
		if err != nil || endpoint.Host == "" {
			return nil, fmt.Errorf("--mcp-probe-endpoint is %q: give a URL such as http://127.0.0.1:8080", s.probeEndpoint)
		}
		s.options.ProbeEndpoint = endpoint
	}
	s.options.Logger = zapr.NewLogger(zap.NewRaw(zap.UseFlagOptions(&logging)))
	return s, s.check()
}

func (s *settings) electionFlags(flags *flag.FlagSet) {
	flags.BoolVar(&s.options.LeaderElection, "leader-elect", false, "Agree with other replicas on one that works.")
	flags.StringVar(&s.options.LeaderElectionNamespace, "leader-election-namespace", "", "Namespace of the Lease; in a pod, the pod's own if it is not given.")
	flags.DurationVar(&s.options.LeaseDuration, "leader-elect-lease-duration", controllers.DefaultLeaseDuration, "How long the others wait for a leader that is not heard of, in whole seconds.")
	flags.DurationVar(&s.options.RenewDeadline, "leader-elect-renew-deadline", controllers.DefaultRenewDeadline, "How long a leader tries to renew before it gives up.")
	flags.DurationVar(&s.options.RetryPeriod, "leader-elect-retry-period", controllers.DefaultRetryPeriod, "Pause between tries to get the Lease; a handover takes up to 2.2 times as long. The leader renews it less often.")
}

// check finds values that parse and make no sense.
func (s *settings) check() error {
	var problems []error
	if s.options.Concurrency < 1 {
		problems = append(problems, fmt.Errorf("--concurrency is %d: give at least 1", s.options.Concurrency))
	}
	if s.options.QPS < 0 {
		problems = append(problems, fmt.Errorf("--kube-api-qps is %v: give a positive number, or 0 for no limit", s.options.QPS))
	}
	if s.options.Burst > 0 && s.options.QPS == 0 {
		problems = append(problems, errors.New("--kube-api-burst has no meaning without --kube-api-qps: give both or neither"))
	}
	if s.options.SyncPeriod < time.Second {
		problems = append(problems, fmt.Errorf("--sync-period is %s: give at least 1s", s.options.SyncPeriod))
	}
	if s.options.LeaseDuration <= s.options.RenewDeadline || s.options.RenewDeadline <= s.options.RetryPeriod {
		problems = append(problems, fmt.Errorf("--leader-elect-lease-duration (%s), --leader-elect-renew-deadline (%s) and --leader-elect-retry-period (%s) must be in falling order",
			s.options.LeaseDuration, s.options.RenewDeadline, s.options.RetryPeriod))
	}
	if s.options.LeaseDuration%time.Second != 0 {
		problems = append(problems, fmt.Errorf("--leader-elect-lease-duration is %s: give whole seconds", s.options.LeaseDuration))
	}
	return errors.Join(append(problems, s.checkServing()...)...)
}

// checkServing finds addresses and files by which nothing can be served.
func (s *settings) checkServing() []error {
	var problems []error
	for name, address := range map[string]string{"metrics-bind-address": s.metricsAddress, "health-probe-bind-address": s.options.HealthProbeAddress} {
		if _, _, err := net.SplitHostPort(address); address != "0" && err != nil {
			problems = append(problems, fmt.Errorf("--%s is %q: give host:port, :port, or 0 for none", name, address))
		}
	}
	if address := s.options.ProfilingAddress; address != "0" && !isLoopback(address) {
		problems = append(problems, fmt.Errorf("--pprof-bind-address is %q: profiles are served to everybody who asks; give an address of this machine alone, such as 127.0.0.1:6060, or 0 for none", address))
	}
	if s.metricsCertPath == "" {
		return problems
	}
	// Without one of them the server would make a certificate of its own, which nobody expects.
	for _, name := range []string{"tls.crt", "tls.key"} {
		if _, err := os.Stat(filepath.Join(s.metricsCertPath, name)); err != nil {
			problems = append(problems, fmt.Errorf("--metrics-cert-path is %q, where %s cannot be read (%w): mount it there, or leave the flag out for a certificate that is made in memory", s.metricsCertPath, name, err))
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

func (s *settings) metricsOptions() metricsserver.Options {
	options := metricsserver.Options{BindAddress: s.metricsAddress, SecureServing: s.metricsSecure, CertDir: s.metricsCertPath}
	if s.metricsSecure {
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if !s.http2 {
		// HTTP/2 has had denial-of-service problems that a metrics endpoint need not be open to:
		// https://github.com/advisories/GHSA-qppj-fm5r-hxr3.
		options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
	}
	return options
}

func (s *settings) completeCloud() error {
	if s.cloudEndpoint == "" {
		if s.cloudToken != "" {
			return errors.New("--cloud-token is for --cloud-endpoint only: Azure has its own credentials")
		}
		return nil
	}
	config, err := cloud.Endpoint(s.cloudEndpoint)
	if err != nil {
		return fmt.Errorf("--cloud-endpoint: %w", err)
	}
	s.options.Cloud = config
	if s.cloudToken != "" {
		s.options.Credentials = cloud.TokenCredentials{Token: s.cloudToken}
	}
	return nil
}

// restConfig finds the cluster as kubectl does, and the pod's own where there is no kubeconfig.
func (s *settings) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: s.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding a cluster (--kubeconfig, --context): %w", err)
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

// explain says of a flag that does not exist which one may have been meant.
func explain(err error, flags *flag.FlagSet) error {
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
		return fmt.Errorf("there is no flag --%s: see --help", match[1])
	}
	return fmt.Errorf("there is no flag --%s: did you mean --%s? See --help", match[1], best)
}

// editDistance is the number of letters to add, remove or change.
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
