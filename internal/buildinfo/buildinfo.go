// Package buildinfo reports the version of this build.
//
// A release sets the values with the linker:
//
//	go build -ldflags "-X github.com/fixpoint-dev/fixpoint/internal/buildinfo.version=v1.2.3 \
//	  -X github.com/fixpoint-dev/fixpoint/internal/buildinfo.commit=0123abc \
//	  -X github.com/fixpoint-dev/fixpoint/internal/buildinfo.date=2026-01-02T03:04:05Z"
//
// Values that are not set come from the build information that the Go toolchain records.
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

// Unknown is the value of information that is not available.
const Unknown = "unknown"

// Info describes a build.
type Info struct {
	// Version is a tag, or (devel).
	Version string
	// Commit is the revision, with the suffix -dirty if the work tree had uncommitted changes.
	Commit string
	// Date is the time of the commit, or the date that the release sets, in RFC 3339.
	Date string
	// Go is the version of the Go toolchain.
	Go string
}

// Get describes this build.
func Get() Info {
	build, _ := debug.ReadBuildInfo()
	return from(build)
}

func from(build *debug.BuildInfo) Info {
	recorded := map[string]string{}
	module := ""
	if build != nil {
		module = build.Main.Version
		for _, setting := range build.Settings {
			recorded[setting.Key] = setting.Value
		}
	}
	revision := recorded["vcs.revision"]
	if revision != "" && recorded["vcs.modified"] == "true" {
		revision += "-dirty"
	}
	return Info{
		Version: cmp.Or(version, module, Unknown),
		Commit:  cmp.Or(commit, revision, Unknown),
		Date:    cmp.Or(date, recorded["vcs.time"], Unknown),
		Go:      runtime.Version(),
	}
}

// String formats the information in one line.
func (i Info) String() string {
	return fmt.Sprintf("%s, commit %s, date %s, built with %s", i.Version, i.Commit, i.Date, i.Go)
}

// Register registers the metric fixpoint_build_info, whose value is always 1 and whose labels describe
// the build. It is no error if it is registered already.
func Register(registerer prometheus.Registerer) error {
	info := Get()
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "fixpoint_build_info",
		Help:        "Always 1; the labels describe the build.",
		ConstLabels: prometheus.Labels{"version": info.Version, "commit": info.Commit, "date": info.Date, "go": info.Go},
	}, func() float64 { return 1 })
	err := registerer.Register(gauge)
	var already prometheus.AlreadyRegisteredError
	if err != nil && !errors.As(err, &already) {
		return fmt.Errorf("registering fixpoint_build_info: %w", err)
	}
	return nil
}
