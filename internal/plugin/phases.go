package plugin

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// Verdicts of phases, in the words of the documentation.
const (
	verdictDone          = "done"
	verdictWaits         = "waits"
	verdictStalled       = "stalled"
	verdictBlocked       = "blocked"
	verdictSuspended     = "suspended"
	verdictNotConfigured = "not configured"
	verdictNotReached    = "not reached"
)

// phaseRow is what the conditions say about one phase.
type phaseRow struct {
	Phase   string       `json:"phase"`
	Verdict string       `json:"verdict"`
	Reason  string       `json:"reason,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
	Message string       `json:"message,omitempty"`
}

// phaseRows reads the phases from the conditions, in the order in which the controller runs them.
func phaseRows(o object) []phaseRow {
	rows := make([]phaseRow, 0, len(o.kind.phases))
	for _, phase := range o.kind.phases {
		row := phaseRow{Phase: phase.name, Verdict: verdictNotConfigured}
		if len(o.conditions) == 0 {
			row.Verdict = verdictNotReached
		}
		conditionType := phases.ConditionOf(phase.name)
		if c := meta.FindStatusCondition(o.conditions, conditionType); c != nil {
			row = phaseRow{phase.name, verdictOf(o, c), c.Reason, &c.LastTransitionTime, c.Message}
		} else if conditionType == v1beta1.ConditionStoredContractReady {
			continue // its condition is present only while it fails
		}
		rows = append(rows, row)
	}
	return rows
}

func verdictOf(o object, c *metav1.Condition) string {
	switch {
	case o.isSuspended():
		return verdictSuspended
	case c.Status == metav1.ConditionTrue:
		return verdictDone
	case c.Status == metav1.ConditionUnknown:
		return verdictBlocked
	}
	if stalled := o.condition(v1beta1.ConditionStalled); stalled != nil && stalled.Status == metav1.ConditionTrue && stalled.Reason == c.Reason {
		return verdictStalled
	}
	return verdictWaits
}

func (o object) condition(conditionType string) *metav1.Condition {
	return meta.FindStatusCondition(o.conditions, conditionType)
}

func (o object) isReady() bool {
	return meta.IsStatusConditionTrue(o.conditions, v1beta1.ConditionReady)
}

// isSuspended is true once the controller has seen the suspension.
func (o object) isSuspended() bool {
	return meta.IsStatusConditionTrue(o.conditions, v1beta1.ConditionSuspended)
}

// isCurrent is true if the status is about the spec as it is.
func (o object) isCurrent() bool { return o.observedGeneration == o.GetGeneration() }

// gate is the phase that keeps the object from being ready, or nil.
func gate(rows []phaseRow) *phaseRow {
	for i := range rows {
		if rows[i].Verdict == verdictWaits || rows[i].Verdict == verdictStalled {
			return &rows[i]
		}
	}
	return nil
}

// ago is the age of a time, such as 5m, as kubectl prints it.
func ago(now time.Time, t *metav1.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// table aligns rows of cells, each row a line. Cells that are empty become a dash.
func table(header []string, rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			if cell == "" {
				cell = "-"
			}
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, printable(cell))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // a strings.Builder does not fail
	return b.String()
}

// printable removes what would change a terminal, or the direction of text: control characters in names, messages and
// values that others wrote.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0, unicode.Is(unicode.Bidi_Control, r):
			return '�'
		default:
			return r
		}
	}, text)
}
