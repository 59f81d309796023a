package faults

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// activity records the reconciles of a manager, as reported by its log.
type activity struct {
	mu sync.Mutex
	// reconciles counts completed reconciles by object name.
	reconciles map[string]int
	running    int
	last       time.Time
	lines      []string
}

func newActivity() *activity { return &activity{reconciles: map[string]int{}, last: time.Now()} }

func (a *activity) logger() logr.Logger { return logr.New(&sink{activity: a}) }

func (a *activity) reconcilesOf(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reconciles[name]
}

func (a *activity) idleFor() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running > 0 {
		return 0
	}
	return time.Since(a.last)
}

func (a *activity) log() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.lines)
}

func (a *activity) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running++
	a.last = time.Now()
}

func (a *activity) end(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running--
	a.reconciles[name]++
	a.last = time.Now()
}

func (a *activity) write(line string) {
	const kept = 60
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, time.Now().Format(timeOfDay)+" "+line)
	a.lines = a.lines[max(0, len(a.lines)-kept):]
}

// sink is a log sink that tracks reconciles by the messages of controller-runtime.
type sink struct {
	activity *activity
	object   string
}

// reconcileLevel is the verbosity at which controller-runtime logs the start and the end of each
// reconcile. Lines up to recordedLevel are kept for reports.
const (
	reconcileLevel = 5
	recordedLevel  = 1
)

// Init implements [logr.LogSink].
func (*sink) Init(logr.RuntimeInfo) {}

// Enabled implements [logr.LogSink].
func (*sink) Enabled(level int) bool { return level <= reconcileLevel }

// Info implements [logr.LogSink].
func (s *sink) Info(level int, message string, values ...any) {
	switch {
	case level == reconcileLevel && message == "Reconciling":
		s.activity.begin()
	case level == reconcileLevel && strings.HasPrefix(message, "Reconcile "):
		s.activity.end(s.object)
	}
	if level <= recordedLevel || level == reconcileLevel && strings.HasPrefix(message, "Reconcil") {
		s.activity.write(fmt.Sprint(message, " ", s.object, " ", values))
	}
}

func (s *sink) Error(err error, message string, values ...any) {
	if message == "Reconciler error" {
		s.activity.end(s.object)
	}
	s.activity.write(fmt.Sprint(message, " ", s.object, ": ", err, " ", values))
}

// WithValues implements [logr.LogSink].
func (s *sink) WithValues(values ...any) logr.LogSink {
	with := *s
	for i := 0; i+1 < len(values); i += 2 {
		if name, ok := values[i+1].(string); ok && values[i] == "name" {
			with.object = name
		}
	}
	return &with
}

// WithName implements [logr.LogSink].
func (s *sink) WithName(string) logr.LogSink {
	return s
}
