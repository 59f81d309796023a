package chart_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"sigs.k8s.io/yaml"
)

// alerts are the rules of config/prometheus, as Prometheus reads them.
func alerts(g Gomega) map[string]rulefmt.Rule {
	content, err := os.ReadFile(filepath.Join(root, "config", "prometheus", "alerts.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var object struct {
		Spec json.RawMessage
	}
	g.Expect(yaml.Unmarshal(content, &object)).To(Succeed())
	spec, err := yaml.JSONToYAML(object.Spec)
	g.Expect(err).NotTo(HaveOccurred())
	groups, problems := rulefmt.Parse(spec, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	g.Expect(problems).To(BeEmpty())
	rules := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			rules[rule.Alert] = rule
		}
	}
	g.Expect(rules).NotTo(BeEmpty())
	return rules
}

const (
	// lead and stand are what replicas say that lead and stand by.
	lead  = `leader_election_master_status{name="manager.fixpoint.dev",namespace="a",pod="one",instance="one"} 1+0x120` + "\n"
	stand = `leader_election_master_status{name="manager.fixpoint.dev",namespace="a",pod="two",instance="two"} 0+0x120` + "\n"
)

// cases are series, with a sample for each minute, over which an alert has to fire, and over which it
// must not.
var cases = map[string]struct{ fires, rests []string }{
	"FixpointNoLeader": {
		fires: []string{stand, `unrelated 1+0x120`,
			// another release has one
			stand + `leader_election_master_status{name="manager.fixpoint.dev",namespace="b",pod="one"} 1+0x120`,
			// a release is gone, another one works
			lead + `leader_election_master_status{name="manager.fixpoint.dev",namespace="b",pod="one"} 1x10 stale _x100`},
		rests: []string{lead, lead + stand,
			// a hand-over
			`leader_election_master_status{name="manager.fixpoint.dev",pod="one"} 1x30 0x1 1x60`,
			// a pod replaces the only one of a release
			lead + `leader_election_master_status{name="manager.fixpoint.dev",namespace="b",pod="one"} 1x30 stale _x80` + "\n" +
				`leader_election_master_status{name="manager.fixpoint.dev",namespace="b",pod="two"} _x32 1x80`,
			// two releases work
			lead + `leader_election_master_status{name="manager.fixpoint.dev",namespace="b",pod="one"} 1+0x120`},
	},
	"FixpointTwoLeaders": {
		fires: []string{lead + `leader_election_master_status{name="manager.fixpoint.dev",namespace="a",pod="two"} 1+0x120`},
		rests: []string{lead + stand,
			// one in each of two namespaces is as it should be
			lead + `leader_election_master_status{name="manager.fixpoint.dev",namespace="b",pod="one"} 1+0x120`},
	},
	"FixpointNoStandby": {
		fires: []string{lead, lead + `leader_election_master_status{name="manager.fixpoint.dev",namespace="b",pod="one"} 1+0x120`},
		rests: []string{lead + stand},
	},
	"FixpointNamespacesRefused": {
		fires: []string{`fixpoint_releases_refused_namespaces{namespace="a",pod="one"} 2+0x120` + "\n" + `fixpoint_releases_refused_namespaces{namespace="a",pod="two"} 0+0x120`},
		rests: []string{`fixpoint_releases_refused_namespaces{namespace="a",pod="one"} 0+0x120`,
			// a namespace moves
			`fixpoint_releases_refused_namespaces{namespace="a",pod="one"} 0x10 1x3 0x100`},
	},
	"FixpointRefusedWrites": {
		fires: []string{`fixpoint_lease_refused_writes_total{namespace="a",reason="Unproven"} 0+1x120`},
		rests: []string{`fixpoint_lease_refused_writes_total{namespace="a",reason="Unproven"} 0x10 5x110`,
			`fixpoint_lease_refused_writes_total{namespace="a",reason="NotElected"} 0+1x120`},
	},
	"FixpointMemoryNearLimit": {
		fires: []string{lead + memory("95", "100")},
		rests: []string{lead + memory("60", "100"), memory("95", "100")},
	},
	"FixpointReconcileErrors": {
		fires: []string{reconciles("appservice", "3", "10")},
		rests: []string{reconciles("appservice", "1", "10"), reconciles("another", "10", "10"), reconciles("appservice", "0", "0")},
	},
	"FixpointReconcilePanics": {
		fires: []string{`controller_runtime_reconcile_panics_total{controller="mcpserver"} 0x10 1x100`},
		rests: []string{`controller_runtime_reconcile_panics_total{controller="mcpserver"} 0x110`},
	},
	"FixpointReconcileTimeouts": {
		fires: []string{`controller_runtime_reconcile_timeouts_total{controller="mcpserver"} 0x10 1x100`},
		rests: []string{`controller_runtime_reconcile_timeouts_total{controller="mcpserver"} 3x110`},
	},
	"FixpointQueueLate": {
		fires: []string{buckets("workqueue_queue_duration_seconds_bucket", `controller="appservice",`, "10", "0+0x120", "100", "0+10x120")},
		rests: []string{buckets("workqueue_queue_duration_seconds_bucket", `controller="appservice",`, "10", "0+10x120", "100", "0+10x120")},
	},
	"FixpointForbidden": {
		fires: []string{`fixpoint_ssa_applies_total{kind="Deployment",result="Forbidden"} 0+1x120`},
		rests: []string{`fixpoint_ssa_applies_total{kind="Deployment",result="Create"} 0+1x120`},
	},
	"FixpointStalled": {
		fires: []string{`fixpoint_phases_outcomes_total{controller="appservice",phase="Ingress",outcome="stalled"} 0x10 1x100`},
		rests: []string{`fixpoint_phases_outcomes_total{controller="appservice",phase="Ingress",outcome="stalled"} 7x110`,
			`fixpoint_phases_outcomes_total{controller="appservice",phase="Ingress",outcome="wait"} 0+1x110`},
	},
	"FixpointDriftFight": {
		fires: []string{`fixpoint_phases_drifts_corrected_total{controller="appservice"} 0+6x120`},
		rests: []string{`fixpoint_phases_drifts_corrected_total{controller="appservice"} 0+1x120`,
			// a user experiments for a while
			`fixpoint_phases_drifts_corrected_total{controller="appservice"} 0+6x10 60x100`},
	},
	"FixpointAPIServerErrors": {
		fires: []string{lead + failures("500"), lead + failures("<error>")},
		rests: []string{lead + failures("409"), failures("500")},
	},
	"FixpointProbesLate": {
		fires: []string{buckets("fixpoint_mcp_probe_queue_delay_seconds_bucket", "", "10", "0+0x120", "30", "0+10x120")},
		rests: []string{buckets("fixpoint_mcp_probe_queue_delay_seconds_bucket", "", "1", "0+10x120", "30", "0+10x120")},
	},
	"FixpointCertificateUnreadable": {
		fires: []string{lead + `certwatcher_read_certificate_errors_total{namespace="a",pod="one",instance="one"} 0+1x120`},
		rests: []string{lead + `certwatcher_read_certificate_errors_total{namespace="a",pod="one",instance="one"} 0+0x120`,
			`certwatcher_read_certificate_errors_total{namespace="b",pod="x",instance="x"} 0+1x120`},
	},
}

func memory(used, limit string) string {
	const labels = `{namespace="a",pod="one",instance="one"} `
	return "process_resident_memory_bytes" + labels + used + "+0x120\ngo_gc_gomemlimit_bytes" + labels + limit + "+0x120"
}

func reconciles(controller, failed, all string) string {
	labels := `{controller="` + controller + `"} 0+`
	return "controller_runtime_reconcile_errors_total" + labels + failed + "x120\ncontroller_runtime_reconcile_total" + labels + all + "x120"
}

func failures(code string) string {
	return `rest_client_requests_total{namespace="a",pod="one",instance="one",code="` + code + `"} 0+30x120`
}

func buckets(name, labels, low, lowSeries, high, highSeries string) string {
	return name + "{" + labels + `le="` + low + `"} ` + lowSeries + "\n" +
		name + "{" + labels + `le="` + high + `"} ` + highSeries + "\n" +
		name + "{" + labels + `le="+Inf"} ` + highSeries
}

func TestAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	g := NewWithT(t)
	rules := alerts(g)
	for name := range cases {
		g.Expect(rules).To(HaveKey(name))
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(cases).To(HaveKey(name), "an alert that nothing tries")
			for _, series := range cases[name].fires {
				g.Expect(fires(t, rule, series)).To(BeTrue(), "has to fire over\n%s", series)
			}
			for _, series := range cases[name].rests {
				g.Expect(fires(t, rule, series)).To(BeFalse(), "must not fire over\n%s", series)
			}
		})
	}
}

// fires evaluates a rule once a minute for an hour and a half.
func fires(t *testing.T, rule rulefmt.Rule, series string) bool {
	t.Helper()
	g := NewWithT(t)
	storage := promqltest.LoadedStorage(t, "load 1m\n"+indent(series))
	defer storage.Close()
	const maxSamples = 100000
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, maxSamples)
	var pending time.Duration
	for minute := range 90 {
		at := time.Unix(0, 0).Add(time.Duration(minute) * time.Minute)
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, rule.Expr, at)
		g.Expect(err).NotTo(HaveOccurred())
		result := query.Exec(t.Context())
		g.Expect(result.Err).NotTo(HaveOccurred())
		vector, err := result.Vector()
		g.Expect(err).NotTo(HaveOccurred())
		isTrue := len(vector) > 0
		query.Close()
		if !isTrue {
			pending = 0
			continue
		}
		if pending >= time.Duration(rule.For) {
			return true
		}
		pending += time.Minute
	}
	return false
}

func indent(series string) string {
	var text string
	for line := range strings.SplitSeq(series, "\n") {
		if line != "" {
			text += "  " + line + "\n"
		}
	}
	return text
}
