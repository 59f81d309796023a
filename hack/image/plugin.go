package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"
)

const (
	pluginProgram = "kubectl-fixpoint"
	downloads     = "https://github.com/fixpoint-dev/fixpoint/releases/download/"
	// completionScript completes the arguments of the plugin: kubectl runs it if it is on the PATH.
	completionScript = "kubectl_complete-fixpoint"
	completion       = "#!/usr/bin/env sh\nexec kubectl fixpoint __complete \"$@\"\n"
)

// krewPlugin is the manifest of the plugin for krew: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
type krewPlugin struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Caveats          string         `json:"caveats"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// writePlugin writes an archive of the kubectl plugin for each platform, and the manifest for krew.
func (r release) writePlugin(ctx context.Context, out, work string) error {
	manifest := krewPlugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: krewMetadata{Name: "fixpoint"}}
	manifest.Spec = krewSpec{
		Version: r.version, Homepage: "https://github.com/fixpoint-dev/fixpoint", ShortDescription: "Show and operate objects of Fixpoint",
		Description: "Shows the phases of AppServices, MCPServers and SecureStorages, why they are not Ready,\nwho changed them, and what the manager would do. Suspends, resumes and reconciles them,\nand adopts running Deployments by new AppServices.\n",
		Caveats: "To complete arguments, kubectl runs the script " + completionScript + ". Put it on your PATH:\n" +
			"  ln -s \"${KREW_ROOT:-$HOME/.krew}/store/fixpoint/" + r.version + "/" + completionScript + "\" \"${KREW_ROOT:-$HOME/.krew}/bin/\"\n",
	}
	for item := range strings.SplitSeq(r.pluginPlatforms, ",") {
		platform, err := v1.ParsePlatform(strings.TrimSpace(item))
		if err != nil || platform.OS == "" || platform.Architecture == "" || platform.Variant != "" {
			return fmt.Errorf("-plugin-platforms: %q is not supported: use OS/ARCHITECTURE, such as darwin/arm64", item)
		}
		entry, err := r.writePluginArchive(ctx, out, work, *platform)
		if err != nil {
			return err
		}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, entry)
	}
	raw, err := yaml.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("serializing the manifest for krew: %w", err)
	}
	return publish(filepath.Join(out, "krew.yaml"), raw)
}

func (r release) writePluginArchive(ctx context.Context, out, work string, platform v1.Platform) (krewPlatform, error) {
	bin := filepath.Join(work, "plugin", platform.OS, platform.Architecture)
	if err := compile(ctx, r.source, bin, platform, r.stamp, []string{pluginProgram}); err != nil {
		return krewPlatform{}, err
	}
	program := pluginProgram
	if platform.OS == "windows" {
		program += ".exe"
	}
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return krewPlatform{}, fmt.Errorf("reading the license: %w", err)
	}
	name := fmt.Sprintf("%s-%s-%s-%s.tar.gz", pluginProgram, r.version, platform.OS, platform.Architecture)
	files := []file{
		{path: "/" + program, from: filepath.Join(bin, program), mode: 0o755},
		{path: "/" + completionScript, content: []byte(completion), mode: 0o755},
		{path: "/LICENSE", content: license, mode: 0o644},
	}
	if err := writeTarball(filepath.Join(out, name), files, r.stamp.date); err != nil {
		return krewPlatform{}, err
	}
	content, err := os.ReadFile(filepath.Join(out, name))
	if err != nil {
		return krewPlatform{}, fmt.Errorf("reading %s: %w", name, err)
	}
	return krewPlatform{
		Selector: krewSelector{MatchLabels: map[string]string{"os": platform.OS, "arch": platform.Architecture}},
		URI:      downloads + r.version + "/" + name,
		SHA256:   fmt.Sprintf("%x", sha256.Sum256(content)),
		Bin:      program,
	}, nil
}
