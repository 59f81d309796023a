package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const projectModule = "github.com/fixpoint-dev/fixpoint"

// findRoot finds the project from the working directory upwards.
func findRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the project: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module "+projectModule+"\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding the project: its go.mod is neither in %s nor above", wd)
		}
	}
}

// split takes a list as a person may write it.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// endWithGoRun ends this program when the `go run` that started it is gone: that
// one passes an interrupt on, but not a SIGTERM, and would leave a whole cluster
// behind.
func endWithGoRun(end func()) {
	parent := os.Getppid()
	name, err := os.ReadFile("/proc/" + strconv.Itoa(parent) + "/comm")
	if err != nil || strings.TrimSpace(string(name)) != "go" {
		return
	}
	for range time.Tick(time.Second) {
		if os.Getppid() != parent {
			end()
			return
		}
	}
}
