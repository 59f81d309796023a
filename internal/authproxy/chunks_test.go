package authproxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http/httputil"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// decodeParts decodes parts of random sizes.
func decodeParts(random *rand.Rand, data []byte) (content []byte, end bool, err error) {
	var c chunks
	for len(data) > 0 {
		n := 1 + random.IntN(len(data))
		part, err := c.decode(bytes.Clone(data[:n]))
		content = append(content, part...)
		if err != nil {
			return content, false, err
		}
		data = data[n:]
	}
	return content, c.state == chunksEnd, nil
}

func TestChunksAreDecodedInAnyParts(t *testing.T) {
	g := NewWithT(t)
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var sent, want bytes.Buffer
		chunked := httputil.NewChunkedWriter(&sent)
		for range random.IntN(5) {
			event := strings.Repeat("é\r\n", 1+random.IntN(100))
			_, err := io.WriteString(io.MultiWriter(chunked, &want), event)
			g.Expect(err).NotTo(HaveOccurred())
		}
		g.Expect(chunked.Close()).To(Succeed())
		sent.WriteString("\r\n")

		content, end, err := decodeParts(random, sent.Bytes())

		g.Expect(err).NotTo(HaveOccurred(), "seed %d", seed)
		g.Expect(string(content)).To(Equal(want.String()), "seed %d", seed)
		g.Expect(end).To(BeTrue(), "seed %d", seed)
	}
}

func TestChunks(t *testing.T) {
	long := strings.Repeat("x", maxChunkLines+1)
	for name, c := range map[string]struct {
		sent, want string
		end        bool
		failed     bool
	}{
		"extension":             {sent: "3;a=\"b\"\r\nabc\r\n0\r\n\r\n", want: "abc", end: true},
		"space after the size":  {sent: "3 \r\nabc\r\n", want: "abc"},
		"capital digits":        {sent: "0A\r\n0123456789\r\n", want: "0123456789"},
		"trailers":              {sent: "0\r\nA: b\r\nC: d\r\n\r\n", end: true},
		"bytes after the end":   {sent: "0\r\n\r\nHTTP/1.1 200 OK\r\n", end: true},
		"incomplete":            {sent: "5\r\nabc", want: "abc"},
		"no size":               {sent: "\r\n", failed: true},
		"no digit":              {sent: "g\r\n", failed: true},
		"negative size":         {sent: "-1\r\n", failed: true},
		"size that overflows":   {sent: "1000000000000000\r\n", failed: true},
		"no CR":                 {sent: "3\nabc\r\n", failed: true},
		"no LF":                 {sent: "3\rabc\r\n", failed: true},
		"data that is longer":   {sent: "3\r\nabcd\r\n", want: "abc", failed: true},
		"line end in extension": {sent: "3;a\nabc\r\n", failed: true},
		"long extension":        {sent: "3;" + long + "\r\n", failed: true},
		"long trailer":          {sent: "0\r\n" + long, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for seed := range uint64(5) {
				content, end, err := decodeParts(rand.New(rand.NewPCG(seed, 0)), []byte(c.sent))
				g.Expect(err != nil).To(Equal(c.failed))
				g.Expect(string(content)).To(Equal(c.want))
				g.Expect(end).To(Equal(c.end))
			}
		})
	}
}

func FuzzChunks(f *testing.F) {
	f.Add([]byte("3;a=\"b\"\r\nabc\r\n0\r\n\r\n"), uint64(1))
	f.Add([]byte("0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"), uint64(2))
	f.Add([]byte("fffffffffffffff\r\n"), uint64(3))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		g := NewWithT(t)
		var whole chunks
		content, err := whole.decode(bytes.Clone(data))

		// However the bytes arrive, they are decoded to the same.
		parts, end, failed := decodeParts(rand.New(rand.NewPCG(seed, 0)), data)
		g.Expect(bytes.Equal(parts, content)).To(BeTrue())
		g.Expect(end).To(Equal(err == nil && whole.state == chunksEnd))
		g.Expect(failed == nil).To(Equal(err == nil))

		// What is valid is decoded as net/http does.
		if want, refused := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(data))); end && refused == nil {
			g.Expect(bytes.Equal(content, want)).To(BeTrue())
		}
	})
}
