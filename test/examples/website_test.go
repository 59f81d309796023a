package examples

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dns is a registry that tells which hosts it has.
type dns struct {
	mu    sync.Mutex
	hosts map[string]bool
}

func (d *dns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	host := filepath.Base(r.URL.Path)
	switch r.Method {
	case http.MethodPut:
		d.hosts[host] = true
	case http.MethodDelete:
		delete(d.hosts, host)
	default:
		if !d.hosts[host] {
			w.WriteHeader(http.StatusNotFound)
		}
	}
}

func (d *dns) has(host string) func() bool {
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.hosts[host]
	}
}

func TestWebsiteOperator(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(within)
	g.SetDefaultEventuallyPollingInterval(every)
	ctx := context.Background()
	api, err := client.New(shared.Admin(), client.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	registry := &dns{hosts: map[string]bool{}}
	server := httptest.NewServer(registry)
	defer server.Close()
	startOperator(t, website, "-registry", server.URL)
	site := sample(g, website)
	key := client.ObjectKeyFromObject(site)
	ready := func() string {
		g.Expect(client.IgnoreNotFound(api.Get(ctx, key, site))).To(Succeed())
		return status(site, "Ready")
	}
	child := func(object client.Object, name string) func() error {
		return func() error { return api.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: name}, object) }
	}

	// When a Website is created, everything that it declares exists
	g.Expect(api.Create(ctx, site)).To(Succeed())
	g.Eventually(ready).Should(Equal("True"))
	g.Expect(child(&corev1.ConfigMap{}, "hello-index.html")()).To(Succeed())
	g.Expect(child(&corev1.ConfigMap{}, "hello-about.html")()).To(Succeed())
	g.Expect(registry.has("hello.example.com")()).To(BeTrue())
	g.Expect(site.Object["status"]).To(HaveKeyWithValue("readyReplicas", BeNumerically("==", 2)))

	// When another field manager changes the Deployment, it is reverted
	deployment := &appsv1.Deployment{}
	g.Expect(child(deployment, "hello")()).To(Succeed())
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":5}}`))
	g.Expect(api.Patch(ctx, deployment, patch, client.FieldOwner("kubectl"))).To(Succeed())
	g.Eventually(func() int32 {
		g.Expect(child(deployment, "hello")()).To(Succeed())
		return *deployment.Spec.Replicas
	}).Should(BeEquivalentTo(2))

	// When a page is removed from the spec, its ConfigMap is pruned
	patch = client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"pages":{"about.html":null}}}`))
	g.Expect(api.Patch(ctx, site, patch)).To(Succeed())
	g.Eventually(child(&corev1.ConfigMap{}, "hello-about.html")).Should(Satisfy(apierrors.IsNotFound))
	g.Eventually(ready).Should(Equal("True"))

	// When the Website is deleted, nothing is left of it
	g.Expect(api.Delete(ctx, site)).To(Succeed())
	g.Eventually(func() error { return api.Get(ctx, key, site) }).Should(Satisfy(apierrors.IsNotFound))
	g.Expect(registry.has("hello.example.com")()).To(BeFalse())
	g.Expect(child(deployment, "hello")()).To(Satisfy(apierrors.IsNotFound))
	g.Expect(child(&corev1.ConfigMap{}, "hello-index.html")()).To(Satisfy(apierrors.IsNotFound))
}
