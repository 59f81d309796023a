package e2e_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestOverlapsFindsLateWrites tests the detection of concurrent leaders.
func TestOverlapsFindsLateWrites(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	history := &leaseHistory{}
	for _, taken := range []term{{identity: "a_1", from: at(0)}, {identity: "a_1", from: at(0)}, {identity: "b_1", from: at(20)}, {identity: "a_2", from: at(40)}} {
		history.note(taken)
	}
	cases := map[string]struct {
		acts []write
		late []int
	}{
		"consecutive leaders":                          {[]write{{"a", at(1), ""}, {"a", at(19), ""}, {"b", at(21), ""}, {"a", at(41), ""}}, nil},
		"the old leader until the new one writes":      {[]write{{"a", at(1), ""}, {"a", at(22), ""}, {"b", at(23), ""}}, nil},
		"the old leader after the new one wrote":       {[]write{{"a", at(1), ""}, {"b", at(21), ""}, {"a", at(22), ""}, {"b", at(23), ""}}, []int{2}},
		"an earlier process of a pod that leads again": {[]write{{"b", at(21), ""}, {"a", at(41), ""}, {"b", at(42), ""}}, []int{2}},
		"a replica that never led":                     {[]write{{"a", at(1), ""}, {"c", at(2), ""}}, []int{1}},
		"a leader before its term":                     {[]write{{"b", at(19), ""}}, []int{0}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var late []write
			for _, i := range c.late {
				late = append(late, c.acts[i])
			}
			NewWithT(t).Expect(history.overlaps(c.acts)).To(Equal(late))
		})
	}
}
