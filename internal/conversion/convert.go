package conversion

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Versions that objects are converted between.
const (
	group    = "fixpoint.dev"
	v1alpha1 = group + "/v1alpha1"
	v1beta1  = group + "/v1beta1"
)

// conversions are the trees of renames by the version that they convert to.
var conversions = map[string]*field{v1beta1: tree(renames), v1alpha1: tree(inverse(renames))}

// FieldError is a field that cannot be converted.
type FieldError struct {
	// Path is the field in the version of the object.
	Path string
	// Problem says what is wrong, and the remedy.
	Problem string
}

func (e *FieldError) Error() string { return e.Path + ": " + e.Problem }

// Convert returns the JSON of an object in an API version, such as fixpoint.dev/v1beta1.
func Convert(object []byte, apiVersion string) ([]byte, error) {
	out := &writer{in: scanner{data: object}, to: apiVersion, out: make([]byte, 0, len(object)+64)}
	if err := out.object(); err != nil {
		return nil, err
	}
	return append(out.out, object[out.copied:]...), nil
}

// writer converts objects of its input into its output.
type writer struct {
	in scanner
	// copied is the position of the input up to which the output has everything.
	copied int
	out    []byte
	// to is the API version to convert to.
	to string
}

// object converts the object at the position of the input.
func (w *writer) object() error {
	root, known := conversions[w.to]
	if !known {
		return &FieldError{Path: "desiredAPIVersion", Problem: fmt.Sprintf("%q is not a version of %s: request %s or %s", w.to, group, v1alpha1, v1beta1)}
	}
	from, err := apiVersionOf(w.in)
	if err != nil {
		return err
	}
	if from == w.to {
		return w.in.skip()
	}
	if _, known := conversions[from]; !known {
		return &FieldError{Path: "apiVersion", Problem: fmt.Sprintf("%q is not a version of %s: use %s or %s", from, group, v1alpha1, v1beta1)}
	}
	hasMetadata := false
	err = w.in.object(func(key []byte, _ int) error {
		switch string(key) {
		case "apiVersion":
			return w.replaceValue(`"` + w.to + `"`)
		case "metadata":
			hasMetadata = true
		}
		return w.field(root.fields[string(key)], string(key))
	})
	if err == nil && !hasMetadata {
		// The API server removes it when an apply removes the last label or finalizer that a field manager has applied
		// in the other version, and then expects it in the response.
		end := w.in.pos - 1
		w.replace(end, end, `,"metadata":{}`)
	}
	return err
}

// apiVersionOf reads the version of the object at the position of a scanner. The API server encodes it first.
func apiVersionOf(s scanner) (string, error) {
	var version string
	found := false
	err := s.object(func(key []byte, _ int) error {
		if string(key) != "apiVersion" {
			return s.skip()
		}
		value, err := s.value()
		if err != nil {
			return err
		}
		if err := json.Unmarshal(value, &version); err != nil {
			return &FieldError{Path: "apiVersion", Problem: "set a version such as " + v1beta1}
		}
		found = true
		return errFound
	})
	if found {
		return version, nil
	}
	if err == nil {
		err = &FieldError{Path: "apiVersion", Problem: "is missing: set a version such as " + v1beta1}
	}
	return "", err
}

// errFound ends a scan.
var errFound = &FieldError{}

// field converts the value at the position of the input, which is that of a field at a path.
func (w *writer) field(f *field, path string) error {
	switch {
	case f == nil:
		return w.in.skip()
	case f.unknown && f.rename == "":
		return &FieldError{Path: path, Problem: "is not a field of this version: remove it"}
	case f.values != nil:
		return w.mapValue(f, path)
	case f.fields == nil:
		return w.in.skip()
	}
	switch w.in.next() {
	case '{':
		return w.fields(f, path)
	case '[':
		return w.in.array(func(i int) error {
			if w.in.next() != '{' {
				// No field is a list of lists. To visit such lists would let a client choose the depth of this recursion.
				return w.in.skip()
			}
			return w.fields(f, fmt.Sprintf("%s[%d]", path, i))
		})
	default:
		return w.in.skip()
	}
}

// fields converts the members of the object at the position of the input.
func (w *writer) fields(f *field, path string) error {
	return w.in.object(func(key []byte, keyStart int) error {
		below := f.fields[string(key)]
		if below == nil {
			return w.in.skip()
		}
		if below.rename != "" {
			w.replace(keyStart, keyStart+endOfString(w.in.data[keyStart:]), below.rename)
		}
		return w.field(below, path+"."+string(key))
	})
}

// endOfString is the length of the string at the start of JSON that was scanned before.
func endOfString(data []byte) int {
	s := scanner{data: data}
	_ = s.skipString() // it was skipped before
	return s.pos
}

func (w *writer) mapValue(f *field, path string) error {
	start := w.in.pos
	value, err := w.in.value()
	if err != nil {
		return err
	}
	text := string(value)
	if strings.HasPrefix(text, `"`) {
		// Strings may have escapes.
		var plain string
		if err := json.Unmarshal(value, &plain); err != nil {
			return &FieldError{Path: path, Problem: "is not a valid string"}
		}
		text = `"` + plain + `"`
	}
	to, known := f.values[text]
	switch {
	case known:
		w.replace(start, w.in.pos, to)
		return nil
	case text == "null":
		return nil
	default:
		return &FieldError{Path: path, Problem: fmt.Sprintf("is %.64s: set one of %s", text, f.allowed())}
	}
}

func (w *writer) replaceValue(text string) error {
	start := w.in.pos
	if err := w.in.skip(); err != nil {
		return err
	}
	w.replace(start, w.in.pos, text)
	return nil
}

// replace copies the input up to start, and writes text in place of what follows up to end.
func (w *writer) replace(start, end int, text string) {
	w.out = append(w.out, w.in.data[w.copied:start]...)
	w.out = append(w.out, text...)
	w.copied = end
}
