package cluster

import (
	"fmt"
	"os"
	"strings"
)

// Part is a set of components.
type Part uint8

// The components of a cluster. Etcd and APIServer always run; [Options.Parts] selects the others.
const (
	Etcd Part = 1 << iota
	APIServer
	ControllerManager
	Scheduler
	// Nodes is kwok, which simulates the kubelets of Options.Nodes nodes: a scheduled pod becomes ready immediately (but see
	// [ImageNeverReady]).
	Nodes

	// EtcdAndAPI stores and validates objects; nothing acts on them.
	EtcdAndAPI = Etcd | APIServer
	// All is a complete cluster: Deployments become available, garbage is collected, namespaces are deleted.
	All = EtcdAndAPI | ControllerManager | Scheduler | Nodes
)

// allParts is in the order in which the components start.
var allParts = []Part{Etcd, APIServer, ControllerManager, Scheduler, Nodes}

var programOf = map[Part]string{
	Etcd:              "etcd",
	APIServer:         "kube-apiserver",
	ControllerManager: "kube-controller-manager",
	Scheduler:         "kube-scheduler",
	Nodes:             "kwok",
}

// String returns the names of the components.
func (p Part) String() string {
	var names []string
	for _, part := range allParts {
		if p.has(part) {
			names = append(names, programOf[part])
		}
	}
	return strings.Join(names, ", ")
}

func (p Part) has(part Part) bool { return p&part != 0 }

// Pods with these images do not become ready like all others.
const (
	// ImageNeverReady starts and never becomes ready.
	ImageNeverReady = "fixpoint.test/never-ready:1"
	// ImagePullFails stays in ImagePullBackOff.
	ImagePullFails = "fixpoint.test/pull-fails:1"
	// ImageCrashes stays in CrashLoopBackOff.
	ImageCrashes = "fixpoint.test/crashes:1"
	// ImageFails ends with exit code 3, in pods that are not restarted.
	ImageFails = "fixpoint.test/fails:1"
)

// Options configure [Start]. The zero value is etcd and an API server.
type Options struct {
	// Parts are the components beside etcd and the API server.
	Parts Part
	// Nodes is the number of simulated nodes if Parts contains Nodes; 0 means 3.
	Nodes int
	// Audit records every request: see [Cluster.Audit].
	Audit bool
	// APIServerArgs are appended to the command line of the API server and override its defaults.
	APIServerArgs []string
	// AuthorizationConfig is the file for the API server's --authorization-config. The default is Node and RBAC.
	AuthorizationConfig string
	// CRDPaths are files and directories of CustomResourceDefinitions. They are established before the other components start,
	// because the garbage collector discovers new kinds only twice a minute.
	CRDPaths []string
	// Dir contains the data, certificates and logs. It is created if necessary and not removed. The default is a temporary
	// directory, which [Cluster.Stop] removes.
	Dir string
	// Progress receives progress messages. By default, only the first build is reported, to standard error.
	Progress func(line string)
}

func (o Options) withDefaults() (Options, error) {
	o.Parts |= EtcdAndAPI
	if unknown := o.Parts &^ All; unknown != 0 {
		return o, fmt.Errorf("unknown parts %b in Options.Parts", unknown)
	}
	if o.Nodes < 0 {
		return o, fmt.Errorf("Options.Nodes is %d: it must not be negative", o.Nodes)
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	return o, nil
}

func (o Options) authorization() string {
	if o.AuthorizationConfig != "" {
		return "--authorization-config=" + o.AuthorizationConfig
	}
	return "--authorization-mode=Node,RBAC"
}

func (o Options) report(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// buildProgress reports the build. It has a default, because a test that is silent for minutes seems to hang.
func (o Options) buildProgress() func(string) {
	if o.Progress != nil {
		return o.Progress
	}
	return func(line string) { fmt.Fprintln(os.Stderr, line) }
}
