package mcpserver

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
)

// After a restart of the manager the first handshake comes before the lists.
func TestServerInfoKeepsCountsUntilCountedAgain(t *testing.T) {
	known := &v1beta1.MCPServerInfo{Name: "tools", Version: "1", Tools: 7, Prompts: 2, Resources: 3}
	answered := prober.Server{Name: "tools", Version: "1", Tools: prober.NotCounted, Prompts: 4, Resources: prober.NotCounted}
	other := answered
	other.Version = "2"
	another, uncounted := answered, answered
	another.Name, uncounted.Prompts = "other", prober.NotCounted
	// The status has the first 128 bytes.
	long := answered
	long.Name, long.Version = strings.Repeat("a", 200), strings.Repeat("1", 200)
	longKnown := &v1beta1.MCPServerInfo{Name: *infoOf(long).Name, Version: *infoOf(long).Version, Tools: 7, Prompts: 2, Resources: 3}
	cases := map[string]struct {
		server  prober.Server
		old     *v1beta1.MCPServerInfo
		numbers []int
	}{
		"the same server":  {answered, known, []int{7, 4, 3}},
		"another version":  {other, known, []int{prober.NotCounted, 4, prober.NotCounted}},
		"another server":   {another, known, []int{prober.NotCounted, 4, prober.NotCounted}},
		"a long name":      {long, longKnown, []int{7, 4, 3}},
		"no prompts yet":   {uncounted, known, []int{7, 2, 3}},
		"no previous info": {answered, nil, []int{prober.NotCounted, 4, prober.NotCounted}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := withCounts(c.server, c.old)
			NewWithT(t).Expect([]int{got.Tools, got.Prompts, got.Resources}).To(Equal(c.numbers))
		})
	}
}
