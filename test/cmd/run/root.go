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

// findRoot searches for the root of the project, upwards from the working directory.
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
			return "", fmt.Errorf("finding the project: neither %s nor a parent directory contains its go.mod", wd)
		}
	}
}

// split splits a list at commas and spaces.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// endWithGoRun calls end when the `go run` that started this process exits: go run
// forwards SIGINT but not SIGTERM, which would leave the cluster running.
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
