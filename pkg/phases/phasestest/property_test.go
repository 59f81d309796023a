package phasestest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/phases/phasestest"
)

// The property of package phases, with the real applier and the real managed fields: whatever the list of
// phases, whatever users do meanwhile, and at whatever requests the engine is stopped, a fresh engine
// reaches the state that an undisturbed one reaches.

type event struct {
	// what is edit, disable, drift, delete, freeze or thaw.
	what  string
	phase int
	value string
}

type stop struct {
	request    int
	carriedOut bool
}

type scenario struct {
	sorts  []string
	prunes []phases.PruneOrder
	events []event
	stops  []stop
}

func scenarios() *rapid.Generator[scenario] {
	return rapid.Custom(func(t *rapid.T) scenario {
		s := scenario{}
		for range rapid.IntRange(1, 4).Draw(t, "phases") {
			s.sorts = append(s.sorts, rapid.SampledFrom([]string{"ConfigMap", "Deployment", "set"}).Draw(t, "sort"))
			s.prunes = append(s.prunes, rapid.SampledFrom([]phases.PruneOrder{phases.PruneInOrder, phases.PruneFirst, phases.PruneLast}).Draw(t, "prune"))
		}
		for range rapid.IntRange(0, 6).Draw(t, "events") {
			s.events = append(s.events, event{
				what:  rapid.SampledFrom([]string{"edit", "edit", "disable", "drift", "delete", "freeze", "thaw"}).Draw(t, "what"),
				phase: rapid.IntRange(0, len(s.sorts)-1).Draw(t, "phase"),
				value: rapid.SampledFrom([]string{"a", "b", "a b", "b c"}).Draw(t, "value"),
			})
		}
		s.stops = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) stop {
			return stop{rapid.IntRange(1, 25).Draw(t, "request"), rapid.Bool().Draw(t, "carriedOut")}
		}), 1, 4).Draw(t, "stops")
		return s
	})
}

func phaseName(i int) string { return fmt.Sprintf("Phase%d", i) }

func (s scenario) phase(i int) phases.Phase[*Website] {
	name := phaseName(i)
	childName := func(site *Website) string { return strings.ToLower(site.Name + "-" + name) }
	configMap := func(site *Website, name, value string) *corev1ac.ConfigMapApplyConfiguration {
		return corev1ac.ConfigMap(name, site.Namespace).WithData(map[string]string{"value": value})
	}
	switch s.sorts[i] {
	case "set":
		return phases.Children[*Website, *corev1ac.ConfigMapApplyConfiguration, *corev1.ConfigMap]{
			Name: name,
			Desired: func(site *Website) ([]*corev1ac.ConfigMapApplyConfiguration, error) {
				var members []*corev1ac.ConfigMapApplyConfiguration
				for _, member := range strings.Fields(site.Spec.Pages[name]) {
					members = append(members, configMap(site, childName(site)+"-"+member, site.Spec.Pages[name]))
				}
				return members, nil
			},
		}
	case "ConfigMap":
		return phases.Child[*Website, *corev1ac.ConfigMapApplyConfiguration, *corev1.ConfigMap]{
			Name: name, ChildName: childName, Prune: s.prunes[i],
			Desired: func(site *Website) (*corev1ac.ConfigMapApplyConfiguration, error) {
				if site.Spec.Pages[name] == "" {
					return nil, nil
				}
				return configMap(site, childName(site), site.Spec.Pages[name]), nil
			},
		}
	default:
		return phases.Child[*Website, *appsv1ac.DeploymentApplyConfiguration, *appsv1.Deployment]{
			Name: name, ChildName: childName, Prune: s.prunes[i],
			Desired: func(site *Website) (*appsv1ac.DeploymentApplyConfiguration, error) {
				if site.Spec.Pages[name] == "" {
					return nil, nil
				}
				return appsv1ac.Deployment(childName(site), site.Namespace).WithSpec(appsv1ac.DeploymentSpec().
					WithTemplate(corev1ac.PodTemplateSpec().WithSpec(corev1ac.PodSpec().WithContainers(
						corev1ac.Container().WithName("c").WithImage(site.Spec.Pages[name]))))), nil
			},
		}
	}
}

// child is one child of a phase.
func (s scenario) child(i int, member string) client.Object {
	name := strings.ToLower("blog-" + phaseName(i))
	switch s.sorts[i] {
	case "set":
		return page(strings.TrimPrefix(name, "blog-") + "-" + member)
	case "ConfigMap":
		return page(strings.TrimPrefix(name, "blog-"))
	default:
		deployment := blogDeployment()
		deployment.Name = name
		return deployment
	}
}

// play plays a scenario to its end, and returns the engine's environment there.
func (s scenario) play(t *rapid.T, stops []stop) *env {
	definition := definition()
	definition.Phases = nil
	site := blog()
	site.Spec.Pages = map[string]string{}
	for i := range s.sorts {
		definition.Phases = append(definition.Phases, s.phase(i))
		site.Spec.Pages[phaseName(i)] = "a b"
	}
	env := phasestest.New(t, definition, phasestest.Options{Scheme: newScheme(), GarbageCollection: true})
	arm := func() {
		if len(stops) > 0 {
			env.StopAt(stops[0].request, stops[0].carriedOut)
			stops = stops[1:]
		}
	}
	reconcile := func() {
		if _, err := env.Reconcile(key); errors.Is(err, phasestest.ErrStopped) {
			arm()
		} else if err != nil {
			t.Fatalf("reconciling: %v", err)
		}
	}
	env.Create(site)
	arm()
	for range 2 {
		reconcile()
	}
	for _, event := range s.events {
		s.happen(env, event)
		reconcile()
	}
	env.Cache.Thaw()
	env.Settle(key)
	return env
}

func (s scenario) happen(env *env, event event) {
	site, child := blog(), s.child(event.phase, strings.Fields(event.value)[0])
	switch event.what {
	case "edit":
		env.Edit(site, func() {
			if site.Spec.Pages == nil {
				site.Spec.Pages = map[string]string{}
			}
			site.Spec.Pages[phaseName(event.phase)] = event.value
		})
	case "disable":
		env.Edit(site, func() { delete(site.Spec.Pages, phaseName(event.phase)) })
	case "freeze":
		env.Cache.Freeze()
	case "thaw":
		env.Cache.Thaw()
	case "delete":
		if env.Exists(child) {
			env.Delete(child)
		}
	case "drift":
		if env.Exists(child) {
			env.Edit(child, func() {
				switch child := child.(type) {
				case *corev1.ConfigMap:
					child.Data["value"] = "drifted"
				case *appsv1.Deployment:
					child.Spec.Template.Spec.Containers[0].Image = "drifted"
				}
			})
		}
	}
}

func TestCrashesDoNotChangeTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Given a scenario, and how it ends if the engine is never stopped
		s := scenarios().Draw(t, "scenario")
		undisturbed := s.play(t, nil)

		// When the engine is stopped at some requests
		disturbed := s.play(t, slices.Clone(s.stops))

		// Then it ends in the same state, and sends no write there
		if got, want := disturbed.State(), undisturbed.State(); got != want {
			t.Fatalf("it ends in\n%s\nand undisturbed in\n%s", got, want)
		}
		disturbed.StopAt(0, false)
		disturbed.ExpectQuiet(key)

		// When it is deleted, nothing is left
		disturbed.Delete(blog())
		disturbed.Settle(key)
		if left := disturbed.State(); left != "" {
			t.Fatalf("it leaves\n%s", left)
		}
	})
}
