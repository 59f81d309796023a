package bridge

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	lineBuffer = 4 << 10
	// keepBuffer is the largest buffer that is kept between messages.
	keepBuffer = 64 << 10
)

// lineReader reads messages, one per line, and holds at most one of max bytes.
type lineReader struct {
	r   *bufio.Reader
	max int
	buf []byte
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, lineBuffer), max: limit}
}

// oversize describes a message that exceeds the limit.
type oversize struct {
	id     []byte
	method string
	bytes  int
}

// next returns the next line without the line break; it is valid until the next
// call. A line that exceeds the limit is skipped and described.
func (l *lineReader) next() ([]byte, *oversize, error) {
	if cap(l.buf) > keepBuffer {
		l.buf = nil
	}
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case err == nil && len(l.buf) == 0:
			return l.bounded(part)
		case err == nil:
			l.buf = append(l.buf, part...)
			return l.bounded(l.buf)
		case !errors.Is(err, bufio.ErrBufferFull):
			// An incomplete last line is dropped.
			return nil, nil, err
		}
		l.buf = append(l.buf, part...)
		if len(l.buf) > l.max+len("\r") { // which may be a part of the line break
			return l.skip()
		}
	}
}

func (l *lineReader) bounded(line []byte) ([]byte, *oversize, error) {
	line = bytes.TrimRight(line, "\r\n")
	if len(line) > l.max {
		var s scanner
		s.feed(line)
		return nil, s.describe(len(line)), nil
	}
	return line, nil, nil
}

// skip reads to the end of the line.
func (l *lineReader) skip() ([]byte, *oversize, error) {
	var s scanner
	s.feed(l.buf)
	size := len(l.buf)
	l.buf = nil
	for {
		part, err := l.r.ReadSlice('\n')
		s.feed(part)
		size += len(bytes.TrimRight(part, "\r\n"))
		switch {
		case err == nil:
			return nil, s.describe(size), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, nil, err
		}
	}
}
