package tenant_test

import (
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/certificates"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// objectAttempts try to have the manager change, delete or reveal objects of others.
func objectAttempts() []attempt {
	return []attempt{
		{"create, change or list objects of the kinds in other namespaces", editor, "forbidden", func(a *trial) {
			for _, namespace := range []string{victim, system, "default", "kube-system"} {
				text := objectText("AppService", "intruder", `image: "registry.test/web:1"`)
				object := parse(a, text)
				object.SetNamespace(namespace)
				a.forbidden(a.api.Create(a.ctx, object))
				a.forbidden(a.api.List(a.ctx, &v1beta1.MCPServerList{}, client.InNamespace(namespace)))
			}
			a.forbidden(a.patch(&v1beta1.AppService{}, victim, "shop", "spec: {suspend: true}"))
			a.forbidden(a.patch(&v1beta1.MCPServer{}, victim, "tools", "metadata: {finalizers: null}"))
			a.forbidden(a.api.Delete(a.ctx, &v1beta1.SecureStorage{ObjectMeta: metav1.ObjectMeta{Namespace: victim, Name: "ledger"}}))
			a.forbidden(a.api.List(a.ctx, &v1beta1.SecureStorageList{}))
		}},
		{"name another namespace in the object than in the request", editor, "refused: the message names the namespace", func(a *trial) {
			cfg := a.cluster.Config(editor)
			body := `{"apiVersion":"fixpoint.dev/v1beta1","kind":"AppService","metadata":{"name":"intruder","namespace":"victim"},"spec":{"image":"registry.test/web:1"}}`
			err := a.clients(a, cfg).Discovery().RESTClient().Post().AbsPath("/apis/fixpoint.dev/v1beta1/namespaces/tenant/appservices").Body([]byte(body)).
				SetHeader("Content-Type", "application/json").Do(a.ctx).Error()
			a.refused(err, "namespace")
		}},
		{"impersonate the manager, take a token of its ServiceAccount, or read the key of hashes or the certificate of the webhook", edit, "forbidden", func(a *trial) {
			cfg := a.cluster.Config(edit)
			cfg.Impersonate = rest.ImpersonationConfig{UserName: managerUser}
			_, err := a.clients(a, cfg).CoreV1().Secrets(victim).List(a.ctx, metav1.ListOptions{})
			a.forbidden(err)
			_, err = a.clients(a, a.cluster.Config(edit)).CoreV1().Pods(system).List(a.ctx, metav1.ListOptions{})
			a.forbidden(err)
			_, err = a.clients(a, a.cluster.Config(edit)).CoreV1().ServiceAccounts(system).CreateToken(a.ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			a.forbidden(err)
			for _, secret := range []string{"hash-key.fixpoint.dev", certificates.SecretName} {
				a.forbidden(a.api.Get(a.ctx, client.ObjectKey{Namespace: system, Name: secret}, &corev1.Secret{}))
			}
			a.forbidden(a.patch(&appsv1.Deployment{}, system, account, "spec: {replicas: 0}"))
		}},
		{"convert objects of all teams by another webhook, or declare another stored version", edit, "forbidden", func(a *trial) {
			definition := parse(a, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: mcpservers.fixpoint.dev}\n")
			a.forbidden(a.patch(definition, "", "mcpservers.fixpoint.dev", "spec: {conversion: {webhook: {clientConfig: {url: 'https://tenant.test/convert'}}}}"))
			a.forbidden(a.patch(definition, "", "mcpservers.fixpoint.dev", "status: {storedVersions: [v1alpha1]}", "status"))
			a.forbidden(a.patch(&corev1.Service{}, system, "fixpoint-webhook", "spec: {selector: {app: tenant}}"))
		}},
		{"bind a role of the manager, or raise the own role", edit, "forbidden", func(a *trial) {
			a.forbidden(a.api.Create(a.ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "raise"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: edit}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fixpoint-manager-mcpserver-role"},
			}))
			a.forbidden(a.patch(&rbacv1.ClusterRole{}, "", "fixpoint-mcpserver-editor-role", "rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]"))
		}},
		{"allow hosts to the own namespace, or remove the admission policies", edit, "forbidden", func(a *trial) {
			a.forbidden(a.patch(&corev1.Namespace{}, "", tenant, "metadata: {annotations: {policy.fixpoint.dev/hosts: '*'}}"))
			policy := parse(a, "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: fixpoint-hosts}\n")
			a.forbidden(a.api.Delete(a.ctx, policy))
		}},
		{"create a SecureStorage without its editor role", plain, "forbidden: the editor role of SecureStorages is not part of `edit`", func(a *trial) {
			a.forbidden(a.storage("unbound", tenant, ofTenant, "", ""))
			a.forbidden(a.api.List(a.ctx, &v1beta1.SecureStorageList{}, client.InNamespace(system)))
			a.Expect(a.app("unbound", "")).To(Succeed())
		}},
		{"adopt an object that another controller owns", edit, "`OwnedByAnother`: the message names the object, which is unchanged", func(a *trial) {
			a.mustCreate("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: controller}\n")
			owner := mustRead(a, &corev1.ConfigMap{}, tenant, "controller")
			a.mustCreate(fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: owned, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: controller, uid: %s, controller: true}]}\nspec: {ports: [{port: 80}], selector: {a: b}}\n", owner.UID))
			before := mustRead(a, &corev1.Service{}, tenant, "owned")
			a.Expect(a.app("owned", "adoptionPolicy: IfUnowned")).To(Succeed())
			shows(a, "owned", &v1beta1.AppService{}, v1beta1.ReasonOwnedByAnother, "Service", "owned")
			a.delete(&v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "owned"}})
			a.Expect(mustRead(a, &corev1.Service{}, tenant, "owned")).To(Equal(before))
		}},
		{"take over an object by the name of an AppService or MCPServer", edit, "`NotOwned`: the message names the object, which is unchanged, and `spec.adoptionPolicy`", func(a *trial) {
			a.mustCreate("apiVersion: v1\nkind: Service\nmetadata: {name: collision}\nspec: {ports: [{port: 80}], selector: {a: b}}\n")
			before := mustRead(a, &corev1.Service{}, tenant, "collision")
			a.Expect(a.server("collision", "")).To(Succeed())
			shows(a, "collision", &v1beta1.MCPServer{}, v1beta1.ReasonNotOwned, "Service tenant/collision", "set spec.adoptionPolicy to IfUnowned to adopt it")
			a.delete(&v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "collision"}})
			a.Expect(mustRead(a, &corev1.Service{}, tenant, "collision")).To(Equal(before))
			for _, name := range []string{"kube-root-ca.crt", "../victim", "Shop", "a_b"} {
				a.refused(a.app(name, ""), "name")
			}
		}},
		{"name an object of another namespace as owner of the own object", editor, "no effect outside: the garbage collector removes the own object", func(a *trial) {
			shop := mustRead(a, &v1beta1.AppService{}, victim, "shop")
			a.mustCreate(fmt.Sprintf("apiVersion: fixpoint.dev/v1beta1\nkind: AppService\nmetadata: {name: child, ownerReferences: [{apiVersion: fixpoint.dev/v1beta1, kind: AppService, name: shop, uid: %s, controller: true, blockOwnerDeletion: true}]}\nspec: {image: \"registry.test/web:1\"}\n", shop.UID))
			a.Eventually(func() error {
				return harness.Gone(a.ctx, a.admin, client.ObjectKey{Namespace: tenant, Name: "child"}, &v1beta1.AppService{})
			}).Should(Succeed())
			a.Expect(mustRead(a, &v1beta1.AppService{}, victim, "shop")).To(Equal(shop))
		}},
		{"present an object as the child of the AppService of another team", edit, "no effect outside: children are found in the namespace of their owner", func(a *trial) {
			shop := mustRead(a, &v1beta1.AppService{}, victim, "shop")
			deployment := mustRead(a, &appsv1.Deployment{}, victim, "shop")
			a.mustCreate(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop, labels: {app.kubernetes.io/managed-by: fixpoint, app.kubernetes.io/name: shop}, ownerReferences: [{apiVersion: fixpoint.dev/v1beta1, kind: AppService, name: shop, uid: %s, controller: true}]}\ndata: {A: \"2\"}\n", shop.UID))
			a.Eventually(func() error {
				return harness.Gone(a.ctx, a.admin, client.ObjectKey{Namespace: tenant, Name: "shop"}, &corev1.ConfigMap{})
			}).Should(Succeed(), "the garbage collector removes it")
			a.Expect(mustRead(a, &v1beta1.AppService{}, victim, "shop")).To(Equal(shop))
			a.Expect(mustRead(a, &appsv1.Deployment{}, victim, "shop")).To(Equal(deployment))
		}},
		{"change a child under the field manager of the controller", edit, "reverted", func(a *trial) {
			a.Expect(a.app("fields", "replicas: 2")).To(Succeed())
			becomesReady(a, "fields", &v1beta1.AppService{})
			owner := mustRead(a, &v1beta1.AppService{}, tenant, "fields")
			forged := parse(a, fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: fields, namespace: tenant, ownerReferences: [{apiVersion: fixpoint.dev/v1beta1, kind: AppService, name: fields, uid: %s, controller: true}]}\nspec:\n  selector: {matchLabels: {app.kubernetes.io/name: fields}}\n"+
				"  template: {metadata: {labels: {app.kubernetes.io/name: fields}}, spec: {containers: [{name: app, image: \"registry.test/evil:1\"}]}}\n", owner.UID))
			body, err := json.Marshal(forged)
			a.Expect(err).NotTo(HaveOccurred())
			a.Expect(a.api.Patch(a.ctx, forged, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner("fixpoint-appservice"), client.ForceOwnership)).To(Succeed())
			a.Eventually(func() string {
				return mustRead(a, &appsv1.Deployment{}, tenant, "fields").Spec.Template.Spec.Containers[0].Image
			}).Should(Equal("registry.test/web:1"))
			becomesReady(a, "fields", &v1beta1.AppService{})
		}},
		{"forge the record of what the manager applied to a child, and its managed fields", edit, "reverted", func(a *trial) {
			a.Expect(a.app("record", "replicas: 2")).To(Succeed())
			becomesReady(a, "record", &v1beta1.AppService{})
			service := mustRead(a, &corev1.Service{}, tenant, "record")
			for _, record := range []string{"{}", "v1:{", "\\u0000", `{"f:spec":{}}`} {
				a.Expect(a.patch(&corev1.Service{}, tenant, "record", fmt.Sprintf("metadata: {managedFields: [{}], annotations: {%sfixpoint-appservice: %q}}\nspec: {selector: {a: b}}", ssa.RecordAnnotationPrefix, record))).To(Succeed())
				a.Eventually(func() map[string]string { return mustRead(a, &corev1.Service{}, tenant, "record").Spec.Selector }).Should(Equal(service.Spec.Selector))
			}
			becomesReady(a, "record", &v1beta1.AppService{})
		}},
		{"write the status of the own objects", edit, "forbidden", func(a *trial) {
			a.Expect(a.app("status", "")).To(Succeed())
			for _, object := range []client.Object{&v1beta1.AppService{}, &v1beta1.MCPServer{}, &v1beta1.SecureStorage{}} {
				a.forbidden(a.patch(object, tenant, "status", "status: {phase: Running}", "status"))
			}
		}},
		{"keep an object in deletion by a finalizer, or delete it without its teardown", editor, "no effect outside: the teardown runs once, and objects of others are reconciled", func(a *trial) {
			a.mustCreate("apiVersion: fixpoint.dev/v1beta1\nkind: AppService\nmetadata: {name: finalizer, finalizers: [example.com/forever]}\nspec: {image: \"registry.test/web:1\"}\n")
			app := becomesReady(a, "finalizer", &v1beta1.AppService{})
			a.Expect(a.api.Delete(a.ctx, app)).To(Succeed())
			a.Eventually(func() error {
				return harness.Gone(a.ctx, a.admin, client.ObjectKeyFromObject(app), &appsv1.Deployment{})
			}).Should(Succeed())
			a.Eventually(func() []string { return mustRead(a, &v1beta1.AppService{}, tenant, "finalizer").Finalizers }).Should(Equal([]string{"example.com/forever"}))
			mark, err := a.cluster.Audit().Mark()
			a.Expect(err).NotTo(HaveOccurred())
			began := time.Now() // the request that removed the finalizer may be recorded after the mark
			a.Expect(a.app("after", "")).To(Succeed())
			becomesReady(a, "after", &v1beta1.AppService{})
			requests, err := a.cluster.Audit().Since(mark)
			a.Expect(err).NotTo(HaveOccurred())
			for _, request := range requests.By(managerUser).Writes().Where(func(r cluster.Request) bool { return r.Received.After(began) }) {
				a.Expect(request.Name).NotTo(Equal("finalizer"), "%s", request)
			}
			a.Expect(a.patch(&v1beta1.AppService{}, tenant, "finalizer", "metadata: {finalizers: null}")).To(Succeed())
			a.Expect(a.patch(&v1beta1.AppService{}, tenant, "after", "metadata: {finalizers: null}")).To(Succeed())
			a.Expect(a.api.Delete(a.ctx, &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "after"}})).To(Succeed())
		}},
		{"make the manager use memory or time with a large object", editor, "refused: the message names the field", func(a *trial) {
			large := func(n int) string { return fmt.Sprintf("%0*d", n, 0) }
			a.refused(a.app("large", "config: {A: \""+large(16385)+"\"}"), "spec.config", "shorten the value")
			a.refused(a.server("large", "args: [\""+large(16385)+"\"]"), "spec.args[0]", "16384")
			a.refused(a.server("large", "files: [{path: /a, content: \""+large(131073)+"\"}]"), "spec.files[0].content", "131072")
			a.refused(a.server("large", "path: \"/"+large(2048)+"\""), "spec.path")
			many := ""
			for i := range 129 {
				many += fmt.Sprintf("{name: A%d, value: a},", i)
			}
			a.refused(a.server("large", "env: ["+many+"]"), "spec.env", "128")
			a.refused(a.app("large", "env: ["+many+"]"), "spec.env", "128")
		}},
	}
}
