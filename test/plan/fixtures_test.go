package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

var seed = flag.Uint64("plan.seed", uint64(time.Now().UnixNano()), "Seed of the random edits.") //nolint:gosec // any number

const (
	managerNamespace = "fixpoint-system"
	bridgeImage      = "registry.test/fixpoint:9"
	// referenced is the name of what specs refer to.
	referenced = "campaign"
)

var managerLabels = map[string]string{"control-plane": "controller-manager"}

// createManagerObjects creates the Deployment from which plan takes the flags of the manager, and IngressClasses.
func createManagerObjects() error {
	labels := map[string]string{"control-plane": "controller-manager", "app.kubernetes.io/name": "fixpoint"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "fixpoint-controller-manager", Namespace: managerNamespace, Labels: labels}}
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: managerLabels}
	deployment.Spec.Template.Labels = managerLabels
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "manager", Image: "registry.test/fixpoint:9",
		Args: []string{"--bridge-image=$(BRIDGE_IMAGE)", "--pod-labels=control-plane=controller-manager"},
		Env:  []corev1.EnvVar{{Name: "BRIDGE_IMAGE", Value: bridgeImage}},
	}}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: managerNamespace}}, deployment}
	for name, isDefault := range map[string]string{referenced: "true", "other": "false"} {
		objects = append(objects, &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault}},
			Spec:       networkingv1.IngressClassSpec{Controller: "fixpoint.test/none"},
		})
	}
	for _, object := range objects {
		if err := api.Create(context.Background(), object); err != nil {
			return err
		}
	}
	return nil
}

// fixture is one object that is edited at random.
type fixture struct {
	*harness.Env
	kind       string
	random     *rand.Rand
	generator  *specs.Generator
	spec       map[string]any
	gate       *gate
	manager    *harness.Manager
	kubeconfig string
	// cloud are the flags of plan for the fake cloud.
	cloudFlags []string
	server     *fakecloud.Server
	// estimated is how many changes were compared that had no dry run.
	estimated int
	// history are the edits so far, for a failure.
	history []string
}

const name = "app"

func newFixture(t *testing.T, kind string) *fixture {
	t.Helper()
	kinds, err := specs.Read(filepath.Join(harness.Root, "config", "crd", "bases"))
	w := &fixture{Env: suite.NewEnv(t), kind: kind, gate: newGate(), random: rand.New(rand.NewPCG(*seed, uint64(len(kind))))} //nolint:gosec // tests
	w.Expect(err).NotTo(HaveOccurred())
	i := slices.IndexFunc(kinds, func(k specs.Kind) bool { return k.Name == kind })
	w.generator, err = specs.NewGenerator(kinds[i], w.random)
	w.Expect(err).NotTo(HaveOccurred())
	w.Details = append(w.Details, func() string {
		return fmt.Sprintf("replay with -plan.seed=%d; edits:\n%s", *seed, strings.Join(w.history, "\n"))
	})
	w.kubeconfig, err = shared.Kubeconfig("user", cluster.Masters)
	w.Expect(err).NotTo(HaveOccurred())
	for _, object := range w.referenced() {
		w.Expect(api.Create(w.Ctx, object)).To(Succeed())
	}
	w.startManager()
	return w
}

// referenced are the objects that specs refer to.
func (w *fixture) referenced() []client.Object {
	at := metav1.ObjectMeta{Name: referenced, Namespace: w.Namespace}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: at}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *quantity("1Gi")}
	azure := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "azure.credentials-1", Namespace: w.Namespace}, StringData: map[string]string{
		v1alpha1.CredentialTenantID: "00000000-0000-4000-8000-000000000001", v1alpha1.CredentialClientID: "00000000-0000-4000-8000-000000000002",
		v1alpha1.CredentialClientSecret: fakecloud.Token("manager"),
	}}
	return []client.Object{
		&corev1.Secret{ObjectMeta: at, StringData: map[string]string{"password": "p", "token": "t"}},
		&corev1.ConfigMap{ObjectMeta: at, Data: map[string]string{"mode": "m"}},
		&corev1.ServiceAccount{ObjectMeta: at}, claim, azure,
	}
}

func (w *fixture) startManager() {
	w.T.Helper()
	w.server = fakecloud.New(fakecloud.Options{Seed: 1})
	demo := w.server.SeedDemo()
	_, err := w.server.SeedKey(demo.Vault, "other", fakecloud.KeySpec{})
	w.Expect(err).NotTo(HaveOccurred())
	endpoint := w.server.StartHTTP()
	w.T.Cleanup(endpoint.Close)
	token := filepath.Join(w.T.TempDir(), "token")
	w.Expect(os.WriteFile(token, []byte(fakecloud.Token("manager")), 0o600)).To(Succeed())
	w.cloudFlags = []string{"--cloud-endpoint", endpoint.URL, "--cloud-token-file", token}
	config, err := cloud.Endpoint(endpoint.URL)
	w.Expect(err).NotTo(HaveOccurred())
	config.Transport = w.gate.aroundCloud(http.DefaultTransport)

	cfg := rest.CopyConfig(shared.Config(harness.ManagerUser))
	cfg.Wrap(w.gate.around)
	w.manager = w.StartManager(cfg, controllers.Options{
		Namespaces: []string{w.Namespace}, Controllers: []string{strings.ToLower(w.kind)}, BridgeImage: bridgeImage,
		PodNamespace: managerNamespace, PodLabels: managerLabels,
		Cloud: config, Credentials: cloud.TokenCredentials{Token: fakecloud.Token("manager")}, AmbientScopes: harness.AmbientScopes(),
	})
	w.T.Cleanup(func() { w.gate.set(true, false) }) // before the manager is stopped
}

// edits is how many random edits are made of each kind: a share of what FIXPOINT_PLAN_EDITS says, or a few.
func edits(t *testing.T, share int) int {
	t.Helper()
	text, given := os.LookupEnv("FIXPOINT_PLAN_EDITS")
	if !given {
		const few = 30
		return few * share / 100
	}
	count, err := strconv.Atoi(text)
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), "FIXPOINT_PLAN_EDITS is %q: set a number of edits", text)
	return count * share / 100
}

// planned is the output of plan that a test needs.
type planned struct {
	Plans []struct {
		Phases []struct {
			Phase, Verdict, Message, Unknown string
			Changes                          []plannedChange
		}
	}
}

type plannedChange struct {
	Action, Object string
	Estimated      bool
	Fields         []struct{ Field, From, To string }
}

// String is the field as plan prints it.
func lineOf(field, from, to string) string {
	switch {
	case from == "":
		return "+ " + field + ": " + to
	case to == "":
		return "- " + field + ": " + from
	default:
		return "~ " + field + ": " + from + " -> " + to
	}
}

func (p planned) changes() []plannedChange {
	var all []plannedChange
	for _, phase := range p.Plans[0].Phases {
		for _, change := range phase.Changes {
			if change.Action != "Report" {
				all = append(all, change)
			}
		}
	}
	return all
}

// plan runs the command.
func (w *fixture) plan() planned {
	w.T.Helper()
	var out, errs bytes.Buffer
	args := append([]string{"plan", w.kind, name, "-o", "json", "-n", w.Namespace, "--kubeconfig", w.kubeconfig}, w.cloudFlags...)
	code := plugin.Run(w.Ctx, args, genericiooptions.IOStreams{In: os.Stdin, Out: &out, ErrOut: &errs})
	var p planned
	w.Expect(json.Unmarshal(out.Bytes(), &p)).To(Succeed(), "code %d: %s%s", code, out.String(), errs.String())
	want := 0
	for _, phase := range p.Plans[0].Phases {
		if phase.Unknown != "" {
			want = 1
		}
	}
	if len(p.changes()) > 0 {
		want = 2
	}
	w.Expect(code).To(Equal(want), out.String())
	return p
}

// children are all children in the namespace, by kind and name.
func (w *fixture) children() map[string]client.Object {
	w.T.Helper()
	found := map[string]client.Object{}
	for _, list := range harness.ChildLists() {
		err := api.List(w.Ctx, list, client.InNamespace(w.Namespace))
		if meta.IsNoMatchError(err) {
			continue
		}
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(meta.EachListItem(list, func(item runtime.Object) error {
			if live, ok := item.(client.Object); ok && metav1.GetControllerOfNoCopy(live) != nil {
				typeName := reflect.TypeOf(live).Elem().Name()
				found[typeName+"/"+live.GetName()] = live
			}
			return nil
		})).To(Succeed())
	}
	return found
}
