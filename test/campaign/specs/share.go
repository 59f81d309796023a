package specs

import (
	"fmt"
	"os"
	"testing"
)

// Share is the part of a campaign that a run takes: with FIXPOINT_SHARE=1/3, every third of its items, from the one with
// the index 1. By default, it takes all.
type Share struct{ first, of int }

// ReadShare reads the share from the environment.
func ReadShare(t *testing.T) Share {
	t.Helper()
	s := Share{of: 1}
	text := os.Getenv("FIXPOINT_SHARE")
	if text == "" {
		return s
	}
	if _, err := fmt.Sscanf(text, "%d/%d", &s.first, &s.of); err != nil || s.first < 0 || s.first >= s.of {
		t.Fatalf("FIXPOINT_SHARE is %q, want an index and a number of shares, such as 0/3, 1/3 or 2/3", text)
	}
	return s
}

// Has reports whether the share has the item with an index.
func (s Share) Has(i int) bool { return i%s.of == s.first }
