package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// cpuTimes are seconds of processor time by the name of the process.
type cpuTimes map[string]float64

// thisProcess holds the manager or the bare client, and the user.
const thisProcess = "this process: the client or the manager, and the user"

// readCPU reads what this process and those that it started have used so far. Where there is no
// /proc, it is nothing.
func readCPU() cpuTimes {
	times := cpuTimes{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		name, parent, seconds, ok := parseStat(string(raw))
		switch {
		case !ok:
		case path == fmt.Sprintf("/proc/%d/stat", os.Getpid()):
			times[thisProcess] += seconds
		case parent == os.Getpid():
			times[name] += seconds
		}
	}
	return times
}

// parseStat reads a line of /proc/<pid>/stat; see proc_pid_stat(5).
func parseStat(line string) (name string, parent int, seconds float64, ok bool) {
	const ticksPerSecond = 100
	const parentField, userField, systemField = 1, 11, 12 // after the name
	opened, closed := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if opened < 0 || closed < opened {
		return "", 0, 0, false
	}
	fields := strings.Fields(line[closed+1:])
	if len(fields) <= systemField {
		return "", 0, 0, false
	}
	parent, failed := strconv.Atoi(fields[parentField])
	user, failedUser := strconv.ParseFloat(fields[userField], 64)
	system, failedSystem := strconv.ParseFloat(fields[systemField], 64)
	return line[opened+1 : closed], parent, (user + system) / ticksPerSecond, failed == nil && failedUser == nil && failedSystem == nil
}

func (t cpuTimes) total() float64 {
	total := 0.0
	for _, seconds := range t {
		total += seconds
	}
	return total
}

func (t cpuTimes) minus(before cpuTimes) cpuTimes {
	spent := cpuTimes{}
	for name, seconds := range t {
		spent[name] = seconds - before[name]
	}
	return spent
}

func processNames(laps ...[]lap) []string {
	names := map[string]bool{}
	for _, l := range slices.Concat(laps...) {
		for name := range l.cpu {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// requestTable counts requests for each object, by client and kind of request, in both.
func requestTable(count int, bare, managed cluster.Requests) string {
	counts := map[[2]string][2]int{}
	for i, requests := range []cluster.Requests{bare, managed} {
		for _, r := range requests.Where(func(r cluster.Request) bool { return r.Verb != "watch" }) {
			key := [2]string{r.User, r.Verb + " " + describe(r)}
			n := counts[key]
			n[i]++
			counts[key] = n
		}
	}
	keys := slices.SortedFunc(maps.Keys(counts), func(x, y [2]string) int { return strings.Compare(x[0]+x[1], y[0]+y[1]) })
	var b strings.Builder
	for _, key := range keys {
		n := counts[key]
		fmt.Fprintf(&b, "| %s | %s | %.2f | %.2f |\n", key[0], key[1], float64(n[0])/float64(count), float64(n[1])/float64(count))
	}
	return b.String()
}

// describe names what a request is about: a resource, or the path of what is none.
func describe(r cluster.Request) string {
	if r.Resource == "" {
		path, _, _ := strings.Cut(r.URI, "?")
		return path
	}
	return strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
}

func profileName(folder string, round, contestant int) string {
	if folder == "" {
		return ""
	}
	return filepath.Join(folder, fmt.Sprintf("%s-%d", []string{"bare", "managed"}[contestant], round))
}

// profile begins to write CPU profiles of this process and of the API server, and returns how to end them.
func (a *arena) profile(name string) (func() error, error) {
	if name == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(name + "-client.pprof")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- a.profileAPIServer(name + "-apiserver.pprof") }()
	return func() error {
		pprof.StopCPUProfile()
		if err := file.Close(); err != nil {
			return err
		}
		return <-served
	}, nil
}

// profileAPIServer profiles the API server's next seconds.
func (a *arena) profileAPIServer(path string) error {
	client, err := rest.HTTPClientFor(a.cluster.Admin())
	if err != nil {
		return err
	}
	response, err := client.Get(a.cluster.URL() + "/debug/pprof/profile?seconds=8")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("profiling the API server: %s", response.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, response.Body)
	if failed := file.Close(); err == nil {
		err = failed
	}
	return err
}
