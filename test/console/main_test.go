// Package console_test runs the web console against a real cluster with the manager: a complete local cluster with
// simulated nodes, and the fake cloud.
package console_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/console"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

var (
	suite  *harness.Suite
	shared *cluster.Cluster
)

func TestMain(m *testing.M) {
	const parallel = 6
	options := harness.Options{Cluster: cluster.Options{Parts: cluster.All, Audit: true}, Parallel: parallel}
	harness.Run(m, options, func(s *harness.Suite) error {
		suite, shared = s, s.Cluster
		return createUserRoles(s)
	})
}

// createUserRoles creates the roles for users, as config/default names them.
func createUserRoles(s *harness.Suite) error {
	for _, pattern := range []string{"*_viewer_role.yaml", "*_editor_role.yaml"} {
		files, err := filepath.Glob(filepath.Join(harness.Root, "config", "rbac", pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			role := &rbacv1.ClusterRole{}
			if err := yaml.Unmarshal(raw, role); err != nil {
				return err
			}
			role.Name = "fixpoint-" + role.Name
			if err := s.API.Create(context.Background(), role); err != nil {
				return err
			}
		}
	}
	return nil
}

// fixture is what one test has to itself.
type fixture struct {
	*harness.Env
	// logs are what the consoles of the test have logged.
	logs *logs
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return &fixture{suite.NewEnv(t), &logs{}}
}

// logs collects what is logged.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is everything that was logged.
func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logs) logger() logr.Logger {
	return logr.FromSlogHandler(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// site is a console that serves on loopback.
type site struct {
	*console.Server
	url    string
	cancel context.CancelFunc
	done   chan error
}

// serve serves a console until the test ends, in any mode.
func (w *fixture) serve(o console.Options) *site {
	w.T.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.Expect(err).NotTo(HaveOccurred())
	_, port, err := net.SplitHostPort(listener.Addr().String())
	w.Expect(err).NotTo(HaveOccurred())
	o.Hosts, o.Port, o.Log = []string{"localhost", "127.0.0.1"}, port, w.logs.logger()
	if o.EventsLimit == 0 {
		o.EventsLimit = console.DefaultEventsLimit
	}
	server, err := console.New(o)
	w.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	s := &site{Server: server, url: "http://localhost:" + port, cancel: cancel, done: make(chan error, 1)}
	go func() { s.done <- server.Serve(ctx, listener) }()
	w.T.Cleanup(func() {
		cancel()
		if err := <-s.done; err != nil {
			w.T.Errorf("the console ended with an error: %v", err)
		}
	})
	return s
}

// serveTokens serves a console in which users sign in with bearer tokens.
func (w *fixture) serveTokens() *site {
	w.T.Helper()
	return w.serve(console.Options{Mode: console.ModeToken, Config: rest.AnonymousClientConfig(shared.Admin())})
}

// serveAdmin serves a console with the kubeconfig of an administrator, and returns a client that has signed in.
func (w *fixture) serveAdmin(user string, o console.Options) (*site, *http.Client) {
	w.T.Helper()
	o.Mode, o.Config = console.ModeKubeconfig, shared.Config(user, cluster.Masters)
	s := w.serve(o)
	browser := w.browser()
	response, err := browser.Get(s.url + "/open?code=" + s.Code())
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(response.Body.Close()).To(Succeed())
	w.Expect(response.StatusCode).To(Equal(http.StatusOK))
	return s, browser
}

// browser keeps cookies.
func (w *fixture) browser() *http.Client {
	w.T.Helper()
	jar, err := cookiejar.New(nil)
	w.Expect(err).NotTo(HaveOccurred())
	return &http.Client{Jar: jar}
}

// userWith creates a ServiceAccount that is bound to ClusterRoles in the namespace, or in all of them, and returns a
// token of it, once the API server observes the bindings.
func (w *fixture) userWith(name string, everywhere bool, roles ...string) string {
	w.T.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Namespace}}
	w.Expect(w.Suite.API.Create(w.Ctx, account)).To(Succeed())
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: w.Namespace}}
	for _, role := range roles {
		reference := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		meta := metav1.ObjectMeta{Name: name + "-" + role, Namespace: w.Namespace}
		if everywhere {
			meta = metav1.ObjectMeta{Name: w.Namespace + "-" + meta.Name}
			w.Expect(w.Suite.API.Create(w.Ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: reference, Subjects: subjects})).To(Succeed())
			continue
		}
		w.Expect(w.Suite.API.Create(w.Ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: reference, Subjects: subjects})).To(Succeed())
	}
	clients, err := kubernetes.NewForConfig(shared.Admin())
	w.Expect(err).NotTo(HaveOccurred())
	answer, err := clients.CoreV1().ServiceAccounts(w.Namespace).CreateToken(w.Ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	w.awaitRules(answer.Status.Token, roles)
	return answer.Status.Token
}

// awaitRules waits until the user with a token has the rules of the ClusterRoles in the namespace.
func (w *fixture) awaitRules(token string, roles []string) {
	w.T.Helper()
	config := rest.AnonymousClientConfig(shared.Admin())
	config.BearerToken = token
	user, err := kubernetes.NewForConfig(config)
	w.Expect(err).NotTo(HaveOccurred())
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: w.Namespace}}
	w.Eventually(func(g Gomega) {
		answer, err := user.AuthorizationV1().SelfSubjectRulesReviews().Create(w.Ctx, review, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		for _, name := range roles {
			var role rbacv1.ClusterRole
			g.Expect(w.Suite.API.Get(w.Ctx, client.ObjectKey{Name: name}, &role)).To(Succeed())
			for _, rule := range role.Rules {
				g.Expect(answer.Status.ResourceRules).To(ContainElement(authorizationv1.ResourceRule{
					Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
				}), name)
			}
		}
	}).Should(Succeed())
}

// startManager runs a manager for namespaces, and a fake cloud if it is given.
func (w *fixture) startManager(endpoint *fakecloud.Endpoint, namespaces ...string) {
	w.T.Helper()
	options := controllers.Options{Namespaces: append([]string{w.Namespace}, namespaces...), Controllers: []string{"appservice", "mcpserver"}}
	if endpoint != nil {
		config, err := cloud.Endpoint(endpoint.URL)
		w.Expect(err).NotTo(HaveOccurred())
		options.Controllers, options.Cloud, options.AmbientScopes = nil, config, harness.AmbientScopes()
		options.Credentials = cloud.TokenCredentials{Token: fakecloud.Token("manager")}
	}
	w.StartManager(shared.Config(harness.ManagerUser), options)
}

// createApp creates an AppService with two pods.
func (w *fixture) createApp(name string, edits ...func(*v1beta1.AppService)) *v1beta1.AppService {
	w.T.Helper()
	two := int32(2)
	app := &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.Namespace}}
	app.Spec = v1beta1.AppServiceSpec{Image: "registry.test/shop:1", Replicas: &two, Config: map[string]string{"COLOR": "green"}}
	for _, edit := range edits {
		edit(app)
	}
	w.Expect(w.As("kubectl").Create(w.Ctx, app)).To(Succeed())
	return app
}

// ready waits until an AppService is Ready.
func (w *fixture) ready(name string) {
	w.T.Helper()
	harness.Eventually(w, name, &v1beta1.AppService{}, func(g Gomega, live *v1beta1.AppService) {
		g.Expect(harness.Conditions(live)).To(HaveKeyWithValue(v1beta1.ConditionReady, HavePrefix("True")), harness.Message(live, v1beta1.ConditionReady))
	})
}

// bearer adds a token to requests.
type bearer string

// RoundTrip implements [http.RoundTripper].
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func clientOf(token string) *http.Client {
	return &http.Client{Transport: bearer(strings.TrimSpace(token))}
}
