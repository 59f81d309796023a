package authproxy

import "errors"

const (
	// maxSizeDigits is the maximum length of the size of a chunk.
	maxSizeDigits = 15
	// maxChunkLines is the maximum size of the extensions of a chunk, and of the trailers, in bytes.
	maxChunkLines = 4 << 10
)

var errChunks = errors.New("the response has an invalid chunk")

// chunkState is what the next byte is a part of.
type chunkState int

const (
	inSize chunkState = iota
	inExtension
	sizeLF
	inData
	dataCR
	dataLF
	trailerStart
	inTrailer
	trailerLF
	lastLF
	chunksEnd
)

// chunks removes the chunked transfer coding (RFC 9112, section 7.1) from bytes as they arrive. The reader of net/http
// needs a buffer while it waits for bytes.
type chunks struct {
	state chunkState
	// left is the rest of the current chunk, in bytes.
	left int64
	// digits are those of the size, and line the bytes of extensions or trailers.
	digits, line int
}

// decode returns the content in data, in the same memory.
func (c *chunks) decode(data []byte) ([]byte, error) {
	content := data[:0]
	for i := 0; i < len(data) && c.state != chunksEnd; {
		if c.state == inData {
			n := int(min(c.left, int64(len(data)-i)))
			content = append(content, data[i:i+n]...)
			i += n
			if c.left -= int64(n); c.left == 0 {
				c.state = dataCR
			}
			continue
		}
		if !c.step(data[i]) {
			return content, errChunks
		}
		i++
	}
	return content, nil
}

// step takes a byte that is not content, and reports whether it is valid.
func (c *chunks) step(b byte) bool {
	switch c.state {
	case inSize:
		return c.size(b)
	case inExtension:
		return c.skip(b, sizeLF)
	case inTrailer:
		return c.skip(b, trailerLF)
	case trailerStart:
		if b == '\r' {
			c.state = lastLF
			return true
		}
		c.state = inTrailer
		return c.skip(b, trailerLF)
	case dataCR:
		c.state = dataLF
		return b == '\r'
	case sizeLF:
		c.state, c.line = inData, 0
		if c.left == 0 {
			c.state = trailerStart
		}
	case dataLF:
		c.state, c.digits = inSize, 0
	case trailerLF:
		c.state = trailerStart
	default:
		c.state = chunksEnd
	}
	return b == '\n'
}

func (c *chunks) size(b byte) bool {
	digit := int64(-1)
	switch {
	case b >= '0' && b <= '9':
		digit = int64(b - '0')
	case b >= 'a' && b <= 'f':
		digit = int64(b-'a') + 10
	case b >= 'A' && b <= 'F':
		digit = int64(b-'A') + 10
	}
	if digit >= 0 {
		c.left = c.left<<4 | digit
		c.digits++
		return c.digits <= maxSizeDigits
	}
	switch b {
	case '\r':
		c.state = sizeLF
	case ';', ' ', '\t':
		c.state = inExtension
	default:
		return false
	}
	return c.digits > 0
}

// skip ignores a byte of a line.
func (c *chunks) skip(b byte, atEnd chunkState) bool {
	c.line++
	if b == '\r' {
		c.state = atEnd
	}
	return b != '\n' && c.line <= maxChunkLines
}
