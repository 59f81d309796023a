// Package node runs a Kubernetes cluster with one real node: the control plane of package cluster, and containerd, the
// kubelet and kube-proxy, built from pinned modules. runc, the CNI plugins and iptables are those of the distribution.
//
// It needs Linux and root. [Run] runs the calling program again in new namespaces for processes, mounts and network.
// The bridge, the iptables rules and all mounts exist only there, and the kernel kills all processes in there when the
// program exits.
//
//	func TestMain(m *testing.M) {
//		if node.Inside() {
//			os.Exit(m.Run()) // starts a cluster with node.Start
//		}
//		os.Exit(node.Run(ctx, dir))
//	}
package node
