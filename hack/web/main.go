// Command web bundles the pages of the console: it checks the types, bundles TypeScript and styles, and lists the
// licenses of everything that is bundled. The same sources and packages always give the same bytes.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// limit is the largest size of all files together, compressed.
const limit = 150_000

func main() {
	source := flag.String("source", "", "directory of package.json and src, with the npm packages installed")
	out := flag.String("out", "", "directory for the bundle, which is replaced")
	flag.Parse()
	if err := run(*source, *out); err != nil {
		fmt.Fprintln(os.Stderr, "hack/web:", err)
		os.Exit(1)
	}
}

func run(source, out string) error {
	if source == "" || out == "" {
		return errors.New("-source and -out are required")
	}
	source, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	check := exec.Command(filepath.Join(source, "node_modules", ".bin", "tsc"), "--noEmit", "--project", source)
	check.Stdout, check.Stderr = os.Stdout, os.Stderr
	if err := check.Run(); err != nil {
		return fmt.Errorf("checking types in %s: %w", source, err)
	}
	files, packages, err := bundle(source)
	if err != nil {
		return err
	}
	if files["index.html"], err = page(source, files); err != nil {
		return err
	}
	if files["assets/LICENSES.txt"], err = licenses(source, packages); err != nil {
		return err
	}
	if err := checkSize(files); err != nil {
		return err
	}
	return write(out, files)
}

// bundle returns the files of the bundle by their paths, and the npm packages of which a part is in it.
func bundle(source string) (map[string][]byte, []string, error) {
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: source,
		EntryPoints:   []string{"src/app.tsx"},
		Bundle:        true,
		Outdir:        "dist",
		EntryNames:    "assets/[name]-[hash]",
		AssetNames:    "assets/[name]-[hash]",
		PublicPath:    "/",
		Loader:        map[string]api.Loader{".woff2": api.LoaderFile, ".svg": api.LoaderFile},
		Format:        api.FormatESModule,
		Target:        api.ES2022,
		Engines: []api.Engine{
			{Name: api.EngineChrome, Version: "123"}, {Name: api.EngineFirefox, Version: "121"}, {Name: api.EngineSafari, Version: "17.5"},
		},
		JSX:               api.JSXAutomatic,
		JSXImportSource:   "preact",
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		MinifySyntax:      true,
		LegalComments:     api.LegalCommentsNone,
		Metafile:          true,
		LogLevel:          api.LogLevelWarning,
	})
	if len(result.Errors) > 0 {
		return nil, nil, fmt.Errorf("bundling %s: %d errors", source, len(result.Errors))
	}
	files := map[string][]byte{}
	for _, file := range result.OutputFiles {
		path, err := filepath.Rel(filepath.Join(source, "dist"), file.Path)
		if err != nil {
			return nil, nil, err
		}
		files[filepath.ToSlash(path)] = file.Contents
	}
	packages, err := bundledPackages(result.Metafile)
	return files, packages, err
}

// bundledPackages reads from esbuild's metafile which npm packages have bytes in an output.
func bundledPackages(metafile string) ([]string, error) {
	var meta struct {
		Outputs map[string]struct {
			Inputs map[string]struct {
				Bytes int `json:"bytesInOutput"`
			} `json:"inputs"`
		} `json:"outputs"`
	}
	if err := json.Unmarshal([]byte(metafile), &meta); err != nil {
		return nil, fmt.Errorf("reading the metafile of esbuild: %w", err)
	}
	var packages []string
	for _, output := range meta.Outputs {
		for input, part := range output.Inputs {
			_, path, found := strings.Cut(input, "node_modules/")
			if !found || part.Bytes == 0 {
				continue
			}
			parts := strings.Split(path, "/")
			name := parts[0]
			if strings.HasPrefix(name, "@") {
				name += "/" + parts[1]
			}
			packages = append(packages, name)
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages), nil
}

// page fills the names of the bundle into the page.
func page(source string, files map[string][]byte) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(source, "src", "index.html"))
	if err != nil {
		return nil, err
	}
	for placeholder, pattern := range map[string]string{"{{script}}": "assets/app-*.js", "{{style}}": "assets/app-*.css", "{{icon}}": "assets/icon-*.svg"} {
		name, err := only(files, pattern)
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(text, []byte(placeholder)) {
			return nil, fmt.Errorf("src/index.html does not contain %s", placeholder)
		}
		text = bytes.ReplaceAll(text, []byte(placeholder), []byte("/"+name))
	}
	return text, nil
}

func only(files map[string][]byte, pattern string) (string, error) {
	var names []string
	for name := range files {
		if matched, err := filepath.Match(pattern, name); err != nil {
			return "", err
		} else if matched {
			names = append(names, name)
		}
	}
	if len(names) != 1 {
		return "", fmt.Errorf("expected one file %s in the bundle, got %v", pattern, names)
	}
	return names[0], nil
}

func licenses(source string, packages []string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("The console contains these packages.\n")
	for _, name := range packages {
		dir := filepath.Join(source, "node_modules", filepath.FromSlash(name))
		manifest, err := os.ReadFile(filepath.Join(dir, "package.json"))
		if err != nil {
			return nil, err
		}
		var about struct{ Version, License string }
		if err := json.Unmarshal(manifest, &about); err != nil {
			return nil, fmt.Errorf("reading package.json of %s: %w", name, err)
		}
		found, err := filepath.Glob(filepath.Join(dir, "LICENSE*"))
		if err != nil {
			return nil, err
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("package %s has %d files named LICENSE: its license cannot be listed", name, len(found))
		}
		text, err := os.ReadFile(found[0])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n%s\n%s %s (%s)\n\n%s\n", strings.Repeat("-", 80), name, about.Version, about.License, bytes.TrimSpace(text))
	}
	return b.Bytes(), nil
}

func checkSize(files map[string][]byte) error {
	total := 0
	for _, content := range files {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		total += b.Len()
	}
	if total > limit {
		return fmt.Errorf("the bundle has %d bytes compressed; the limit is %d", total, limit)
	}
	fmt.Printf("The console has %d files with %d bytes compressed.\n", len(files), total)
	return nil
}

func write(out string, files map[string][]byte) error {
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
