package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// referenceName is the annotation with the name of an image in a layout.
const referenceName = "org.opencontainers.image.ref.name"

// newIndex lists the images of all platforms.
func newIndex(images []platformImage) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range images {
		platform := i.platform
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: i.image, Descriptor: v1.Descriptor{Platform: &platform},
		})
	}
	return index
}

// writeImages writes the folder oci, an OCI layout of all platforms, and for each
// platform an archive that `docker load` and `ctr images import` take.
func writeImages(out, tag string, images []platformImage) error {
	if err := writeLayout(filepath.Join(out, "oci"), tag, images); err != nil {
		return err
	}
	for _, i := range images {
		if err := writeArchive(archivePath(out, i), []string{tag}, i.image); err != nil {
			return err
		}
	}
	return nil
}

// writeLayout writes an OCI layout of all platforms; one that exists is replaced.
func writeLayout(oci, tag string, images []platformImage) error {
	if err := os.RemoveAll(oci); err != nil {
		return fmt.Errorf("removing the earlier image: %w", err)
	}
	path, err := layout.Write(oci, empty.Index)
	if err != nil {
		return fmt.Errorf("writing %s: %w", oci, err)
	}
	if err := path.AppendIndex(newIndex(images), layout.WithAnnotations(map[string]string{referenceName: tag})); err != nil {
		return fmt.Errorf("writing %s: %w", oci, err)
	}
	return nil
}

func archivePath(out string, i platformImage) string {
	return filepath.Join(out, "fixpoint-"+i.platform.Architecture+".tar")
}

// describe prints what was written, with compressed sizes.
func describe(stdout io.Writer, out string, images []platformImage) error {
	digest, err := newIndex(images).Digest()
	if err != nil {
		return fmt.Errorf("describing the image: %w", err)
	}
	fmt.Fprintf(stdout, "%s  %s\n", filepath.Join(out, "oci"), digest)
	for _, i := range images {
		size, err := compressed(i.image)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s  %s  %.1f MB\n", archivePath(out, i), i.platform.String(), float64(size)/1e6)
	}
	return nil
}

// compressed is the size that a node pulls, in bytes.
func compressed(image v1.Image) (int64, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return 0, fmt.Errorf("reading the manifest: %w", err)
	}
	size := manifest.Config.Size
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	return size, nil
}

// pushTimeout is the limit for all platforms, on a slow connection.
const pushTimeout = 15 * time.Minute

func pushImages(ctx context.Context, to string, images []platformImage, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	reference, err := name.ParseReference(to)
	if err != nil {
		return fmt.Errorf("-push: %w", err)
	}
	index := newIndex(images)
	if err := remote.WriteIndex(reference, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("pushing to %s: %w", reference, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("describing the image: %w", err)
	}
	fmt.Fprintf(stdout, "pushed %s\n", reference.Context().Digest(digest.String()))
	return nil
}
