package bridge

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
)

func TestStderrIsLoggedByLine(t *testing.T) {
	g := NewWithT(t)
	collected := &logs{}
	s := newStderrLog(funcr.New(collected.add, funcr.Options{}), 100)
	long := strings.Repeat("x", stderrLine)
	s.copy(io.NopCloser(strings.NewReader("first\nsecond\r\n\n" + long + "rest\nlast")))
	g.Expect(s.done).To(BeClosed())
	var lines []string
	for _, logged := range collected.lines {
		_, line, _ := strings.Cut(logged, `"line"=`)
		lines = append(lines, strings.Trim(line, `"`))
	}
	g.Expect(lines).To(Equal([]string{"first", "second", "", long, "rest", "last"}), "a long line is split")
}

func TestStderrIsLoggedUpToItsRate(t *testing.T) {
	g := NewWithT(t)
	collected := &logs{}
	s := newStderrLog(funcr.New(collected.add, funcr.Options{}), 2)
	s.window = time.Now().Add(time.Hour) // so that the second does not end
	for _, line := range []string{"a", "b", "c", "d"} {
		s.line(line)
	}
	g.Expect(collected.String()).To(And(ContainSubstring(`"line"="b"`), Not(ContainSubstring(`"line"="c"`)), Not(ContainSubstring("linesSuppressed"))))
	g.Expect(s.last()).To(Equal("a\nb\nc\nd"), "the end is kept, also if it is not logged")

	s.window = time.Now().Add(-time.Second)
	s.line("e")
	g.Expect(collected.lines).To(HaveLen(4))
	g.Expect(collected.lines[2]).To(ContainSubstring(`"linesSuppressed"=2`))
	g.Expect(collected.lines[3]).To(ContainSubstring(`"line"="e"`))
	s.report()
	g.Expect(collected.lines).To(HaveLen(4), "what was reported is not reported again")

	for range 3 {
		s.line("f")
	}
	s.copy(io.NopCloser(strings.NewReader("")))
	g.Expect(collected.String()).To(HaveSuffix(`"linesSuppressed"=2`), "at the end, the rest is reported")
}

func TestTheEndOfStderrIsKept(t *testing.T) {
	g := NewWithT(t)
	s := newStderrLog(logr.Discard(), 1)
	g.Expect(s.last()).To(BeEmpty())
	s.line("beginning")
	for range 100 {
		s.line(strings.Repeat("ü", 50))
	}
	s.line("end")
	g.Expect(s.last()).To(HaveSuffix("ü\nend"))
	g.Expect(s.last()).NotTo(ContainSubstring("beginning"))
	g.Expect(strings.ToValidUTF8(s.last(), "?")).To(Equal(s.last()))
	g.Expect(len(s.last())).To(And(BeNumerically("<=", tailBytes), BeNumerically(">", tailBytes-10)))
}
