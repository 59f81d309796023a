package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	namespacesv1 "github.com/fixpoint-dev/fixpoint/examples/applicationnamespace/api/v1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// scope is the data of one reconcile.
type scope struct {
	*namespacesv1.ApplicationNamespace
}

// inside is the namespace of the children that are in the Namespace. Their owner has none.
func inside(s *scope) string { return s.Name }

var definition = phases.Definition[*namespacesv1.ApplicationNamespace, *scope]{
	Controller: "applicationnamespace",
	Finalizer:  "example.com/teardown",
	Phases:     []phases.Phase[*scope]{namespace, content{quota}, content{isolation}, content{access}},
	Scope:      func(object *namespacesv1.ApplicationNamespace) *scope { return &scope{object} },
	Conditions: func(object *namespacesv1.ApplicationNamespace) []metav1.Condition { return object.Status.Conditions },
	Status: func(s *scope, summary phases.Summary) ssa.Configuration {
		return ssa.StatusOf(s.ApplicationNamespace, namespacesv1.Kind, namespacesv1.ApplicationNamespaceStatus{
			ObservedGeneration: summary.ObservedGeneration, Conditions: summary.Conditions,
		})
	},
}

// setup adds the controller to the manager.
func setup(mgr ctrl.Manager) error {
	deps, err := phases.FromManager(mgr, ssa.Options{FieldManager: "applicationnamespace-operator"})
	if err != nil {
		return err
	}
	engine, err := phases.New(definition, deps)
	if err != nil {
		return err
	}
	return engine.SetupWithManager(mgr, phases.SetupOptions{})
}

// The Namespace, which has no namespace either: it is the only child that could not have a namespaced owner.
var namespace = phases.Child[*scope, *corev1ac.NamespaceApplyConfiguration, *corev1.Namespace]{
	Name: "Namespace",
	Desired: func(s *scope) (*corev1ac.NamespaceApplyConfiguration, error) {
		return corev1ac.Namespace(s.Name).WithLabels(map[string]string{"pod-security.kubernetes.io/enforce": s.Spec.PodSecurity}), nil
	},
	Adopt: adopt,
	Health: func(*corev1.Namespace) phases.Verdict {
		return phases.Done("exists: deleting the ApplicationNamespace deletes it, with everything in it")
	},
}

// adopt adopts the one Namespace that the spec names by its UID. One of the same name that is created after it has been
// deleted is another Namespace.
func adopt(s *scope, live *corev1.Namespace) phases.Verdict {
	if live.UID == s.Spec.Adopt {
		return phases.Done("adopted")
	}
	return phases.Stalled(string(ssa.ReasonNotOwned), fmt.Sprintf("Namespace %s exists and no controller owns it: set spec.adopt to its UID, "+
		"%s, after which deleting the ApplicationNamespace deletes the Namespace; or delete one of the two", live.Name, live.UID))
}

var quota = phases.Child[*scope, *corev1ac.ResourceQuotaApplyConfiguration, *corev1.ResourceQuota]{
	Name:           "Quota",
	ChildNamespace: inside,
	Desired: func(s *scope) (*corev1ac.ResourceQuotaApplyConfiguration, error) {
		if len(s.Spec.Quota) == 0 {
			return nil, nil
		}
		return corev1ac.ResourceQuota(s.Name, inside(s)).WithSpec(corev1ac.ResourceQuotaSpec().WithHard(s.Spec.Quota)), nil
	},
}

// Pods are reached from the same namespace only, unless another NetworkPolicy allows more.
var isolation = phases.Child[*scope, *networkingv1ac.NetworkPolicyApplyConfiguration, *networkingv1.NetworkPolicy]{
	Name:           "Isolation",
	ChildNamespace: inside,
	Desired: func(s *scope) (*networkingv1ac.NetworkPolicyApplyConfiguration, error) {
		return networkingv1ac.NetworkPolicy(s.Name, inside(s)).WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(metav1ac.LabelSelector()).WithPolicyTypes(networkingv1.PolicyTypeIngress).
			WithIngress(networkingv1ac.NetworkPolicyIngressRule().
				WithFrom(networkingv1ac.NetworkPolicyPeer().WithPodSelector(metav1ac.LabelSelector())))), nil
	},
}

// A RoleBinding for each role of each team. What it refers to is immutable, so its name has both.
var access = phases.Children[*scope, *rbacv1ac.RoleBindingApplyConfiguration, *rbacv1.RoleBinding]{
	Name:           "Access",
	ChildNamespace: inside,
	Desired: func(s *scope) (desired []*rbacv1ac.RoleBindingApplyConfiguration, err error) {
		for _, team := range s.Spec.Teams {
			desired = append(desired, rbacv1ac.RoleBinding(team.Role+":"+team.Group, inside(s)).
				WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(team.Role)).
				WithSubjects(rbacv1ac.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.GroupKind).WithName(team.Group)))
		}
		return desired, nil
	},
}

// content is a phase whose children are deleted with the Namespace and not before it: Kubernetes then deletes the pods
// before the NetworkPolicy and the quota that restrict them.
type content struct{ phases.Phase[*scope] }

// Declare implements [phases.Phase].
func (c content) Declare(scheme *runtime.Scheme) (phases.Declaration[*scope], error) {
	d, err := c.Phase.Declare(scheme)
	d.Gone = nil
	d.Undo = func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
		return phases.DoneBecause(phases.ReasonTerminating, "deleted with the Namespace"), nil
	}
	return d, err
}
