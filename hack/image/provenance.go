package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// provenanceFile says what the other files of a release were built from, and how.
const provenanceFile = "provenance.json"

// A statement of the in-toto attestation framework, with a predicate of SLSA 1.0:
// https://slsa.dev/spec/v1.0/provenance.
type (
	statement struct {
		Type          string     `json:"_type"`
		Subject       []resource `json:"subject"`
		PredicateType string     `json:"predicateType"`
		Predicate     predicate  `json:"predicate"`
	}
	resource struct {
		Name   string            `json:"name,omitempty"`
		URI    string            `json:"uri,omitempty"`
		Digest map[string]string `json:"digest"`
	}
	predicate struct {
		BuildDefinition buildDefinition `json:"buildDefinition"`
		RunDetails      runDetails      `json:"runDetails"`
	}
	buildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		InternalParameters   map[string]string `json:"internalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	}
	runDetails struct {
		Builder builder `json:"builder"`
	}
	builder struct {
		ID string `json:"id"`
	}
)

// writeProvenance describes the files in out and the image. A release is reproducible,
// so it has nothing of the machine or the time of the build.
func (r release) writeProvenance(out string, image v1.Hash) error {
	subjects := []resource{{Name: repository + ":" + r.version, Digest: map[string]string{image.Algorithm: image.Hex}}}
	entries, err := os.ReadDir(out) // sorted
	if err != nil {
		return fmt.Errorf("listing %s: %w", out, err)
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(out, entry.Name()))
		if err != nil {
			return fmt.Errorf("reading %s: %w", entry.Name(), err)
		}
		subjects = append(subjects, resource{Name: entry.Name(), Digest: map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256(content))}})
	}
	const source = "https://" + mainModule
	described := statement{
		Type:          "https://in-toto.io/Statement/v1",
		Subject:       subjects,
		PredicateType: "https://slsa.dev/provenance/v1",
		Predicate: predicate{
			BuildDefinition: buildDefinition{
				BuildType:          source + "/blob/main/docs/releasing.md#provenance",
				ExternalParameters: map[string]string{"version": r.version, "platforms": r.platforms},
				InternalParameters: map[string]string{"go": runtime.Version()},
				ResolvedDependencies: []resource{{
					URI:    "git+" + source + "@refs/tags/" + r.version,
					Digest: map[string]string{"gitCommit": r.stamp.commit},
				}},
			},
			RunDetails: runDetails{builder{ID: source + "/tree/main/hack/image"}},
		},
	}
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(described); err != nil {
		return fmt.Errorf("writing the provenance: %w", err)
	}
	return publish(filepath.Join(out, provenanceFile), content.Bytes())
}
