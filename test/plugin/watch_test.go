package plugin_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// screen is what a command has written to a pseudo terminal.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// shown is what the terminal shows: everything since it was cleared last.
func (s *screen) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.text.String()
	return text[strings.LastIndex(text, "\x1b[2J")+1:]
}

func (s *screen) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// watch runs a command in a pseudo terminal until the test ends it, which has to succeed.
func (w *fixture) watch(args ...string) (shows *screen, end func()) {
	w.T.Helper()
	terminal, tty, err := pty.Open()
	w.Expect(err).NotTo(HaveOccurred())
	shows = &screen{}
	var copied sync.WaitGroup
	copied.Go(func() { _, _ = terminal.WriteTo(shows) })
	ctx, cancel := context.WithCancel(w.Ctx)
	ended := make(chan int, 1)
	args = append(args, "-w", "-n", w.Namespace, "--kubeconfig", w.kubeconfig)
	go func() {
		ended <- plugin.Run(ctx, args, genericiooptions.IOStreams{In: os.Stdin, Out: tty, ErrOut: tty})
	}()
	return shows, func() {
		w.T.Helper()
		cancel()
		w.Eventually(ended).Should(Receive(BeZero()), "%s", shows)
		w.Expect(tty.Close()).To(Succeed())
		w.Expect(terminal.Close()).To(Succeed())
		copied.Wait()
	}
}

func TestStatusFollowsInATerminal(t *testing.T) {
	w := newFixture(t)
	w.createApp("web")
	shows, end := w.watch("status", "appservice/web")
	w.Eventually(shows.shown).Should(ContainSubstring("not reconciled yet"))
	w.startManager(nil)
	w.Eventually(shows.shown).Should(SatisfyAll(ContainSubstring("Running, ready for"), MatchRegexp(`Deployment/web +2/2`)))
	harness.Update(w, "kubectl", "web", &v1beta1.AppService{}, func(app *v1beta1.AppService) { app.Spec.Suspend = true })
	w.Eventually(shows.shown).Should(ContainSubstring("Suspended, readiness unknown for"))
	w.Expect(shows.all()).To(ContainSubstring("\x1b[2J"), "a terminal is drawn again")
	end()
}

func TestDriftFollowsInATerminal(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	w.createApp("web")
	w.ready("web")
	shows, end := w.watch("drift")
	w.Eventually(func() int {
		w.Scale("kubectl", harness.Read(w, "web", &appsv1.Deployment{}), 5)
		return strings.Count(shows.all(), "kubectl changed .spec.replicas of Deployment/web from 2 to 5")
	}).Should(BeNumerically(">=", 1))
	end()
}
