package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ProcessorTime is the time that a process has used the processors, in user and in system mode.
func ProcessorTime(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the processor time: %w", err)
	}
	found, err := parseStat(string(raw))
	return found.processor, err
}

// thisProcess is the name of this process in [ProcessorTimes].
const thisProcess = "benchmark"

// ProcessorTimes are the processor times of this process, and of those that it has started, by name.
func ProcessorTimes() map[string]time.Duration {
	times := map[string]time.Duration{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		found, err := parseStat(string(raw))
		switch {
		case err != nil:
		case file == fmt.Sprintf("/proc/%d/stat", os.Getpid()):
			times[thisProcess] += found.processor
		case found.parent == os.Getpid():
			times[found.name] += found.processor
		}
	}
	return times
}

// stat is what the kernel tells about a process in /proc/PID/stat.
type stat struct {
	name      string
	parent    int
	processor time.Duration
}

// parseStat parses the content of /proc/PID/stat: see proc_pid_stat(5).
func parseStat(line string) (stat, error) {
	const tick = 10 * time.Millisecond
	const parentField, userField, systemField = 1, 11, 12 // after the name
	// The name may contain parentheses.
	opening, closing := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if opening < 0 || closing < opening {
		return stat{}, fmt.Errorf("parsing the stat of a process: no name in %q", line)
	}
	fields := strings.Fields(line[closing+1:])
	if len(fields) <= systemField {
		return stat{}, fmt.Errorf("parsing the stat of a process: too few fields in %q", line)
	}
	parent, err := strconv.Atoi(fields[parentField])
	user, errUser := strconv.ParseInt(fields[userField], 10, 64)
	system, errSystem := strconv.ParseInt(fields[systemField], 10, 64)
	if err := errors.Join(err, errUser, errSystem); err != nil {
		return stat{}, fmt.Errorf("parsing the stat of a process: %w", err)
	}
	return stat{name: line[opening+1 : closing], parent: parent, processor: time.Duration(user+system) * tick}, nil
}

// Memory is the memory of a process, in bytes. Anonymous excludes what is mapped from files, such as the program.
type Memory struct{ Anonymous, Resident, Peak float64 }

// MemoryOf reads the memory of a process.
func MemoryOf(pid int) (Memory, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("reading the memory: %w", err)
	}
	return parseMemory(string(content)), nil
}

func parseMemory(status string) Memory {
	values := map[string]float64{}
	for line := range strings.Lines(status) {
		name, rest, _ := strings.Cut(line, ":")
		number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if kilobytes, err := strconv.ParseInt(number, 10, 64); err == nil {
			values[name] = float64(kilobytes << 10)
		}
	}
	return Memory{Anonymous: values["RssAnon"], Resident: values["VmRSS"], Peak: values["VmHWM"]}
}

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// LiveHeap collects the garbage of a process with a pprof endpoint, and returns the bytes that remain.
func LiveHeap(ctx context.Context, server string) (float64, error) {
	var text []byte
	for range 2 { // the first collection only moves pooled objects to where the second one collects them
		var err error
		if text, err = Profile(ctx, http.DefaultClient, server, "heap?gc=1&debug=1"); err != nil {
			return 0, err
		}
	}
	match := heapAlloc.FindSubmatch(text)
	if match == nil {
		return 0, errors.New("the heap profile contains no HeapAlloc")
	}
	return strconv.ParseFloat(string(match[1]), 64)
}

// Profile requests a profile from a server with a pprof endpoint, such as the API server.
func Profile(ctx context.Context, client *http.Client, server, query string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/debug/pprof/"+query, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("requesting a profile: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	if err != nil {
		return nil, fmt.Errorf("requesting the profile %s: %w", query, err)
	}
	return body, nil
}
