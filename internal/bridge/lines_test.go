package bridge

import (
	"errors"
	"io"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// readLines reads all lines; a line that is too large is the description of it.
func readLines(g Gomega, output string, limit int) (read []any) {
	lines := newLineReader(strings.NewReader(output), limit)
	for {
		line, over, err := lines.next()
		switch {
		case err != nil:
			g.Expect(err).To(MatchError(io.EOF))
			return read
		case over != nil:
			read = append(read, *over)
		default:
			read = append(read, string(line))
		}
	}
}

func TestLinesUpToTheLimitAreRead(t *testing.T) {
	x := func(size int) string { return strings.Repeat("x", size) }
	const small, large = 100, 3 * lineBuffer
	for name, c := range map[string]struct {
		output string
		limit  int
		want   []any
	}{
		"lines":                            {"a\nb\r\n\nc\n", small, []any{"a", "b", "", "c"}},
		"nothing":                          {"", small, nil},
		"a last line without an end":       {"a\nb", small, []any{"a"}},
		"as long as the limit":             {x(small) + "\r\na\n", small, []any{x(small), "a"}},
		"longer than the limit":            {x(small+1) + "\na\n", small, []any{oversize{bytes: small + 1}, "a"}},
		"longer than the buffer":           {x(2*lineBuffer+7) + "\na\n", large, []any{x(2*lineBuffer + 7), "a"}},
		"long lines one after another":     {x(lineBuffer+7) + "\n" + x(lineBuffer+8) + "\na\n", large, []any{x(lineBuffer + 7), x(lineBuffer + 8), "a"}},
		"as long as a limit over a buffer": {x(large) + "\na\n", large, []any{x(large), "a"}},
		"a line break in two buffers":      {x(lineBuffer-1) + "\r\na\n", lineBuffer - 1, []any{x(lineBuffer - 1), "a"}},
		"longer than that":                 {x(lineBuffer) + "\r\na\n", lineBuffer - 1, []any{oversize{bytes: lineBuffer}, "a"}},
		"longer than the limit, in parts":  {x(large+1) + "\na\n", large, []any{oversize{bytes: large + 1}, "a"}},
		"much longer than the limit":       {x(9*lineBuffer) + "\n" + x(lineBuffer+7) + "\n", 2 * lineBuffer, []any{oversize{bytes: 9 * lineBuffer}, x(lineBuffer + 7)}},
		"much longer, of two characters":   {x(9*lineBuffer) + "\r\n", lineBuffer, []any{oversize{bytes: 9 * lineBuffer}}},
		"much longer, without an end":      {"a\n" + x(9*lineBuffer), lineBuffer, []any{"a"}},
		"with an id that is in all parts":  {`{"params":"` + x(9*lineBuffer) + `","id":7}` + "\n", lineBuffer, []any{oversize{id: []byte("7"), bytes: 9*lineBuffer + 20}}},
		"with a method at the beginning":   {`{"method":"m","params":"` + x(9*lineBuffer) + `"}` + "\n", lineBuffer, []any{oversize{method: "m", bytes: 9*lineBuffer + 26}}},
		"with an id, longer than a limit":  {`{"id":"a","result":"` + x(small) + `"}` + "\n", small, []any{oversize{id: []byte(`"a"`), bytes: small + 22}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(readLines(g, c.output, c.limit)).To(Equal(c.want))
		})
	}
}

// A large message must not keep its memory until the next large one.
func TestBuffersOfLargeLinesAreNotKept(t *testing.T) {
	g := NewWithT(t)
	lines := newLineReader(strings.NewReader(strings.Repeat("x", 2*keepBuffer)+"\n"+strings.Repeat("y", 2*lineBuffer)+"\na\nb\n"), 4*keepBuffer)
	_, _, err := lines.next()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cap(lines.buf)).To(BeNumerically(">", keepBuffer))
	_, _, err = lines.next()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cap(lines.buf)).To(BeNumerically("<", keepBuffer))
	small := cap(lines.buf)
	_, _, err = lines.next()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cap(lines.buf)).To(Equal(small), "small ones are used again")
}

func TestLinesEndWithTheErrorOfTheReader(t *testing.T) {
	g := NewWithT(t)
	broken := errors.New("broken")
	for _, beginning := range []string{"", "x", strings.Repeat("x", 2*lineBuffer), strings.Repeat("x", 9*lineBuffer)} {
		r, w := io.Pipe()
		go func() {
			_, _ = io.WriteString(w, beginning)
			_ = w.CloseWithError(broken)
		}()
		line, over, err := newLineReader(r, 4*lineBuffer).next()
		g.Expect(err).To(MatchError(broken))
		g.Expect(line).To(BeNil())
		g.Expect(over).To(BeNil())
	}
}

// The bridge responds to a message that is too large, so it has to find the id wherever it is, and no other.
func TestScannerFindsIDAndMethod(t *testing.T) {
	long := strings.Repeat("x", 2*keepToken)
	for name, c := range map[string]struct {
		message string
		id      string
		method  string
	}{
		"a response":               {`{"jsonrpc":"2.0","id":7,"result":{}}`, "7", ""},
		"a request":                {`{"id":"a","method":"m","params":[]}`, `"a"`, "m"},
		"white space":              {"\t{ \"id\" :\r\n 7 , \"method\" : \"m\" } ", "7", "m"},
		"the id last":              {`{"result":{"x":[{},{}]},"id":7}`, "7", ""},
		"an id below":              {`{"result":{"id":1},"params":[{"id":2,"method":"m"}]}`, "", ""},
		"an id below, and one":     {`{"id":7,"result":{"id":1,"a":[1,2],"method":"m"},"x":1}`, "7", ""},
		"an id in a string":        {`{"result":",\"id\":1,\"method\":\"m\",","x":"}"}`, "", ""},
		"the key id as a value":    {`{"x":"id","y":1}`, "", ""},
		"a string that ends in \\": {`{"x":"\\","id":7}`, "7", ""},
		"a string with quotes":     {`{"x":"\"","id":"\"a\\"}`, `"\"a\\"`, ""},
		"structure in a string":    {`{"x":"{[:,","id":"]}"}`, `"]}"`, ""},
		"an escaped key":           {`{"\u0069d":7,"m\u0065thod":"\u006d"}`, "7", "m"},
		"null":                     {`{"id":null,"method":"m"}`, "", "m"},
		"an id that is too long":   {`{"id":"` + long + `","method":"m"}`, "", "m"},
		"a method too long":        {`{"id":7,"method":"` + long + `"}`, "7", ""},
		"a key that is too long":   {`{"` + long + `":1,"id":7}`, "7", ""},
		"as long as may be":        {`{"id":"` + long[:keepToken-2] + `"}`, `"` + long[:keepToken-2] + `"`, ""},
		"one longer":               {`{"id":"` + long[:keepToken-1] + `"}`, "", ""},
		"an id of another type":    {`{"id":{"a":1},"method":"m"}`, "", "m"},
		"a method that is no text": {`{"id":7,"method":7}`, "7", ""},
		"true":                     {`{"id":true,"method":"m"}`, "true", "m"},
		"the last of two":          {`{"id":1,"id":2}`, "2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// Long messages are split at a part of the positions: their parts are alike.
			for split := 0; split < len(c.message); split += 1 + len(c.message)/500 {
				var s scanner
				s.feed([]byte(c.message[:split]))
				s.feed([]byte(c.message[split:]))
				o := s.describe(len(c.message))
				g.Expect(string(o.id)).To(Equal(c.id))
				g.Expect(o.method).To(Equal(c.method))
				g.Expect(o.bytes).To(Equal(len(c.message)))
			}
		})
	}
}
