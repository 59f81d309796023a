package chart_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
)

// scraped are the labels that Prometheus adds to what it scrapes from a pod.
var scraped = []string{"namespace", "pod", "instance", "job"}

// TestEveryMetricIsServed compares what alerts and the dashboard ask for with what a manager serves
// that has had something of everything to do.
func TestEveryMetricIsServed(t *testing.T) {
	g := NewWithT(t)
	families := busyManager(t, g)
	expressions := dashboard(g)
	for name, rule := range alerts(g) {
		expressions[name] = rule.Expr
	}
	for where, expression := range expressions {
		parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
		g.Expect(err).NotTo(HaveOccurred(), where)
		known := slices.Clone(scraped)
		parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
			if selector, ok := node.(*parser.VectorSelector); ok {
				known = append(known, isServed(g, families, where, selector)...)
			}
			return nil
		})
		parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
			if aggregate, ok := node.(*parser.AggregateExpr); ok {
				for _, label := range aggregate.Grouping {
					g.Expect(known).To(ContainElement(label), "%s groups by a label that nothing has", where)
				}
			}
			return nil
		})
	}
}

// isServed looks for the metric and the labels that a selector names, and returns all labels of it.
func isServed(g Gomega, families map[string]*dto.MetricFamily, where string, selector *parser.VectorSelector) []string {
	family := families[selector.Name]
	isBucket := false
	if family == nil {
		family = families[strings.TrimSuffix(selector.Name, "_bucket")]
		isBucket = family != nil && family.GetType() == dto.MetricType_HISTOGRAM
		g.Expect(isBucket).To(BeTrue(), "%s asks for %s, which the manager does not serve", where, selector.Name)
	}
	var names []string
	for _, metric := range family.GetMetric() {
		for _, pair := range metric.GetLabel() {
			names = append(names, pair.GetName())
		}
	}
	if isBucket {
		names = append(names, "le")
	}
	for _, matcher := range selector.LabelMatchers {
		if matcher.Name == model.MetricNameLabel {
			continue
		}
		g.Expect(names).To(ContainElement(matcher.Name), "%s: %s has no label %s", where, selector.Name, matcher.Name)
		// What goes wrong has not gone wrong here.
		if (matcher.Type == labels.MatchEqual || matcher.Type == labels.MatchRegexp) && matcher.Name != "result" && matcher.Name != "code" {
			g.Expect(slices.ContainsFunc(family.GetMetric(), func(m *dto.Metric) bool {
				return slices.ContainsFunc(m.GetLabel(), func(pair *dto.LabelPair) bool {
					return pair.GetName() == matcher.Name && matcher.Matches(pair.GetValue())
				})
			})).To(BeTrue(), "%s: no series of %s matches %s", where, selector.Name, matcher)
		}
	}
	return names
}

// dashboard has the expressions of the dashboard's panels.
func dashboard(g Gomega) map[string]string {
	content, err := os.ReadFile(filepath.Join(root, "config", "grafana", "dashboard.json"))
	g.Expect(err).NotTo(HaveOccurred())
	var board struct {
		Panels []struct {
			Title, Description, Type string
			Targets                  []struct{ Expr string }
		}
	}
	g.Expect(json.Unmarshal(content, &board)).To(Succeed())
	expressions := map[string]string{}
	for _, panel := range board.Panels {
		if panel.Type == "row" {
			continue
		}
		g.Expect(panel.Targets).NotTo(BeEmpty(), panel.Title)
		g.Expect(panel.Description).NotTo(BeEmpty(), panel.Title)
		for _, target := range panel.Targets {
			expressions["the panel "+panel.Title+": "+target.Expr] = target.Expr
		}
	}
	g.Expect(len(expressions)).To(BeNumerically(">", 20))
	return expressions
}

const objects = `
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: web, namespace: default}
spec: {image: "registry.test/web:1", replicas: 2}
---
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: tools, namespace: default}
spec: {image: "registry.test/tools:1", transport: streamable-http}
---
apiVersion: fixpoint.dev/v1beta1
kind: SecureStorage
metadata: {name: invoices, namespace: default}
spec:
  provider: {subscriptionID: SUBSCRIPTION, resourceGroup: fixpoint-demo, location: westeurope}
  key: {vault: {name: fixpoint-demo}, name: storage}
`

// busyManager runs the manager as config/default configures it, until it has reconciled one object of each kind
// and reverted a drift, and reads its metrics as Prometheus does.
func busyManager(t *testing.T, g Gomega) map[string]*dto.MetricFamily {
	t.Helper()
	ctx := context.Background()
	c, err := cluster.Start(ctx, cluster.Options{Parts: cluster.All})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(c.Stop()).To(Succeed()) })
	outside, err := deploy.StartOutside()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(outside.Stop)
	kubectl, err := deploy.NewKubectl(c)
	g.Expect(err).NotTo(HaveOccurred())
	run := func(input string, args ...string) string {
		output, err := kubectl.Pipe(ctx, input, args...)
		g.Expect(err).NotTo(HaveOccurred())
		return output
	}
	run("", "apply", "--server-side", "-k", filepath.Join(root, "config", "default"))
	program, err := deploy.Build(ctx, root, t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	arguments, err := outside.Arguments(ctx, program)
	g.Expect(err).NotTo(HaveOccurred())
	manager, err := deploy.Pod{Program: program, Namespace: system, Name: "one", Args: append(arguments, deploy.PatientElection...)}.Start(ctx, c)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = manager.Stop() })
	run(strings.ReplaceAll(objects, "SUBSCRIPTION", outside.Demo.Subscription), "apply", "-f", "-")
	run("", "wait", "--for=condition=Ready", "fixpoint", "--all", "-n", "default", "--timeout="+timeout.String())
	run("", "-n", "default", "scale", "deployment", "web", "--replicas=5")
	g.Eventually(func() string {
		return run("", "-n", "default", "get", "appservice", "web", "-o", "jsonpath={.status.drifts}")
	}).
		WithTimeout(timeout).ShouldNot(BeEmpty())

	run("", "-n", "default", "create", "serviceaccount", "prometheus")
	run("", "create", "clusterrolebinding", "prometheus", "--clusterrole=fixpoint-metrics-reader", "--serviceaccount=default:prometheus")
	clients, err := kubernetes.NewForConfig(c.Admin())
	g.Expect(err).NotTo(HaveOccurred())
	token, err := clients.CoreV1().ServiceAccounts("default").CreateToken(ctx, "prometheus", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	var text string
	// The binding is known to the API server a moment later, and what it said before is kept for a while.
	g.Eventually(func() (err error) {
		text, err = manager.Scrape(ctx, token.Status.Token)
		return err
	}).WithTimeout(timeout).Should(Succeed())
	textParser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := textParser.TextToMetricFamilies(strings.NewReader(text))
	g.Expect(err).NotTo(HaveOccurred())
	return families
}

var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)

// TestEveryAlertHasASectionThatSaysWhatToDo, to which its annotation leads.
func TestEveryAlertHasASectionThatSaysWhatToDo(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	g.Expect(err).NotTo(HaveOccurred())
	var headings []string
	for _, match := range heading.FindAllStringSubmatch(string(page), -1) {
		headings = append(headings, match[1])
	}
	for name, rule := range alerts(g) {
		g.Expect(headings).To(ContainElement(name))
		g.Expect(rule.Annotations["runbook_url"]).To(HaveSuffix("docs/operations.md#" + strings.ToLower(name)))
		g.Expect(rule.Annotations["summary"]).NotTo(BeEmpty(), name)
		g.Expect(rule.Annotations["description"]).NotTo(BeEmpty(), name)
		g.Expect(rule.Labels["severity"]).To(BeElementOf("critical", "warning", "info"), name)
	}
	for _, title := range headings {
		if strings.HasPrefix(title, "Fixpoint") && !strings.Contains(title, " ") {
			g.Expect(alerts(g)).To(HaveKey(title), "a section about an alert that does not exist")
		}
	}
}
