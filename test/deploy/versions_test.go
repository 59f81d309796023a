package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const (
	// withoutBeta is the last commit that serves v1alpha1 alone. Upgrades start from it until a release does.
	withoutBeta = "60e66f98f765236e4735824942f420400f4bb43a"
	// upgradeObjects is the variable that sets how many objects of each kind are upgraded, once: the commands of the
	// documentation for the way back run for each object.
	upgradeObjects = "FIXPOINT_UPGRADE_OBJECTS"
	// fewObjects is how many are upgraded, returned and upgraded again without the variable.
	fewObjects = 10
	// upgradeTime bounds the time from the end of the last old manager until all objects are migrated and quiet, if
	// the variable is set. Without it, the test runs beside others, which decide how long it takes.
	upgradeTime = 2 * time.Minute

	// convertedInterval is the pause between two checks of all objects: for each, the webhook converts all of them.
	convertedInterval = 500 * time.Millisecond

	alpha = "v1alpha1"
	beta  = "v1beta1"
)

// fleet is objects of all kinds in one namespace.
type fleet struct {
	*fixture
	namespace string
	count     int
	clients   dynamic.Interface
	// added are the fields of specs that have no default in the previous version, by resource, with their defaults.
	added map[string]map[string]any
}

// AppServices that are edited in a version, or whose Deployment is, while objects are migrated.
const (
	editedInAlpha = "app-003"
	editedInBeta  = "app-004"
	drifting      = "app-005"
)

// busy reports whether an object, or a child, is one that is edited while objects are migrated.
func busy(key string) bool {
	_, name, _ := strings.Cut(key, "/")
	return slices.ContainsFunc([]string{editedInAlpha, editedInBeta, drifting}, func(edited string) bool { return strings.HasPrefix(name, edited) })
}

// kindsOfFleet are specs of v1alpha1, with what v1beta1 says differently.
var kindsOfFleet = []struct{ kind, resource, spec string }{
	{"AppService", "appservices", `{image: "registry.test/web:1", replicas: 2, config: {A: "1"}, suspend: false, resources: {requests: {memory: 1024Ki}}}`},
	{"MCPServer", "mcpservers", `{image: "registry.test/tools:1", transport: streamable-http, replicas: 1, protocol: {tls: false, interval: 60s},
	  networkPolicy: {egress: {allowDNS: false}}}`},
	{"SecureStorage", "securestorages", `{provider: {subscriptionID: SUBSCRIPTION, resourceGroup: fixpoint-demo, location: westeurope},
	  key: {vault: {name: fixpoint-demo}, keyName: storage}, onAccountLoss: Stall, pollInterval: 1h}`},
}

func (w *fixture) fleet(namespace string) *fleet {
	w.t.Helper()
	clients, err := dynamic.NewForConfig(w.cluster.Admin())
	w.Expect(err).NotTo(HaveOccurred())
	f := &fleet{fixture: w, namespace: namespace, count: fewObjects, clients: clients}
	if count, set := os.LookupEnv(upgradeObjects); set {
		f.count, err = strconv.Atoi(count)
		w.Expect(err).NotTo(HaveOccurred(), upgradeObjects)
	}
	return f
}

func (f *fleet) in(version, resource string) dynamic.ResourceInterface {
	return f.clients.Resource(schema.GroupVersionResource{Group: "fixpoint.dev", Version: version, Resource: resource}).Namespace(f.namespace)
}

// create creates the objects in v1alpha1.
func (f *fleet) create() {
	f.t.Helper()
	f.fixture.namespace(f.namespace)
	for _, kind := range kindsOfFleet {
		var spec map[string]any
		f.Expect(yaml.Unmarshal([]byte(f.inCloud(kind.spec)), &spec)).To(Succeed())
		for i := range f.count {
			object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			object.SetAPIVersion("fixpoint.dev/" + alpha)
			object.SetKind(kind.kind)
			object.SetName(fmt.Sprintf("%.3s-%03d", kind.resource, i))
			_, err := f.in(alpha, kind.resource).Apply(f.ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "gitops"})
			f.Expect(err).NotTo(HaveOccurred())
		}
	}
}

// list reads all objects in a version.
func (f *fleet) list(version string) (map[string]*unstructured.Unstructured, error) {
	objects := map[string]*unstructured.Unstructured{}
	for _, kind := range kindsOfFleet {
		list, err := f.in(version, kind.resource).List(f.ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			objects[kind.resource+"/"+list.Items[i].GetName()] = &list.Items[i]
		}
	}
	if len(objects) != f.count*len(kindsOfFleet) {
		return nil, fmt.Errorf("%d objects of %d", len(objects), f.count*len(kindsOfFleet))
	}
	return objects, nil
}

// isReady waits until all objects are Ready for the specs that they have.
func (f *fleet) isReady(version string) {
	f.t.Helper()
	f.Eventually(func() ([]string, error) {
		objects, err := f.list(version)
		var not []string
		for name, object := range objects {
			if state := readyOf(object); state != "True" {
				not = append(not, name+" is "+state)
			}
		}
		return not, err
	}, 3*waitTimeout, convertedInterval).Should(BeEmpty())
}

func readyOf(object *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		if condition["type"] == "Ready" && condition["observedGeneration"] == object.GetGeneration() {
			return fmt.Sprint(condition["status"])
		}
	}
	return "not reconciled"
}

// specs are those of all objects in v1alpha1, without the defaults that the previous version does not have.
func (f *fleet) specs() map[string]any {
	f.t.Helper()
	specs := map[string]any{}
	objects, err := f.list(alpha)
	f.Expect(err).NotTo(HaveOccurred())
	for name, object := range objects {
		spec, _ := object.Object["spec"].(map[string]any)
		resource, _, _ := strings.Cut(name, "/")
		for field, value := range f.added[resource] {
			if found, set := spec[field]; set {
				f.Expect(found).To(Equal(value), "%s has the default of %s", name, field)
				delete(spec, field)
			}
		}
		specs[name] = spec
	}
	return specs
}

// addedTo are the fields that have a default in v1alpha1 and had none in a source, with their defaults.
func (f *fleet) addedTo(source string) map[string]map[string]any {
	f.t.Helper()
	added := map[string]map[string]any{}
	for _, kind := range kindsOfFleet {
		before := f.fieldsOf(source, kind.resource)
		added[kind.resource] = map[string]any{}
		for name, field := range f.fieldsOf(deploy.Root, kind.resource) {
			if before[name].Default != nil || field.Default == nil {
				continue
			}
			var value any
			f.Expect(utiljson.Unmarshal(field.Default.Raw, &value)).To(Succeed())
			added[kind.resource][name] = value
		}
	}
	return added
}

// fieldsOf are the fields of a spec of v1alpha1 in a source.
func (f *fleet) fieldsOf(source, resource string) map[string]apiextensionsv1.JSONSchemaProps {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(source, "config", "crd", "bases", "fixpoint.dev_"+resource+".yaml"))
	f.Expect(err).NotTo(HaveOccurred())
	var definition apiextensionsv1.CustomResourceDefinition
	f.Expect(yaml.Unmarshal(text, &definition)).To(Succeed())
	i := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == alpha })
	f.Expect(i).To(BeNumerically(">=", 0))
	return definition.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"].Properties
}

// drifts are those in the status of all objects.
func (f *fleet) drifts() (map[string]any, error) {
	drifts := map[string]any{}
	objects, err := f.list(alpha)
	for name, object := range objects {
		if list, found, _ := unstructured.NestedSlice(object.Object, "status", "drifts"); found && len(list) > 0 {
			drifts[name] = list
		}
	}
	return drifts, err
}

// edit scales an AppService in a version.
func (f *fleet) edit(version string, i, replicas int) {
	f.t.Helper()
	f.Eventually(func() error {
		_, err := f.in(version, "appservices").Patch(f.ctx, fmt.Sprintf("app-%03d", i), types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{FieldManager: "editor"})
		return err
	}).Should(Succeed())
}

// work edits specs in both versions and a Deployment, without a change of pods, until the function that it returns is
// called. That one waits until all is as before.
func (f *fleet) work() (stop func()) {
	f.t.Helper()
	// Each write of an object has to succeed between two of the others, whose number is several times that of the edits.
	const usual, perSecond = 600, 1
	deadline := func(seconds int) []byte { return fmt.Appendf(nil, `{"spec":{"progressDeadlineSeconds":%d}}`, seconds) }
	deployments := f.fixture.clients.AppsV1().Deployments(f.namespace)
	edits := []func(seconds int) error{
		func(seconds int) error {
			_, err := f.in(alpha, "appservices").Patch(f.ctx, editedInAlpha, types.MergePatchType, deadline(seconds), metav1.PatchOptions{FieldManager: "editor"})
			return err
		},
		func(seconds int) error {
			_, err := f.in(beta, "appservices").Patch(f.ctx, editedInBeta, types.MergePatchType, deadline(seconds), metav1.PatchOptions{FieldManager: "editor"})
			return err
		},
		func(seconds int) error {
			_, err := deployments.Patch(f.ctx, drifting, types.MergePatchType, deadline(seconds), metav1.PatchOptions{FieldManager: "drifter"})
			return err
		},
	}
	var loads []*harness.Load
	for _, edit := range edits {
		loads = append(loads, harness.StartLoad(f.ctx, perSecond, func(i int) error {
			return retry.OnError(patient, unavailable, func() error { return edit(usual + 1 + i) })
		}))
	}
	return func() {
		f.t.Helper()
		for i, load := range loads {
			f.Expect(load.Stop()).To(BeEmpty(), "edits that failed")
			f.Expect(load.Count()).To(BeNumerically(">", 0))
			if i < len(loads)-1 { // drifts are reverted
				f.Expect(edits[i](usual)).To(Succeed())
			}
		}
		for _, name := range []string{editedInAlpha, editedInBeta, drifting} {
			f.Eventually(func() (int32, error) {
				deployment, err := deployments.Get(f.ctx, name, metav1.GetOptions{})
				if err != nil || deployment.Spec.ProgressDeadlineSeconds == nil {
					return 0, err
				}
				return *deployment.Spec.ProgressDeadlineSeconds, nil
			}).Should(BeEquivalentTo(usual), name)
		}
		f.Eventually(f.drifts).Should(HaveKeyWithValue("appservices/"+drifting, ContainElement(
			And(HaveKeyWithValue("manager", "drifter"), HaveKeyWithValue("field", ".spec.progressDeadlineSeconds")))))
	}
}

// drift scales the Deployment of an AppService, and waits until that is reverted and reported.
func (f *fleet) drift(i, round int) {
	f.t.Helper()
	name := fmt.Sprintf("app-%03d", i)
	f.run("-n", f.namespace, "scale", "deployment", name, "--replicas="+strconv.Itoa(5+round))
	f.Eventually(f.drifts).Should(HaveKeyWithValue("appservices/"+name, HaveLen(round+1)))
}

// requestsToWrite are what managers sent since a mark, for each object that was not edited.
func (f *fleet) requestsToWrite(mark cluster.Mark, m *deploy.Manager) map[string]cluster.Requests {
	f.t.Helper()
	requests := map[string]cluster.Requests{}
	for _, r := range f.audited(mark, m.User).Writes().
		Except("leases.coordination.k8s.io", "events", "events.events.k8s.io", "customresourcedefinitions.apiextensions.k8s.io", "secrets") {
		if name := r.Resource + "/" + r.Name; !busy(name) {
			requests[name] = append(requests[name], r)
		}
	}
	return requests
}

// storedIn waits until all objects are stored in a version.
func (f *fleet) storedIn(version string) {
	f.t.Helper()
	f.Eventually(f.storedVersions, 2*waitTimeout).Should(HaveEach(fmt.Sprintf("[%q]", version)))
}

// migrated are the statuses of the conditions of migrations.
func (f *fleet) migrated() []string {
	f.t.Helper()
	var all []string
	for _, definition := range definitions {
		all = append(all, f.run("get", "crd", definition, "-o", `jsonpath={.status.conditions[?(@.type=="fixpoint.dev/Migrated")].status}`))
	}
	return all
}

// TestUpgradeFromV1alpha1AndBack upgrades from the last version without v1beta1, returns to it as docs/operations.md
// says, and upgrades again. Managers of both versions run at the same time for a while, under edits and drifts, which go on
// while objects are migrated.
func TestUpgradeFromV1alpha1AndBack(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	source := w.sourceOf(withoutBeta)
	before, err := deploy.Build(w.ctx, source, t.TempDir())
	w.Expect(err).NotTo(HaveOccurred())
	w.kustomizeFrom(source, "resources: [CONFIG/default]\n")
	old := w.startPod(deploy.Pod{Program: before, Namespace: system, Name: "old"})
	f := w.fleet("shop")
	f.added = f.addedTo(source)
	f.create()
	f.isReady(alpha)
	first := f.specs()

	now := f.upgrade(old, 0)
	if f.count > fewObjects {
		return
	}
	f.previousIsRefused(source, now)
	old = f.returnTo(source, before, now)
	f.Expect(f.specs()).To(Equal(first), "but for the replicas that were edited back")
	now = f.upgrade(old, 1)
	w.Expect(w.denied(0, now.User)).To(BeEmpty())

	// And the objects are deleted with all that they own.
	w.run("delete", "namespace", f.namespace, "--timeout=180s")
}

// upgrade replaces a manager of v1alpha1.
func (f *fleet) upgrade(old *deploy.Manager, round int) *deploy.Manager {
	f.t.Helper()
	f.quiet(old)
	templates, specs := f.replicaSets(), f.specs()

	// Given a replica of the new version beside the leader of the old one, which writes through its webhook
	var flags []string
	if round > 0 {
		flags = []string{"--force-conflicts"} // with the commands of the documentation
	}
	f.kustomizeFrom(deploy.Root, "resources: [CONFIG/default]\n", flags...)
	m := f.startPod(deploy.Pod{Program: f.program(), Namespace: system, Name: fmt.Sprintf("new-%d", round)})
	f.Expect(f.specs()).To(Equal(specs))
	f.edit(alpha, 0, 3)
	f.edit(beta, 1, 3)
	f.drift(2, round)
	f.isReady(beta)
	f.edit(alpha, 1, 2)
	f.edit(beta, 0, 2)
	f.isReady(alpha)
	f.quiet(old)
	drifts, err := f.drifts()
	f.Expect(err).NotTo(HaveOccurred())
	pods := f.restingPods()

	// When the new one leads
	mark, began := f.mark(), time.Now()
	f.handOver(old)
	stop := f.work()
	f.storedIn(beta)
	stop()
	f.quiet(m)
	took := time.Since(began)
	requests := f.requestsToWrite(mark, m)
	written, asked := 0, 0
	for _, sent := range requests {
		written, asked = max(written, len(sent.Succeeded())), max(asked, len(sent))
	}
	f.t.Logf("upgraded %d objects in %s, at most %d writes and %d requests an object", f.count*len(kindsOfFleet), took.Round(time.Second), written, asked)

	// Then no pod is replaced, nothing is lost, no drift is reported, and each object is written at most twice: for the
	// migration and for the status. An MCPServer is written once more, when the server has responded: the previous version
	// does not know status.contract. A status that is refused, because the migration has just written the object, is
	// no write.
	f.Expect(f.specs()).To(Equal(specs))
	after, err := f.drifts()
	f.Expect(err).NotTo(HaveOccurred())
	delete(after, "appservices/"+drifting)
	delete(drifts, "appservices/"+drifting)
	f.Expect(after).To(Equal(drifts))
	f.Expect(f.pods(f.namespace)).To(Equal(pods))
	f.Expect(f.replicaSets()).To(Equal(templates), "no Deployment was rolled, also while both ran")
	for object, sent := range requests {
		most := 2
		if strings.HasPrefix(object, "mcpservers/") {
			most++
		}
		f.Expect(len(sent.Succeeded())).To(BeNumerically("<=", most), "%s: %v", object, sent)
	}
	f.Expect(f.references()).To(HaveEach("fixpoint.dev/"+beta), "owner references of children")
	if f.count > fewObjects {
		f.Expect(took).To(BeNumerically("<", upgradeTime))
	}
	return m
}

// restingPods waits until there are as many pods as the specs say, and returns them. An object is Ready while surplus pods
// end, which are still listed.
func (f *fleet) restingPods() map[string]types.UID {
	f.t.Helper()
	replicas := 0
	for name, spec := range f.specs() {
		if strings.HasPrefix(name, "securestorages/") {
			continue
		}
		fields, _ := spec.(map[string]any)
		count, set := fields["replicas"].(int64)
		f.Expect(set).To(BeTrue(), name)
		replicas += int(count)
	}
	var pods map[string]types.UID
	f.Eventually(func() map[string]types.UID {
		pods = f.pods(f.namespace)
		return pods
	}).Should(HaveLen(replicas))
	return pods
}

// replicaSets are the names of all ReplicaSets: a rollout creates one.
func (f *fleet) replicaSets() []string {
	f.t.Helper()
	list, err := f.fixture.clients.AppsV1().ReplicaSets(f.namespace).List(f.ctx, metav1.ListOptions{})
	f.Expect(err).NotTo(HaveOccurred())
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// references are the API versions of the owners of Deployments.
func (f *fleet) references() ([]string, error) {
	list, err := f.fixture.clients.AppsV1().Deployments(f.namespace).List(f.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var versions []string
	for i := range list.Items {
		for _, owner := range list.Items[i].OwnerReferences {
			versions = append(versions, owner.APIVersion)
		}
	}
	if len(versions) < 2*f.count {
		return nil, fmt.Errorf("%d owners of Deployments, of at least %d", len(versions), 2*f.count)
	}
	return versions, nil
}

// statusEntries are the API versions in which managers have applied the status of the objects.
func (f *fleet) statusEntries() ([]string, error) {
	var versions []string
	objects, err := f.list(alpha)
	for _, object := range objects {
		for _, entry := range object.GetManagedFields() {
			if entry.Subresource == "status" && entry.Operation == metav1.ManagedFieldsOperationApply {
				versions = append(versions, entry.APIVersion)
			}
		}
	}
	return versions, err
}

// previousIsRefused applies the CustomResourceDefinitions of the previous version.
func (f *fleet) previousIsRefused(source string, m *deploy.Manager) {
	f.t.Helper()
	before := f.specs()
	_, err := f.kubectl.Run(f.ctx, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(source, "config", "crd"))
	f.Expect(err).To(MatchError(ContainSubstring(`status.storedVersions[0]: Invalid value: "v1beta1": missing from spec.versions`)))
	f.Expect(f.specs()).To(Equal(before))
	f.Expect(m.Ready(f.ctx)).To(Succeed())
}

// returnTo replaces this manager by one without v1beta1.
func (f *fleet) returnTo(source, program string, m *deploy.Manager) *deploy.Manager {
	f.t.Helper()
	pods, specs := f.restingPods(), f.specs()
	f.Expect(f.migrated()).To(HaveEach("True"))
	f.wayOut("store-v1alpha1")
	f.Expect(f.storedVersions()).To(HaveEach(fmt.Sprintf("[%q]", alpha)))
	f.Eventually(f.migrated).Should(HaveEach(""), "the condition of definitions that store v1alpha1")
	f.Expect(m.Stop()).To(Succeed())
	f.wayOut("remove-v1beta1")
	f.kustomizeFrom(source, "resources: [CONFIG/default]\n", "--force-conflicts")
	old := f.startPod(deploy.Pod{Program: program, Namespace: system, Name: "old-again"})
	f.Eventually(f.references).Should(HaveEach("fixpoint.dev/" + alpha))
	f.Eventually(f.statusEntries, waitTimeout, convertedInterval).Should(And(HaveLen(f.count*len(kindsOfFleet)), HaveEach("fixpoint.dev/"+alpha)))
	f.isReady(alpha)
	f.quiet(old)
	f.Expect(f.specs()).To(Equal(specs))
	f.Expect(f.pods(f.namespace)).To(Equal(pods))
	return old
}
