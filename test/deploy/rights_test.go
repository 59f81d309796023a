package deploy_test

import (
	"maps"
	"slices"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// granted are the rights that roles of the cluster and of namespaces give to a service account, with
// the roles that give them.
func (w *fixture) granted(namespace, account string) map[deploy.Right]string {
	w.t.Helper()
	is := func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace && s.Name == account
	}
	rights := map[deploy.Right]string{}
	add := func(role string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			for right := range expand(rule) {
				rights[right] = role
			}
		}
	}
	var everywhere rbacv1.ClusterRoleBindingList
	w.Expect(w.api.List(w.ctx, &everywhere)).To(Succeed())
	for _, binding := range everywhere.Items {
		if slices.ContainsFunc(binding.Subjects, is) {
			add(binding.RoleRef.Name, w.clusterRole(binding.RoleRef.Name).Rules)
		}
	}
	var within rbacv1.RoleBindingList
	w.Expect(w.api.List(w.ctx, &within)).To(Succeed())
	for _, binding := range within.Items {
		if !slices.ContainsFunc(binding.Subjects, is) {
			continue
		}
		if binding.RoleRef.Kind == "ClusterRole" {
			add(binding.RoleRef.Name, w.clusterRole(binding.RoleRef.Name).Rules)
			continue
		}
		role := &rbacv1.Role{}
		w.Expect(w.api.Get(w.ctx, client.ObjectKey{Namespace: binding.Namespace, Name: binding.RoleRef.Name}, role)).To(Succeed())
		add(role.Name, role.Rules)
	}
	return rights
}

func (w *fixture) clusterRole(name string) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{}
	w.Expect(w.api.Get(w.ctx, client.ObjectKey{Name: name}, role)).To(Succeed())
	return role
}

func expand(rule rbacv1.PolicyRule) map[deploy.Right]bool {
	rights := map[deploy.Right]bool{}
	for _, verb := range rule.Verbs {
		for _, url := range rule.NonResourceURLs {
			rights[deploy.Right{Verb: verb, NonResourceURL: url}] = true
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				rights[deploy.Right{Verb: verb, Group: group, Resource: resource}] = true
			}
		}
	}
	return rights
}

// usesExactlyWhatItIsGranted compares both ways. Rights that are exempt need not be used.
func (w *fixture) usesExactlyWhatItIsGranted(m *deploy.Manager, namespace, account string, exempt ...deploy.Right) {
	w.t.Helper()
	granted, used := w.granted(namespace, account), w.recorder.Used(m.User)
	w.Expect(granted).NotTo(BeEmpty())
	unused := map[deploy.Right]bool{}
	for right := range granted {
		if !used[right] && !slices.Contains(exempt, right) {
			unused[right] = true
		}
	}
	beyond := maps.Clone(used)
	for right := range used {
		if _, ok := granted[right]; ok || right.IsForEverybody() {
			delete(beyond, right)
		}
	}
	w.Expect(map[string]any{
		"asked for and not granted": sorted(beyond),
		"granted and not used":      sorted(unused),
		"denied":                    w.denied(0, m.User),
	}).To(HaveEach(BeEmpty()), "the rights of %s", account)
}

// grantMarkers creates a service account that has the rights of the RBAC markers of one controller, and
// those by which the API server is asked about readers of metrics.
func (w *fixture) grantMarkers(controller string) {
	w.t.Helper()
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: controller}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "only-" + controller}, Rules: harness.Markers(controller)}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: controller}}
	objects := []client.Object{account, role, binding}
	if controller == mcpserver.Name {
		// The key of hashes is in the namespace of the manager, where the shipped Role permits it.
		objects = append(objects, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: role.Name}, Subjects: binding.Subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "fixpoint-hash-key-role"},
		})
	}
	for _, object := range objects {
		w.Expect(w.api.Create(w.ctx, object)).To(Succeed())
	}
}
