package cluster

import (
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAuditCountsExactly(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := start(t, Options{Audit: true})
	configMaps := clientFor(g, c.Config("counted", Masters)).CoreV1().ConfigMaps("default")
	other := clientFor(g, c.Config("other", Masters)).CoreV1().ConfigMaps("default")
	_, err := configMaps.Create(t.Context(), configMap("before"), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	mark, err := c.Audit().Mark()
	g.Expect(err).NotTo(HaveOccurred())

	_, err = configMaps.Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = configMaps.Get(t.Context(), "absent", metav1.GetOptions{})
	g.Expect(err).To(HaveOccurred())
	apply := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`)
	_, err = configMaps.Patch(t.Context(), "a", types.ApplyYAMLPatchType, apply, metav1.PatchOptions{FieldManager: "me"})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = configMaps.Patch(t.Context(), "a", types.ApplyYAMLPatchType, apply, metav1.PatchOptions{FieldManager: "me", DryRun: []string{"All"}})
	g.Expect(err).NotTo(HaveOccurred())
	watch, err := configMaps.Watch(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	watch.Stop()
	g.Expect(configMaps.Delete(t.Context(), "a", metav1.DeleteOptions{})).To(Succeed())
	_, err = other.List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	all, err := c.Audit().Since(mark)
	g.Expect(err).NotTo(HaveOccurred())
	requests := all.By("counted")
	g.Expect(requests.Count()).To(Equal(map[Key]int{
		{"counted", "create", "", "configmaps", "", "default", "a", 201}:   1,
		{"counted", "get", "", "configmaps", "", "default", "absent", 404}: 1,
		{"counted", "patch", "", "configmaps", "", "default", "a", 200}:    2,
		{"counted", "watch", "", "configmaps", "", "default", "", 200}:     1,
		{"counted", "delete", "", "configmaps", "", "default", "a", 200}:   1,
	}), requests.String())
	g.Expect(requests.Writes()).To(HaveLen(3), "a dry run writes nothing:\n%s", requests)
	g.Expect(requests.Applies()).To(HaveLen(2))
	g.Expect(requests.Applies()[0].FieldManager()).To(Equal("me"))
	g.Expect(requests.Applies()[0].Received).NotTo(BeZero())
	g.Expect(all.By("other")).To(HaveLen(1))
	g.Expect(requests.Except("configmaps")).To(BeEmpty())
	g.Expect(requests.In("default").Of("configmaps")).To(HaveLen(6))
	g.Expect(requests.Summary()).To(ContainSubstring("     2 counted patch configmaps 200\n"))
}

// The audit log contains every request with a response, also under load.
func TestAuditLosesNothingUnderLoad(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := start(t, Options{Audit: true})
	configMaps := clientFor(g, c.Config("busy", Masters)).CoreV1().ConfigMaps("default")
	const clients, each = 8, 100

	for round := 1; round <= 3; round++ {
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for range each {
					_, _ = configMaps.List(t.Context(), metav1.ListOptions{})
				}
			})
		}
		all.Wait()
		requests, err := c.Audit().Since(0)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(requests.By("busy")).To(HaveLen(round * clients * each))
	}
}
