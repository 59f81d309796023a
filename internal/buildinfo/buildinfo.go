// Package buildinfo says which build this is.
//
// A release sets what it knows with the linker:
//
//	go build -ldflags "-X github.com/fixpoint-dev/fixpoint/internal/buildinfo.version=v1.2.3 \
//	  -X github.com/fixpoint-dev/fixpoint/internal/buildinfo.commit=0123abc \
//	  -X github.com/fixpoint-dev/fixpoint/internal/buildinfo.date=2026-01-02T03:04:05Z"
//
// What is not set is what the Go toolchain has noted of the repository.
package buildinfo

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Set by the linker.
var version, commit, date string

// Unknown stands for what a build does not know of itself.
const Unknown = "unknown"

// Info is what a build knows of itself.
type Info struct {
	// Version is a tag, or (devel).
	Version string
	// Commit is the revision, with -dirty if there were changes beside it.
	Commit string
	// Date is when the commit was made, or whatever the release says, as RFC 3339.
	Date string
	// Go is the toolchain's version.
	Go string
}

// Get returns what this build knows of itself.
func Get() Info {
	build, _ := debug.ReadBuildInfo()
	return from(build)
}

func from(build *debug.BuildInfo) Info {
	noted := map[string]string{}
	module := ""
	if build != nil {
		module = build.Main.Version
		for _, setting := range build.Settings {
			noted[setting.Key] = setting.Value
		}
	}
	revision := noted["vcs.revision"]
	if revision != "" && noted["vcs.modified"] == "true" {
		revision += "-dirty"
	}
	return Info{
		Version: cmp.Or(version, module, Unknown),
		Commit:  cmp.Or(commit, revision, Unknown),
		Date:    cmp.Or(date, noted["vcs.time"], Unknown),
		Go:      runtime.Version(),
	}
}

// String is a line for people.
func (i Info) String() string {
	return fmt.Sprintf("%s, commit %s, of %s, built with %s", i.Version, i.Commit, i.Date, i.Go)
}

// Register adds the metric fixpoint_build_info, which is always 1 and says in its labels what
// build this is. That it is there already is no error.
func Register(registerer prometheus.Registerer) error {
	info := Get()
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "fixpoint_build_info",
		Help:        "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": info.Version, "commit": info.Commit, "date": info.Date, "go": info.Go},
	}, func() float64 { return 1 })
	err := registerer.Register(gauge)
	var already prometheus.AlreadyRegisteredError
	if err != nil && !errors.As(err, &already) {
		return fmt.Errorf("registering the metric of the build: %w", err)
	}
	return nil
}
