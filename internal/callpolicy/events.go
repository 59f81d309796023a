package callpolicy

import (
	"bytes"

	"github.com/fixpoint-dev/fixpoint/internal/bridge"
)

// eventScanner finds the ends of server-sent events. Lines end with \n, \r\n or \r, and an event ends with an empty line.
type eventScanner struct {
	// inLine is true after a character of a line.
	inLine bool
	// afterCR is true after \r, of which \n may be the second half.
	afterCR bool
	// within is true after the first character of an event.
	within bool
}

// end returns the index after the event that data continues; -1 if it continues beyond data.
func (s *eventScanner) end(data []byte) int {
	for i, c := range data {
		switch {
		case c == '\n' && s.afterCR:
			s.afterCR = false
		case c != '\n' && c != '\r':
			s.inLine, s.afterCR, s.within = true, false, true
		case s.inLine:
			s.inLine, s.afterCR = false, c == '\r'
		default: // an empty line
			s.afterCR, s.within = c == '\r', false
			if s.afterCR && i+1 < len(data) && data[i+1] == '\n' {
				s.afterCR = false
				return i + 2
			}
			return i + 1
		}
	}
	return -1
}

// filterEvents filters complete events.
func filterEvents(events []byte, keep func(tool string) bool) ([]byte, error) {
	var filtered []byte
	var scanner eventScanner
	for len(events) > 0 {
		end := scanner.end(events)
		if end < 0 {
			end = len(events)
		}
		one, err := filterEvent(events[:end], keep)
		if err != nil {
			return nil, err
		}
		filtered = append(filtered, one...)
		events = events[end:]
	}
	return filtered, nil
}

// byteOrderMark may begin a stream, and clients ignore it there.
var byteOrderMark = []byte("\ufeff")

// filterEvent removes tools from the message in an event. An event without such tools stays as it is.
func filterEvent(raw []byte, keep func(tool string) bool) ([]byte, error) {
	var data, others [][]byte
	for line := range lines(raw) {
		line = bytes.TrimPrefix(line, byteOrderMark)
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) == "data" {
			data = append(data, bytes.TrimPrefix(value, []byte(" ")))
		} else if len(line) > 0 {
			others = append(others, line)
		}
	}
	message := bytes.Join(data, []byte("\n"))
	if len(bytes.TrimSpace(message)) == 0 {
		return raw, nil // such as a comment
	}
	filtered, err := bridge.FilterTools(message, keep)
	if err != nil {
		return nil, err
	}
	if len(filtered) == len(message) {
		return raw, nil
	}
	var out bytes.Buffer
	for _, line := range others {
		out.Write(line)
		out.WriteByte('\n')
	}
	for line := range bytes.SplitSeq(filtered, []byte("\n")) {
		out.WriteString("data: ")
		out.Write(line)
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// lines are the lines of an event, without their ends.
func lines(event []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(event) > 0 {
			end := bytes.IndexAny(event, "\r\n")
			if end < 0 {
				yield(event)
				return
			}
			if !yield(event[:end]) {
				return
			}
			next := end + 1
			if event[end] == '\r' && next < len(event) && event[next] == '\n' {
				next++
			}
			event = event[next:]
		}
	}
}

// event is a message as a server-sent event.
func event(message []byte) []byte {
	return append(append([]byte("event: message\ndata: "), message...), "\n\n"...)
}
