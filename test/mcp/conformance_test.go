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
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// outcome is what the suite found in one scenario: each check with its verdict.
// What the suite only notes (INFO: requests and responses that it saw) is no
// verdict, and left out: the everything server has a tool that closes its own
// HTTP stream, which a server on stdio has none of. For the same reason the check
// whether that stream has a retry field is left out.
type outcome []string

const closedStream = "server-sse-retry-field"

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

// generations are the versions of the specification with sessions and without, and how the SDK's server serves them.
var generations = []struct {
	version, flag string
	// scenarios is at least how many of the version the server supports.
	scenarios int
}{
	{"2025-11-25", "-stateless=false", 32},
	{"2026-07-28", "-stateless=true", 39},
}

// TestConformance runs the official suite against the SDK's everything server, directly, through the bridge, and through
// the proxy in several configurations which permit all that the suite does: no check may come out otherwise.
func TestConformance(t *testing.T) {
	g, b := given(t)
	keys := newIssuer(t, g)
	for _, generation := range generations {
		t.Run(generation.version, func(t *testing.T) {
			g, _ := given(t)
			// The suite checks the protection against DNS rebinding, which the SDK's server has on loopback addresses, and
			// the bridge always. Each route has a server of its own, because some scenarios change what it offers.
			server := func() string { return everything(t, g, b, generation.flag) }
			proxy := func(flags ...[]string) string {
				return proxied(t, g, b, server(), slices.Concat([]string{"-allowed-host", "localhost"}, slices.Concat(flags...))...)
			}
			routes := map[string]string{
				"directly": "http://" + server() + "/",
				"bridge":   bridged(t, g, b, nil, b.everything),
				"limits":   proxy([]string{"-requests-per-minute", "1000000", "-max-body-bytes", "4000000"}),
				"policies": proxy(permissive),
				"tokens":   keys.authorized(t, g, func(resource string) string { return proxy(keys.flags(resource)) }),
				"tokens and policies": keys.authorized(t, g, func(resource string) string {
					return proxy(keys.flags(resource), permissive, []string{"-tool-scopes", "* tools"})
				}),
			}

			outcomes := conformanceOf(t, g, generation.version, routes)

			direct := outcomes["directly"]
			g.Expect(len(direct)).To(BeNumerically(">=", generation.scenarios))
			for route, through := range outcomes {
				t.Logf("%s, %s\n%s", generation.version, route, table(direct, through))
				for _, scenario := range differing(direct, through) {
					// Some scenarios wait for a notification for a time that a busy machine exceeds: they count alone.
					expectSame(t, g, generation.version, scenario, routes["directly"], routes[route])
				}
			}
		})
	}
}

// everything serves the SDK's everything server, and returns its address.
func everything(t *testing.T, g *WithT, b tools, flags ...string) string {
	t.Helper()
	address := freeAddress(t, g)
	serve(t, g, exec.Command(b.everything, append([]string{"-http", address}, flags...)...))
	g.Eventually(func() bool { return answers("http://" + address + "/") }).Should(BeTrue())
	return address
}

// permissive are flags with which the proxy reads all messages, and permits everything.
var permissive = []string{
	"-requests-per-minute", "1000000", "-calls-per-minute", "* 1000000", "-max-concurrent-calls", "1000", "-max-body-bytes", "4000000", "-call-timeout", "5m",
	"-allow-tool", "*", "-deny-tool", "no such tool",
}

// conformanceOf runs the suite against several servers at once, because it mostly waits for them.
func conformanceOf(t *testing.T, g *WithT, version string, urls map[string]string) map[string]map[string]outcome {
	t.Helper()
	var mu sync.Mutex
	outcomes := map[string]map[string]outcome{}
	var all sync.WaitGroup
	for name, url := range urls {
		results := t.TempDir()
		all.Go(func() {
			found, err := conformance(t, results, url, "--requirements", version)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			outcomes[name] = found
		})
	}
	all.Wait()
	g.Expect(t.Failed()).To(BeFalse())
	return outcomes
}

// timestamp ends the name of a scenario's folder.
var timestamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT.*$`)

// conformance runs scenarios against a server.
func conformance(t *testing.T, results, url string, selected ...string) (map[string]outcome, error) {
	suite, err := filepath.Abs(filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js"))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(t.Context(), node(), append([]string{suite, "server", "--url", url, "-o", results}, selected...)...)
	// It fails if a scenario does, which is for us to compare.
	said, _ := cmd.CombinedOutput()
	folders, err := os.ReadDir(results)
	if err != nil {
		return nil, err
	}
	outcomes := map[string]outcome{}
	for _, f := range folders {
		name := timestamp.ReplaceAllString(strings.TrimPrefix(f.Name(), "server-"), "")
		if outcomes[name], err = read(filepath.Join(results, f.Name(), "checks.json")); err != nil {
			return nil, err
		}
	}
	if len(outcomes) == 0 {
		return nil, fmt.Errorf("no scenario was run: %s", said)
	}
	return outcomes, nil
}

func read(path string) (outcome, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var checks []struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	if err := json.Unmarshal(raw, &checks); err != nil {
		return nil, err
	}
	var o outcome
	for _, c := range checks {
		if c.Status == "INFO" || c.ID == closedStream {
			continue
		}
		o = append(o, c.ID+" "+c.Status)
	}
	slices.Sort(o)
	return o, nil
}

// differing are the scenarios with checks that came out otherwise.
func differing(direct, through map[string]outcome) []string {
	names := maps.Clone(direct)
	maps.Copy(names, through)
	maps.DeleteFunc(names, func(name string, _ outcome) bool { return slices.Equal(direct[name], through[name]) })
	return slices.Sorted(maps.Keys(names))
}

// expectSame expects the same results of a scenario that runs alone.
func expectSame(t *testing.T, g *WithT, version, scenario, direct, through string) {
	t.Helper()
	found := func(url string) outcome {
		all, err := conformance(t, t.TempDir(), url, "--scenario", scenario, "--spec-version", version)
		g.Expect(err).NotTo(HaveOccurred())
		return all[scenario]
	}
	g.Eventually(func() string {
		here, there := found(direct), found(through)
		if slices.Equal(here, there) {
			return ""
		}
		return fmt.Sprintf("%s: only directly %q, only otherwise %q", scenario, without(here, there), without(there, here))
	}).WithTimeout(10 * time.Minute).Should(BeEmpty()) // a run takes many seconds on a busy machine
}

// without are the checks that are not in other, each as often as it occurs.
func without(checks, other outcome) (rest []string) {
	left := slices.Clone(other)
	for _, check := range checks {
		if at := slices.Index(left, check); at >= 0 {
			left = slices.Delete(left, at, at+1)
			continue
		}
		rest = append(rest, check)
	}
	return rest
}

func table(direct, through map[string]outcome) string {
	var out strings.Builder
	fmt.Fprintf(&out, "| %-44s | %-34s | %-34s |\n| --- | --- | --- |\n", "scenario", "directly", "through")
	for _, name := range slices.Sorted(maps.Keys(direct)) {
		fmt.Fprintf(&out, "| %-44s | %-34s | %-34s |\n", name, direct[name], through[name])
	}
	return out.String()
}
