package cluster

import (
	"fmt"
	"os"
	"strings"
)

// Part is a set of the cluster's programs.
type Part uint8

// The programs of a cluster. Etcd and APIServer always run; the others are asked
// for in [Options.Parts].
const (
	Etcd Part = 1 << iota
	APIServer
	ControllerManager
	Scheduler
	// Nodes is kwok, which plays the kubelets of Options.Nodes nodes: a pod that
	// is scheduled is running and ready at once (but see [ImageNeverReady]).
	Nodes

	// EtcdAndAPI stores and validates objects; nothing acts on them.
	EtcdAndAPI = Etcd | APIServer
	// All is a whole cluster: Deployments become available, owners' children are
	// collected, namespaces go away.
	All = EtcdAndAPI | ControllerManager | Scheduler | Nodes
)

// allParts is in the order in which the parts start.
var allParts = []Part{Etcd, APIServer, ControllerManager, Scheduler, Nodes}

var programOf = map[Part]string{
	Etcd:              "etcd",
	APIServer:         "kube-apiserver",
	ControllerManager: "kube-controller-manager",
	Scheduler:         "kube-scheduler",
	Nodes:             "kwok",
}

// String names the programs of the set.
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

// Pods with these images behave otherwise than all others, which run and are
// ready as soon as they are scheduled.
const (
	// ImageNeverReady runs, and never becomes ready.
	ImageNeverReady = "fixpoint.test/never-ready:1"
	// ImagePullFails stays in ImagePullBackOff.
	ImagePullFails = "fixpoint.test/pull-fails:1"
	// ImageCrashes stays in CrashLoopBackOff.
	ImageCrashes = "fixpoint.test/crashes:1"
)

// Options say what [Start] starts. The zero value is etcd and an API server.
type Options struct {
	// Parts are the programs to run beside etcd and the API server.
	Parts Part
	// Nodes is how many nodes are simulated if Parts has Nodes; 0 means 3.
	Nodes int
	// Audit makes the API server record every request: see [Cluster.Audit].
	Audit bool
	// APIServerArgs are added to the API server's command line, where they win
	// over the ones given before them.
	APIServerArgs []string
	// AuthorizationConfig is a file that says how requests are authorized (the API
	// server's --authorization-config). Left out, it is by Node and RBAC.
	AuthorizationConfig string
	// CRDPaths are files and folders of CustomResourceDefinitions. They are
	// established before anything but the API server runs, because the garbage
	// collector looks for new kinds only twice a minute.
	CRDPaths []string
	// GCPercent is how much garbage etcd and the API server may gather before they collect it, in percent
	// of what they use (Go's GOGC): more costs memory and saves time. 0 leaves Go's default.
	GCPercent int
	// Dir keeps the data, certificates and logs. It is made if missing, and stays.
	// Left out, a temporary folder is used, and removed by [Cluster.Stop].
	Dir string
	// Progress is told what is being done, a line at a time, for a person to read.
	// Left out, only the first build is reported, to standard error.
	Progress func(line string)
}

func (o Options) withDefaults() (Options, error) {
	o.Parts |= EtcdAndAPI
	if unknown := o.Parts &^ All; unknown != 0 {
		return o, fmt.Errorf("unknown parts %b in Options.Parts", unknown)
	}
	if o.Nodes < 0 {
		return o, fmt.Errorf("Options.Nodes is %d, and must not be negative", o.Nodes)
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

// buildProgress is where the build reports to. It has a default because a test
// that is silent for minutes looks as if it hung.
func (o Options) buildProgress() func(string) {
	if o.Progress != nil {
		return o.Progress
	}
	return func(line string) { fmt.Fprintln(os.Stderr, line) }
}
