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

// display writes progress and the table. On a terminal it redraws in place; elsewhere,
// such as in a CI log, it prints one line per change.
type display struct {
	out      io.Writer
	width    func() int
	terminal bool
	// drawn is the number of lines that the next drawing replaces.
	drawn int
	// last holds those lines.
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

// progress shows the current activity and replaces the previous one.
func (d *display) progress(line string) {
	if !d.terminal {
		fmt.Fprintln(d.out, line)
		return
	}
	d.replace([]string{cut(line, d.width())})
}

// endProgress keeps the last progress line.
func (d *display) endProgress() { d.drawn, d.last = 0, nil }

// line writes a line that stays.
func (d *display) line(text string) {
	d.replace(nil)
	fmt.Fprintln(d.out, text)
}

// keep keeps what has been drawn and continues below it.
func (d *display) keep() { d.endProgress() }

// whole prints the whole table, as it is at the end.
func (d *display) whole(rows []row, now time.Time) {
	if d.terminal {
		d.table(rows, now)
		return
	}
	fmt.Fprintln(d.out, strings.Join(render(rows, now, 0), "\n"))
}

// table shows the rows. Without a terminal it prints only the rows that changed, and no
// ages, because they always change.
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

// squeeze removes the padding, which depends on other rows.
func squeeze(line string) string { return strings.Join(strings.Fields(line), " ") }

func (d *display) replace(lines []string) {
	// Redrawing identical lines would flicker.
	if !d.terminal || d.drawn > 0 && slices.Equal(lines, d.last) {
		return
	}
	var b strings.Builder
	if d.drawn > 0 {
		// Move up to the first drawn line and clear everything below.
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", d.drawn)
	}
	for _, line := range lines {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	_, _ = io.WriteString(d.out, b.String())
	d.drawn, d.last = len(lines), lines
}
