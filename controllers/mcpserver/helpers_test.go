package mcpserver

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

type spec = v1beta1.MCPServerSpec

var settings = Settings{BridgeImage: "ghcr.io/fixpoint-dev/fixpoint:1"}

// tools is an MCPServer as the API server stores it: the schema's defaults are filled in.
func tools(changes ...func(*spec)) *v1beta1.MCPServer {
	server := &v1beta1.MCPServer{
		ObjectMeta: metav1.ObjectMeta{Name: "tools", Namespace: "acme", UID: "uid-1", Generation: 3},
		Spec: spec{
			Transport:                     v1beta1.TransportStreamableHTTP,
			Image:                         "ghcr.io/acme/tools:1.4.2",
			Port:                          8080,
			Strategy:                      v1beta1.StrategyRollingUpdate,
			TerminationGracePeriodSeconds: 60,
			DrainSeconds:                  ptr.To[int64](10),
			ProgressDeadlineSeconds:       600,
			SessionAffinity:               v1beta1.SessionAffinityAuto,
			SessionAffinityTimeoutSeconds: 10800,
			Protocol: v1beta1.MCPServerProtocol{
				Interval: metav1.Duration{Duration: 30 * time.Second}, Timeout: metav1.Duration{Duration: 5 * time.Second}},
			AdoptionPolicy: v1beta1.AdoptionNever,
			DriftPolicy:    v1beta1.DriftCorrect,
		},
	}
	for _, change := range changes {
		change(&server.Spec)
	}
	return server
}

func sse(s *spec) { s.Transport = v1beta1.TransportSSE }

func stdio(s *spec) {
	s.Transport = v1beta1.TransportStdio
	s.Command = []string{"npx", "-y", "server-memory"}
}

// asJSON is the JSON of an apply configuration.
func asJSON(t *testing.T, configuration any) string {
	t.Helper()
	raw, err := json.Marshal(configuration)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// edited sets values in a YAML document, at paths of keys and indices; an empty value removes the field.
func edited(t *testing.T, document string, edits map[string]string) string {
	t.Helper()
	g := NewWithT(t)
	var tree map[string]any
	g.Expect(yaml.Unmarshal([]byte(document), &tree)).To(Succeed())
	for path, value := range edits {
		steps := strings.Split(path, ".")
		at := tree
		for i := 0; i < len(steps)-1; i++ {
			next := at[steps[i]]
			if list, ok := next.([]any); ok {
				next = list[0] // the only index that the tables use
				i++
			}
			if next == nil {
				next = map[string]any{}
				at[steps[i]] = next
			}
			step, ok := next.(map[string]any)
			g.Expect(ok).To(BeTrue(), "%s: %s is not a map", path, steps[i])
			at = step
		}
		var parsed any
		g.Expect(yaml.Unmarshal([]byte(value), &parsed)).To(Succeed())
		if last := steps[len(steps)-1]; parsed == nil {
			delete(at, last)
		} else {
			at[last] = parsed
		}
	}
	return asJSON(t, tree)
}

// outcome is a verdict in the form that tables use.
type outcome struct {
	kind, reason, message string
}

func outcomeOf(v phases.Verdict) outcome {
	j := outcome{reason: v.Reason(), message: v.Message()}
	switch {
	case v.IsDone():
		j.kind = "done"
	case v.IsWait():
		j.kind = "wait"
	case v.IsStalled():
		j.kind = "stalled"
	}
	return j
}

func unmarshal(text string, into any) error { return json.Unmarshal([]byte(text), into) }
