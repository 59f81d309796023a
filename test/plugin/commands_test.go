package plugin_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func TestCommandsShowAnAppServiceThatHasDrifted(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	w.createApp("web")
	w.ready("web")
	w.Scale("kubectl", harness.Read(w, "web", &appsv1.Deployment{}), 5)
	harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, live *v1beta1.AppService) {
		g.Expect(live.Status.Drifts).To(HaveLen(1))
		g.Expect(harness.Conditions(live)).To(HaveKeyWithValue(v1beta1.ConditionReady, HavePrefix("True")))
	})

	// The pods that the Deployment has too many may still be there when the AppService is Ready.
	w.shows(SatisfyAll(
		ContainSubstring("AppService "+w.Namespace+"/web: Running, ready for "),
		MatchRegexp(`(?m)^Deployment +done +Ready `),
		MatchRegexp(`(?m)^Ingress +not configured `),
		MatchRegexp(`(?m)^Deployment/web +2/2 `),
		ContainSubstring("kubectl changed .spec.replicas of Deployment/web from 2 to 5; corrected"),
	), "status", "appservice/web")
	w.shows(MatchRegexp(`(?m)^appservice/web +True +Ready `), "status")
	var details struct {
		Phases []struct{ Phase, Verdict string }
	}
	w.Expect(json.Unmarshal([]byte(w.succeed("status", "asvc", "web", "-o", "json")), &details)).To(Succeed())
	w.Expect(details.Phases).To(ContainElement(And(HaveField("Phase", "Deployment"), HaveField("Verdict", "done"))))
	w.shows(SatisfyAll(
		ContainSubstring("└─Deployment/web"), ContainSubstring("Pod/web-"), ContainSubstring("fixpoint-appservice ("),
	), "tree", "appservice/web")
	w.shows(HavePrefix("AppService "+w.Namespace+"/web is Ready."), "why", "appservice/web")
	w.shows(Equal("All 1 objects are Ready.\n"), "why")
	w.shows(MatchRegexp(`(?m)appservice/web +corrected +kubectl changed \.spec\.replicas of Deployment/web from 2 to 5$`), "drift")
	w.shows(HavePrefix("No drift in the last "), "drift", "appservice/web", "--since", "1ns")
	w.shows(MatchRegexp(`(?m)^fixpoint-appservice \d+\w+ .* image: "`+image+`"$`), "blame", "deployment/web")
	w.shows(SatisfyAll(
		ContainSubstring("Plan: 0 to create, 0 to update, 0 to correct, 0 to adopt, 0 to delete, 0 steps."), MatchRegexp(`(?m)^  Deployment +done$`),
	), "plan", "appservice/web")
	w.shows(ContainSubstring("Plan: 0 to create"), "plan", "--all")
	w.Expect(w.succeed("version")).To(ContainSubstring("appservices.fixpoint.dev v1alpha1, v1beta1\n"))
	w.shows(HavePrefix("appservice/web\n"), cobra.ShellCompRequestCmd, "status", "appservice/") // which waits only briefly
	w.Expect(w.ends(1, "status", "appservice/missing")).To(BeEmpty())
}

func TestReportHasNoConfidentialValues(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	w.createApp("web", func(s *v1beta1.AppServiceSpec) { s.Config = map[string]string{"PASSWORD": "hunter2"} })
	w.ready("web")
	w.Eventually(func() []string { return w.Events("AppService", "web") }).Should(ContainElement(HavePrefix("Normal Ready ")))
	path := filepath.Join(t.TempDir(), "report.tar.gz")

	w.succeed("report", "--file", path)

	files := w.archive(path)
	folder := "fixpoint-report/objects/" + w.Namespace + "/appservice-web/"
	w.Expect(files).To(HaveKeyWithValue(folder+"appservice-web.yaml", ContainSubstring("PASSWORD: (redacted)")))
	w.Expect(files).To(HaveKeyWithValue(folder+"deployment-web.yaml", ContainSubstring("availableReplicas: 2")))
	w.Expect(files).To(HaveKeyWithValue("fixpoint-report/events/"+w.Namespace+".txt", ContainSubstring("AppService/web Ready")))
	for name, content := range files {
		w.Expect(content).NotTo(ContainSubstring("hunter2"), name)
	}
	w.Expect(w.kubectlFixpoint("report", "--file", path).err).To(ContainSubstring("file exists"))
}

func (w *fixture) archive(path string) map[string]string {
	w.T.Helper()
	file, err := os.Open(path)
	w.Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	compressed, err := gzip.NewReader(file)
	w.Expect(err).NotTo(HaveOccurred())
	archive, files := tar.NewReader(compressed), map[string]string{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		w.Expect(err).NotTo(HaveOccurred())
		content, err := io.ReadAll(archive)
		w.Expect(err).NotTo(HaveOccurred())
		files[header.Name] = string(content)
	}
}

func TestWhyBlamesThePod(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	w.createApp("broken", func(s *v1beta1.AppServiceSpec) { s.Image = cluster.ImagePullFails })
	w.Eventually(func() string { return strings.ReplaceAll(w.succeed("why", "appservice/broken"), "\n", " ") }).Should(SatisfyAll(
		MatchRegexp(`Pod broken-\S+ is to blame: container app cannot pull image `+cluster.ImagePullFails+` \((ErrImagePull|ImagePullBackOff)\)\.`),
		ContainSubstring("Correct spec.image or spec.imagePullSecrets with kubectl edit appservice/broken -n "+w.Namespace),
	))
	w.Expect(w.succeed("why")).To(HavePrefix("1 of 1 objects are not Ready."))
}

func TestHookThatFailsIsShownWithItsJob(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	w.createApp("web", func(s *v1beta1.AppServiceSpec) {
		s.Hooks = &v1beta1.AppServiceHooks{PreDeploy: &v1beta1.AppServiceHook{Image: cluster.ImageFails, Command: []string{"migrate"}}}
	})
	w.shows(SatisfyAll(
		MatchRegexp(`(?m)^Dependencies +not configured `), MatchRegexp(`(?m)^PreDeploy +stalled +HookFailed .* exit code 3: the table users is locked`),
		MatchRegexp(`(?m)^Deployment +blocked `), MatchRegexp(`(?m)^Job/web-\w+ +0/1 +failed`),
	), "status", "appservice/web")
	w.shows(MatchRegexp(`└─Job/web-\w+ +0/1 +failed .*\n +└─Pod/web-`), "tree", "appservice/web")
	why := strings.ReplaceAll(w.succeed("why", "appservice/web"), "\n", " ")
	w.Expect(why).To(And(ContainSubstring("Phase PreDeploy is stalled (HookFailed): Job web-"), Not(ContainSubstring("is to blame"))))
}

func TestSuspendResumeAndReconcile(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	w.createApp("web")
	w.ready("web")

	w.Expect(w.succeed("reconcile", "appservice/web", "--reason", "to see", waitLong)).To(ContainSubstring("is reconciled and Ready."))
	live := harness.Read(w, "web", &v1beta1.AppService{})
	w.Expect(live.Annotations).To(HaveKeyWithValue(v1beta1.AnnotationReason, "to see"))
	w.Expect(live.Status.LastHandledReconcileAt).To(Equal(live.Annotations[v1beta1.AnnotationReconcileRequest]))

	w.succeed("suspend", "appservice/web", "--reason", "the database is migrated")
	harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, live *v1beta1.AppService) {
		g.Expect(live.Spec.Suspend).To(BeTrue())
		g.Expect(live.Annotations).To(HaveKeyWithValue(v1beta1.AnnotationReason, "the database is migrated"))
		g.Expect(harness.Conditions(live)).To(HaveKey(v1beta1.ConditionSuspended))
	})
	w.Expect(w.succeed("status", "appservice/web")).To(ContainSubstring("Reason given by a user: the database is migrated"))
	w.Expect(w.kubectlFixpoint("reconcile", "appservice/web").err).To(ContainSubstring("is suspended, so it is not reconciled: run kubectl fixpoint resume appservice/web"))

	w.succeed("resume", "appservice/web")
	live = harness.Read(w, "web", &v1beta1.AppService{})
	w.Expect(live.Spec.Suspend).To(BeFalse())
	for _, entry := range live.ManagedFields {
		w.Expect(entry.Manager == "kubectl-fixpoint" && strings.Contains(entry.FieldsV1.GetRawString(), "f:suspend")).To(BeFalse(), "resume leaves no field manager behind")
	}
	w.Expect(w.succeed("reconcile", "appservice/web", waitLong)).To(ContainSubstring("is reconciled and Ready."))
}

func TestResumeOverridesASuspensionByAnotherManager(t *testing.T) {
	w := newFixture(t)
	w.createApp("web", func(s *v1beta1.AppServiceSpec) { s.Suspend = true })
	w.succeed("resume", "appservice/web")
	w.Expect(harness.Read(w, "web", &v1beta1.AppService{}).Spec.Suspend).To(BeFalse())
}

func TestReconcileSaysThatNoManagerRuns(t *testing.T) {
	w := newFixture(t)
	w.createApp("web")
	out := w.ends(1, "reconcile", "appservice/web", "--timeout", "1s")
	w.Expect(out).To(SatisfyAll(ContainSubstring("The manager has not handled the request within 1s."), ContainSubstring("has not been reconciled yet")))
}

const webYAML = `apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata:
  name: web
spec:
  image: registry.test/shop:2
  replicas: 2
  config: {COLOR: blue}
`

func TestPlanOfAFileWritesNothing(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	w.createApp("web")
	w.ready("web")
	mark := w.Settled()

	out := w.ends(2, "plan", "-f", w.file("web.yaml", webYAML))

	w.Expect(out).To(SatisfyAll(
		ContainSubstring("    update ConfigMap/web\n      ~ data.COLOR: \"green\" -> \"blue\"\n"),
		ContainSubstring("      ~ spec.template.spec.containers[name=app].image: \"registry.test/shop:1\" -> \"registry.test/shop:2\"\n"),
	))
	w.Expect(w.Requests(mark).Writes().By(harness.ManagerUser)).To(BeEmpty())
	w.Expect(harness.Read(w, "web", &v1beta1.AppService{}).Spec.Image).To(Equal(image))
	w.Expect(w.kubectlFixpoint("plan", "-f", "-", "appservice/web").err).To(ContainSubstring("give one of KIND/NAME, -f FILE and --all"))
}

func TestPlanOfUnknownObjectCreatesEverything(t *testing.T) {
	w := newFixture(t)
	ended := w.run(w.Ctx, w.kubeconfig, []byte(webYAML), "plan", "-f", "-")
	w.Expect(ended.code).To(Equal(2), ended.err)
	w.Expect(ended.out).To(SatisfyAll(
		ContainSubstring("create ConfigMap/web"), ContainSubstring("create Service/web"), ContainSubstring("create Deployment/web"),
		ContainSubstring("Plan: 3 to create"), ContainSubstring("no Deployment of the manager was found, so its default settings are assumed"),
	))
	w.Expect(harness.Gone(w.Ctx, api, w.Key("web"), &v1beta1.AppService{})).To(Succeed())
}

// A user has no more rights with the plugin than without it.
func TestUserWithFewRightsIsToldWhatIsNotShown(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	w.createApp("web")
	w.ready("web")
	w.grant("viewer", rbacv1.PolicyRule{APIGroups: []string{"fixpoint.dev"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}})
	kubeconfig := w.kubeconfigOf("viewer")

	status := w.run(w.Ctx, kubeconfig, nil, "status", "appservice/web")
	w.Expect(status.code).To(BeZero(), status.err)
	w.Expect(status.out).To(SatisfyAll(MatchRegexp(`(?m)^Deployment +done `), ContainSubstring("Not shown: you may not list Deployment objects in namespace "+w.Namespace)))
	suspend := w.run(w.Ctx, kubeconfig, nil, "suspend", "appservice/web")
	w.Expect(suspend.code).To(Equal(1))
	w.Expect(suspend.err).To(ContainSubstring(`User "viewer" cannot patch resource "appservices"`))
	plan := w.run(w.Ctx, kubeconfig, nil, "plan", "appservice/web")
	w.Expect(plan.code).To(Equal(1), "what the plan cannot read is not known")
	w.Expect(plan.out).To(SatisfyAll(
		ContainSubstring("? not known: "), ContainSubstring("you may not list IngressClasses"), ContainSubstring("you may not read the Deployment of the manager"),
	))
	fleet := w.run(w.Ctx, kubeconfig, nil, "status", "-A")
	w.Expect(fleet.code).To(Equal(1))
	w.Expect(fleet.err).To(MatchRegexp(`cannot list resource "\w+" in API group "fixpoint.dev" at the cluster scope`))
}

// grant gives a user rights in the namespace, and returns when the API server observes them.
func (w *fixture) grant(user string, rules ...rbacv1.PolicyRule) {
	w.T.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: w.Namespace}, Rules: rules}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	for _, object := range []client.Object{role, binding} {
		w.Expect(api.Create(w.Ctx, object)).To(Succeed())
	}
	asked := authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: w.Namespace, Verb: rules[0].Verbs[0], Group: rules[0].APIGroups[0], Resource: rules[0].Resources[0],
	}}
	w.Eventually(func(g Gomega) {
		review := &authorizationv1.SubjectAccessReview{Spec: asked}
		g.Expect(api.Create(w.Ctx, review)).To(Succeed())
		g.Expect(review.Status.Allowed).To(BeTrue())
	}).Should(Succeed())
}

func TestPlanReadsTheCloud(t *testing.T) {
	w := newFixture(t)
	server := fakecloud.New(fakecloud.Options{Knobs: fakecloud.Knobs{}, Seed: 1})
	demo := server.SeedDemo()
	endpoint := server.StartHTTP()
	t.Cleanup(endpoint.Close)
	storage := &v1beta1.SecureStorage{ObjectMeta: metav1.ObjectMeta{Name: "invoices", Namespace: w.Namespace}}
	storage.Spec = v1beta1.SecureStorageSpec{
		Provider: v1beta1.SecureStorageProvider{SubscriptionID: demo.Subscription, ResourceGroup: demo.Group, Location: demo.Location},
		Key:      v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: demo.Vault}, Name: demo.Key},
	}
	w.Expect(api.Create(w.Ctx, storage)).To(Succeed())
	plan := []string{"plan", "securestorage/invoices", "--cloud-endpoint", endpoint.URL, "--cloud-token-file", w.file("token", fakecloud.Token("manager"))}

	effects := len(server.Effects(fakecloud.Created, "/storageaccounts/"))
	w.Expect(w.ends(2, plan...)).To(MatchRegexp(`(?m)^    ensure create storage account `))
	w.Expect(server.Effects(fakecloud.Created, "/storageaccounts/")).To(HaveLen(effects), "a plan writes nothing")

	w.startManager(endpoint)
	harness.Eventually(w, "invoices", &v1beta1.SecureStorage{}, func(g Gomega, live *v1beta1.SecureStorage) {
		g.Expect(harness.Conditions(live)).To(HaveKeyWithValue(v1beta1.ConditionReady, HavePrefix("True")), harness.Message(live, v1beta1.ConditionReady))
	})
	w.shows(SatisfyAll(ContainSubstring(" 0 steps."), MatchRegexp(`(?m)^  Encryption +done$`)), plan...)
	w.shows(MatchRegexp(`(?m)^Encryption +done `), "status", "securestorage/invoices")
}

// status, why and drift of many objects read page by page, and miss none. How long that takes is printed.
func TestFleetIsShown(t *testing.T) {
	w := newFixture(t)
	count := fleetSize(t)
	w.createFleet(count)
	notReady := (count + 9) / 10
	for command, expected := range map[string]types.GomegaMatcher{
		"status": And(ContainSubstring(fmt.Sprintf("%d of %d ready.", count-notReady, count)),
			WithTransform(func(out string) int { return strings.Count(out, "appservice/app-") }, Equal(count))),
		"why":   ContainSubstring(fmt.Sprintf("%d of %d objects are not Ready.", notReady, count)),
		"drift": WithTransform(func(out string) int { return strings.Count(out, "changed .spec.replicas") }, Equal(count)),
	} {
		began := time.Now()
		out := w.succeed(command)
		t.Logf("kubectl fixpoint %s over %d objects: %s, %d bytes", command, count, time.Since(began).Round(time.Millisecond), len(out))
		w.Expect(out).To(expected, command)
	}
}
