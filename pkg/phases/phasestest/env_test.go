package phasestest_test

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/phases/phasestest"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// Website is served by a Deployment, from a ConfigMap for each page.
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WebsiteSpec   `json:"spec,omitempty"`
	Status WebsiteStatus `json:"status,omitempty"`
}

type WebsiteSpec struct {
	Image string            `json:"image,omitempty"`
	Pages map[string]string `json:"pages,omitempty"`
}

type WebsiteStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

func (w *Website) DeepCopyObject() runtime.Object {
	out := &Website{TypeMeta: w.TypeMeta, Spec: w.Spec, Status: w.Status}
	w.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Pages = maps.Clone(w.Spec.Pages)
	out.Status.Conditions = slices.Clone(w.Status.Conditions)
	return out
}

// websiteStatus is an apply configuration.
type websiteStatus struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`

	Status struct {
		ObservedGeneration int64                                   `json:"observedGeneration,omitempty"`
		Conditions         []*metav1ac.ConditionApplyConfiguration `json:"conditions,omitempty"`
	} `json:"status,omitempty"`
}

func (s *websiteStatus) IsApplyConfiguration()  {}
func (s *websiteStatus) GetKind() *string       { return s.Kind }
func (s *websiteStatus) GetAPIVersion() *string { return s.APIVersion }
func (s *websiteStatus) GetName() *string       { return s.ObjectMetaApplyConfiguration.GetName() }
func (s *websiteStatus) GetNamespace() *string  { return s.ObjectMetaApplyConfiguration.GetNamespace() }

var group = schema.GroupVersion{Group: "example.com", Version: "v1"}

// newScheme builds the scheme once, for thousands of environments.
var newScheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(group, &Website{})
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return scheme
})

func definition() phases.Definition[*Website, *Website] {
	return phases.Definition[*Website, *Website]{
		Controller: "website",
		Finalizer:  "example.com/teardown",
		Phases: []phases.Phase[*Website]{
			phases.Children[*Website, *corev1ac.ConfigMapApplyConfiguration, *corev1.ConfigMap]{
				Name: "Pages",
				Desired: func(site *Website) ([]*corev1ac.ConfigMapApplyConfiguration, error) {
					var pages []*corev1ac.ConfigMapApplyConfiguration
					for _, name := range slices.Sorted(maps.Keys(site.Spec.Pages)) {
						pages = append(pages, corev1ac.ConfigMap(site.Name+"-"+name, site.Namespace).
							WithData(map[string]string{"page": site.Spec.Pages[name]}))
					}
					return pages, nil
				},
			},
			phases.Child[*Website, *appsv1ac.DeploymentApplyConfiguration, *appsv1.Deployment]{
				Name: "Deployment",
				Desired: func(site *Website) (*appsv1ac.DeploymentApplyConfiguration, error) {
					if site.Spec.Image == "" {
						return nil, nil
					}
					labels := map[string]string{"website": site.Name}
					return appsv1ac.Deployment(site.Name, site.Namespace).WithSpec(appsv1ac.DeploymentSpec().
						WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
						WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().
							WithContainers(corev1ac.Container().WithName("site").WithImage(site.Spec.Image))))), nil
				},
				Health: func(live *appsv1.Deployment) phases.Verdict {
					if live.Status.ObservedGeneration < live.Generation {
						return phases.Wait("Progressing", "the rollout has not finished", 0)
					}
					return phases.Done("rolled out")
				},
			},
		},
		Scope:      func(site *Website) *Website { return site },
		Conditions: func(site *Website) []metav1.Condition { return site.Status.Conditions },
		Status: func(site *Website, summary phases.Summary) ssa.Configuration {
			status := &websiteStatus{ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName(site.Name).WithNamespace(site.Namespace)}
			status.WithKind("Website").WithAPIVersion(group.String())
			status.Status.ObservedGeneration = summary.ObservedGeneration
			status.Status.Conditions = phases.ConditionConfigurations(summary.Conditions)
			return status
		},
	}
}

type env = phasestest.Env[*Website, *Website]

// newEnv has a deployment controller, and a garbage collector.
func newEnv(t *testing.T) *env {
	t.Helper()
	var e *env
	e = phasestest.New(t, definition(), phasestest.Options{
		Scheme: newScheme(), GarbageCollection: true,
		Between: func() {
			deployment := blogDeployment()
			if e.Exists(deployment) && deployment.Status.ObservedGeneration != deployment.Generation {
				deployment.Status.ObservedGeneration = deployment.Generation
				NewWithT(t).Expect(e.Server.Status().Update(t.Context(), deployment)).To(Succeed())
			}
		},
	})
	return e
}

func blog() *Website {
	return &Website{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blog"},
		Spec:       WebsiteSpec{Image: "nginx:1", Pages: map[string]string{"index": "hello", "about": "me"}},
	}
}

func blogDeployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blog"}}
}

func page(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blog-" + name}}
}

const key = "default/blog"

func TestEnvTakesAnObjectThroughItsLife(t *testing.T) {
	g := NewWithT(t)
	env := newEnv(t)

	// Created
	env.Create(blog())
	env.Settle(key)
	env.ExpectChanges("update Website blog", "create ConfigMap blog-about", "create ConfigMap blog-index",
		"create Deployment blog", "update Website blog/status", "update Website blog/status")
	env.ExpectQuiet(key)

	// Changed
	site := blog()
	env.Edit(site, func() { site.Spec.Image, site.Spec.Pages = "nginx:2", map[string]string{"index": "hello"} })
	g.Expect(env.Plan(site).Changes()[0].String()).To(Equal("Pages: Delete ConfigMap blog-about"))
	g.Expect(env.Changes()).To(BeEmpty())
	env.Settle(key)
	env.ExpectChanges("delete ConfigMap blog-about", "update Deployment blog", "update Website blog/status", "update Website blog/status")
	env.ExpectQuiet(key)

	// Drifted
	env.Forget()
	deployment := blogDeployment()
	env.Edit(deployment, func() { deployment.Spec.Template.Spec.Containers[0].Image = "nginx:latest" })
	env.Settle(key)
	g.Expect(env.Events()).To(ContainElement(And(ContainSubstring("user changed .spec.template.spec.containers"), HaveSuffix(`from "nginx:2" to "nginx:latest"; reverted`))))
	env.ExpectQuiet(key)

	// Deleted
	env.Forget()
	env.Delete(site)
	env.Settle(key)
	env.ExpectChanges("delete Deployment blog", "delete ConfigMap blog-index", "update Website blog")
	g.Expect(env.State()).To(BeEmpty())
}

func TestEnvStopsTheEngineAtEachRequest(t *testing.T) {
	phasestest.SurvivesCrashes(t, newEnv, func(_ *testing.T, env *env) {
		env.Create(blog())
		env.Settle(key)
		site := blog()
		env.Edit(site, func() { site.Spec.Image, site.Spec.Pages = "nginx:2", map[string]string{"index": "hello", "news": ""} })
		env.Settle(key)
	})
}

func TestEnvStopsTheTeardownAtEachRequest(t *testing.T) {
	phasestest.SurvivesCrashes(t, newEnv, func(t *testing.T, env *env) {
		env.Create(blog())
		env.Settle(key)
		env.Delete(blog())
		env.Settle(key)
		NewWithT(t).Expect(env.State()).To(BeEmpty())
	})
}

func TestEnvHasACacheThatLags(t *testing.T) {
	g := NewWithT(t)
	env := newEnv(t)
	env.Create(blog())
	env.Settle(key)
	env.Forget()

	// Given a cache that does not show an edit
	env.Cache.Freeze()
	site, index := blog(), page("index")
	env.Edit(site, func() { site.Spec.Pages = map[string]string{"about": "me"} })
	env.Delete(index)

	// When it is reconciled, the deleted page is not recreated for the old spec
	_, err := env.Reconcile(key)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(env.Changes()).NotTo(ContainElement(HavePrefix("create")))
	env.Cache.Thaw()
	env.Settle(key)
	g.Expect(env.Exists(index)).To(BeFalse())
}

func TestEnvFailsRequests(t *testing.T) {
	g := NewWithT(t)
	refusal := errors.New("no more Deployments")
	fails := true
	env := phasestest.New(t, definition(), phasestest.Options{Scheme: newScheme(), Intercept: func(call ssatest.Call) error {
		if fails && call.Verb == "apply" && call.Kind.Kind == "Deployment" && !call.Done {
			return refusal
		}
		return nil
	}})
	env.Create(blog())

	_, err := env.Reconcile(key)
	g.Expect(err).To(MatchError(refusal))
	g.Expect(env.Changes()).NotTo(ContainElement("create Deployment blog"))

	fails = false
	result := env.Settle(key)
	g.Expect(result.RequeueAfter).To(Equal(phases.SafetyNet), "nothing rolls the Deployment out")
	site := blog()
	g.Expect(env.Exists(site)).To(BeTrue())
	g.Expect(strings.Join(conditions(site), " ")).To(ContainSubstring("DeploymentReady=False/Progressing"))
	env.Clock.SetTime(env.Clock.Now().Add(time.Hour))
	env.ExpectQuiet(key)
}

func conditions(site *Website) []string {
	var all []string
	for _, c := range site.Status.Conditions {
		all = append(all, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	return all
}
