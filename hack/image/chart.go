package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func runChart(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("image chart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	source := flags.String("source", "../..", "Folder of the project's sources.")
	version := flags.String("version", "", "Version of the chart and of the image, such as v1.2.3.")
	digest := flags.String("digest", "", "Digest of the image of that version; left out, the chart names the image by tag only.")
	out := flags.String("out", "", "File to write, such as fixpoint-1.2.3.tgz.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || !versionPattern.MatchString(*version) {
		return errors.New("-out and -version vMAJOR.MINOR.PATCH are needed")
	}
	s, err := readStamp(context.Background(), *source, *version, "")
	if err != nil {
		return err
	}
	return packageChart(*source, *out, *version, *digest, s.date)
}

// What a release sets in Chart.yaml.
var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

// packageChart packs the chart as `helm package` does, with its versions set. The
// image's tag is the chart's appVersion, and its digest an annotation.
func packageChart(source, to, version, digest string, modified time.Time) error {
	folder := filepath.Join(source, "charts", "fixpoint")
	files, err := filesBelow(folder, "/fixpoint")
	if err != nil {
		return err
	}
	metadata, err := os.ReadFile(filepath.Join(folder, "Chart.yaml"))
	if err != nil {
		return fmt.Errorf("reading the chart: %w", err)
	}
	if !chartVersion.Match(metadata) || !appVersion.Match(metadata) {
		return errors.New("file Chart.yaml lacks a line with version or appVersion")
	}
	metadata = chartVersion.ReplaceAll(metadata, []byte("version: "+strings.TrimPrefix(version, "v")))
	metadata = appVersion.ReplaceAll(metadata, []byte("appVersion: "+version))
	if digest != "" {
		metadata = append(metadata, fmt.Sprintf("annotations:\n  fixpoint.dev/image-digest: %s\n", digest)...)
	}
	for i := range files {
		if files[i].path == "/fixpoint/Chart.yaml" {
			files[i].content, files[i].from = metadata, ""
		}
	}
	return writeTarball(to, files, modified)
}
