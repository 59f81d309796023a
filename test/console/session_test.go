package console_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// command is one of a documented session, with the beginnings of lines of its output, or parts of them.
type command struct {
	text     string
	expected []string
}

// documentedSession are the commands of the blocks of a page that follow the marker.
func documentedSession(page string) []command {
	blocks := regexp.MustCompile("(?s)<!-- session -->\n```console\n(.*?)```").FindAllStringSubmatch(page, -1)
	var commands []command
	for _, block := range blocks {
		open := false // the command goes on in the next line
		for line := range strings.SplitSeq(strings.TrimSuffix(block[1], "\n"), "\n") {
			text, begins := strings.CutPrefix(line, "$ ")
			switch last := len(commands) - 1; {
			case begins:
				commands = append(commands, command{text: text})
				open = strings.Count(text, "'")%2 == 1
			case open:
				commands[last].text += "\n" + line
				open = strings.Count(commands[last].text, "'")%2 == 1
			default:
				commands[last].expected = append(commands[last].expected, line)
			}
		}
	}
	return commands
}

// shell is a shell that keeps variables from command to command.
type shell struct {
	in  io.Writer
	out *bufio.Reader
}

const endOfOutput = "-- end of output --"

func (w *fixture) shell(env ...string) *shell {
	w.T.Helper()
	cmd := exec.CommandContext(w.T.Context(), "bash", "--noprofile", "--norc")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.T.TempDir()}, env...)
	cmd.Dir = w.T.TempDir()
	in, err := cmd.StdinPipe()
	w.Expect(err).NotTo(HaveOccurred())
	out, err := cmd.StdoutPipe()
	w.Expect(err).NotTo(HaveOccurred())
	cmd.Stderr = os.Stderr
	w.Expect(cmd.Start()).To(Succeed())
	w.T.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &shell{in, bufio.NewReader(out)}
}

func (s *shell) run(text string) (string, error) {
	if _, err := fmt.Fprintf(s.in, "%s\nprintf '\\n%s\\n'\n", text, endOfOutput); err != nil {
		return "", err
	}
	var output strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			return output.String(), err
		}
		if strings.TrimSpace(line) == endOfOutput {
			return output.String(), nil
		}
		output.WriteString(line)
	}
}

// TestSessionWithCurlOfTheDocumentation runs the commands of docs/console.md as they stand there.
func TestSessionWithCurlOfTheDocumentation(t *testing.T) {
	w := newFixture(t)
	page, err := os.ReadFile(filepath.Join(harness.Root, "docs", "console.md"))
	w.Expect(err).NotTo(HaveOccurred())
	commands := documentedSession(string(page))
	w.Expect(len(commands)).To(BeNumerically(">", 10))
	w.Eventually(func() error { // one of an earlier run may still be ending
		return w.Suite.API.Create(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	}).Should(Succeed())
	t.Cleanup(func() {
		_ = w.Suite.API.Delete(w.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, client.GracePeriodSeconds(0))
	})
	w.startManager(nil, "shop")
	w.Namespace = "shop"
	s := w.serveTokens()
	token := w.userWith("alice", false, "fixpoint-appservice-editor-role", "view")
	sh := w.shell("CONSOLE="+s.url, "TOKEN="+token)
	for _, c := range commands {
		isRead := !strings.Contains(c.text, " -d ") && !strings.Contains(c.text, " -X ") && !strings.Contains(c.text, "=$(")
		run := func(g Gomega) {
			output, err := sh.run(c.text)
			g.Expect(err).NotTo(HaveOccurred())
			rest := output
			for _, line := range c.expected {
				_, after, found := strings.Cut(rest, line)
				g.Expect(found).To(BeTrue(), "$ %s\n%s\nhas no %q in:\n%s", c.text, strings.Join(c.expected, "\n"), line, output)
				rest = after
			}
		}
		if isRead { // the manager may not have written an Event yet
			w.Eventually(run).Should(Succeed())
		} else {
			run(w)
		}
	}
	w.Eventually(func() int {
		return w.send(clientOf(token), "GET", s.url+"/objects/appservices/shop/web", "").code
	}).Should(Equal(404), "the session deletes its AppService")
}
