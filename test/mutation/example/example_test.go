package example

import "testing"

func TestClampKeepsTheLimit(t *testing.T) {
	if got := Clamp(3, 2); got != 2 {
		t.Errorf("Clamp(3, 2) is %d, want 2", got)
	}
}
