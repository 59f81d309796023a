package ssa

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// record is what the applier writes into an annotation of every object that it applies. It lets
// any process decide about the object without a request. The annotation is itself an applied field:
// managedFields shows an edit of it.
type record struct {
	// config tells a change of the configuration from everything else.
	config digest
	// owner proves by UID who controls the object if the owner reference was removed.
	owner types.UID
	// packed is the FieldsV1 of the configuration, compressed, so that what others have taken since is
	// known even if the configuration has changed as well, or the managed fields are lost.
	packed string
}

// digest is a truncated SHA-256 in URL-safe base64: 128 bits, 22 characters.
type digest string

func digestOf(raw []byte) digest {
	sum := sha256.Sum256(raw)
	return digest(base64.RawURLEncoding.EncodeToString(sum[:16]))
}

const recordVersion = "v1"

func (r record) String() string {
	return strings.Join([]string{recordVersion, string(r.config), string(r.owner), r.packed}, "/")
}

// parseRecord reads a record; anything else than a record of this version is the empty one.
func parseRecord(annotation string) record {
	version, rest, _ := strings.Cut(annotation, "/")
	if version != recordVersion {
		return record{}
	}
	config, rest, _ := strings.Cut(rest, "/")
	owner, packed, _ := strings.Cut(rest, "/")
	return record{config: digest(config), owner: types.UID(owner), packed: packed}
}

// maxFields, in bytes, bounds what is unpacked from an annotation, which anyone can edit.
const maxFields = 1 << 20

// fields unpacks what was applied. A record that does not hold it, because it was edited, is no
// error.
func (r record) fields() (*fieldSet, bool) {
	compressed, err := base64.RawURLEncoding.DecodeString(r.packed)
	if err != nil || len(compressed) == 0 {
		return nil, false
	}
	raw, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(compressed)), maxFields))
	if err != nil || nesting(raw) > maxNesting {
		return nil, false
	}
	set, err := parseFields(raw)
	return set, err == nil
}

// compressors are kept, since a new one allocates more than a megabyte.
var compressors = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestCompression) // fails only for a level that does not exist
	return w
}}

func pack(fields string) (string, error) {
	var compressed bytes.Buffer
	w, _ := compressors.Get().(*flate.Writer)
	defer compressors.Put(w)
	w.Reset(&compressed)
	_, err := io.WriteString(w, fields)
	if err = errors.Join(err, w.Close()); err != nil {
		return "", fmt.Errorf("compressing a field set: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(compressed.Bytes()), nil
}
