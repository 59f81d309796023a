package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// outcome is what the suite found in one scenario: each check with its verdict.
// What the suite only notes (INFO: requests and responses that it saw) is no
// verdict, and left out: the everything server has a tool that closes its own
// HTTP stream, which a server on stdio has none of.
type outcome []string

func (o outcome) passed() bool {
	return !slices.ContainsFunc(o, func(check string) bool { return strings.HasSuffix(check, " FAILURE") })
}

func (o outcome) count(status string) int {
	n := 0
	for _, check := range o {
		if strings.HasSuffix(check, " "+status) {
			n++
		}
	}
	return n
}

func (o outcome) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d warnings", o.count("SUCCESS"), o.count("FAILURE"), o.count("WARNING"))
}

// TestConformance runs the official suite against the SDK's everything server,
// directly and through the bridge: no check may come out otherwise.
func TestConformance(t *testing.T) {
	g, b := given(t)
	address := freeAddress(g)
	serve(t, g, exec.Command(b.everything, "-http", address, "-stateless=false"))
	g.Eventually(func() bool { return answers("http://" + address + "/") }).Should(BeTrue())
	// The suite looks for protection against DNS rebinding, which the SDK's
	// server has on loopback addresses and the bridge always.
	viaBridge := bridged(t, g, b, nil, b.everything)

	direct := conformance(t, g, "http://"+address+"/")
	through := conformance(t, g, viaBridge)

	t.Log("\n" + table(direct, through))
	g.Expect(len(direct)).To(BeNumerically(">=", 32))
	g.Expect(through).To(HaveLen(len(direct)))
	for name, o := range direct {
		g.Expect(through[name]).To(Equal(o), name)
		g.Expect(!o.passed() || through[name].passed()).To(BeTrue(), name)
	}
}

// timestamp ends the name of a scenario's folder.
var timestamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT.*$`)

// conformance runs all scenarios against a server.
func conformance(t *testing.T, g *WithT, url string) map[string]outcome {
	t.Helper()
	results := t.TempDir()
	suite := packageFile(g, "conformance", "dist", "index.js")
	cmd := exec.CommandContext(t.Context(), node(), suite, "server", "--url", url, "--suite", "all", "-o", results)
	// It fails if a scenario does, which is for us to compare.
	said, _ := cmd.CombinedOutput()
	folders, err := os.ReadDir(results)
	g.Expect(err).NotTo(HaveOccurred())
	outcomes := map[string]outcome{}
	for _, f := range folders {
		name := timestamp.ReplaceAllString(strings.TrimPrefix(f.Name(), "server-"), "")
		outcomes[name] = read(g, filepath.Join(results, f.Name(), "checks.json"))
	}
	g.Expect(outcomes).NotTo(BeEmpty(), string(said))
	return outcomes
}

func read(g *WithT, path string) outcome {
	raw, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	var checks []struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	g.Expect(json.Unmarshal(raw, &checks)).To(Succeed())
	var o outcome
	for _, c := range checks {
		if c.Status == "INFO" {
			continue
		}
		o = append(o, c.ID+" "+c.Status)
	}
	slices.Sort(o)
	return o
}

func table(direct, through map[string]outcome) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| %-32s | %-34s | %-34s |\n| --- | --- | --- |\n", "scenario", "directly", "through the bridge")
	for _, name := range slices.Sorted(maps.Keys(direct)) {
		fmt.Fprintf(&out, "| %-32s | %-34s | %-34s |\n", name, direct[name], through[name])
	}
	return out.String()
}
