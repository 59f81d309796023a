package mcpserver

import (
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
	cases := map[string]struct {
		server  prober.Server
		old     *v1beta1.MCPServerInfo
		numbers []int
	}{
		"the same server":  {answered, known, []int{7, 4, 3}},
		"another version":  {other, known, []int{prober.NotCounted, 4, prober.NotCounted}},
		"no previous info": {answered, nil, []int{prober.NotCounted, 4, prober.NotCounted}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := withCounts(c.server, c.old)
			NewWithT(t).Expect([]int{got.Tools, got.Prompts, got.Resources}).To(Equal(c.numbers))
		})
	}
}
