package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	. "github.com/onsi/gomega"
)

func TestMemoryLimit(t *testing.T) {
	cases := map[string]struct {
		file, content string
		want          int64
	}{
		"no cgroup":         {"other", "1", maxMemory},
		"no limit":          {"memory.max", "max\n", maxMemory},
		"half of the limit": {"memory.max", "134217728\n", 64 << 20},
		"a large limit":     {"memory.max", "8589934592\n", maxMemory},
		"cgroup v1":         {"memory/memory.limit_in_bytes", "134217728\n", 64 << 20},
		"cgroup v1, none":   {"memory/memory.limit_in_bytes", "9223372036854771712\n", maxMemory},
		"something else":    {"memory.max", "-1", maxMemory},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cgroup := t.TempDir()
			file := filepath.Join(cgroup, c.file)
			g.Expect(os.MkdirAll(filepath.Dir(file), 0o700)).To(Succeed())
			g.Expect(os.WriteFile(file, []byte(c.content), 0o600)).To(Succeed())

			g.Expect(memoryLimit(cgroup)).To(Equal(c.want))
		})
	}
}

func TestMemoryLimitOfTheUserIsKept(t *testing.T) {
	g := NewWithT(t)
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	none := t.TempDir()

	debug.SetMemoryLimit(123 << 20) // as the runtime does with GOMEMLIMIT
	g.Expect(limitMemory(func(string) string { return "123MiB" }, none)).To(BeEquivalentTo(123 << 20))

	debug.SetMemoryLimit(math.MaxInt64)
	g.Expect(limitMemory(func(string) string { return "" }, none)).To(BeEquivalentTo(maxMemory))
}

func TestClusterDomains(t *testing.T) {
	hosts := []string{"tools", "tools.acme.svc", "tools.example.com"}
	cases := map[string]struct {
		config string
		want   []string
	}{
		"a domain":       {"nameserver 10.0.0.10\nsearch acme.svc.example.org svc.example.org example.org\noptions ndots:5\n", []string{"tools.acme.svc.example.org"}},
		"none":           {"nameserver 10.0.0.10\n", nil},
		"outside of one": {"search example.org\n\n# search svc.evil.example\n", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := filepath.Join(t.TempDir(), "resolv.conf")
			g.Expect(os.WriteFile(file, []byte(c.config), 0o600)).To(Succeed())
			g.Expect(withClusterDomains(hosts, file)).To(Equal(append(hosts, c.want...)))
		})
	}
	NewWithT(t).Expect(withClusterDomains(hosts, "/no/such/file")).To(Equal(hosts))
}
