package chart_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const (
	root      = "../.."
	chartPath = root + "/charts/fixpoint"
	// releaseName and system are chosen so that the names are those of config/default.
	releaseName = "fixpoint"
	system      = "fixpoint-system"
)

// values of a release, as a user writes them.
type values = map[string]any

func load(g Gomega) *chart.Chart {
	loaded, err := loader.Load(chartPath)
	g.Expect(err).NotTo(HaveOccurred())
	return loaded
}

// render is what `helm template` does with the chart of this source.
func render(g Gomega, text string) (map[string]*unstructured.Unstructured, error) {
	return renderChart(g, load(g), text)
}

func renderChart(g Gomega, loaded *chart.Chart, text string) (map[string]*unstructured.Unstructured, error) {
	return renderRelease(g, loaded, common.ReleaseOptions{Name: releaseName, Namespace: system, IsInstall: true, Revision: 1}, text)
}

func renderRelease(g Gomega, loaded *chart.Chart, release common.ReleaseOptions, text string) (map[string]*unstructured.Unstructured, error) {
	files, err := renderFiles(g, loaded, release, text)
	if err != nil {
		return nil, err
	}
	objects := map[string]*unstructured.Unstructured{}
	for name, content := range files {
		if strings.HasSuffix(name, ".yaml") {
			read(g, content, objects)
		}
	}
	return objects, nil
}

func renderFiles(g Gomega, loaded *chart.Chart, release common.ReleaseOptions, text string) (map[string]string, error) {
	given := values{}
	g.Expect(yaml.Unmarshal([]byte(text), &given)).To(Succeed())
	all, err := util.ToRenderValues(loaded, given, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(loaded, all)
}

// TestNotesSayThatObjectsAreDeletedFirst: Helm deletes the Deployment of the manager before the CRDs, which then stay, being
// deleted, because nothing removes the finalizers of their objects.
func TestNotesSayThatObjectsAreDeletedFirst(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                    "keeps the CustomResourceDefinitions",
		`{crds: {keep: false}}`: "deletes the CustomResourceDefinitions",
	} {
		g := NewWithT(t)
		files, err := renderFiles(g, load(g), common.ReleaseOptions{Name: releaseName, Namespace: system, IsInstall: true, Revision: 1}, text)
		g.Expect(err).NotTo(HaveOccurred())
		notes := strings.Join(strings.Fields(files["fixpoint/templates/NOTES.txt"]), " ")
		g.Expect(notes).To(And(ContainSubstring(want), ContainSubstring("Delete the objects before you uninstall, because only the manager removes their finalizers.")))
	}
}

// read adds the objects of a text, by kind, namespace and name.
func read(g Gomega, text string, into map[string]*unstructured.Unstructured) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return
		}
		g.Expect(err).NotTo(HaveOccurred(), text)
		if len(object.Object) == 0 {
			continue
		}
		key := fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
		g.Expect(into).NotTo(HaveKey(key), "twice")
		into[key] = object
	}
}

// comparable leaves out what says who made the object.
func textsOf(objects map[string]*unstructured.Unstructured) map[string]string {
	texts := map[string]string{}
	for key, object := range objects {
		object = object.DeepCopy()
		labels, annotations := object.GetLabels(), object.GetAnnotations()
		for _, name := range []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version", "helm.sh/chart"} {
			delete(labels, name)
		}
		delete(annotations, "helm.sh/resource-policy")
		// Helm replaces the pod of the console when its ConfigMap changes; with kustomize, users restart it.
		if object.GetName() == "fixpoint-console" {
			unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "annotations")
		}
		object.SetLabels(labels)
		object.SetAnnotations(annotations)
		text, err := json.MarshalIndent(object, "", "  ")
		if err != nil {
			panic(err)
		}
		texts[key] = string(text)
	}
	return texts
}

// kustomization is what a user writes to put folders of config together.
type kustomization struct {
	Resources  []string         `json:"resources"`
	Components []string         `json:"components,omitempty"`
	Patches    []map[string]any `json:"patches,omitempty"`
}

// kustomize builds folders of config with the local cluster's kubectl.
func kustomize(t *testing.T, g Gomega, folders kustomization) map[string]*unstructured.Unstructured {
	t.Helper()
	bin, err := cluster.Build(t.Context(), func(line string) { t.Log(line) })
	g.Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	config, err := filepath.Abs(filepath.Join(root, "config"))
	g.Expect(err).NotTo(HaveOccurred())
	relative, err := filepath.Rel(dir, config)
	g.Expect(err).NotTo(HaveOccurred())
	for _, list := range [][]string{folders.Resources, folders.Components} {
		for i := range list {
			list[i] = filepath.Join(relative, list[i])
		}
	}
	text, err := yaml.Marshal(folders)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o600)).To(Succeed())
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), "kustomize", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	g.Expect(err).NotTo(HaveOccurred(), stderr.String())
	objects := map[string]*unstructured.Unstructured{}
	read(g, string(output), objects)
	return objects
}

// areEqual compares object by object, so that a failure shows the one that differs.
func areEqual(g Gomega, chart, manifests map[string]*unstructured.Unstructured) {
	got, want := textsOf(chart), textsOf(manifests)
	for key, text := range want {
		g.Expect(got).To(HaveKey(key))
		g.Expect(got[key]).To(Equal(text), key)
		delete(got, key)
	}
	g.Expect(got).To(BeEmpty(), "objects of the chart alone")
}

func TestDefaultValuesRenderWhatKustomizeRenders(t *testing.T) {
	g := NewWithT(t)
	manifests := map[string]*unstructured.Unstructured{}
	install, err := os.ReadFile(filepath.Join(root, "dist", "install.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	read(g, string(install), manifests)
	// Helm keeps its record of the release in the namespace, which therefore is there before it.
	g.Expect(manifests).To(HaveKey("Namespace /" + system))
	delete(manifests, "Namespace /"+system)

	objects, err := render(g, "")

	g.Expect(err).NotTo(HaveOccurred())
	areEqual(g, objects, manifests)
}

func TestOptionsRenderWhatKustomizeRenders(t *testing.T) {
	for name, c := range map[string]struct {
		values  string
		folders kustomization
	}{
		"certificate": {`{metrics: {certificateSecret: metrics-certificate}}`,
			kustomization{Resources: []string{"default"}, Components: []string{"certificate"}}},
		"certificate of the webhook": {`{webhook: {certificateSecret: webhook-certificate}}`,
			kustomization{Resources: []string{"default"}, Components: []string{"webhook-certificate"}}},
		"monitored": {`{serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}`,
			kustomization{Resources: []string{"default", "prometheus", "grafana"}}},
		"workload identity": {`{rbac: {workloadIdentity: true}}`,
			kustomization{Resources: []string{"default"}, Components: []string{"workload-identity"}}},
		"account keys": {`{rbac: {accountKeys: true}}`,
			kustomization{Resources: []string{"default"}, Components: []string{"account-keys"}}},
		"session keys": {`{rbac: {sessionKeys: true}}`,
			kustomization{Resources: []string{"default"}, Components: []string{"session-keys"}}},
		"contract gates": {`{rbac: {contractGates: true}}`,
			kustomization{Resources: []string{"default"}, Components: []string{"contract-gates"}}},
		"policies": {`{policies: {hosts: true, annotations: true, serviceAccounts: true}}`,
			kustomization{Resources: []string{"default", "policies"}}},
		"console": {`{console: {enabled: true, hosts: [localhost], certificateSecret: console-tls}}`,
			kustomization{Resources: []string{"default"}, Components: []string{"console"}}},
		"appservice alone": {`{controllers: [appservice]}`,
			kustomization{Resources: []string{"default"}, Components: []string{"only/appservice"}}},
		"mcpserver alone": {`{controllers: [mcpserver]}`,
			kustomization{Resources: []string{"default"}, Components: []string{"only/mcpserver"}}},
		"securestorage alone": {`{controllers: [securestorage]}`,
			kustomization{Resources: []string{"default"}, Components: []string{"only/securestorage"}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			manifests := kustomize(t, g, c.folders)
			delete(manifests, "Namespace /"+system)

			objects, err := render(g, c.values)

			g.Expect(err).NotTo(HaveOccurred())
			areEqual(g, objects, manifests)
		})
	}
}

// TestNamespacedManagerRendersWhatKustomizeRenders compares the manager, and its Roles in a watched namespace.
func TestNamespacedManagerRendersWhatKustomizeRenders(t *testing.T) {
	const namespaced = `rbac: {namespaced: true}, namespaces: [team-a], metrics: {enabled: false}`
	for name, c := range map[string]struct {
		values     string
		components []string
		has        []string
	}{
		"without the webhook": {`{` + namespaced + `}`, nil, nil},
		"with a certificate for the webhook": {`{` + namespaced + `, webhook: {certificateSecret: webhook-certificate}}`,
			[]string{"namespaced/webhook"}, []string{"Service " + system + "/fixpoint-webhook"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			manifests := kustomize(t, g, kustomization{Resources: []string{"namespaced"}, Components: c.components})
			delete(manifests, "Namespace /"+system)
			for key, object := range kustomize(t, g, kustomization{Resources: []string{"namespaced/releases"}}) {
				g.Expect(object.GetNamespace()).To(Equal("kube-system"))
				manifests[key] = object
			}
			access := kustomize(t, g, kustomization{Resources: []string{"namespaced/access"}})
			g.Expect(access).To(HaveLen(2*3), "a Role and a RoleBinding for each controller")
			for _, object := range access {
				object.SetNamespace("team-a")
				manifests[fmt.Sprintf("%s team-a/%s", object.GetKind(), object.GetName())] = object
			}

			objects, err := render(g, c.values)

			g.Expect(err).NotTo(HaveOccurred())
			for _, key := range c.has {
				g.Expect(objects).To(HaveKey(key))
			}
			const deployment = "Deployment " + system + "/fixpoint-controller-manager"
			chart, err := json.Marshal(objects[deployment])
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(chart)).To(ContainSubstring(`"--namespaces=team-a","--no-cluster-rights"`))
			text, err := json.Marshal(manifests[deployment])
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(text)).To(ContainSubstring(`"--namespaces=$(WATCH_NAMESPACES)","--no-cluster-rights"`))
			// The kustomization names the namespaces in a variable, which a patch sets.
			named := strings.Replace(strings.Replace(string(text), "$(WATCH_NAMESPACES)", "team-a", 1), `{"name":"WATCH_NAMESPACES","value":""},`, "", 1)
			g.Expect(json.Unmarshal([]byte(named), manifests[deployment])).To(Succeed())
			areEqual(g, objects, manifests)
		})
	}
	g := NewWithT(t)
	elsewhere, err := render(g, `{`+namespaced+`, claimsNamespace: platform}`)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(elsewhere).To(And(HaveKey("Role platform/fixpoint-releases-role"), HaveKey("RoleBinding platform/fixpoint-releases-rolebinding")))
}

// TestSelectorOfNamespacesRendersWhatKustomizeRenders compares a manager that selects namespaces by labels.
func TestSelectorOfNamespacesRendersWhatKustomizeRenders(t *testing.T) {
	g := NewWithT(t)
	manifests := kustomize(t, g, kustomization{Resources: []string{"default"}, Components: []string{"namespace-selector"}})
	delete(manifests, "Namespace /"+system)

	objects, err := render(g, `{namespaceSelector: shard=a}`)

	g.Expect(err).NotTo(HaveOccurred())
	const deployment = "Deployment " + system + "/fixpoint-controller-manager"
	g.Expect(objects[deployment].Object).NotTo(Equal(manifests[deployment].Object), "the kustomization has a variable, which a patch sets")
	containers, _, err := unstructured.NestedSlice(manifests[deployment].Object, "spec", "template", "spec", "containers")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(containers[0]).To(And(
		HaveKeyWithValue("args", ContainElement("--namespace-selector=$(WATCH_NAMESPACE_SELECTOR)")),
		HaveKeyWithValue("env", ContainElement(map[string]any{"name": "WATCH_NAMESPACE_SELECTOR", "value": ""}))))
	delete(objects, deployment)
	delete(manifests, deployment)
	areEqual(g, objects, manifests)
	g.Expect(objects).To(HaveKey("ClusterRole /fixpoint-namespace-selector-role"))
}

// TestReleasesSideBySideShareNoObject is the installation in "Several releases" of docs/operations.md.
func TestReleasesSideBySideShareNoObject(t *testing.T) {
	g := NewWithT(t)
	owner := map[string]string{}
	for name, text := range map[string]string{
		"fixpoint":   `{namespaceSelector: "shard notin (a,b)"}`,
		"fixpoint-a": `{namespaceSelector: shard=a, crds: {install: false}}`,
		"fixpoint-b": `{namespaces: [team-b], rbac: {namespaced: true}, crds: {install: false}}`,
	} {
		objects, err := renderRelease(g, load(g), common.ReleaseOptions{Name: name, Namespace: name, IsInstall: true, Revision: 1}, text)
		g.Expect(err).NotTo(HaveOccurred())
		for key := range objects {
			g.Expect(owner).NotTo(HaveKey(key), name)
			owner[key] = name
		}
	}
}

// TestManagerHasNoRightsOfControllersThatItDoesNotRun reads which rules are left.
func TestManagerHasNoRightsOfControllersThatItDoesNotRun(t *testing.T) {
	g := NewWithT(t)
	objects, err := render(g, `{controllers: [appservice]}`)
	g.Expect(err).NotTo(HaveOccurred())
	verbs := verbsOfManager(g, objects)
	g.Expect(verbs).To(HaveLen(1))
	g.Expect(verbs).To(HaveKeyWithValue("fixpoint-manager-appservice-role", And(
		HaveKeyWithValue("secrets", ConsistOf("get", "list", "watch")),
		HaveKeyWithValue("serviceaccounts", ConsistOf("list", "watch")),
		Not(HaveKey(Or(HavePrefix("serviceaccounts/"), HavePrefix("mcpservers"), HavePrefix("securestorages")))))))

	all, err := render(g, "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verbsOfManager(g, all)).To(And(HaveLen(3), HaveEach(HaveKeyWithValue("secrets", Not(ContainElement(BeElementOf("create", "update", "delete", "*")))))))
	for key, object := range all {
		text, err := json.Marshal(object)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(text)).NotTo(ContainSubstring("serviceaccounts/token"), key)
	}
}

// verbsOfManager are those of each ClusterRole of the manager, by resource.
func verbsOfManager(g Gomega, objects map[string]*unstructured.Unstructured) map[string]map[string][]string {
	all := map[string]map[string][]string{}
	for key, object := range objects {
		if object.GetKind() != "ClusterRole" || !strings.Contains(key, "-manager-") {
			continue
		}
		var role rbacv1.ClusterRole
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role)).To(Succeed())
		verbs := map[string][]string{}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				verbs[resource] = append(verbs[resource], rule.Verbs...)
			}
		}
		all[role.Name] = verbs
	}
	return all
}

// TestSecureStorageEditorsAreChosen: the roles of the cluster do not include it.
func TestSecureStorageEditorsAreChosen(t *testing.T) {
	g := NewWithT(t)
	objects, err := render(g, "")
	g.Expect(err).NotTo(HaveOccurred())
	const edit = "rbac.authorization.k8s.io/aggregate-to-edit"
	g.Expect(objects["ClusterRole /fixpoint-securestorage-editor-role"].GetLabels()).NotTo(HaveKey(edit))
	g.Expect(objects["ClusterRole /fixpoint-appservice-editor-role"].GetLabels()).To(HaveKeyWithValue(edit, "true"))
}

func TestWrongValuesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{replica: 3}`:                                                 "'replica'",
		`{replicas: three}`:                                            "/replicas",
		`{replicas: -1}`:                                               "/replicas",
		`{image: {repo: a}}`:                                           "'repo'",
		`{image: {tag: 1}}`:                                            "/image/tag",
		`{image: {digest: abc}}`:                                       "/image/digest",
		`{image: {pullPolicy: Sometimes}}`:                             "/image/pullPolicy",
		`{controllers: [appservices]}`:                                 "/controllers/0",
		`{namespaces: team-a}`:                                         "/namespaces",
		`{namespaces: [Team_A]}`:                                       "/namespaces/0",
		`{concurrency: 0}`:                                             "/concurrency",
		`{leaderElection: {leaseDuration: 15}}`:                        "/leaderElection/leaseDuration",
		`{leaderElection: {leaseDuration: a while}}`:                   "/leaderElection/leaseDuration",
		`{log: {level: loud}}`:                                         "/log/level",
		`{cloud: {endpoint: management.azure.com}}`:                    "/cloud/endpoint",
		`{cloud: {tokenSecret: {keys: a}}}`:                            "'keys'",
		`{cloud: {ambientCredentials: [billing]}}`:                     "/cloud/ambientCredentials",
		`{cloud: {ambientCredentials: {Billing: []}}}`:                 "'Billing'",
		`{cloud: {ambientCredentials: {billing: ["*"]}}}`:              "/cloud/ambientCredentials/billing/0",
		`{extraArgs: [concurrency=3]}`:                                 "/extraArgs/0",
		`{metrics: {secure: false}}`:                                   "'secure'",
		`{crds: {keep: "yes"}}`:                                        "/crds/keep",
		`{rbac: {namespaced: "true"}}`:                                 "/rbac/namespaced",
		`{disruptionBudget: {maxUnavailable: half}}`:                   "/disruptionBudget/maxUnavailable",
		`{resources: {limit: {memory: 1Gi}}}`:                          "'limit'",
		`{terminationGracePeriodSeconds: 0}`:                           "/terminationGracePeriodSeconds",
		`{podLabels: {a: 1}}`:                                          "/podLabels/a",
		`{serviceMonitor: {enabled: true}, metrics: {enabled: false}}`: "serviceMonitor.enabled is true, but metrics.enabled is false",
		`{serviceAccount: {create: false}}`:                            "serviceAccount.name is empty",
		`{rbac: {namespaced: true}}`:                                   "rbac.namespaced is true, but namespaces is empty: set the namespaces to watch",
		`{rbac: {namespaced: true}, namespaces: [a, fixpoint-system]}`: "namespaces contains fixpoint-system, the namespace of the release",
		`{namespaceSelector: {shard: a}}`:                              "/namespaceSelector",
		`{namespaceSelector: shard=a, namespaces: [a]}`:                "namespaces and namespaceSelector are both set: set one of them",
		`{namespaceSelector: shard=a, rbac: {namespaced: true}}`:       "namespaceSelector requires the permission to list and watch all namespaces: set rbac.namespaced to false",
		`{namespaces: [fixpoint-system]}`:                              "install the release in a namespace of its own",
		`{console: {enabled: true, certificateSecret: a}}`:             "console.hosts is empty: set the host names",
		`{console: {enabled: true, hosts: [a.test]}}`:                  "console.certificateSecret is empty",
		`{console: {hosts: ["https://a.test"]}}`:                       "/console/hosts/0",
		`{console: {auth: none}}`:                                      "/console/auth",
		`{console: {enabled: true, hosts: [a.test], certificateSecret: a, tokenHeader: X-Token}}`:      "console.tokenHeader requires console.auth=proxy",
		`{fullnameOverride: ` + strings.Repeat("r", 37) + `}`:                                          "/fullnameOverride",
		`{webhook: {certificateSecret: a, certManager: {enabled: true}}}`:                              "webhook.certManager.enabled and webhook.certificateSecret are both set",
		`{webhook: {caBundle: aGVsbG8=}}`:                                                              "webhook.certificateSecret is empty: set both, or neither",
		`{webhook: {caBundle: aGVsbG8=, certManager: {enabled: true}}}`:                                "webhook.certificateSecret is empty: set both, or neither",
		`{webhook: {enabled: true, certificateSecret: a, caBundle: aGVsbG8=}, crds: {install: false}}`: "crds.install is false: set the CA bundle in the CustomResourceDefinitions",
		`{webhook: {enabled: true}, rbac: {namespaced: true}, namespaces: [a]}`:                        "set webhook.certificateSecret or webhook.certManager.enabled",
		`{policies: {host: true}}`:                                                                     "'host'",
		`{rbac: {workloadIdentity: all}}`:                                                              "/rbac/workloadIdentity",
		`{rbac: {accountKeys: all}}`:                                                                   "/rbac/accountKeys",
		`{rbac: {sessionKeys: all}}`:                                                                   "/rbac/sessionKeys",
		`{rbac: {contractGates: all}}`:                                                                 "/rbac/contractGates",
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			_, err := render(g, text)
			g.Expect(err).To(MatchError(ContainSubstring(want)))
		})
	}
}

// TestSchemaHasEveryValue: a value that the schema did not know would be refused, and one that is
// in the schema alone would have no default and no documentation.
func TestSchemaHasEveryValue(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(chartPath, "values.schema.json"))
	g.Expect(err).NotTo(HaveOccurred())
	var schema map[string]any
	g.Expect(json.Unmarshal(content, &schema)).To(Succeed())
	g.Expect(schema).To(HaveKeyWithValue("$schema", "http://json-schema.org/draft-07/schema#"))

	var walk func(path string, schema map[string]any, defaults any)
	walk = func(path string, schema map[string]any, defaults any) {
		properties, isClosed := schema["properties"].(map[string]any)
		if !isClosed {
			return
		}
		g.Expect(schema).To(HaveKeyWithValue("additionalProperties", false), path)
		for name, property := range properties {
			at := path + "." + name
			if slices.Contains([]string{".global", ".resources.claims"}, at) {
				continue
			}
			given, ok := defaults.(values)
			g.Expect(ok).To(BeTrue(), at)
			g.Expect(given).To(HaveKey(name), at)
			if inner, ok := property.(map[string]any); ok {
				walk(at, inner, given[name])
			}
		}
	}
	walk("", schema, load(g).Values)
}

const subscription = "/subscriptions/00000000-0000-4000-8000-00000000f1c5"

// TestValuesReachTheDeployment shows that what one sets is what one gets.
func TestValuesReachTheDeployment(t *testing.T) {
	for text, want := range map[string][]string{
		`{image: {tag: v1.2.3}}`: {`"image":"ghcr.io/fixpoint-dev/fixpoint:v1.2.3"`, `"name":"BRIDGE_IMAGE","value":"ghcr.io/fixpoint-dev/fixpoint:v1.2.3"`},
		`{image: {digest: "sha256:` + strings.Repeat("a", 64) + `"}}`: {`"image":"ghcr.io/fixpoint-dev/fixpoint@sha256:aaaa`},
		`{bridge: {image: "registry.test/bridge:1"}}`:                 {`"value":"registry.test/bridge:1"`},
		`{controllers: [appservice, mcpserver]}`:                      {`"--controllers=appservice,mcpserver"`},
		`{namespaces: [a, b]}`:                                        {`"--namespaces=a,b"`},
		`{namespaceSelector: "shard in (a,b)"}`:                       {`"--namespace-selector=shard in (a,b)"`},
		`{claimsNamespace: platform}`:                                 {"--claims-namespace=platform"},
		`{concurrency: 20}`:                                           {`"--concurrency=20"`},
		`{podOverrides: all}`:                                         {`"--pod-overrides=all"`},
		`{leaderElection: {leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 4s}}`: {
			`"--leader-elect-lease-duration=30s"`, `"--leader-elect-renew-deadline=20s"`, `"--leader-elect-retry-period=4s"`},
		`{log: {level: null}, resources: null, console: {enabled: true, hosts: [a.test], certificateSecret: tls, resources: null}}`: {`"--pod-labels=control-plane=controller-manager"],"command"`},
		`{log: {level: 3, encoder: console}}`: {`"--zap-log-level=3"`, `"--zap-encoder=console"`},
		`{cloud: {endpoint: "https://cloud.test", tokenSecret: {name: cloud}}}`: {
			`"--cloud-endpoint=https://cloud.test"`, `"--cloud-token-file=/etc/fixpoint/cloud/token"`, `"mountPath":"/etc/fixpoint/cloud"`,
			`{"name":"cloud-token","secret":{"items":[{"key":"token","path":"token"}],"secretName":"cloud"}}`},
		`{cloud: {ambientCredentials: {billing: [` + subscription + `], "*": [` + subscription + `/resourceGroups/shared]}}}`: {
			`"--ambient-credentials=*=` + subscription + `/resourceGroups/shared","--ambient-credentials=billing=` + subscription + `"`},
		`{cloud: {tokenSecret: {name: cloud}}, metrics: {certificateSecret: cert}}`:          {`"mountPath":"/etc/fixpoint/metrics"`, `"mountPath":"/etc/fixpoint/cloud"`},
		`{metrics: {certificateSecret: cert}}`:                                               {`"--metrics-cert-path=/etc/fixpoint/metrics"`, `"secretName":"cert"`, `"mountPath":"/etc/fixpoint/metrics"`},
		`{metrics: {enabled: false}}`:                                                        {`"--metrics-bind-address=0"`},
		`{extraArgs: [--sync-period=1h]}`:                                                    {`"--sync-period=1h"`},
		`{env: [{name: A, value: b}], envFrom: [{secretRef: {name: azure}}]}`:                {`{"name":"A","value":"b"}`, `"envFrom":[{"secretRef":{"name":"azure"}}]`},
		`{priorityClassName: high, nodeSelector: {a: b}, tolerations: [{operator: Exists}]}`: {`"priorityClassName":"high"`, `"nodeSelector":{"a":"b"}`, `"tolerations":[{"operator":"Exists"}]`},
		`{topologySpreadConstraints: []}`:                                                    {`"topologySpreadConstraints":[]`},
		`{podLabels: {a: b}, podAnnotations: {c: d}}`:                                        {`"a":"b"`, `"c":"d"`},
		`{imagePullSecrets: [{name: pull}]}`:                                                 {`"imagePullSecrets":[{"name":"pull"}]`},
		`{resources: {limits: {memory: 2Gi}}}`:                                               {`"memory":"2Gi"`},
		`{serviceAccount: {create: false, name: mine}}`:                                      {`"serviceAccountName":"mine"`},
		`{terminationGracePeriodSeconds: 90, replicas: 5}`:                                   {`"terminationGracePeriodSeconds":90`, `"replicas":5`},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			objects, err := render(g, text)
			g.Expect(err).NotTo(HaveOccurred())
			deployment, err := json.Marshal(objects["Deployment "+system+"/fixpoint-controller-manager"])
			g.Expect(err).NotTo(HaveOccurred())
			for _, part := range want {
				g.Expect(string(deployment)).To(ContainSubstring(part))
			}
		})
	}
}

// TestConsoleRunsWithTheValuesOfPods.
func TestConsoleRunsWithTheValuesOfPods(t *testing.T) {
	const console = `console: {enabled: true, hosts: [a.test], certificateSecret: tls}`
	for text, want := range map[string][]string{
		`{` + console + `, priorityClassName: high, nodeSelector: {a: b}, tolerations: [{operator: Exists}], affinity: {nodeAffinity: {}}}`: {
			`"priorityClassName":"high"`, `"nodeSelector":{"a":"b"}`, `"tolerations":[{"operator":"Exists"}]`, `"affinity":{"nodeAffinity":{}}`},
		`{` + console + `, podSecurityContext: {runAsUser: 2000, runAsGroup: 3000}, securityContext: {privileged: false}}`: {
			`"securityContext":{"fsGroup":3000,"runAsGroup":3000,"runAsNonRoot":true,"runAsUser":2000,"seccompProfile":{"type":"RuntimeDefault"}}`,
			`"capabilities":{"drop":["ALL"]},"privileged":false,"readOnlyRootFilesystem":true`},
		`{` + console + `, podSecurityContext: {fsGroup: 4000}}`: {`"fsGroup":4000,"runAsGroup":65532`},
		// OpenShift assigns users and groups of the namespace.
		`{` + console + `, podSecurityContext: {runAsUser: null, runAsGroup: null}}`: {`"securityContext":{"runAsNonRoot":true,"seccompProfile"`},
		`{` + console + `, podSecurityContext: null, securityContext: null}`:         {`"enableServiceLinks":false,"serviceAccountName"`},
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			objects, err := render(g, text)
			g.Expect(err).NotTo(HaveOccurred())
			deployment, err := json.Marshal(objects["Deployment "+system+"/fixpoint-console"])
			g.Expect(err).NotTo(HaveOccurred())
			for _, part := range want {
				g.Expect(string(deployment)).To(ContainSubstring(part))
			}
		})
	}
}

// TestPodOfConsoleIsReplacedWhenHostsChange: the console reads the host names when it starts.
func TestPodOfConsoleIsReplacedWhenHostsChange(t *testing.T) {
	g := NewWithT(t)
	template := func(hosts string) any {
		objects, err := render(g, `{console: {enabled: true, hosts: [`+hosts+`], certificateSecret: tls}}`)
		g.Expect(err).NotTo(HaveOccurred())
		pod, _, err := unstructured.NestedMap(objects["Deployment "+system+"/fixpoint-console"].Object, "spec", "template")
		g.Expect(err).NotTo(HaveOccurred())
		return pod
	}
	g.Expect(template("a.test, b.test")).NotTo(Equal(template("a.test")))
	g.Expect(template("a.test")).To(Equal(template("a.test")))
}

// TestServiceMonitorSelectsOneService: the webhook serves no metrics, and gets no token of Prometheus.
func TestServiceMonitorSelectsOneService(t *testing.T) {
	g := NewWithT(t)
	objects, err := render(g, `{serviceMonitor: {enabled: true}, console: {enabled: true, hosts: [a.test], certificateSecret: tls}}`)
	g.Expect(err).NotTo(HaveOccurred())
	monitor := objects["ServiceMonitor "+system+"/fixpoint-controller-manager"]
	matching, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(matching).NotTo(BeEmpty())
	var selected []string
	for _, object := range objects {
		if object.GetKind() == "Service" && labels.SelectorFromSet(matching).Matches(labels.Set(object.GetLabels())) {
			selected = append(selected, object.GetName())
		}
	}
	g.Expect(selected).To(ConsistOf("fixpoint-controller-manager-metrics"))
}

// TestNamesThatLookLikeNumbersAreStrings renders names that YAML reads as numbers or booleans.
func TestNamesThatLookLikeNumbersAreStrings(t *testing.T) {
	names := []string{"name", "namespace", "secretName", "serviceAccountName", "priorityClassName", "key", "hosts", "app.kubernetes.io/instance"}
	var check func(g Gomega, at string, value any)
	check = func(g Gomega, at string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, inner := range value {
				if key == "openAPIV3Schema" {
					continue // its properties have such names
				}
				if slices.Contains(names, key) {
					g.Expect(inner).To(BeAssignableToTypeOf(""), at+"."+key)
				}
				check(g, at+"."+key, inner)
			}
		case []any:
			for _, inner := range value {
				check(g, at, inner)
			}
		}
	}
	const all = `priorityClassName: "5", imagePullSecrets: [{name: "6"}], cloud: {tokenSecret: {name: "1", key: "1"}},
		metrics: {certificateSecret: "2"}, serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true},
		console: {enabled: true, hosts: ["1"], certificateSecret: "3"},
		rbac: {namespaced: %t, workloadIdentity: true, accountKeys: true, sessionKeys: true, contractGates: true},
		policies: {hosts: true, annotations: true, serviceAccounts: true}`
	for name, text := range map[string]string{
		"a cluster":            `{` + fmt.Sprintf(all, false) + `, webhook: {certManager: {enabled: true, issuer: {name: "7"}}}}`,
		"labels":               `{` + fmt.Sprintf(all, false) + `, namespaceSelector: "1"}`,
		"namespaces":           `{` + fmt.Sprintf(all, true) + `, namespaces: ["10023", "true", "1e3"], claimsNamespace: "0", webhook: {certificateSecret: "4"}}`,
		"a ServiceAccount":     `{` + fmt.Sprintf(all, true) + `, namespaces: ["10023"], serviceAccount: {create: false, name: "77"}}`,
		"a new ServiceAccount": `{` + fmt.Sprintf(all, true) + `, namespaces: ["10023"], serviceAccount: {name: "77"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects, err := renderRelease(g, load(g), common.ReleaseOptions{Name: "2024", Namespace: "1000", IsInstall: true, Revision: 1}, text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(objects).To(And(HaveKey("Deployment 1000/2024-controller-manager"), HaveKey("Deployment 1000/2024-console")))
			for key, object := range objects {
				check(g, key, object.Object)
			}
		})
	}
}

// TestEveryNameOfAReleaseIsAllowed: Helm accepts names of releases that are longer than the name of a Service may be, and names
// with dots. The API server would refuse a Service in the middle of the installation.
func TestEveryNameOfAReleaseIsAllowed(t *testing.T) {
	longest := strings.Repeat("r", 53)
	const all = `console: {enabled: true, hosts: [a.test], certificateSecret: tls}, serviceMonitor: {enabled: true}`
	for name, text := range map[string]string{
		longest:      `{` + all + `}`,
		"acme.tools": `{` + all + `}`,
		"a":          `{` + all + `, fullnameOverride: ` + longest[:36] + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects, err := renderRelease(g, load(g), common.ReleaseOptions{Name: name, Namespace: system, IsInstall: true, Revision: 1}, text)
			g.Expect(err).NotTo(HaveOccurred())
			for _, object := range objects {
				if object.GetKind() == "Service" {
					g.Expect(validation.IsDNS1035Label(object.GetName())).To(BeEmpty(), object.GetName())
				}
				for _, value := range object.GetLabels() {
					g.Expect(validation.IsValidLabelValue(value)).To(BeEmpty())
				}
			}
		})
	}
}

// TestConsoleHasNoPermissions reads what the console runs with.
func TestConsoleHasNoPermissions(t *testing.T) {
	g := NewWithT(t)
	const enabled = `console: {enabled: true, hosts: [a.test, b.test], certificateSecret: tls, auth: proxy, tokenHeader: X-Token, eventsLimit: 7, from: [{podSelector: {}}]}`
	objects, err := render(g, "{"+enabled+"}")
	g.Expect(err).NotTo(HaveOccurred())
	account := objects["ServiceAccount "+system+"/fixpoint-console"]
	g.Expect(account.Object).To(HaveKeyWithValue("automountServiceAccountToken", false))
	for key, object := range objects {
		if strings.HasSuffix(object.GetKind(), "Binding") {
			text, err := json.Marshal(object)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(text)).NotTo(ContainSubstring("fixpoint-console"), key)
		}
	}
	deployment, err := json.Marshal(objects["Deployment "+system+"/fixpoint-console"])
	g.Expect(err).NotTo(HaveOccurred())
	for _, part := range []string{`"automountServiceAccountToken":false`, `"--auth=proxy"`, `"--token-header=X-Token"`, `"--events-limit=7"`, `"readOnlyRootFilesystem":true`, `"runAsNonRoot":true`} {
		g.Expect(string(deployment)).To(ContainSubstring(part))
	}
	hosts, _, err := unstructured.NestedString(objects["ConfigMap "+system+"/fixpoint-console"].Object, "data", "hosts")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(hosts).To(Equal("a.test,b.test"))
	peers, _, err := unstructured.NestedSlice(objects["NetworkPolicy "+system+"/fixpoint-console"].Object, "spec", "ingress")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(peers[0]).To(HaveKey("from"))
	open, err := render(g, "{networkPolicy: {enabled: false}, "+enabled+"}")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(open).NotTo(HaveKey("NetworkPolicy " + system + "/fixpoint-console"))
}

// TestDisabledValuesRenderNothing.
func TestDisabledValuesRenderNothing(t *testing.T) {
	g := NewWithT(t)
	kinds := func(text string) map[string]int {
		objects, err := render(g, text)
		g.Expect(err).NotTo(HaveOccurred())
		counts := map[string]int{}
		for key := range objects {
			kind, _, _ := strings.Cut(key, " ")
			counts[kind]++
		}
		return counts
	}
	g.Expect(kinds(`{crds: {install: false}}`)).NotTo(HaveKey("CustomResourceDefinition"))
	g.Expect(kinds(`{rbac: {create: false}}`)).NotTo(Or(HaveKey("ClusterRole"), HaveKey("Role"), HaveKey("RoleBinding")))
	g.Expect(kinds(`{rbac: {userRoles: false, namespaced: true}, namespaces: [a], metrics: {enabled: false}}`)).NotTo(Or(HaveKey("ClusterRole"), HaveKey("ClusterRoleBinding")))
	// A role for each controller in each namespace, and those for leader election, for claims and for the key of hashes.
	g.Expect(kinds(`{rbac: {namespaced: true}, namespaces: [a, b]}`)).To(And(HaveKeyWithValue("Role", 9), HaveKeyWithValue("RoleBinding", 9)))
	g.Expect(kinds(`{rbac: {namespaced: true, workloadIdentity: true}, controllers: [securestorage], namespaces: [a, b]}`)).To(And(
		HaveKeyWithValue("Role", 6), HaveKeyWithValue("RoleBinding", 6)))
	g.Expect(kinds(`{networkPolicy: {enabled: false}}`)).NotTo(HaveKey("NetworkPolicy"))
	g.Expect(kinds("")).NotTo(HaveKey("ValidatingAdmissionPolicy"))
	g.Expect(kinds(`{policies: {hosts: true}}`)).To(And(HaveKeyWithValue("ValidatingAdmissionPolicy", 1), HaveKeyWithValue("ValidatingAdmissionPolicyBinding", 1)))
	g.Expect(kinds(`{disruptionBudget: {enabled: false}}`)).NotTo(HaveKey("PodDisruptionBudget"))

	kept, err := render(g, "")
	g.Expect(err).NotTo(HaveOccurred())
	notKept, err := render(g, `{crds: {keep: false}}`)
	g.Expect(err).NotTo(HaveOccurred())
	const name = "CustomResourceDefinition /appservices.fixpoint.dev"
	g.Expect(kept[name].GetAnnotations()).To(HaveKeyWithValue("helm.sh/resource-policy", "keep"))
	g.Expect(notKept[name].GetAnnotations()).NotTo(HaveKey("helm.sh/resource-policy"))
}

// TestTheWebhookHasACertificate: who issues it decides about the rights of the manager and the CA bundle of the CRDs.
func TestTheWebhookHasACertificate(t *testing.T) {
	const definition = "CustomResourceDefinition /mcpservers.fixpoint.dev"
	for name, c := range map[string]struct {
		values          string
		has, hasNot     []string
		deployment      []string
		notInDeployment string
		annotation      string
		bundle          string
	}{
		"of the manager": {
			values:          "{}",
			has:             []string{"Service fixpoint-system/fixpoint-webhook", "Role fixpoint-system/fixpoint-webhook-role", "ClusterRole /fixpoint-webhook-definitions-role"},
			deployment:      []string{`"--webhook-bind-address=:9443"`, `"name":"WEBHOOK_SERVICE","value":"fixpoint-webhook"`, `"fixpoint.dev/webhook":"conversion"`},
			notInDeployment: "--webhook-cert-path",
		},
		"of cert-manager": {
			values: "{webhook: {certManager: {enabled: true}}}",
			has: []string{"Certificate fixpoint-system/fixpoint-webhook-certificate", "Issuer fixpoint-system/fixpoint-webhook",
				"ClusterRole /fixpoint-webhook-definitions-role"},
			hasNot:     []string{"Role fixpoint-system/fixpoint-webhook-role"},
			deployment: []string{`"--webhook-cert-path=/etc/fixpoint/webhook"`, `"secretName":"fixpoint-webhook-certificate"`},
			annotation: "fixpoint-system/fixpoint-webhook-certificate",
		},
		"of an issuer of cert-manager": {
			values: "{webhook: {certManager: {enabled: true, issuer: {kind: ClusterIssuer, name: corporate}}}}",
			has:    []string{"Certificate fixpoint-system/fixpoint-webhook-certificate"}, hasNot: []string{"Issuer fixpoint-system/fixpoint-webhook"},
			annotation: "fixpoint-system/fixpoint-webhook-certificate",
		},
		"of a Secret": {
			values: "{webhook: {certificateSecret: mine, caBundle: aGVsbG8=}}",
			hasNot: []string{"Role fixpoint-system/fixpoint-webhook-role"}, deployment: []string{`"secretName":"mine"`}, bundle: "aGVsbG8=",
		},
		"of a Secret, without cluster-wide permissions": {
			values: "{rbac: {namespaced: true}, namespaces: [a], webhook: {certificateSecret: mine, caBundle: aGVsbG8=}}",
			has:    []string{"Service fixpoint-system/fixpoint-webhook"}, hasNot: []string{"ClusterRole /fixpoint-webhook-definitions-role"},
			deployment: []string{`"--webhook-cert-path=/etc/fixpoint/webhook"`}, bundle: "aGVsbG8=",
		},
		"none, without cluster-wide permissions": {
			values: "{rbac: {namespaced: true}, namespaces: [a]}",
			hasNot: []string{"Service fixpoint-system/fixpoint-webhook"}, notInDeployment: "webhook",
		},
		"for CRDs that are installed with another method": {
			values:     "{crds: {install: false}, webhook: {enabled: true}}",
			has:        []string{"Service fixpoint-system/fixpoint-webhook", "ClusterRole /fixpoint-webhook-definitions-role"},
			deployment: []string{`"--webhook-bind-address=:9443"`},
		},
		"none, the CRDs are those of another release": {
			values: "{crds: {install: false}}",
			hasNot: []string{"Service fixpoint-system/fixpoint-webhook", "ClusterRole /fixpoint-webhook-definitions-role"}, notInDeployment: "webhook",
		},
		"none, disabled": {
			values: "{webhook: {enabled: false}}",
			hasNot: []string{"Service fixpoint-system/fixpoint-webhook", "ClusterRole /fixpoint-webhook-definitions-role"}, notInDeployment: "webhook",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects, err := render(g, c.values)
			g.Expect(err).NotTo(HaveOccurred())
			for _, key := range c.has {
				g.Expect(objects).To(HaveKey(key))
			}
			for _, key := range c.hasNot {
				g.Expect(objects).NotTo(HaveKey(key))
			}
			deployment, err := json.Marshal(objects["Deployment fixpoint-system/fixpoint-controller-manager"])
			g.Expect(err).NotTo(HaveOccurred())
			for _, text := range c.deployment {
				g.Expect(string(deployment)).To(ContainSubstring(text))
			}
			if c.notInDeployment != "" {
				g.Expect(string(deployment)).NotTo(ContainSubstring(c.notInDeployment))
			}
			crd, isInstalled := objects[definition]
			g.Expect(isInstalled).NotTo(Equal(strings.Contains(c.values, "crds: {install: false}")))
			if !isInstalled {
				return
			}
			g.Expect(crd.GetAnnotations()["cert-manager.io/inject-ca-from"]).To(Equal(c.annotation))
			config, _, err := unstructured.NestedMap(crd.Object, "spec", "conversion", "webhook", "clientConfig")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(config["service"]).To(Equal(map[string]any{"name": "fixpoint-webhook", "namespace": "fixpoint-system", "path": "/convert"}))
			if c.bundle != "" {
				g.Expect(config).To(HaveKeyWithValue("caBundle", c.bundle))
			} else {
				g.Expect(config).NotTo(HaveKey("caBundle"))
			}
		})
	}
}

// Whoever may create SecureStorages uses the cloud credentials of the namespace, which the role edit of
// Kubernetes is not meant to include.
func TestOnlyTheEditorOfSecureStoragesIsNotAggregated(t *testing.T) {
	g := NewWithT(t)
	objects, err := render(g, `{}`)
	g.Expect(err).NotTo(HaveOccurred())
	aggregated := map[string]string{}
	for _, object := range objects {
		for label, value := range object.GetLabels() {
			if role, ok := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); ok && value == "true" {
				aggregated[strings.TrimPrefix(object.GetName(), "fixpoint-")] = role
			}
		}
	}
	g.Expect(aggregated).To(Equal(map[string]string{
		"appservice-admin-role": "admin", "appservice-editor-role": "edit", "appservice-viewer-role": "view",
		"mcpserver-admin-role": "admin", "mcpserver-editor-role": "edit", "mcpserver-viewer-role": "view",
		"securestorage-admin-role": "admin", "securestorage-viewer-role": "view",
	}))
}
