package deploy_test

import (
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
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
		if slices.ContainsFunc(binding.Subjects, is) {
			add(binding.RoleRef.Name, w.rulesOf(&binding))
		}
	}
	return rights
}

// awaitRights waits until the API server knows all bindings of the pod's service account, each by one right: it answers 403
// for a moment after a binding was created.
func (w *fixture) awaitRights(pod deploy.Pod) {
	w.t.Helper()
	account := pod.Account
	if account == "" {
		deployment, err := w.clients.AppsV1().Deployments(pod.Namespace).Get(w.ctx, deploy.DeploymentName, metav1.GetOptions{})
		w.Expect(err).NotTo(HaveOccurred())
		account = deployment.Spec.Template.Spec.ServiceAccountName
	}
	is := func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == pod.Namespace && s.Name == account
	}
	var everywhere rbacv1.ClusterRoleBindingList
	w.Expect(w.api.List(w.ctx, &everywhere)).To(Succeed())
	for _, binding := range everywhere.Items {
		if slices.ContainsFunc(binding.Subjects, is) {
			w.awaitRight(pod.Namespace, account, "", w.clusterRole(binding.RoleRef.Name).Rules)
		}
	}
	var within rbacv1.RoleBindingList
	w.Expect(w.api.List(w.ctx, &within)).To(Succeed())
	for _, binding := range within.Items {
		if slices.ContainsFunc(binding.Subjects, is) {
			w.awaitRight(pod.Namespace, account, binding.Namespace, w.rulesOf(&binding))
		}
	}
}

// awaitRight waits until a service account has the first one of the rules in a namespace, or in all of them.
func (w *fixture) awaitRight(accountNamespace, account, namespace string, rules []rbacv1.PolicyRule) {
	w.t.Helper()
	w.Expect(rules).NotTo(BeEmpty())
	rule := rules[0]
	spec := authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + accountNamespace + ":" + account, Groups: []string{deploy.Unrecorded}}
	if len(rule.NonResourceURLs) > 0 {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: rule.Verbs[0], Path: rule.NonResourceURLs[0]}
	} else {
		resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
			Name: strings.Join(rule.ResourceNames[:min(1, len(rule.ResourceNames))], ""),
		}
	}
	w.Eventually(func() (bool, error) {
		review, err := w.clients.AuthorizationV1().SubjectAccessReviews().Create(w.ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return review.Status.Allowed, nil
	}).Should(BeTrue(), "%+v", spec)
}

// rulesOf are those of the role that a binding names.
func (w *fixture) rulesOf(binding *rbacv1.RoleBinding) []rbacv1.PolicyRule {
	w.t.Helper()
	if binding.RoleRef.Kind == "ClusterRole" {
		return w.clusterRole(binding.RoleRef.Name).Rules
	}
	role := &rbacv1.Role{}
	w.Expect(w.api.Get(w.ctx, client.ObjectKey{Namespace: binding.Namespace, Name: binding.RoleRef.Name}, role)).To(Succeed())
	return role.Rules
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

// usesExactlyWhatItIsGranted compares both ways. Rights that are exempt need not be used, and no request may be denied
// since the mark, at which the manager has all its rights. The right to tokens
// of ServiceAccounts is asked for by a SecureStorage with a workload identity, and is refused by default.
func (w *fixture) usesExactlyWhatItIsGranted(since cluster.Mark, m *deploy.Manager, namespace, account string, exempt ...deploy.Right) {
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
		if _, ok := granted[right]; ok || right.IsForEverybody() || right == tokens {
			delete(beyond, right)
		}
	}
	isForToken := func(r cluster.Request) bool { return r.Resource == "serviceaccounts" && r.Subresource == "token" }
	denied := w.denied(since, m.User).Where(func(r cluster.Request) bool { return !isForToken(r) })
	if _, ok := granted[tokens]; ok {
		denied = w.denied(since, m.User)
	}
	w.Expect(map[string]any{
		"asked for and not granted": sorted(beyond),
		"granted and not used":      sorted(unused),
		"denied":                    denied,
	}).To(HaveEach(BeEmpty()), "the rights of %s", account)
}

// bindRoles creates a service account that has shipped ClusterRoles alone.
func (w *fixture) bindRoles(account string, roles ...string) {
	w.t.Helper()
	w.Expect(w.api.Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: account}})).To(Succeed())
	for _, role := range roles {
		w.Expect(w.api.Create(w.ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account + "-" + role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: account}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		})).To(Succeed())
	}
	if account == mcpserver.Name {
		// The key of hashes is in the namespace of the manager, where the shipped Role permits it.
		w.Expect(w.api.Create(w.ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: account},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: account}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "fixpoint-hash-key-role"},
		})).To(Succeed())
	}
}
