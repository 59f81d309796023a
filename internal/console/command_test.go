package console

import (
	"bytes"
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
)

func TestCommandServesOnLoopbackUntilItIsInterrupted(t *testing.T) {
	g := NewWithT(t)
	api := newFakeAPI(t)
	config := func() (*rest.Config, error) {
		return &rest.Config{Host: api.URL, BearerToken: "token-of-owner"}, nil
	}
	out := gbytes.NewBuffer()
	command := Command(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: &bytes.Buffer{}}, config)
	command.SetArgs([]string{"--port=0", "--no-open"})
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	g.Eventually(out, "30s").Should(gbytes.Say(`Ctrl-C stops the console`))
	url := string(regexp.MustCompile(`http://127\.0\.0\.1:\d+/open\?code=[0-9a-f]{64}`).Find(out.Contents()))
	response, err := http.Get(url)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	http.DefaultClient.CloseIdleConnections()
	interrupt()
	g.Eventually(ended, "30s").Should(Receive(BeNil()))
}

func TestCommandNamesWrongFlags(t *testing.T) {
	g := NewWithT(t)
	_, err := Listen(70000, Options{Config: &rest.Config{}, EventsLimit: 1})
	g.Expect(err).To(MatchError("--port is 70000: set a port from 0 to 65535"))
	_, err = Listen(0, Options{Config: &rest.Config{}})
	g.Expect(err).To(MatchError("--events-limit is 0: set a positive number"))
	first, err := Listen(0, Options{Config: &rest.Config{}, EventsLimit: 1})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = first.listener.Close() })
	var port int
	for _, digit := range first.options.Port {
		port = port*10 + int(digit-'0')
	}
	_, err = Listen(port, Options{Config: &rest.Config{}, EventsLimit: 1})
	g.Expect(err).To(MatchError(And(HavePrefix("listening on --port: "), HaveSuffix("; set a free port, or 0"))))
}
