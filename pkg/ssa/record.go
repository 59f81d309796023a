package ssa

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// record is what the applier writes into an annotation of every object, so that any process can decide about the object
// without a request. The annotation is itself an applied field: managedFields shows an edit of it.
type record struct {
	config digest    // tells a change of the configuration from everything else
	owner  types.UID // proves who controls the object if the owner reference was removed
	// packed is the FieldsV1 of the configuration, compressed, so that what others have taken since is known even if the
	// configuration has changed as well, or the managed fields are lost.
	packed string
}

// digest is a truncated SHA-256.
type digest [16]byte

func digestOf(raw []byte) digest {
	sum := sha256.Sum256(raw)
	return digest(sum[:])
}

// String is the form that parseDigest reads, of 22 characters.
func (d digest) String() string { return base64.RawURLEncoding.EncodeToString(d[:]) }

// parseDigest returns the digest of nothing for any other text than that of a digest.
func parseDigest(text string) (d digest) {
	if raw, _ := base64.RawURLEncoding.DecodeString(text); len(raw) == len(d) {
		d = digest(raw)
	}
	if d.String() != text {
		return digest{}
	}
	return d
}

const recordVersion = "v1"

func (r record) String() string {
	return strings.Join([]string{recordVersion, r.config.String(), string(r.owner), r.packed}, "/")
}

// parseRecord reads a record; anything else than a record of this version is the empty one.
func parseRecord(annotation string) record {
	version, rest, _ := strings.Cut(annotation, "/")
	if version != recordVersion {
		return record{}
	}
	config, rest, _ := strings.Cut(rest, "/")
	owner, packed, _ := strings.Cut(rest, "/")
	return record{config: parseDigest(config), owner: types.UID(owner), packed: packed}
}

// maxFields, in bytes, bounds what is unpacked from an annotation, which anyone can edit.
const maxFields = 1 << 20

// fields unpacks what was applied. A record that does not hold it, because it was edited, is no error.
func (r record) fields() (*fieldSet, bool) {
	raw, ok := r.rawFields()
	if !ok || nesting([]byte(raw)) > maxNesting {
		return nil, false
	}
	set, err := parseFields([]byte(raw))
	return set, err == nil
}

// inflaters are reused, because each has a window of 40 KB.
var inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// rawFields is the FieldsV1 that was applied.
func (r record) rawFields() (string, bool) {
	compressed, err := base64.RawURLEncoding.DecodeString(r.packed)
	if err != nil {
		return "", false
	}
	from, _ := inflaters.Get().(interface {
		io.Reader
		flate.Resetter
	})
	defer inflaters.Put(from)
	_ = from.Reset(bytes.NewReader(compressed), nil) // it cannot fail without a dictionary
	raw, err := io.ReadAll(io.LimitReader(from, maxFields))
	return string(raw), err == nil
}

// deflaters are reused, because each takes almost a megabyte.
var deflaters = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestCompression)
	return w
}}

// pack compresses a field set into memory, which cannot fail.
func pack(fields string) string {
	var compressed bytes.Buffer
	w, _ := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(&compressed)
	_, _ = io.WriteString(w, fields)
	_ = w.Close()
	return base64.RawURLEncoding.EncodeToString(compressed.Bytes())
}
