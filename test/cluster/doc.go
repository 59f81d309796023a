// Package cluster brings up a real Kubernetes on the machine it runs on, for
// tests, benchmarks and `make run`: etcd, API server, controller manager,
// scheduler and simulated nodes, built from source at one pinned version.
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
// Everything listens on the loopback address alone, on ports found free, so any
// number of clusters run side by side. No process outlives the one that called
// [Start], however that one ends, and no kubeconfig of the user is ever read or
// written.
package cluster
