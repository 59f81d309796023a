package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// logged returns what a manager with these flags logs.
func logged(t *testing.T, write func(*settings), args ...string) string {
	t.Helper()
	g := NewWithT(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	g.Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	stderr := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = stderr }()
	s, err := parse(args, nil)
	g.Expect(err).NotTo(HaveOccurred())
	write(s)
	content, err := os.ReadFile(file.Name())
	g.Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func TestLogFormat(t *testing.T) {
	write := func(s *settings) {
		s.options.Logger.V(1).Info("A detail")
		s.options.Logger.WithName("appservice").Info("Applied", "name", "web")
		s.options.Logger.Error(errors.New("refused"), "Failed to apply")
	}
	cases := map[string]struct {
		args      []string
		want, not []string
	}{
		"default":           {nil, []string{`"level":"info"`, `"logger":"appservice"`, `"msg":"Applied","name":"web"`, `"error":"refused"`, `"stacktrace":`}, []string{"A detail", `"caller"`}},
		"debug":             {[]string{"--zap-log-level=debug"}, []string{"A detail", "Applied"}, nil},
		"verbosity":         {[]string{"--zap-log-level=5"}, []string{"A detail", "Applied"}, nil},
		"errors only":       {[]string{"--zap-log-level=error"}, []string{"Failed to apply"}, []string{"A detail", "Applied"}},
		"no stack traces":   {[]string{"--zap-stacktrace-level=panic"}, []string{"Failed to apply"}, []string{"stacktrace"}},
		"console":           {[]string{"--zap-encoder=console"}, []string{"\tinfo\tappservice\tApplied\t" + `{"name": "web"}`}, []string{`"msg"`}},
		"development":       {[]string{"--zap-devel"}, []string{"DEBUG\tA detail", "INFO\tappservice\tApplied"}, []string{`"msg"`}},
		"development, JSON": {[]string{"--zap-devel", "--zap-encoder=JSON", "--zap-log-level=info"}, []string{`"M":"Applied"`}, []string{"A detail"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)

			log := logged(t, write, c.args...)

			for _, want := range c.want {
				g.Expect(log).To(ContainSubstring(want))
			}
			for _, not := range c.not {
				g.Expect(log).NotTo(ContainSubstring(not))
			}
		})
	}
}

func TestLogTime(t *testing.T) {
	for encoding, want := range map[string]string{
		"": time.RFC3339, "rfc3339": time.RFC3339, "RFC3339Nano": time.RFC3339Nano, "iso8601": "2006-01-02T15:04:05.000Z0700", "epoch": "", "millis": "", "nanos": "",
	} {
		t.Run(encoding, func(t *testing.T) {
			g := NewWithT(t)
			var args []string
			if encoding != "" {
				args = []string{"--zap-time-encoding=" + encoding}
			}
			var entry struct {
				TS any `json:"ts"`
			}

			g.Expect(json.Unmarshal([]byte(logged(t, func(s *settings) { s.options.Logger.Info("Starting") }, args...)), &entry)).To(Succeed())

			if want == "" {
				g.Expect(entry.TS).To(BeNumerically(">", 1e9))
				return
			}
			text, _ := entry.TS.(string)
			_, err := time.Parse(want, text)
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

func TestLogSampling(t *testing.T) {
	write := func(s *settings) {
		for range 1000 {
			s.options.Logger.Info("The same")
		}
	}
	NewWithT(t).Expect(strings.Count(logged(t, write), "The same")).To(BeNumerically("<", 300), "a sample, though the second may change once")
	NewWithT(t).Expect(strings.Count(logged(t, write, "--zap-sampling=false"), "The same")).To(Equal(1000))
	NewWithT(t).Expect(strings.Count(logged(t, write, "--zap-devel"), "The same")).To(Equal(1000))
}

func TestLogLevelCanBeChangedWhileTheManagerRuns(t *testing.T) {
	g := NewWithT(t)
	s, err := parse([]string{"--metrics-bind-address=:8443"}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	handler := s.options.Metrics.ExtraHandlers[logLevelPath]
	g.Expect(s.options.Logger.V(1).Enabled()).To(BeFalse())
	put := func(body string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPut, logLevelPath, strings.NewReader(body)))
		return answer
	}

	g.Expect(put(`{"level":"debug"}`).Code).To(Equal(http.StatusOK))
	g.Expect(s.options.Logger.V(1).Enabled()).To(BeTrue())
	refused := put(`{"level":"loud"}`)
	g.Expect(refused.Code).To(Equal(http.StatusBadRequest))
	g.Expect(refused.Body.String()).To(ContainSubstring("loud"))
	g.Expect(s.options.Logger.V(1).Enabled()).To(BeTrue())

	s, err = parse([]string{"--metrics-bind-address=:8080", "--metrics-secure=false"}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.options.Metrics.ExtraHandlers).To(BeEmpty(), "nobody may change the level without authorization")
}
