package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	websitesv1 "github.com/fixpoint-dev/fixpoint/examples/website/api/v1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// operator is an engine for Websites over an API server and a registry in memory.
type operator struct {
	*WithT
	ctx      context.Context
	api      *ssatest.Server
	engine   reconcile.Reconciler
	hosts    *sync.Map
	key      client.ObjectKey
	failures error
}

func newOperator(t *testing.T) *operator {
	g := NewWithT(t)
	o := &operator{WithT: g, ctx: t.Context(), hosts: &sync.Map{}, key: client.ObjectKeyFromObject(hello())}
	scheme := runtime.NewScheme()
	g.Expect(errors.Join(clientgoscheme.AddToScheme(scheme), websitesv1.AddToScheme(scheme))).To(Succeed())
	o.api = ssatest.NewServer(scheme, ssatest.Options{GarbageCollection: true})
	for _, child := range []client.Object{&corev1.ConfigMap{}, &appsv1.Deployment{}} {
		g.Expect(ssa.IndexController(o.ctx, o.api, child)).To(Succeed())
	}
	registryServer := httptest.NewServer(http.HandlerFunc(o.serveRegistry))
	t.Cleanup(registryServer.Close)
	applier, err := ssa.New(ssa.Options{Client: o.api, Reader: o.api, FieldManager: "website-operator"})
	g.Expect(err).NotTo(HaveOccurred())
	o.engine, err = phases.New(definition(registry(registryServer.URL)), phases.Dependencies{
		Reader: o.api.Cache(), Uncached: o.api, Applier: applier, Scheme: scheme,
	})
	g.Expect(err).NotTo(HaveOccurred())
	return o
}

func (o *operator) serveRegistry(w http.ResponseWriter, r *http.Request) {
	_, exists := o.hosts.Load(r.URL.Path)
	switch {
	case o.failures != nil:
		http.Error(w, o.failures.Error(), http.StatusServiceUnavailable)
	case r.Method == http.MethodPut:
		o.hosts.Store(r.URL.Path, true)
	case r.Method == http.MethodDelete:
		o.hosts.Delete(r.URL.Path)
	case !exists:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (o *operator) isRegistered() bool {
	_, exists := o.hosts.Load("/records/hello.example.com")
	return exists
}

func (o *operator) reconcile() error {
	_, err := o.engine.Reconcile(o.ctx, reconcile.Request{NamespacedName: o.key})
	return err
}

// rollOut plays the Deployment's controller.
func (o *operator) rollOut() {
	live := &appsv1.Deployment{}
	o.Expect(o.api.Get(o.ctx, o.key, live)).To(Succeed())
	want := *live.Spec.Replicas
	live.Status = appsv1.DeploymentStatus{ObservedGeneration: live.Generation, Replicas: want, UpdatedReplicas: want, AvailableReplicas: want, ReadyReplicas: want}
	o.Expect(o.api.Status().Update(o.ctx, live)).To(Succeed())
}

func (o *operator) site() *websitesv1.Website {
	site := &websitesv1.Website{}
	o.Expect(o.api.Get(o.ctx, o.key, site)).To(Succeed())
	return site
}

// reasonOf is the reason of a condition, or empty.
func (o *operator) reasonOf(condition string) string {
	if c := meta.FindStatusCondition(o.site().Status.Conditions, condition); c != nil {
		return c.Reason
	}
	return ""
}

// makeReady creates a Website and reconciles it until it is Ready.
func (o *operator) makeReady() {
	o.Expect(o.api.Create(o.ctx, hello())).To(Succeed())
	o.Expect(o.reconcile()).To(Succeed())
	o.rollOut()
	o.Expect(o.reconcile()).To(Succeed())
	o.Expect(o.reasonOf("Ready")).To(Equal("Ready"))
	o.api.Writes()
}

func TestWebsiteBecomesReadyInOrder(t *testing.T) {
	o := newOperator(t)
	o.Expect(o.api.Create(o.ctx, hello())).To(Succeed())

	o.Expect(o.reconcile()).To(Succeed())

	o.Expect(o.reasonOf("PagesReady")).To(Equal("Ready"))
	o.Expect(o.reasonOf("DeploymentReady")).To(Equal("RolloutProgressing"))
	o.Expect(o.reasonOf("RegistrationReady")).To(Equal("Blocked"))
	o.Expect(o.isRegistered()).To(BeFalse(), "a host is registered once it is served")

	o.rollOut()
	o.Expect(o.reconcile()).To(Succeed())

	o.Expect(o.reasonOf("Ready")).To(Equal("Ready"))
	o.Expect(o.isRegistered()).To(BeTrue())
	status := o.site().Status
	o.Expect(status.Host).To(Equal("hello.example.com"))
	o.Expect(status.ReadyReplicas).To(BeEquivalentTo(2))
	o.Expect(status.ObservedGeneration).To(Equal(o.site().Generation))
}

func TestReadyWebsiteIsNotWrittenAgain(t *testing.T) {
	o := newOperator(t)
	o.makeReady()

	for range 3 {
		o.Expect(o.reconcile()).To(Succeed())
	}

	o.Expect(o.api.Writes()).To(BeEmpty())
}

func TestRevertsAChangeOfAnotherFieldManager(t *testing.T) {
	o := newOperator(t)
	o.makeReady()
	live := &appsv1.Deployment{}
	o.Expect(o.api.Get(o.ctx, o.key, live)).To(Succeed())
	live.Spec.Template.Spec.Containers[0].Image = "other:1"
	o.Expect(o.api.Update(o.ctx, live, client.FieldOwner("kubectl-edit"))).To(Succeed())

	o.Expect(o.reconcile()).To(Succeed())

	o.Expect(o.api.Get(o.ctx, o.key, live)).To(Succeed())
	o.Expect(live.Spec.Template.Spec.Containers[0].Image).To(Equal("nginx:1"))
}

func TestPrunesTheConfigMapOfARemovedPage(t *testing.T) {
	o := newOperator(t)
	o.makeReady()
	site := o.site()
	delete(site.Spec.Pages, "about.html")
	o.Expect(o.api.Update(o.ctx, site)).To(Succeed())

	o.Expect(o.reconcile()).To(Succeed())

	key := client.ObjectKey{Namespace: o.key.Namespace, Name: "hello-about.html"}
	o.Expect(o.api.Get(o.ctx, key, &corev1.ConfigMap{})).To(Satisfy(apierrors.IsNotFound))
}

func TestReportsAFailingRegistryAndRetries(t *testing.T) {
	o := newOperator(t)
	o.makeReady()
	o.failures = errors.New("maintenance")

	o.Expect(o.reconcile()).To(MatchError(ContainSubstring("503")), "the error is retried with backoff")
	o.Expect(o.reasonOf("RegistrationReady")).To(Equal("Failed"))

	o.failures = nil
	o.Expect(o.reconcile()).To(Succeed())
	o.Expect(o.reasonOf("Ready")).To(Equal("Ready"))
}

func TestDeletionLeavesNothing(t *testing.T) {
	o := newOperator(t)
	o.makeReady()
	o.Expect(o.api.Delete(o.ctx, o.site())).To(Succeed())

	for range 5 {
		o.Expect(o.reconcile()).To(Succeed())
	}

	o.Expect(o.isRegistered()).To(BeFalse())
	o.Expect(o.api.Get(o.ctx, o.key, &websitesv1.Website{})).To(Satisfy(apierrors.IsNotFound))
	var deployments appsv1.DeploymentList
	o.Expect(o.api.List(o.ctx, &deployments)).To(Succeed())
	o.Expect(deployments.Items).To(BeEmpty())
	var configMaps corev1.ConfigMapList
	o.Expect(o.api.List(o.ctx, &configMaps)).To(Succeed())
	o.Expect(configMaps.Items).To(BeEmpty())
}
