package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const (
	// system is where the manifests put the manager.
	system = "fixpoint-system"
	// waitTimeout bounds every wait of a test.
	waitTimeout = 3 * time.Minute
)

// fixture is what one test has to itself: a cluster, a cloud, and what it puts there.
type fixture struct {
	Gomega
	t        *testing.T
	ctx      context.Context
	cluster  *cluster.Cluster
	api      client.Client
	clients  kubernetes.Interface
	kubectl  *deploy.Kubectl
	recorder *deploy.Recorder
	outside  *deploy.Outside
	managers []*deploy.Manager
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{t: t, ctx: context.Background()}
	w.Gomega = NewWithT(harness.Reporter{T: t, Report: w.report})
	w.recorder = deploy.NewRecorder()
	t.Cleanup(w.recorder.Close)
	authorization, err := w.recorder.WriteConfig(t.TempDir())
	w.Expect(err).NotTo(HaveOccurred())
	w.cluster, err = cluster.Start(w.ctx, cluster.Options{
		Parts: cluster.All, Audit: true, AuthorizationConfig: authorization,
		// It asks for rights on the finalizers of owners, as some distributions do.
		// It connects to the endpoints of a Service, because no kube-proxy runs.
		APIServerArgs: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement", "--enable-aggregator-routing=true"},
	})
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { w.Expect(w.cluster.Stop()).To(Succeed()) })
	w.api, err = client.New(w.cluster.Admin(), client.Options{Scheme: controllers.NewScheme()})
	w.Expect(err).NotTo(HaveOccurred())
	w.clients, err = kubernetes.NewForConfig(w.cluster.Admin())
	w.Expect(err).NotTo(HaveOccurred())
	w.kubectl, err = deploy.NewKubectl(w.cluster)
	w.Expect(err).NotTo(HaveOccurred())
	w.outside, err = deploy.StartOutside()
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(w.outside.Stop)
	return w
}

// program is the manager as it is now, built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fixpoint-deploy-")
	if err != nil {
		return "", err
	}
	return deploy.Build(context.Background(), deploy.Root, dir)
})

func TestMain(m *testing.M) {
	const parallel = 4 // each test has a cluster of its own
	harness.Prepare(harness.Options{Timeout: waitTimeout, Parallel: parallel})
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// run runs kubectl, which has to succeed.
func (w *fixture) run(args ...string) string {
	w.t.Helper()
	output, err := w.kubectl.Run(w.ctx, args...)
	w.Expect(err).NotTo(HaveOccurred())
	return output
}

// apply applies text as a user does. The API server serves a kind a moment after its CRD was created.
func (w *fixture) apply(text string) {
	w.t.Helper()
	w.Eventually(func() error {
		_, err := w.kubectl.Pipe(w.ctx, text, "apply", "--server-side", "--field-manager=user", "-f", "-")
		if err != nil && !strings.Contains(err.Error(), "no matches for kind") && !strings.Contains(err.Error(), "could not find the requested resource") {
			return StopTrying("the objects are refused").Wrap(err)
		}
		return err
	}).Should(Succeed())
}

// install applies a folder of config.
func (w *fixture) install(folder string) {
	w.t.Helper()
	w.kustomize(fmt.Sprintf("resources: [CONFIG/%s]\n", folder))
}

// namespace makes one in which pods can be made.
func (w *fixture) namespace(name string) {
	w.t.Helper()
	w.Expect(w.api.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	w.Eventually(func() error {
		return w.api.Get(w.ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	}).Should(Succeed())
}

// start runs the manager of this source as the Deployment in the namespace says, and waits for it.
func (w *fixture) start(namespace, name string) *deploy.Manager {
	w.t.Helper()
	return w.startPod(deploy.Pod{Program: w.program(), Namespace: namespace, Name: name})
}

func (w *fixture) program() string {
	w.t.Helper()
	path, err := program()
	w.Expect(err).NotTo(HaveOccurred())
	return path
}

func (w *fixture) startPod(pod deploy.Pod) *deploy.Manager {
	w.t.Helper()
	arguments, err := w.outside.Arguments(w.ctx, pod.Program)
	w.Expect(err).NotTo(HaveOccurred())
	pod.Args = slices.Concat(arguments, deploy.PatientElection, pod.Args)
	w.awaitRights(pod)
	m, err := pod.Start(w.ctx, w.cluster)
	w.Expect(err).NotTo(HaveOccurred())
	w.managers = append(w.managers, m)
	w.t.Cleanup(func() { _ = m.Stop() })
	w.Eventually(func() error {
		if !m.Running() {
			return StopTrying("the manager has ended").Wrap(m.Failure(nil))
		}
		return m.Ready(w.ctx)
	}).Should(Succeed())
	w.Expect(m.Serve(w.ctx, w.cluster, pod.Namespace)).To(Succeed())
	// It is ready before it leads: the first one leads before another one starts.
	if !slices.Contains(pod.Args, "--leader-elect=false") {
		w.Eventually(w.leaseHolder).ShouldNot(BeEmpty())
	}
	return m
}

// token is one of a ServiceAccount.
func (w *fixture) token(namespace, account string) string {
	w.t.Helper()
	answer, err := w.clients.CoreV1().ServiceAccounts(namespace).CreateToken(w.ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	return answer.Status.Token
}

// audited are the requests of a user since a mark.
func (w *fixture) audited(since cluster.Mark, user string) cluster.Requests {
	w.t.Helper()
	all, err := w.cluster.Audit().Since(since)
	w.Expect(err).NotTo(HaveOccurred())
	return all.By(user)
}

func (w *fixture) mark() cluster.Mark {
	w.t.Helper()
	mark, err := w.cluster.Audit().Mark()
	w.Expect(err).NotTo(HaveOccurred())
	return mark
}

// denied are the requests of a user that were answered with 401 or 403.
func (w *fixture) denied(since cluster.Mark, user string) cluster.Requests {
	w.t.Helper()
	return w.audited(since, user).Where(func(r cluster.Request) bool { return r.Code == 401 || r.Code == 403 })
}

// condition is the status and reason of a condition, such as "True Ready", of the spec that the object has.
func condition(object client.Object, name string) string {
	c := meta.FindStatusCondition(harness.StatusOf(object).Conditions, name)
	if c == nil || c.ObservedGeneration != object.GetGeneration() {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// shows waits for a condition.
func (w *fixture) shows(object client.Object, name, want string) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		g.Expect(w.api.Get(w.ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		g.Expect(condition(object, name)).To(Equal(want), "%+v", harness.StatusOf(object).Conditions)
	}).Should(Succeed())
}

// ready waits until the objects are Ready for the spec that they have.
func (w *fixture) ready(objects ...client.Object) {
	w.t.Helper()
	for _, object := range objects {
		w.shows(object, "Ready", "True Ready")
	}
}

func app(namespace, name string) *v1beta1.AppService {
	return &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func server(namespace, name string) *v1beta1.MCPServer {
	return &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func storage(namespace, name string) *v1beta1.SecureStorage {
	return &v1beta1.SecureStorage{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// gone waits until the object is not there any more.
func (w *fixture) gone(object client.Object) {
	w.t.Helper()
	w.Eventually(func() error { return harness.Gone(w.ctx, w.api, client.ObjectKeyFromObject(object), object) }).Should(Succeed())
}

// quiet waits until the user of a manager has sent no write for a while. That while is made of many short ones in each of
// which the manager was ready and the API server has answered: that they could not run says nothing.
func (w *fixture) quiet(m *deploy.Manager) {
	w.t.Helper()
	const window = 5 * time.Second
	position, before, rest := w.mark(), time.Now(), time.Duration(0)
	w.Eventually(func() (time.Duration, error) {
		err := errors.Join(m.Ready(w.ctx), w.api.Get(w.ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &corev1.Namespace{}))
		end := w.mark()
		writes := w.audited(position, m.User).Writes().Except("leases.coordination.k8s.io")
		now := time.Now()
		rest += min(now.Sub(before), 2*harness.Interval)
		position, before = end, now
		if err != nil || len(writes) > 0 {
			rest = 0
		}
		return rest, err
	}).Should(BeNumerically(">", window), "the manager never came to rest")
}

func (w *fixture) report() string {
	var b strings.Builder
	if w.kubectl == nil || w.cluster == nil {
		return ""
	}
	for _, args := range [][]string{
		{"get", "fixpoint", "-A", "-o", "yaml"},
		{"get", "deployments,pods,configmaps,services,events", "-A"},
	} {
		output, err := w.kubectl.Run(w.ctx, args...)
		fmt.Fprintf(&b, "--- kubectl %s\n%s\n", strings.Join(args, " "), output)
		if err != nil {
			fmt.Fprintf(&b, "%v\n", err)
		}
	}
	for _, m := range w.managers {
		fmt.Fprintf(&b, "--- %v\n", m.Failure(errors.New("its log")))
		requests, _ := w.cluster.Audit().Since(0)
		mine := requests.By(m.User).Where(func(r cluster.Request) bool { return r.Code >= 400 })
		fmt.Fprintf(&b, "--- requests of %s that failed\n%s", m.User, mine[max(0, len(mine)-40):])
	}
	return b.String()
}

// sorted lists things by what they are called.
func sorted[T interface {
	comparable
	fmt.Stringer
}](things map[T]bool) []string {
	var names []string
	for thing := range things {
		names = append(names, thing.String())
	}
	slices.Sort(names)
	return names
}
