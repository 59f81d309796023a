package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// cpuTimes are processor times by the name of the process. That of this process is the client's or the manager's, and
// the user's.
type cpuTimes map[string]time.Duration

func readCPU() cpuTimes { return measure.ProcessorTimes() }

// total is in seconds.
func (t cpuTimes) total() float64 {
	var total time.Duration
	for _, used := range t {
		total += used
	}
	return total.Seconds()
}

func (t cpuTimes) minus(before cpuTimes) cpuTimes {
	spent := cpuTimes{}
	for name, used := range t {
		spent[name] = used - before[name]
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

func profileName(folder string, round, contestant int) string {
	if folder == "" {
		return ""
	}
	return filepath.Join(folder, fmt.Sprintf("%s-%d", []string{"bare", "managed"}[contestant], round))
}

// profile begins to write CPU profiles of this process and of the API server, and returns how to end them.
func (a *arena) profile(ctx context.Context, name string) (func() error, error) {
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
	go func() { served <- a.profileAPIServer(ctx, name+"-apiserver.pprof") }()
	return func() error {
		pprof.StopCPUProfile()
		if err := file.Close(); err != nil {
			return err
		}
		return <-served
	}, nil
}

// profileAPIServer profiles the API server's next seconds.
func (a *arena) profileAPIServer(ctx context.Context, path string) error {
	client, err := rest.HTTPClientFor(a.cluster.Admin())
	if err != nil {
		return err
	}
	profile, err := measure.Profile(ctx, client, a.cluster.URL(), "profile?seconds=8")
	if err != nil {
		return err
	}
	return os.WriteFile(path, profile, 0o600)
}
