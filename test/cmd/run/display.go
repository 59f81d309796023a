package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

// display writes for a person: on a terminal, what changes is redrawn in place;
// elsewhere, such as in the log of a CI run, each change is a line of its own.
type display struct {
	out      io.Writer
	width    func() int
	terminal bool
	// drawn is how many lines the next drawing replaces.
	drawn int
	// last is what stands in them.
	last []string
}

func newDisplay(out *os.File) *display {
	descriptor := int(out.Fd())
	d := &display{out: out, terminal: term.IsTerminal(descriptor), width: func() int { return 0 }}
	if d.terminal {
		d.width = func() int {
			width, _, err := term.GetSize(descriptor)
			if err != nil {
				return 80
			}
			return width
		}
	}
	return d
}

// progress shows what is being done, in the place of what was done before.
func (d *display) progress(line string) {
	if !d.terminal {
		fmt.Fprintln(d.out, line)
		return
	}
	d.replace([]string{cut(line, d.width())})
}

// endProgress leaves the last progress line where it is.
func (d *display) endProgress() { d.drawn, d.last = 0, nil }

// line writes something that stays.
func (d *display) line(text string) {
	d.replace(nil)
	fmt.Fprintln(d.out, text)
}

// keep writes what has been drawn for good, and goes on below.
func (d *display) keep() { d.endProgress() }

// table shows the rows. Elsewhere than on a terminal it writes only the rows that
// are not as they were, and no ages, which always change.
func (d *display) table(rows []row, now time.Time) {
	if d.terminal {
		d.replace(render(rows, now, d.width()))
		return
	}
	lines := render(rows, time.Time{}, 0)
	was := map[string]bool{}
	for _, line := range d.last {
		was[squeeze(line)] = true
	}
	for _, line := range lines {
		if !was[squeeze(line)] {
			fmt.Fprintln(d.out, line)
		}
	}
	d.last = lines
}

// squeeze takes out the padding, which depends on other rows.
func squeeze(line string) string { return strings.Join(strings.Fields(line), " ") }

func (d *display) replace(lines []string) {
	// Drawing what is there already would only flicker.
	if !d.terminal || d.drawn > 0 && slices.Equal(lines, d.last) {
		return
	}
	var b strings.Builder
	if d.drawn > 0 {
		// Up to the first line that was drawn, and clear from there on.
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", d.drawn)
	}
	for _, line := range lines {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	_, _ = io.WriteString(d.out, b.String())
	d.drawn, d.last = len(lines), lines
}
