package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/log"

	websitesv1 "github.com/fixpoint-dev/fixpoint/examples/website/api/v1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases/phasestest"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const key = "default/hello"

type env = phasestest.Env[*websitesv1.Website, *scope]

// dns is a registry in memory that can fail.
type dns struct {
	hosts   sync.Map
	failing bool
}

func (d *dns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, exists := d.hosts.Load(r.URL.Path)
	switch {
	case d.failing:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.Method == http.MethodPut:
		d.hosts.Store(r.URL.Path, true)
	case r.Method == http.MethodDelete:
		d.hosts.Delete(r.URL.Path)
	case !exists:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (d *dns) has(host string) bool {
	_, exists := d.hosts.Load("/records/" + host)
	return exists
}

// newEnv is the operator's engine over an API server and a registry in memory.
// Deployments are rolled out between reconciles.
func newEnv(t *testing.T) (*env, *dns) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), websitesv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	records := &dns{}
	server := httptest.NewServer(records)
	t.Cleanup(server.Close)
	var e *env
	e = phasestest.New(t, definition(registry(server.URL)), phasestest.Options{
		Scheme: scheme, GarbageCollection: true, Between: func() { rollOut(t, e) },
	})
	return e, records
}

func deploymentOf(t *testing.T, e *env) *appsv1.Deployment {
	t.Helper()
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello"}}
	if !e.Exists(live) {
		return nil
	}
	return live
}

// rollOut does what the Deployment's controller would.
func rollOut(t *testing.T, e *env) {
	live := deploymentOf(t, e)
	if live == nil || live.Status.ObservedGeneration == live.Generation {
		return
	}
	want := *live.Spec.Replicas
	live.Status = appsv1.DeploymentStatus{ObservedGeneration: live.Generation, Replicas: want, UpdatedReplicas: want, AvailableReplicas: want, ReadyReplicas: want}
	if err := e.Server.Status().Update(t.Context(), live); err != nil {
		t.Fatal(err)
	}
}

// reasons are those of all conditions, by type.
func reasons(e *env) map[string]string {
	site := hello()
	e.Exists(site)
	reasons := map[string]string{}
	for _, c := range site.Status.Conditions {
		reasons[c.Type] = c.Reason
	}
	return reasons
}

func TestPhasesRunInOrder(t *testing.T) {
	g := NewWithT(t)
	e, records := newEnv(t)
	e.Create(hello())

	_, err := e.Reconcile(key)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(reasons(e)).To(And(HaveKeyWithValue("PagesReady", "Ready"),
		HaveKeyWithValue("DeploymentReady", "RolloutProgressing"), HaveKeyWithValue("RegistrationReady", "Blocked")))
	g.Expect(records.has("hello.example.com")).To(BeFalse(), "a host is registered once it is served")

	e.Settle(key)

	site := hello()
	g.Expect(e.Exists(site)).To(BeTrue())
	g.Expect(meta.IsStatusConditionTrue(site.Status.Conditions, "Ready")).To(BeTrue())
	g.Expect(site.Status.ObservedGeneration).To(Equal(site.Generation))
	g.Expect(site.Status.ReadyReplicas).To(BeEquivalentTo(2))
	g.Expect(site.Status.Host).To(Equal("hello.example.com"))
	g.Expect(records.has("hello.example.com")).To(BeTrue())
}

func TestReadyWebsiteIsNotWrittenAgain(t *testing.T) {
	e, _ := newEnv(t)
	e.Create(hello())
	e.Settle(key)

	e.ExpectQuiet(key)
}

func TestRevertsAChangeOfAnotherFieldManager(t *testing.T) {
	g := NewWithT(t)
	e, _ := newEnv(t)
	e.Create(hello())
	e.Settle(key)
	e.Forget()
	live := deploymentOf(t, e)

	e.Edit(live, func() { live.Spec.Template.Spec.Containers[0].Image = "other:1" })
	e.Settle(key)

	g.Expect(deploymentOf(t, e).Spec.Template.Spec.Containers[0].Image).To(Equal("nginx:1"))
	g.Expect(e.Events()).To(ContainElement(And(ContainSubstring("DriftCorrected"), ContainSubstring(`user changed`), ContainSubstring("reverted"))))
}

func TestPrunesTheConfigMapOfARemovedPageAfterTheRollout(t *testing.T) {
	g := NewWithT(t)
	e, _ := newEnv(t)
	e.Create(hello())
	e.Settle(key)
	e.Forget()
	site := hello()

	e.Edit(site, func() { delete(site.Spec.Pages, "about.html") })
	_, err := e.Reconcile(key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(e.Changes()).To(Equal([]string{"update Deployment hello", "update Website hello/status"}))
	e.Settle(key)

	g.Expect(e.Exists(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello-about.html"}})).To(BeFalse())
	g.Expect(e.Exists(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello-index.html"}})).To(BeTrue())
}

func TestRetriesWhileTheRegistryFails(t *testing.T) {
	g := NewWithT(t)
	e, records := newEnv(t)
	e.Create(hello())
	e.Settle(key)
	records.failing = true

	_, err := e.Reconcile(key)

	g.Expect(err).To(MatchError(ContainSubstring("503")), "an error is retried with backoff")
	g.Expect(reasons(e)).To(HaveKeyWithValue("RegistrationReady", "Failed"))
	records.failing = false
	e.Settle(key)
	g.Expect(reasons(e)).To(HaveKeyWithValue("Ready", "Ready"))
}

func TestDeletionLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	e, records := newEnv(t)
	e.Create(hello())
	e.Settle(key)

	e.Delete(hello())
	e.Settle(key)

	g.Expect(e.State()).To(BeEmpty())
	g.Expect(records.has("hello.example.com")).To(BeFalse())
}

func TestSurvivesACrashAtEveryRequest(t *testing.T) {
	phasestest.SurvivesCrashes(t, func(t *testing.T) *env { e, _ := newEnv(t); return e }, func(_ *testing.T, e *env) {
		e.Create(hello())
		e.Settle(key)
		site := hello()
		e.Edit(site, func() { delete(site.Spec.Pages, "about.html") })
		e.Settle(key)
	})
}
