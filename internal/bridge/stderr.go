package bridge

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	stderrLine = 1 << 10
	// tailBytes is how much of the standard error an exit report may repeat.
	tailBytes = 1 << 10
)

// stderrLog writes what a child says on its standard error to the log, so many
// lines a second; the others are counted. It remembers the last ones, which
// explain why a child has ended.
type stderrLog struct {
	log    logr.Logger
	perSec int
	done   chan struct{}

	window     time.Time
	written    int
	suppressed int

	mu   sync.Mutex
	tail []byte
}

func newStderrLog(log logr.Logger, perSec int) *stderrLog {
	return &stderrLog{log: log, perSec: perSec, done: make(chan struct{})}
}

// copy reads to the end, and closes what it reads.
func (s *stderrLog) copy(r io.ReadCloser) {
	defer close(s.done)
	defer func() { _ = r.Close() }()
	lines := bufio.NewReaderSize(r, stderrLine)
	for {
		// A line that is longer than the buffer becomes several.
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			s.line(strings.TrimRight(string(line), "\r\n"))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			s.report()
			return
		}
	}
}

func (s *stderrLog) line(line string) {
	s.remember(line)
	if now := time.Now(); now.Sub(s.window) >= time.Second {
		s.report()
		s.window, s.written = now, 0
	}
	if s.written >= s.perSec {
		s.suppressed++
		return
	}
	s.written++
	s.log.Info("Server wrote to stderr", "line", line)
}

// report says how much was left out since the last time.
func (s *stderrLog) report() {
	if s.suppressed > 0 {
		s.log.Info("Server wrote more to stderr than is logged", "linesSuppressed", s.suppressed)
		s.suppressed = 0
	}
}

func (s *stderrLog) remember(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = append(append(s.tail, line...), '\n')
	if extra := len(s.tail) - tailBytes; extra > 0 {
		s.tail = append(s.tail[:0], s.tail[extra:]...)
	}
}

// last returns the end of what was written.
func (s *stderrLog) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(s.tail)), "")
}
