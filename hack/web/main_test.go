package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
)

const pages = "../../internal/console/web"

// The functions of the pages that need no browser are tested by the runner of Node.js.
func TestPages(t *testing.T) {
	out := filepath.Join(t.TempDir(), "pages.mjs")
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{filepath.Join(pages, "src", "pure.test.ts")}, Bundle: true, Outfile: out, Write: true,
		Platform: api.PlatformNode, Format: api.FormatESModule, Sourcemap: api.SourceMapInline, LogLevel: api.LogLevelWarning,
	})
	if len(result.Errors) > 0 {
		t.Fatal("bundling failed")
	}
	run := exec.Command("node", "--enable-source-maps", "--test", out)
	run.Stdout, run.Stderr = os.Stdout, os.Stderr
	if err := run.Run(); err != nil {
		t.Fatalf("node --test, which needs Node.js 20 or newer: %v", err)
	}
}

func TestBundleIsDeterministic(t *testing.T) {
	source, err := filepath.Abs(pages)
	if err != nil {
		t.Fatal(err)
	}
	first, packages, err := bundle(source)
	if err != nil {
		t.Fatalf("run make generate, which installs the npm packages: %v", err)
	}
	second, _, err := bundle(source)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(first, second) {
		t.Error("two bundles of the same sources differ")
	}
	if len(packages) == 0 {
		t.Error("no package is listed: the licenses would be missing")
	}
}
