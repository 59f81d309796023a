package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// earlier and later are times of reconciles; a status stores whole seconds.
var (
	earlier = metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	later   = metav1.NewTime(earlier.Add(time.Hour))
)

func scaled(corrected bool) phases.ObservedDrift {
	return phases.ObservedDrift{
		Child:     "Deployment web",
		Drift:     ssa.Drift{Path: ".spec.replicas", Manager: "kubectl", Desired: "3", Actual: "7"},
		Corrected: corrected,
	}
}

func scaledAt(at metav1.Time, action v1beta1.DriftAction) v1beta1.Drift {
	return v1beta1.Drift{
		Time: at, Kind: "Deployment", Name: "web", Field: ".spec.replicas", Manager: "kubectl", Desired: "3", Found: "7", Action: action,
	}
}

func TestDrifts(t *testing.T) {
	corrected, reported := v1beta1.DriftCorrected, v1beta1.DriftReported
	otherValue := scaledAt(earlier, reported)
	otherValue.Found = "5"
	deletion := v1beta1.Drift{Time: later, Kind: "Service", Name: "web", Action: corrected}

	cases := map[string]struct {
		before   []v1beta1.Drift
		observed []phases.ObservedDrift
		summary  phases.Summary
		want     []v1beta1.Drift
	}{
		"no drift": {want: nil},
		"a correction": {
			observed: []phases.ObservedDrift{scaled(true)},
			want:     []v1beta1.Drift{scaledAt(later, corrected)},
		},
		"a deleted child": {
			observed: []phases.ObservedDrift{{Child: "Service web", Deleted: true, Corrected: true}},
			want:     []v1beta1.Drift{deletion},
		},
		"an earlier correction stays": {
			before: []v1beta1.Drift{scaledAt(earlier, corrected)},
			want:   []v1beta1.Drift{scaledAt(earlier, corrected)},
		},
		"the same correction again is listed first": {
			before:   []v1beta1.Drift{scaledAt(earlier, corrected)},
			observed: []phases.ObservedDrift{scaled(true)},
			want:     []v1beta1.Drift{scaledAt(later, corrected), scaledAt(earlier, corrected)},
		},
		"a report": {
			observed: []phases.ObservedDrift{scaled(false)},
			want:     []v1beta1.Drift{scaledAt(later, reported)},
		},
		"an unchanged report keeps its time": {
			before:   []v1beta1.Drift{scaledAt(earlier, reported)},
			observed: []phases.ObservedDrift{scaled(false)},
			want:     []v1beta1.Drift{scaledAt(earlier, reported)},
		},
		"a report of another value replaces the report": {
			before:   []v1beta1.Drift{otherValue},
			observed: []phases.ObservedDrift{scaled(false)},
			want:     []v1beta1.Drift{scaledAt(later, reported)},
		},
		"a report is removed with the drift": {
			before: []v1beta1.Drift{scaledAt(earlier, reported), scaledAt(earlier, corrected)},
			want:   []v1beta1.Drift{scaledAt(earlier, corrected)},
		},
		"a reported drift is corrected": {
			before:   []v1beta1.Drift{scaledAt(earlier, reported)},
			observed: []phases.ObservedDrift{scaled(true)},
			want:     []v1beta1.Drift{scaledAt(later, corrected)},
		},
		"a report stays while suspended": {
			before:  []v1beta1.Drift{scaledAt(earlier, reported)},
			summary: phases.Summary{Suspended: true},
			want:    []v1beta1.Drift{scaledAt(earlier, reported)},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.summary.Drifts, c.summary.Now = c.observed, later
			NewWithT(t).Expect(Drifts(c.before, c.summary, nil)).To(Equal(c.want))
		})
	}
}

func TestDriftsDropsTheOldest(t *testing.T) {
	var before []v1beta1.Drift
	for i := range v1beta1.MaxDrifts {
		drift := scaledAt(earlier, v1beta1.DriftCorrected)
		drift.Found = fmt.Sprint(i)
		before = append(before, drift)
	}
	for name, c := range map[string]struct {
		limit *int32
		want  int
	}{
		"by default":                     {nil, v1beta1.DefaultDriftHistoryLimit},
		"without a history":              {ptr.To[int32](0), 0},
		"the last one":                   {ptr.To[int32](1), 1},
		"the maximum":                    {ptr.To[int32](v1beta1.MaxDrifts), v1beta1.MaxDrifts},
		"more than the schema permitted": {ptr.To[int32](v1beta1.MaxDrifts + 1), v1beta1.MaxDrifts},
	} {
		t.Run(name, func(t *testing.T) {
			drifts := Drifts(before, phases.Summary{Now: later, Drifts: []phases.ObservedDrift{scaled(true)}}, c.limit)

			all := append([]v1beta1.Drift{scaledAt(later, v1beta1.DriftCorrected)}, before...)
			NewWithT(t).Expect(drifts).To(HaveExactElements(all[:c.want]))
		})
	}
}

func TestNewDriftFitsTheSchema(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("ä", 2000)
	now := metav1.NewTime(earlier.Add(123 * time.Millisecond))

	drift := newDrift(phases.ObservedDrift{
		Child: "ConfigMap web",
		Drift: ssa.Drift{Path: long, Manager: long, Desired: long, Actual: long},
	}, now)

	for field, limit := range map[string]int{drift.Field: 1024, drift.Manager: 128, drift.Desired: 256, drift.Found: 256} {
		g.Expect(len(field)).To(BeNumerically("<=", limit))
		g.Expect(len(field)).To(BeNumerically(">", limit-4), "no more is cut than necessary")
		g.Expect(utf8.ValidString(field)).To(BeTrue())
		g.Expect(field).To(HaveSuffix("ä…"))
	}
	g.Expect(drift.Time).To(Equal(earlier), "stored times have no fractions of a second")
}

func TestCut(t *testing.T) {
	for name, c := range map[string]struct {
		s      string
		length int
		want   string
	}{
		"short":                    {"abc", 8, "abc"},
		"at the limit":             {"abcdefgh", 8, "abcdefgh"},
		"longer":                   {"abcdefghi", 8, "abcde…"},
		"a character at the limit": {"abcdäfghi", 8, "abcd…"},
		"empty":                    {"", 8, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(Cut(c.s, c.length)).To(Equal(c.want))
			g.Expect(len(Cut(c.s, c.length))).To(BeNumerically("<=", c.length))
		})
	}
}
