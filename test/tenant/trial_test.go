package tenant_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// attempt is a row of the table in docs/security.md: what a user with a role tries, and what happens.
type attempt struct {
	name, as, result string
	try              func(a *trial)
}

// trial is what one attempt has to itself.
type trial struct {
	Gomega
	*fixture
	t   *testing.T
	ctx context.Context
	// api is the client of the user.
	api client.Client
}

func (w *fixture) newTrial(t *testing.T, user string) *trial {
	t.Helper()
	a := &trial{fixture: w, t: t, ctx: t.Context()}
	a.Gomega = NewWithT(harness.Reporter{T: t, Report: a.report})
	a.api = a.as(user)
	return a
}

// as is the client of a user.
func (a *trial) as(user string) client.Client {
	a.t.Helper()
	api, err := client.New(a.cluster.Config(user), client.Options{Scheme: controllers.NewScheme(), Mapper: a.admin.RESTMapper()})
	a.Expect(err).NotTo(HaveOccurred())
	return api
}

// report shows the objects of the kinds in the namespace of the tenant.
func (a *trial) report() string {
	output, err := a.kubectl.Run(context.Background(), "-n", tenant, "get", "fixpoint", "-o", "yaml")
	return fmt.Sprintf("--- objects in namespace %s (%v)\n%s", tenant, err, output)
}

// create creates an object as the user, in the namespace of the tenant unless the text names another one.
func (a *trial) create(text string) error {
	a.t.Helper()
	object := parse(a, text)
	if object.GetNamespace() == "" {
		object.SetNamespace(tenant)
	}
	return a.api.Create(a.ctx, object)
}

// mustCreate is create for what the user may create.
func (a *trial) mustCreate(text string) {
	a.t.Helper()
	a.Expect(a.create(text)).To(Succeed())
}

func objectText(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: fixpoint.dev/v1beta1\nkind: %s\nmetadata: {name: %s}\nspec: {%s}\n", kind, name, spec)
}

// server creates an MCPServer. The fields are in the flow style of YAML.
func (a *trial) server(name, fields string) error {
	a.t.Helper()
	return a.create(objectText("MCPServer", name, `image: "registry.test/tools:1", `+fields))
}

// app creates an AppService.
func (a *trial) app(name, fields string) error {
	a.t.Helper()
	return a.create(objectText("AppService", name, `image: "registry.test/web:1", `+fields))
}

// storage creates a SecureStorage in a resource group, with a key of a key vault.
func (a *trial) storage(name, group, vault, provider, fields string) error {
	a.t.Helper()
	return a.create(objectText("SecureStorage", name, fmt.Sprintf(`provider: {subscriptionID: %s, resourceGroup: %q, location: %s, %s}, key: {%s, name: storage}, %s`,
		a.demo.Subscription, group, a.demo.Location, provider, vault, fields)))
}

// The key vaults, for [trial.storage].
const ofTenant, ofVictim = `vault: {name: tenant-vault}`, `vault: {name: victim-vault, resourceGroup: victim}`

// refused expects that the API server refuses a request, with a message that contains the texts.
func (a *trial) refused(err error, texts ...string) {
	a.t.Helper()
	a.Expect(err).To(HaveOccurred())
	a.Expect(apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	a.Expect(err).To(MatchError(containing(texts)))
}

// forbidden expects that the user has no permission for a request.
func (a *trial) forbidden(err error) {
	a.t.Helper()
	a.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	a.Expect(err).To(MatchError(ContainSubstring("cannot ")))
}

func containing(texts []string) gomegatypes.GomegaMatcher {
	var matchers []gomegatypes.GomegaMatcher
	for _, text := range texts {
		matchers = append(matchers, ContainSubstring(text))
	}
	return And(matchers...)
}

// shows waits until an object of the tenant shows a reason in the condition Ready, and returns it. The message of
// the condition contains the texts.
func shows[T client.Object](a *trial, name string, empty T, reason string, texts ...string) T {
	a.t.Helper()
	a.Eventually(func(g Gomega) {
		g.Expect(a.admin.Get(a.ctx, client.ObjectKey{Namespace: tenant, Name: name}, empty)).To(Succeed())
		g.Expect(harness.IsObserved(empty)).To(BeTrue())
		g.Expect(harness.Conditions(empty)).To(HaveKeyWithValue("Ready", HaveSuffix(" "+reason)))
		g.Expect(harness.Message(empty, "Ready")).To(containing(texts))
	}).Should(Succeed())
	return empty
}

// becomesReady waits until an object of the tenant is Ready.
func becomesReady[T client.Object](a *trial, name string, empty T) T {
	a.t.Helper()
	return shows(a, name, empty, v1beta1.ReasonReady)
}

// notPermitted expects that the manager refuses an object, and creates no pods for it.
func (a *trial) notPermitted(name string, object client.Object, texts ...string) {
	a.t.Helper()
	shows(a, name, object, v1beta1.ReasonNotPermitted, texts...)
	a.Expect(harness.Conditions(object)).To(HaveKeyWithValue("Stalled", "True "+v1beta1.ReasonNotPermitted))
	a.Expect(a.read(&appsv1.Deployment{}, tenant, name)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
}

// read reads an object as an administrator.
func (a *trial) read(into client.Object, namespace, name string) error {
	return a.admin.Get(a.ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
}

// mustRead is read for an object that has to exist.
func mustRead[T client.Object](a *trial, into T, namespace, name string) T {
	a.t.Helper()
	a.Expect(a.read(into, namespace, name)).To(Succeed())
	return into
}

// patch patches an object as the user.
func (a *trial) patch(object client.Object, namespace, name, text string, subresource ...string) error {
	a.t.Helper()
	object.SetNamespace(namespace)
	object.SetName(name)
	raw, err := yaml.YAMLToJSON([]byte(text))
	a.Expect(err).NotTo(HaveOccurred())
	patch := client.RawPatch("application/merge-patch+json", raw)
	if len(subresource) > 0 {
		return a.api.SubResource(subresource[0]).Patch(a.ctx, object, patch)
	}
	return a.api.Patch(a.ctx, object, patch)
}

// delete deletes an object as the user, and waits until it is gone.
func (a *trial) delete(object client.Object) {
	a.t.Helper()
	a.Expect(client.IgnoreNotFound(a.api.Delete(a.ctx, object))).To(Succeed())
	a.Eventually(func() error { return harness.Gone(a.ctx, a.admin, client.ObjectKeyFromObject(object), object) }).Should(Succeed())
}

// ledgerOf are the requests that changed or tried to change what the ID of a resource of the cloud contains.
func (w *fixture) ledgerOf(part string) []fakecloud.Entry {
	var found []fakecloud.Entry
	for _, entry := range w.cloud.Ledger() {
		if entry.Who != fakecloud.WhoMeddler && strings.Contains(strings.ToLower(entry.Resource), strings.ToLower(part)) {
			found = append(found, entry)
		}
	}
	return found
}

// untouched expects that the manager has sent no request for an account, and that it is as it was seeded.
func (a *trial) untouched(account string) {
	a.t.Helper()
	a.Expect(a.cloud.Total("/storageaccounts/" + account).Calls()).To(BeZero())
	state, found := a.cloud.Account(account)
	a.Expect(found).To(BeTrue())
	a.Expect(state.Tags).To(BeEmpty())
}

// texts are all that the manager has written about an object of the tenant for people: the status, and Events.
func (a *trial) texts(kind, name string) string {
	a.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(kind))
	a.Expect(a.read(object, tenant, name)).To(Succeed())
	status, err := yaml.Marshal(object.Object["status"])
	a.Expect(err).NotTo(HaveOccurred())
	var list eventsv1.EventList
	a.Expect(a.admin.List(a.ctx, &list, client.InNamespace(tenant))).To(Succeed())
	text := string(status)
	for _, event := range list.Items {
		if event.Regarding.Kind == kind && event.Regarding.Name == name {
			text += "\n" + event.Reason + ": " + event.Note
		}
	}
	return text
}

// jobs are those of an AppService of the tenant.
func (a *trial) jobs(app string) []batchv1.Job {
	a.t.Helper()
	var list batchv1.JobList
	a.Expect(a.admin.List(a.ctx, &list, client.InNamespace(tenant), client.MatchingLabels{"app.kubernetes.io/name": app})).To(Succeed())
	return list.Items
}

// pods are the addresses of the running pods of a namespace with a name in app.kubernetes.io/name.
func (a *trial) pods(namespace, name string) []corev1.Pod {
	a.t.Helper()
	var list corev1.PodList
	a.Expect(a.admin.List(a.ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": name})).To(Succeed())
	return list.Items
}
