package plugin_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// fixture is what one test has to itself.
type fixture struct {
	*harness.Env
	kubeconfig string
}

// newFixture has the kubeconfig of an administrator, and a manager.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	w := &fixture{Env: suite.NewEnv(t)}
	w.kubeconfig = w.kubeconfigOf("user", cluster.Masters)
	return w
}

func (w *fixture) kubeconfigOf(user string, groups ...string) string {
	w.T.Helper()
	path, err := shared.Kubeconfig(user, groups...)
	w.Expect(err).NotTo(HaveOccurred())
	return path
}

// startManager runs a manager for the namespace, and a fake cloud if it is given.
func (w *fixture) startManager(endpoint *fakecloud.Endpoint) *harness.Manager {
	w.T.Helper()
	options := controllers.Options{Namespaces: []string{w.Namespace}, Controllers: []string{"appservice", "mcpserver"}}
	if endpoint != nil {
		config, err := cloud.Endpoint(endpoint.URL)
		w.Expect(err).NotTo(HaveOccurred())
		options.Controllers, options.Cloud, options.AmbientScopes = nil, config, harness.AmbientScopes()
		options.Credentials = cloud.TokenCredentials{Token: fakecloud.Token("manager")}
	}
	return w.StartManager(shared.Config(harness.ManagerUser), options)
}

// result is how a command ended.
type result struct {
	code     int
	out, err string
}

// kubectlFixpoint runs a command in the namespace, as the user with the kubeconfig.
func (w *fixture) kubectlFixpoint(args ...string) result {
	w.T.Helper()
	return w.run(w.Ctx, w.kubeconfig, nil, args...)
}

func (w *fixture) run(ctx context.Context, kubeconfig string, in []byte, args ...string) result {
	var out, errs bytes.Buffer
	flags := []string{"--kubeconfig", kubeconfig, "-n", w.Namespace}
	if args[0] == cobra.ShellCompRequestCmd {
		args = append([]string{args[0]}, append(flags, args[1:]...)...) // what is to be completed comes last
	} else {
		args = append(args, flags...)
	}
	code := plugin.Run(ctx, args, genericiooptions.IOStreams{In: bytes.NewReader(in), Out: &out, ErrOut: &errs})
	return result{code, out.String(), errs.String()}
}

// succeed expects that a command ends with code 0, and returns its output.
func (w *fixture) succeed(args ...string) string {
	w.T.Helper()
	return w.ends(0, args...)
}

func (w *fixture) ends(code int, args ...string) string {
	w.T.Helper()
	ended := w.kubectlFixpoint(args...)
	w.Expect(ended.code).To(Equal(code), "kubectl fixpoint %s\n%s%s", strings.Join(args, " "), ended.out, ended.err)
	return ended.out
}

// waitLong lets a command wait for its result as long as the tests do: its default is too short for a busy machine.
const waitLong = "--timeout=10m"

// shows waits until a command ends with code 0 and prints what matches.
func (w *fixture) shows(expected types.GomegaMatcher, args ...string) {
	w.T.Helper()
	w.Eventually(func(g Gomega) {
		ended := w.kubectlFixpoint(args...)
		g.Expect(ended.code).To(BeZero(), "%s%s", ended.out, ended.err)
		g.Expect(ended.out).To(expected)
	}).Should(Succeed(), "kubectl fixpoint %s", strings.Join(args, " "))
}

const image = "registry.test/shop:1"

// createApp creates an AppService with two pods.
func (w *fixture) createApp(name string, edits ...func(*v1beta1.AppServiceSpec)) {
	w.T.Helper()
	two := int32(2)
	app := &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Namespace}}
	app.Spec = v1beta1.AppServiceSpec{Image: image, Replicas: &two, Config: map[string]string{"COLOR": "green"}}
	for _, edit := range edits {
		edit(&app.Spec)
	}
	w.Expect(w.As("kubectl").Create(w.Ctx, app)).To(Succeed())
}

func (w *fixture) ready(name string) {
	w.T.Helper()
	harness.Eventually(w, name, &v1beta1.AppService{}, func(g Gomega, live *v1beta1.AppService) {
		g.Expect(harness.Conditions(live)).To(HaveKeyWithValue(v1beta1.ConditionReady, HavePrefix("True")), harness.Message(live, v1beta1.ConditionReady))
	})
}

// file writes a file of the test.
func (w *fixture) file(name, content string) string {
	w.T.Helper()
	path := filepath.Join(w.T.TempDir(), name)
	w.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	return path
}
