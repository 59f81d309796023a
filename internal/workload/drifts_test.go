package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func scaledAt(at metav1.Time, action v1beta1.DriftAction) v1beta1.AppServiceDrift {
	return v1beta1.AppServiceDrift{
		Time: at, Kind: "Deployment", Name: "web", Field: ".spec.replicas", Manager: "kubectl", From: "3", To: "7", Action: action,
	}
}

func TestDrifts(t *testing.T) {
	corrected, reported := v1beta1.DriftCorrected, v1beta1.DriftReported
	otherValue := scaledAt(earlier, reported)
	otherValue.To = "5"
	deletion := v1beta1.AppServiceDrift{Time: later, Kind: "Service", Name: "web", Action: corrected}

	cases := map[string]struct {
		before   []v1beta1.AppServiceDrift
		observed []phases.ObservedDrift
		summary  phases.Summary
		want     []v1beta1.AppServiceDrift
	}{
		"no drift": {want: nil},
		"a correction": {
			observed: []phases.ObservedDrift{scaled(true)},
			want:     []v1beta1.AppServiceDrift{scaledAt(later, corrected)},
		},
		"a deleted child": {
			observed: []phases.ObservedDrift{{Child: "Service web", Deleted: true, Corrected: true}},
			want:     []v1beta1.AppServiceDrift{deletion},
		},
		"an earlier correction stays": {
			before: []v1beta1.AppServiceDrift{scaledAt(earlier, corrected)},
			want:   []v1beta1.AppServiceDrift{scaledAt(earlier, corrected)},
		},
		"the same correction again is listed first": {
			before:   []v1beta1.AppServiceDrift{scaledAt(earlier, corrected)},
			observed: []phases.ObservedDrift{scaled(true)},
			want:     []v1beta1.AppServiceDrift{scaledAt(later, corrected), scaledAt(earlier, corrected)},
		},
		"a report": {
			observed: []phases.ObservedDrift{scaled(false)},
			want:     []v1beta1.AppServiceDrift{scaledAt(later, reported)},
		},
		"an unchanged report keeps its time": {
			before:   []v1beta1.AppServiceDrift{scaledAt(earlier, reported)},
			observed: []phases.ObservedDrift{scaled(false)},
			want:     []v1beta1.AppServiceDrift{scaledAt(earlier, reported)},
		},
		"a report of another value replaces the report": {
			before:   []v1beta1.AppServiceDrift{otherValue},
			observed: []phases.ObservedDrift{scaled(false)},
			want:     []v1beta1.AppServiceDrift{scaledAt(later, reported)},
		},
		"a report is removed with the drift": {
			before: []v1beta1.AppServiceDrift{scaledAt(earlier, reported), scaledAt(earlier, corrected)},
			want:   []v1beta1.AppServiceDrift{scaledAt(earlier, corrected)},
		},
		"a reported drift is corrected": {
			before:   []v1beta1.AppServiceDrift{scaledAt(earlier, reported)},
			observed: []phases.ObservedDrift{scaled(true)},
			want:     []v1beta1.AppServiceDrift{scaledAt(later, corrected)},
		},
		"a report stays while suspended": {
			before:  []v1beta1.AppServiceDrift{scaledAt(earlier, reported)},
			summary: phases.Summary{Suspended: true},
			want:    []v1beta1.AppServiceDrift{scaledAt(earlier, reported)},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.summary.Drifts, c.summary.Now = c.observed, later
			NewWithT(t).Expect(Drifts(c.before, c.summary)).To(Equal(c.want))
		})
	}
}

func TestDriftsDropsTheOldest(t *testing.T) {
	g := NewWithT(t)
	var before []v1beta1.AppServiceDrift
	for i := range v1beta1.MaxDrifts {
		drift := scaledAt(earlier, v1beta1.DriftCorrected)
		drift.To = fmt.Sprint(i)
		before = append(before, drift)
	}

	drifts := Drifts(before, phases.Summary{Now: later, Drifts: []phases.ObservedDrift{scaled(true)}})

	g.Expect(drifts).To(HaveLen(v1beta1.MaxDrifts))
	g.Expect(drifts[0]).To(Equal(scaledAt(later, v1beta1.DriftCorrected)))
	g.Expect(drifts[1:]).To(Equal(before[:v1beta1.MaxDrifts-1]))
}

func TestNewDriftFitsTheSchema(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("ä", 2000)
	now := metav1.NewTime(earlier.Add(123 * time.Millisecond))

	drift := newDrift(phases.ObservedDrift{
		Child: "ConfigMap web",
		Drift: ssa.Drift{Path: long, Manager: long, Desired: long, Actual: long},
	}, now)

	for field, limit := range map[string]int{drift.Field: 1024, drift.Manager: 128, drift.From: 256, drift.To: 256} {
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
