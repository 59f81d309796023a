package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	json, err := yaml.YAMLToJSON([]byte("apiVersion: fixpoint.dev/v1beta1\n" + text))
	g.Expect(err).NotTo(HaveOccurred())
	var o unstructured.Unstructured
	g.Expect(o.UnmarshalJSON(json)).To(Succeed())
	return o
}

const ready = `kind: AppService
metadata: {namespace: default, name: web, generation: 2}
status:
  phase: Running
  conditions:
  - {type: ConfigReady, status: "False", reason: Other, observedGeneration: 2}
  - {type: Ready, status: "True", reason: Ready, message: "all is well", observedGeneration: 2}
`

func TestRowShowsReadyCondition(t *testing.T) {
	g := NewWithT(t)
	r := rowOf(object(t, ready))
	g.Expect(r).To(Equal(row{
		kind: "AppService", namespace: "default", name: "web",
		ready: "True", reason: "Ready", phase: "Running", message: "all is well", current: true,
	}))
}

func TestAllReadyRequiresCurrentGeneration(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		all  bool
	}{
		"ready":                       {ready, true},
		"ready for an old generation": {strings.Replace(ready, "generation: 2}", "generation: 3}", 1), false},
		"not ready":                   {strings.Replace(ready, `Ready, status: "True"`, `Ready, status: "False"`, 1), false},
		"no status":                   {"kind: AppService\nmetadata: {name: web, generation: 1}", false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(allReady([]row{rowOf(object(t, test.text))})).To(Equal(test.all))
		})
	}
	NewWithT(t).Expect(allReady(nil)).To(BeFalse(), "no resources")
}

func TestTableIsTruncatedAtTerminalWidth(t *testing.T) {
	g := NewWithT(t)
	now := time.Unix(1000, 0)
	lines := render([]row{{kind: "AppService", namespace: "default", name: "web", ready: "False", message: "first\nsecond", created: now.Add(-90 * time.Second)}}, now, 0)
	g.Expect(lines).To(Equal([]string{
		"KIND        NAMESPACE/NAME  READY  REASON  PHASE  AGE  MESSAGE",
		"AppService  default/web     False                 90s  first",
	}))
	for _, line := range render([]row{{kind: "AppService", message: strings.Repeat("x", 200)}}, now, 40) {
		g.Expect(len([]rune(line))).To(BeNumerically("<=", 40))
	}
}

func TestTableWithoutTerminalPrintsOnlyChanges(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	d := &display{out: &out}
	web := row{kind: "AppService", namespace: "default", name: "web", ready: "False"}
	shop := row{kind: "AppService", namespace: "default", name: "shop", ready: "False"}

	d.table([]row{shop, web}, time.Unix(1, 0))
	out.Reset()
	d.table([]row{shop, web}, time.Unix(9, 0))
	g.Expect(out.String()).To(BeEmpty())
	web.ready, web.message = "True", "a message that makes the table wider"
	d.table([]row{shop, web}, time.Unix(9, 0))
	g.Expect(strings.Count(out.String(), "\n")).To(Equal(1), out.String())
	g.Expect(out.String()).To(ContainSubstring("default/web"))

	out.Reset()
	d.whole([]row{shop, web}, time.Unix(9, 0))
	g.Expect(strings.Count(out.String(), "\n")).To(Equal(3), out.String())
}

func TestTableOnTerminalIsRedrawnInPlace(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	d := &display{out: &out, terminal: true, width: func() int { return 80 }}
	web := row{kind: "AppService", name: "web", ready: "False"}

	d.table([]row{web}, time.Unix(1, 0))
	g.Expect(out.String()).NotTo(ContainSubstring("\x1b"))
	out.Reset()
	d.table([]row{web}, time.Unix(1, 0))
	g.Expect(out.String()).To(BeEmpty(), "no row changed")
	web.ready = "True"
	d.table([]row{web}, time.Unix(1, 0))
	g.Expect(out.String()).To(HavePrefix("\x1b[2A\r\x1b[J"))
}

func TestSuggestedPrefersFixedReplicas(t *testing.T) {
	g := NewWithT(t)
	autoscaled := object(t, "kind: AppService\nmetadata: {name: shop, generation: 1}")
	fixed := object(t, "kind: AppService\nmetadata: {name: web, generation: 1}")
	g.Expect(unstructured.SetNestedField(fixed.Object, int64(3), "spec", "replicas")).To(Succeed())

	g.Expect(suggested([]unstructured.Unstructured{autoscaled, fixed}).GetName()).To(Equal("web"))
	g.Expect(suggested([]unstructured.Unstructured{autoscaled}).GetName()).To(Equal("shop"))
	g.Expect(suggested(nil)).To(BeNil())
	g.Expect(hints("kubectl", "config", "log", "http://localhost:3000/open?code=1", &fixed)).To(And(
		ContainSubstring("delete service web"), ContainSubstring("http://localhost:3000/open?code=1")))
}

func TestParseRejectsInvalidFlags(t *testing.T) {
	g := NewWithT(t)
	_, err := parse([]string{"-nodes", "0"})
	g.Expect(err).To(MatchError(ContainSubstring("-nodes is 0")))
	_, err = parse([]string{"-samples", "no-such-file.yaml"})
	g.Expect(err).To(MatchError(And(ContainSubstring("-samples"), ContainSubstring("no-such-file.yaml"))))
	o, err := parse([]string{"-samples", "main.go,table.go show.go", "root.go"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.samples).To(Equal([]string{"main.go", "table.go", "show.go", "root.go"}))
	g.Expect(o.crds).To(HaveSuffix("/config/crd"))
}
