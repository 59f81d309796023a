// Package node brings up a Kubernetes with one real node: the programs of package
// cluster, and beside them containerd, the kubelet and kube-proxy, all built from
// pinned modules; runc, the CNI plugins and iptables come with the machine's
// distribution.
//
// It needs Linux and root, and it leaves the machine as it was: [Sandbox] runs the
// calling program again in namespaces of its own (processes, mounts, network), so
// the bridge, the rules of iptables and every mount live and die with it, and the
// kernel ends whatever runs in there when the program ends, however it does.
//
//	func TestMain(m *testing.M) {
//		if node.Inside() {
//			os.Exit(m.Run()) // starts a cluster with node.Start
//		}
//		os.Exit(node.Run(ctx, dir))
//	}
package node
