// Package versions_test shows both versions of the API on a real API server with the conversion webhook.
package versions_test

import (
	"context"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const (
	group = "fixpoint.dev"
	alpha = "v1alpha1"
	beta  = "v1beta1"
)

var suite *harness.Suite

func TestMain(m *testing.M) {
	// The API server connects to the endpoints of a Service, because no kube-proxy runs.
	options := harness.Options{Cluster: cluster.Options{Parts: cluster.All, Audit: true, APIServerArgs: []string{"--enable-aggregator-routing=true"}}, Parallel: 8}
	harness.Run(m, options, func(s *harness.Suite) error {
		suite = s
		return nil
	})
}

// plurals are the resources by their kinds.
var plurals = map[string]string{"AppService": "appservices", "MCPServer": "mcpservers", "SecureStorage": "securestorages"}

// fixture is a namespace.
type fixture struct {
	*harness.Env
	// cloud is that of the managers, if the test starts any, and cloudAt its endpoint.
	cloud   *fakecloud.Server
	cloudAt *fakecloud.Endpoint
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{Env: suite.NewEnv(t)}
}

// in returns a client of a kind in a version, and what it receives as warnings.
func (f *fixture) in(version, kind string) (dynamic.ResourceInterface, *warnings) {
	f.T.Helper()
	received := &warnings{}
	cfg := rest.CopyConfig(suite.Cluster.Admin())
	cfg.WarningHandler = received
	client, err := dynamic.NewForConfig(cfg)
	f.Expect(err).NotTo(HaveOccurred())
	return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: plurals[kind]}).Namespace(f.Namespace), received
}

type warnings struct{ texts []string }

// HandleWarningHeader implements [rest.WarningHandler].
func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

// object is an object of a version with a spec in YAML.
func (f *fixture) object(version, kind, name, spec string) *unstructured.Unstructured {
	f.T.Helper()
	var fields map[string]any
	f.Expect(yaml.Unmarshal([]byte(spec), &fields)).To(Succeed())
	return f.with(version, kind, name, fields)
}

func (f *fixture) with(version, kind, name string, spec any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetAPIVersion(group + "/" + version)
	object.SetKind(kind)
	object.SetName(name)
	object.SetNamespace(f.Namespace)
	return object
}

// create stores an object in its version.
func (f *fixture) create(object *unstructured.Unstructured) *unstructured.Unstructured {
	f.T.Helper()
	client, _ := f.in(object.GroupVersionKind().Version, object.GetKind())
	created, err := client.Create(f.Ctx, object, metav1.CreateOptions{FieldManager: "creator", FieldValidation: metav1.FieldValidationStrict})
	f.Expect(err).NotTo(HaveOccurred())
	return created
}

// apply applies an object in its version.
func (f *fixture) apply(manager string, object *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	f.T.Helper()
	client, _ := f.in(object.GroupVersionKind().Version, object.GetKind())
	return client.Apply(context.Background(), object.GetName(), object, metav1.ApplyOptions{FieldManager: manager, Force: force})
}

// mustApply is the same for an apply that succeeds.
func (f *fixture) mustApply(manager string, object *unstructured.Unstructured) *unstructured.Unstructured {
	f.T.Helper()
	applied, err := f.apply(manager, object, false)
	f.Expect(err).NotTo(HaveOccurred())
	return applied
}

// read reads an object in a version.
func (f *fixture) read(version, kind, name string) *unstructured.Unstructured {
	f.T.Helper()
	client, _ := f.in(version, kind)
	live, err := client.Get(f.Ctx, name, metav1.GetOptions{})
	f.Expect(err).NotTo(HaveOccurred())
	return live
}

// reconciled returns an MCPServer with a status, as a manager writes it: the API server stores the defaults of the
// status with the first update of an object.
func (f *fixture) reconciled(name string) *unstructured.Unstructured {
	f.T.Helper()
	client, _ := f.in(beta, "MCPServer")
	status := f.object(beta, "MCPServer", name, "{}")
	delete(status.Object, "spec")
	status.Object["status"] = map[string]any{"observedGeneration": int64(1), "phase": "Running"}
	applied, err := client.ApplyStatus(f.Ctx, name, status, metav1.ApplyOptions{FieldManager: "fixpoint-mcpserver", Force: true})
	f.Expect(err).NotTo(HaveOccurred())
	return applied
}

// kinds are those of the project, with the seeds of the campaign.
func kinds(t *testing.T) []specs.Kind {
	t.Helper()
	all, err := specs.Read(filepath.Join(harness.Root, "config", "crd", "bases"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return all
}
