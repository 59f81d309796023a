package main

import (
	"bytes"
	"flag"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestFlags(t *testing.T) {
	g := NewWithT(t)

	s, err := parse([]string{"--namespaces=a, b", "--controllers=appservice", "--leader-elect", "--metrics-bind-address=:8443", "--zap-log-level=debug"}, nil)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.options.Namespaces).To(Equal([]string{"a", "b"}))
	g.Expect(s.options.Controllers).To(Equal([]string{"appservice"}))
	g.Expect(s.options.LeaderElection).To(BeTrue())
	g.Expect(s.options.Metrics.BindAddress).To(Equal(":8443"))
	g.Expect(s.options.Metrics.SecureServing).To(BeTrue())
	g.Expect(s.options.Metrics.FilterProvider).NotTo(BeNil())
	g.Expect(s.options.QPS).To(BeZero(), "no limit unless asked for")
	g.Expect(s.options.SyncPeriod).To(Equal(10 * time.Hour))
	g.Expect(s.options.Logger.V(1).Enabled()).To(BeTrue())
}

func TestWrongFlagsSayWhichAndWhatWouldBeRight(t *testing.T) {
	cases := map[string]struct {
		args []string
		want string
	}{
		"misspelt":             {[]string{"--leader-elct"}, "there is no flag --leader-elct: did you mean --leader-elect? See --help"},
		"unknown":              {[]string{"--frobnicate-the-thing"}, "there is no flag --frobnicate-the-thing: see --help"},
		"not a number":         {[]string{"--concurrency=many"}, `invalid value "many" for flag -concurrency: parse error: see --help`},
		"no concurrency":       {[]string{"--concurrency=0"}, "--concurrency is 0: give at least 1"},
		"an argument":          {[]string{"leader-elect"}, `unexpected argument "leader-elect": every setting is a flag, see --help`},
		"burst without rate":   {[]string{"--kube-api-burst=10"}, "--kube-api-burst has no meaning without --kube-api-qps: give both or neither"},
		"negative rate":        {[]string{"--kube-api-qps=-2"}, "--kube-api-qps is -2: give a positive number, or 0 for no limit"},
		"resync without pause": {[]string{"--sync-period=1ms"}, "--sync-period is 1ms: give at least 1s"},
		"lease too short": {[]string{"--leader-elect-lease-duration=5s"},
			"--leader-elect-lease-duration (5s), --leader-elect-renew-deadline (10s) and --leader-elect-retry-period (2s) must be in falling order"},
		"address without port": {[]string{"--metrics-bind-address=8443"}, `--metrics-bind-address is "8443": give host:port, :port, or 0 for none`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := parse(c.args, nil)
			g.Expect(err).To(MatchError(c.want))
		})
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	g := NewWithT(t)
	var usage bytes.Buffer
	_, err := parse([]string{"--help"}, &usage)
	g.Expect(err).To(MatchError(flag.ErrHelp))
	g.Expect(usage.String()).To(And(ContainSubstring("-namespaces"), ContainSubstring("-controllers"), ContainSubstring("-zap-log-level")))
}
