package buildinfo

import (
	"runtime"
	"runtime/debug"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
)

func TestInfo(t *testing.T) {
	recorded := &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
	}}
	cases := map[string]struct {
		build                 *debug.BuildInfo
		version, commit, date string
		want                  Info
	}{
		"no information":     {nil, "", "", "", Info{Unknown, Unknown, Unknown, runtime.Version()}},
		"from the toolchain": {recorded, "", "", "", Info{"v0.1.0", "0123abc-dirty", "2026-01-02T03:04:05Z", runtime.Version()}},
		"from the linker":    {recorded, "v1.0.0", "456def", "2026-02-03T00:00:00Z", Info{"v1.0.0", "456def", "2026-02-03T00:00:00Z", runtime.Version()}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			version, commit, date = c.version, c.commit, c.date
			t.Cleanup(func() { version, commit, date = "", "", "" })
			NewWithT(t).Expect(from(c.build)).To(Equal(c.want))
		})
	}
}

func TestInfoString(t *testing.T) {
	info := Info{"v1.0.0", "456def", "2026-02-03T00:00:00Z", "go1.26"}
	NewWithT(t).Expect(info.String()).To(Equal("v1.0.0, commit 456def, date 2026-02-03T00:00:00Z, built with go1.26"))
}

func TestRegisterTwice(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewRegistry()
	g.Expect(Register(registry)).To(Succeed())
	g.Expect(Register(registry)).To(Succeed(), "a process may build many managers")

	families, err := registry.Gather()

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(families).To(HaveLen(1))
	g.Expect(families[0].GetName()).To(Equal("fixpoint_build_info"))
	g.Expect(families[0].GetMetric()[0].GetGauge().GetValue()).To(Equal(1.0))
	var labels []string
	for _, label := range families[0].GetMetric()[0].GetLabel() {
		labels = append(labels, label.GetName())
	}
	g.Expect(labels).To(ConsistOf("version", "commit", "date", "go"))
}
