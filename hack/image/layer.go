package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is one file of a layer: its content, or where it is.
type file struct {
	path    string
	content []byte
	from    string
	mode    int64
}

// newLayer builds a layer of the files and their parent folders: sorted, owned by
// root, with one modification time, so that the same files produce the same bytes.
func newLayer(files []file, modified time.Time, level int) (v1.Layer, error) {
	content, err := archive(files, modified)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithCompressionLevel(level), tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("building a layer: %w", err)
	}
	return layer, nil
}

func archive(files []file, modified time.Time) ([]byte, error) {
	entries := map[string]*file{}
	for i := range files {
		f := &files[i]
		entries[f.path] = f
		for dir := path.Dir(f.path); dir != "/"; dir = path.Dir(dir) {
			entries[dir] = nil
		}
	}
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if err := writeEntry(writer, name, entries[name], modified); err != nil {
			return nil, fmt.Errorf("adding %s: %w", name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("ending a layer: %w", err)
	}
	return buffer.Bytes(), nil
}

func writeEntry(writer *tar.Writer, name string, f *file, modified time.Time) error {
	header := &tar.Header{Name: strings.TrimPrefix(name, "/"), ModTime: modified, Format: tar.FormatUSTAR}
	if f == nil {
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, header.Name+"/", 0o755
		return writer.WriteHeader(header)
	}
	content := f.content
	if f.from != "" {
		var err error
		if content, err = os.ReadFile(f.from); err != nil {
			return err
		}
	}
	header.Typeflag, header.Mode, header.Size = tar.TypeReg, f.mode, int64(len(content))
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	_, err := writer.Write(content)
	return err
}
