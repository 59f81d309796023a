package console

import (
	"compress/gzip"
	"net/http"
	"strings"
)

// responseRecorder remembers the status for the log.
type responseRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (w *responseRecorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseRecorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (w *responseRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// compressor compresses what is written to a client that accepts it.
type compressor struct {
	http.ResponseWriter
	zip *gzip.Writer
}

// compress returns a writer for the answer, and a function to call after it.
func compress(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func()) {
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") || r.Method == http.MethodHead {
		return w, func() {}
	}
	c := &compressor{ResponseWriter: w}
	return c, func() {
		if c.zip != nil {
			_ = c.zip.Close() // the client closed the connection
		}
	}
}

// WriteHeader implements [http.ResponseWriter].
func (c *compressor) WriteHeader(status int) {
	header := c.Header()
	header.Add("Vary", "Accept-Encoding")
	hasBody := status != http.StatusNoContent && status != http.StatusNotModified && status >= http.StatusOK
	if c.zip == nil && hasBody && header.Get("Content-Encoding") == "" && header.Get("Content-Range") == "" {
		header.Set("Content-Encoding", "gzip")
		header.Del("Content-Length")
		c.zip, _ = gzip.NewWriterLevel(c.ResponseWriter, gzip.BestSpeed) // the level is valid
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *compressor) Write(p []byte) (int, error) {
	if c.zip == nil && c.Header().Get("Content-Encoding") == "" {
		if c.Header().Get("Content-Type") == "" {
			c.Header().Set("Content-Type", http.DetectContentType(p))
		}
		c.WriteHeader(http.StatusOK)
	}
	if c.zip == nil {
		return c.ResponseWriter.Write(p)
	}
	return c.zip.Write(p)
}

// FlushError is for [http.ResponseController].
func (c *compressor) FlushError() error {
	if c.zip != nil {
		if err := c.zip.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Unwrap is for [http.ResponseController].
func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }
