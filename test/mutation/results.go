package mutation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
)

// results are kept in a file, so that a run can go on where it was interrupted.
type results struct {
	mu   sync.Mutex
	path string
	// Binary is the digest of the tests, with code and mutants, and Code that of code and mutants alone.
	Binary   string       `json:"binary"`
	Code     string       `json:"code,omitempty"`
	Detected map[int]bool `json:"detected"`
}

// openResults reads the results of an earlier run of the same tests, if there are any. With onlySurvivors, a mutant that
// an earlier run of other tests detected counts as detected.
func openResults(path, binary, code string, onlySurvivors bool) (*results, error) {
	file, err := os.Open(binary)
	if err != nil {
		return nil, fmt.Errorf("reading the tests: %w", err)
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return nil, fmt.Errorf("reading the tests: %w", err)
	}
	fresh := &results{path: path, Binary: hex.EncodeToString(hash.Sum(nil)), Code: code, Detected: map[int]bool{}}
	if path == "" {
		return fresh, nil
	}
	raw, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return fresh, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the results of an earlier run: %w", err)
	}
	earlier := &results{path: path, Detected: map[int]bool{}}
	switch err := json.Unmarshal(raw, earlier); {
	case err == nil && earlier.Binary == fresh.Binary:
		return earlier, nil
	case err == nil && earlier.Code == fresh.Code && onlySurvivors:
		maps.Copy(fresh.Detected, earlier.Detected)
		maps.DeleteFunc(fresh.Detected, func(_ int, detected bool) bool { return !detected })
		fresh.Binary = "" // the next run of all mutants does not count on them
	}
	return fresh, nil // results of other code, or cut off, count for nothing
}

func (r *results) get(id int) (detected, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	detected, known = r.Detected[id]
	return detected, known
}

func (r *results) add(id int, detected bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Detected[id] = detected
	if r.path == "" {
		return nil
	}
	raw, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(r.path, raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}
