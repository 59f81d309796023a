package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
)

func TestFlags(t *testing.T) {
	g := NewWithT(t)

	s, err := parse([]string{"--namespaces=a, b", "--controllers=appservice", "--leader-elect", "--metrics-bind-address=:8443", "--zap-log-level=debug"}, nil)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.options.Namespaces).To(Equal([]string{"a", "b"}))
	g.Expect(s.options.Controllers).To(Equal([]string{"appservice"}))
	g.Expect(s.options.LeaderElection).To(BeTrue())
	g.Expect(s.options.ProfilingAddress).To(Equal("0"), "no profiles by default")
	g.Expect(s.options.Metrics.BindAddress).To(Equal(":8443"))
	g.Expect(s.options.Metrics.SecureServing).To(BeTrue())
	g.Expect(s.options.Metrics.FilterProvider).NotTo(BeNil())
	g.Expect(s.options.QPS).To(BeZero(), "no limit by default")
	g.Expect(s.options.SyncPeriod).To(Equal(10 * time.Hour))
	g.Expect(s.options.RetryMinDelay).To(Equal(200 * time.Millisecond))
	g.Expect(s.options.RetryMaxDelay).To(Equal(5 * time.Minute))
	g.Expect(s.options.Logger.V(1).Enabled()).To(BeTrue())
}

func TestErrorsNameTheFlagAndAValidValue(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"misspelt":                 {[]string{"--leader-elct"}, "unknown flag --leader-elct: did you mean --leader-elect? See --help"},
		"unknown":                  {[]string{"--frobnicate-the-thing"}, "unknown flag --frobnicate-the-thing: see --help"},
		"not a number":             {[]string{"--concurrency=many"}, `invalid value "many" for flag -concurrency: parse error: see --help`},
		"no concurrency":           {[]string{"--concurrency=0"}, "--concurrency is 0: set at least 1"},
		"an argument":              {[]string{"leader-elect"}, `unexpected argument "leader-elect": use flags for all settings, see --help`},
		"burst without rate":       {[]string{"--kube-api-burst=10"}, "--kube-api-burst requires --kube-api-qps: set both or neither"},
		"negative rate":            {[]string{"--kube-api-qps=-2"}, "--kube-api-qps is -2: set a positive number, or 0 for no limit"},
		"unknown log level":        {[]string{"--zap-log-level=loud"}, `invalid value "loud" for flag -zap-log-level: "loud" is no level: set panic, error, info or debug, or a verbosity from 1 to 127: see --help`},
		"negative verbosity":       {[]string{"--zap-log-level=-3"}, `invalid value "-3" for flag -zap-log-level: "-3" is no level: set panic, error, info or debug, or a verbosity from 1 to 127: see --help`},
		"unknown stack traces":     {[]string{"--zap-stacktrace-level="}, `invalid value "" for flag -zap-stacktrace-level: "" is no level: set panic, error, info or debug, or a verbosity from 1 to 127: see --help`},
		"unknown log format":       {[]string{"--zap-encoder=xml"}, `invalid value "xml" for flag -zap-encoder: "xml" is no format: set json or console: see --help`},
		"unknown time format":      {[]string{"--zap-time-encoding=unix"}, `invalid value "unix" for flag -zap-time-encoding: "unix" is no format of the time: set rfc3339, rfc3339nano, iso8601, epoch, millis or nanos: see --help`},
		"sync period too short":    {[]string{"--sync-period=1ms"}, "--sync-period is 1ms: set at least 1s"},
		"no min retry delay":       {[]string{"--retry-min-delay=0"}, "--retry-min-delay is 0s: set a positive duration"},
		"negative max retry delay": {[]string{"--retry-max-delay=-1s"}, "--retry-max-delay is -1s: set a positive duration"},
		"lease too short": {[]string{"--leader-elect-lease-duration=5s"},
			"--leader-elect-lease-duration (5s), --leader-elect-renew-deadline (10s) and --leader-elect-retry-period (500ms) must be in descending order"},
		"fractional lease duration":         {[]string{"--leader-elect-lease-duration=14500ms"}, "--leader-elect-lease-duration is 14.5s: set whole seconds"},
		"profiles on all addresses":         {[]string{"--pprof-bind-address=:6060"}, `--pprof-bind-address is ":6060": the pprof endpoint has no authentication; set a loopback address, such as 127.0.0.1:6060, or 0 to disable it`},
		"profiling address without host":    {[]string{"--pprof-bind-address=6060"}, `--pprof-bind-address is "6060": the pprof endpoint has no authentication; set a loopback address, such as 127.0.0.1:6060, or 0 to disable it`},
		"token in the process list":         {[]string{"--cloud-token=secret"}, "unknown flag --cloud-token: did you mean --cloud-token-file? See --help"},
		"token file without endpoint":       {[]string{"--cloud-token-file=token"}, "--cloud-token-file requires --cloud-endpoint: set both, or remove --cloud-token-file to use Azure credentials"},
		"missing token file":                {[]string{"--cloud-endpoint=http://127.0.0.1:7443", "--cloud-token-file=missing"}, `--cloud-token-file is "missing", but it contains no token (open missing: no such file or directory): mount a file that contains the token`},
		"endpoint that is no URL":           {[]string{"--cloud-endpoint=cloud"}, `--cloud-endpoint: "cloud" is not the URL of an Azure Resource Manager; use a URL such as https://management.azure.com`},
		"Azure credentials over HTTP":       {[]string{"--cloud-endpoint=http://cloud.test"}, `--cloud-endpoint is "http://cloud.test", which would send Azure credentials unencrypted: set an https URL, or set --cloud-token-file for a fake cloud`},
		"scope without namespace":           {[]string{"--ambient-credentials=/subscriptions/x"}, `invalid value "/subscriptions/x" for flag -ambient-credentials: set NAMESPACE=SCOPE, where "/subscriptions/x" is the name of a namespace, or * for all namespaces: see --help`},
		"namespace without scope":           {[]string{"--ambient-credentials=billing"}, `invalid value "billing" for flag -ambient-credentials: "" is not a scope: set the resource ID of a subscription, resource group, storage account or key vault, such as /subscriptions/<UUID>/resourceGroups/<name>: see --help`},
		"scope that contains everything":    {[]string{"--ambient-credentials=billing=/"}, `invalid value "billing=/" for flag -ambient-credentials: "/" is not a scope: set the resource ID of a subscription, resource group, storage account or key vault, such as /subscriptions/<UUID>/resourceGroups/<name>: see --help`},
		"address without port":              {[]string{"--metrics-bind-address=8443"}, `--metrics-bind-address is "8443": set host:port, :port, or 0 to disable it`},
		"no cluster rights, all namespaces": {[]string{"--no-cluster-rights", "--namespaces="}, "--no-cluster-rights requires --namespaces: set the namespaces in which the manager has permissions"},
		"selector of all namespaces":        {[]string{"--leader-elect", "--namespace-selector="}, `invalid value "" for flag -namespace-selector: set a label selector, such as team=a, or remove the flag to watch all namespaces: see --help`},
		"selector that is no selector":      {[]string{"--leader-elect", "--namespace-selector=team in a"}, `invalid value "team in a" for flag -namespace-selector: set a label selector, such as team=a or team in (a,b): unable to parse requirement: found 'a' expected: '(': see --help`},
		"selector and list":                 {[]string{"--leader-elect", "--namespace-selector=team=a", "--namespaces=b"}, "--namespace-selector and --namespaces are both set: set one of them"},
		"selector without leader election":  {[]string{"--namespace-selector=team=a"}, "--namespace-selector requires --leader-elect: without a Lease, several managers could reconcile a namespace whose labels change"},
		"a variable that is not set": {[]string{"--namespaces=$(WATCH_NAMESPACES)"},
			`invalid value "$(WATCH_NAMESPACES)" for flag -namespaces: "$(WATCH_NAMESPACES)" is no name of a namespace: list names of lower-case letters, digits and '-', separated by commas: see --help`},
		"no namespaces": {[]string{"--namespaces=,"}, `invalid value "," for flag -namespaces: list the namespaces to watch, or remove the flag to watch all: see --help`},
		"the manager's own namespace": {[]string{"--pod-namespace=system", "--namespaces=team-a,system"},
			"--namespaces contains system, the namespace of the manager, in which whoever creates pods can run them with the manager's ServiceAccount: run the manager in a namespace of its own"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := parse(c.args, nil)
			g.Expect(err).To(MatchError(c.want))
		})
	}
}

func TestSelectorRequiresClusterRights(t *testing.T) {
	g := NewWithT(t)
	_, err := parse([]string{"--leader-elect", "--namespace-selector=team=a", "--no-cluster-rights"}, nil)
	g.Expect(err).To(MatchError(ContainSubstring("--namespace-selector requires the permission to list and watch all namespaces: remove --no-cluster-rights, or set --namespaces")))
}

func TestNamespaceSelector(t *testing.T) {
	g := NewWithT(t)
	s, err := parse([]string{"--leader-elect", "--namespace-selector=team in (a,b),!legacy"}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.options.NamespaceSelector.String()).To(Equal("!legacy,team in (a,b)"))
	g.Expect(s.namespaces()).To(Equal([]string{"!legacy,team in (a,b)"}))
}

func TestRejectsAMetricsCertPathWithoutKey(t *testing.T) {
	g := NewWithT(t)
	directory := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(directory, "tls.crt"), nil, 0o600)).To(Succeed())

	_, err := parse([]string{"--metrics-cert-path=" + directory}, nil)

	g.Expect(err).To(MatchError(And(ContainSubstring("--metrics-cert-path is"), ContainSubstring("tls.key in it cannot be read"), Not(ContainSubstring("tls.crt")))))
}

func TestAcceptsLoopbackProfilingAddresses(t *testing.T) {
	for _, address := range []string{"0", "127.0.0.1:6060", "localhost:6060", "[::1]:6060"} {
		t.Run(address, func(t *testing.T) {
			g := NewWithT(t)
			s, err := parse([]string{"--pprof-bind-address=" + address}, nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.options.ProfilingAddress).To(Equal(address))
		})
	}
}

func TestAmbientCredentialsAreOffByDefault(t *testing.T) {
	g := NewWithT(t)
	s, err := parse(nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.options.AmbientScopes).To(BeEmpty())
}

func TestAmbientCredentialsMayBeRepeated(t *testing.T) {
	g := NewWithT(t)
	const subscription = "/subscriptions/00000000-0000-4000-8000-00000000F1C5"
	s, err := parse([]string{"--ambient-credentials=billing=" + subscription + "/resourceGroups/a", "--ambient-credentials=billing=" + subscription + "/resourceGroups/b", "--ambient-credentials=*=" + subscription}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	const lower = "/subscriptions/00000000-0000-4000-8000-00000000f1c5"
	g.Expect(s.options.AmbientScopes).To(Equal(securestorage.AmbientScopes{"billing": {lower + "/resourcegroups/a", lower + "/resourcegroups/b"}, "*": {lower}}))
	scopes := ambientScopes(s.options.AmbientScopes)
	g.Expect(scopes.String()).To(Equal("*=" + lower + ",billing=" + lower + "/resourcegroups/a,billing=" + lower + "/resourcegroups/b"))
}

func TestReadsCloudTokenFromFile(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "token")
	g.Expect(os.WriteFile(path, []byte("secret\n"), 0o600)).To(Succeed())
	s, err := parse([]string{"--cloud-endpoint=http://127.0.0.1:7443", "--cloud-token-file=" + path}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	own, err := s.options.Credentials.Own()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(own.GetToken(t.Context(), policy.TokenRequestOptions{})).To(HaveField("Token", "secret"))
}

func TestVersion(t *testing.T) {
	g := NewWithT(t)
	s, err := parse([]string{"--version"}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.version).To(BeTrue())
}

func TestHelpNamesEveryFlag(t *testing.T) {
	g := NewWithT(t)
	var usage bytes.Buffer
	_, err := parse([]string{"--help"}, &usage)
	g.Expect(err).To(MatchError(flag.ErrHelp))
	g.Expect(usage.String()).To(And(ContainSubstring("-namespaces"), ContainSubstring("-controllers"), ContainSubstring("-zap-log-level")))
}

func TestProbesGoThroughTheAPIServerOutsideOfACluster(t *testing.T) {
	for name, c := range map[string]struct {
		service string
		args    []string
		want    bool
	}{
		"outside of a cluster":     {"", nil, true},
		"in a pod":                 {"10.96.0.1", nil, false},
		"to a simulated MCPServer": {"", []string{"--mcp-probe-endpoint=http://127.0.0.1:8080"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("KUBERNETES_SERVICE_HOST", c.service)
			t.Setenv("KUBERNETES_SERVICE_PORT", "443")
			s, err := parse(c.args, nil)
			g.Expect(err).NotTo(HaveOccurred())

			g.Expect(s.completeProbeDial(&rest.Config{Host: "https://127.0.0.1:6443"})).To(Succeed())

			g.Expect(s.options.ProbeDial != nil).To(Equal(c.want))
			g.Expect(s.options.ProbeHost != "").To(Equal(c.want))
		})
	}
}
