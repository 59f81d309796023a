package main

import (
	"compress/gzip"
	"fmt"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nonroot is the user and group ID of distroless images.
const nonroot = "65532:65532"

// settings are an image's configuration.
type settings struct {
	platform   v1.Platform
	user       string
	entrypoint []string
	env        []string
	labels     map[string]string
	created    time.Time
	// comment describes the layer in the history.
	comment string
}

// compose builds an image of one layer.
func compose(files []file, s settings, level int) (v1.Image, error) {
	layer, err := newLayer(files, s.created, level)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	config, err := base.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("composing an image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = s.platform.OS, s.platform.Architecture, s.platform.Variant
	config.Created = v1.Time{Time: s.created}
	config.Config = v1.Config{User: s.user, Entrypoint: s.entrypoint, Env: s.env, Labels: s.labels, WorkingDir: "/"}
	image, err := mutate.ConfigFile(base, config)
	if err != nil {
		return nil, fmt.Errorf("composing an image: %w", err)
	}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: s.created}, CreatedBy: s.comment},
	})
	if err != nil {
		return nil, fmt.Errorf("composing an image: %w", err)
	}
	return image, nil
}

// packImage writes an archive, as docker saves them, of an image for this machine.
func packImage(out string, names []string, files []file, s settings) error {
	s.platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	s.created, s.comment = time.Unix(0, 0).UTC(), "image pack"
	image, err := compose(files, s, gzip.BestSpeed)
	if err != nil {
		return err
	}
	return writeArchive(out, names, image)
}

func writeArchive(out string, names []string, image v1.Image) error {
	tags := map[name.Tag]v1.Image{}
	for _, n := range names {
		tag, err := name.NewTag(n)
		if err != nil {
			return fmt.Errorf("naming the image: %w", err)
		}
		tags[tag] = image
	}
	if err := tarball.MultiWriteToFile(out, tags); err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	return nil
}
