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
	// tailBytes is the length of the end of the standard error that exit reports contain.
	tailBytes = 1 << 10
)

// stderrLog logs the standard error of a child, with a limit of lines per second,
// and keeps the end of it for exit reports.
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

// copy logs r until its end, and closes it.
func (s *stderrLog) copy(r io.ReadCloser) {
	defer close(s.done)
	defer func() { _ = r.Close() }()
	lines := bufio.NewReaderSize(r, stderrLine)
	for {
		// A line longer than the buffer is split.
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

// report logs the number of suppressed lines.
func (s *stderrLog) report() {
	if s.suppressed > 0 {
		s.log.Info("Suppressed stderr lines of the server", "linesSuppressed", s.suppressed)
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

// last returns the end of the standard error.
func (s *stderrLog) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(s.tail)), "")
}
