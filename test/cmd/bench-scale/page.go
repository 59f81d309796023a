package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

//go:embed published.md
var published string

// writePage writes the tables, the picture and what others have published into a Markdown file.
func writePage(s settings, tables string) error {
	machine, err := machine()
	if err != nil {
		return err
	}
	picture := ""
	if s.picture != "" {
		path, err := filepath.Rel(filepath.Dir(s.document), s.picture)
		if err != nil {
			return fmt.Errorf("linking the picture: %w", err)
		}
		picture = fmt.Sprintf("![Memory and latency over the number of AppServices](%s)\n\n", filepath.ToSlash(path))
	}
	page := "<!-- Written by make bench-scale. -->\n\n# Thousands of objects\n\n" +
		fmt.Sprintf("Measured on %s, on %s, with Kubernetes %s.\n\n", time.Now().UTC().Format(time.DateOnly), machine, cluster.KubernetesVersion) +
		tables + picture + published
	return os.WriteFile(s.document, []byte(page), 0o600)
}

// machine describes this machine.
func machine() (string, error) {
	processors, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", fmt.Errorf("finding out which processors the machine has: %w", err)
	}
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return "", fmt.Errorf("finding out how much memory the machine has: %w", err)
	}
	var kibibytes float64
	if _, err := fmt.Sscanf(field(memory, "MemTotal"), "%f", &kibibytes); err != nil {
		return "", fmt.Errorf("finding out how much memory the machine has: %w", err)
	}
	return fmt.Sprintf("%d processors (%s) with %.0f GiB of memory, which the API server, etcd, the manager and the benchmark share",
		runtime.NumCPU(), field(processors, "model name"), kibibytes/(1<<20)), nil
}

// field is the value of the first line of a name.
func field(file []byte, name string) string {
	for line := range bytes.Lines(file) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
