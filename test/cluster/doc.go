// Package cluster runs a real Kubernetes control plane on the local machine, for tests, benchmarks and `make run`: etcd,
// API server, controller manager, scheduler and simulated nodes, built from source at a pinned version.
//
// A test package shares one cluster among its tests:
//
//	var shared *cluster.Cluster
//
//	func TestMain(m *testing.M) {
//		cluster.RunTests(m, cluster.Options{Parts: cluster.All, Audit: true},
//			func(c *cluster.Cluster) { shared = c })
//	}
//
//	func TestQuiet(t *testing.T) {
//		mark, err := shared.Audit().Mark()
//		...
//		requests, err := shared.Audit().Since(mark)
//		g.Expect(requests.By("fixpoint-manager").Writes()).To(BeEmpty())
//	}
//
// All components listen on free ports of the loopback address, so that any number of clusters can run at the same time.
// All processes end with the process that called [Start], even if it is killed. The user's kubeconfig is neither read nor
// written.
package cluster
