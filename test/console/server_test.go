package console_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/console"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// answer is what a request is answered.
type answer struct {
	code int
	body string
	head http.Header
}

func (a answer) decode(g Gomega, into any) {
	g.Expect(json.Unmarshal([]byte(a.body), into)).To(Succeed(), a.body)
}

// send sends a request. The values are the names and values of headers.
func (w *fixture) send(c *http.Client, method, url, body string, values ...string) answer {
	w.T.Helper()
	request, err := http.NewRequestWithContext(w.Ctx, method, url, strings.NewReader(body))
	w.Expect(err).NotTo(HaveOccurred())
	for i := 0; i < len(values); i += 2 {
		if values[i] == "Host" {
			request.Host = values[i+1]
		}
		request.Header.Set(values[i], values[i+1])
	}
	response, err := c.Do(request)
	w.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	w.Expect(err).NotTo(HaveOccurred())
	return answer{response.StatusCode, string(raw), response.Header}
}

// get expects a JSON answer with status 200.
func (w *fixture) get(c *http.Client, url string, into any) {
	w.T.Helper()
	got := w.send(c, http.MethodGet, url, "")
	w.Expect(got.code).To(Equal(http.StatusOK), got.body)
	got.decode(w, into)
}

// csrf is the CSRF token of a browser that has signed in.
func (w *fixture) csrf(c *http.Client, s *site) string {
	w.T.Helper()
	var session struct{ CSRF string }
	w.get(c, s.url+"/session", &session)
	w.Expect(session.CSRF).NotTo(BeEmpty())
	return session.CSRF
}

func TestUsersSeeWhatTheyMayRead(t *testing.T) {
	w := newFixture(t)
	s := w.serveTokens()
	w.createApp("web")
	everything := clientOf(w.userWith("everything", true, "view", "fixpoint-appservice-viewer-role", "fixpoint-mcpserver-viewer-role", "fixpoint-securestorage-viewer-role"))
	tenant := clientOf(w.userWith("tenant", false, "fixpoint-appservice-viewer-role"))
	nobody := clientOf(w.userWith("nobody", false))
	object := s.url + "/objects/appservices/" + w.Namespace + "/web"

	rows, failures := w.synced(w.watch(everything, s.url+"/watch?view=summary", ""))
	w.Expect(failures).To(BeEmpty())
	w.Expect(rows).To(ContainElement(And(HaveKeyWithValue("name", "web"), HaveKeyWithValue("namespace", w.Namespace))))

	_, failures = w.synced(w.watch(tenant, s.url+"/watch?view=summary", ""))
	w.Expect(failures).To(HaveLen(3))
	w.Expect(failures).To(HaveKeyWithValue("AppService",
		"You may not list and watch AppService objects in all namespaces; select a namespace with namespace=, or ask for the ClusterRole fixpoint-appservice-viewer-role."))

	rows, failures = w.synced(w.watch(tenant, s.url+"/watch?view=summary&namespace="+w.Namespace, ""))
	w.Expect(rows).To(HaveLen(1), "%v", failures)
	w.Expect(failures).To(And(HaveLen(2), HaveKeyWithValue("MCPServer", ContainSubstring("in namespace "+w.Namespace))))

	_, failures = w.synced(w.watch(nobody, s.url+"/watch?view=summary&namespace="+w.Namespace, ""))
	w.Expect(failures).To(HaveLen(3))
	w.Expect(w.send(nobody, http.MethodGet, s.url+"/watch?namespace="+w.Namespace, "").code).To(Equal(http.StatusForbidden))

	got := w.send(nobody, http.MethodGet, object, "")
	w.Expect(got.code).To(Equal(http.StatusForbidden))
	w.Expect(got.body).To(And(ContainSubstring(`"kind":"Status"`), ContainSubstring(`cannot get resource`)))
	w.Expect(w.send(tenant, http.MethodPost, object+"/suspend", "{}").code).To(Equal(http.StatusForbidden))
	w.Expect(w.send(tenant, http.MethodDelete, object, "").code).To(Equal(http.StatusForbidden))
	w.Expect(w.send(nobody, http.MethodGet, s.url+"/events?namespace="+w.Namespace, "").code).To(Equal(http.StatusForbidden))
	w.Expect(w.send(tenant, http.MethodGet, s.url+"/apis/fixpoint.dev/v1beta1/namespaces/"+w.Namespace+"/appservices/web", "").code).To(Equal(http.StatusOK))
	w.Expect(w.send(nobody, http.MethodGet, s.url+"/apis/fixpoint.dev/v1beta1/namespaces/"+w.Namespace+"/appservices/web", "").code).To(Equal(http.StatusForbidden))

	var definitions struct{ Items []struct{ Kind string } }
	w.get(nobody, s.url+"/crd", &definitions)
	w.Expect(definitions.Items).To(HaveLen(3), "the definitions of this version")
	w.Expect(w.send(clientOf("not-a-token"), http.MethodGet, s.url+"/session", "").code).To(Equal(http.StatusUnauthorized))
	w.Expect(w.send(clientOf("not-a-token"), http.MethodGet, s.url+"/watch?view=summary", "").code).To(Equal(http.StatusUnauthorized))
}

// requestsOf are what the API server has recorded of a user.
func (w *fixture) requestsOf(user string) cluster.Requests {
	w.T.Helper()
	all, err := shared.Audit().Since(w.Began)
	w.Expect(err).NotTo(HaveOccurred())
	return all.Where(func(r cluster.Request) bool { return r.User == user && r.UserAgent == "fixpoint-console" })
}

// confirmTime is how long the console takes the API server's word on who a user is for granted.
const confirmTime = 10 * time.Second

func TestManyWindowsShareOneWatchOfEachKind(t *testing.T) {
	w := newFixture(t)
	const user, windows = "windows-user", 25
	began := time.Now()
	s, browser := w.serveAdmin(user, console.Options{})
	var opened []*window
	for range windows {
		opened = append(opened, w.watch(browser, s.url+"/watch?view=summary", ""))
	}
	for range windows {
		opened = append(opened, w.watch(browser, s.url+"/watch?view=summary&namespace="+w.Namespace, ""))
	}
	for _, one := range opened {
		w.synced(one)
	}
	opening := time.Since(began)
	before := w.requestsOf(user)
	w.Consistently(func() cluster.Requests { return w.requestsOf(user) }, "3s").Should(HaveLen(len(before)), "no request at rest")
	var watches []string
	for _, r := range before {
		if r.Verb == "watch" && r.Code != http.StatusTooManyRequests { // an API server that has just started refuses some
			watches = append(watches, r.Resource)
		}
	}
	w.Expect(watches).To(ConsistOf("appservices", "mcpservers", "securestorages"), "%s", before)
	others := before.Where(func(r cluster.Request) bool { return r.Verb != "watch" })
	reviews := others.Of("selfsubjectreviews.authentication.k8s.io")
	w.Expect(len(reviews)).To(BeNumerically("<=", 1+int(opening/confirmTime)), "who the user is, which holds for a while: %s", before)
	w.Expect(len(others)-len(reviews)).To(BeNumerically("<=", 3), "at most one list of each kind: %s", before)

	w.createApp("web")
	for _, one := range opened {
		w.Eventually(one.objects).Should(ContainElement(w.Namespace + "/web"))
	}
	t.Logf("%d windows: %d watches, %d other requests", len(opened), len(watches), len(others))
}

func TestStreamResumesWithoutAGap(t *testing.T) {
	w := newFixture(t)
	s, browser := w.serveAdmin("resuming-user", console.Options{})
	url := s.url + "/watch?view=summary&namespace=" + w.Namespace
	app := w.createApp("web")
	const changes = 30
	var generations []int
	last := ""
	change := func(i int) {
		app.Spec.Image = "registry.test/shop:" + strconv.Itoa(i+2)
		w.Expect(w.As("kubectl").Update(w.Ctx, app)).To(Succeed())
	}
	for i := range changes {
		opened := w.watch(browser, url, last)
		if last == "" {
			w.synced(opened)
		}
		change(i)
		if i%2 == 0 { // the next change is made while the stream is cut
			w.Eventually(func() int { return opened.last().generation() }).Should(BeNumerically(">=", app.Generation))
		}
		opened.close()
		for _, e := range opened.seen() {
			last = e.id
			if e.kind == "MODIFIED" {
				generations = append(generations, e.generation())
			}
		}
	}
	final := w.watch(browser, url, last)
	if len(generations) < changes {
		w.Eventually(func() int { return final.last().generation() }).Should(BeNumerically(">=", app.Generation))
	}
	for _, e := range final.seen() {
		generations = append(generations, e.generation())
	}
	w.Expect(final.kinds()).NotTo(ContainElement("SYNC"))
	expected := []int{}
	for i := range changes {
		expected = append(expected, i+2)
	}
	w.Expect(generations).To(Equal(expected), "each change once, in order")

	stale := w.watch(browser, url, "0000-1")
	rows, _ := w.synced(stale)
	w.Expect(rows).To(HaveLen(1), "an unknown position is answered with everything")
}

func TestWholeObjectsAreStreamedToCurl(t *testing.T) {
	w := newFixture(t)
	s, browser := w.serveAdmin("curl-user", console.Options{})
	w.createApp("first")
	opened := w.watch(browser, s.url+"/watch?kinds=appservices&namespace="+w.Namespace, "")
	w.Eventually(opened.kinds).Should(Equal([]string{"ADDED"}))
	w.Expect(opened.last().data).To(And(ContainSubstring(`"image":"registry.test/shop:1"`), Not(ContainSubstring("managedFields"))))
	w.createApp("second")
	w.Eventually(func() string { return opened.last().object() }).Should(Equal(w.Namespace + "/second"))
	w.Expect(w.Suite.API.Delete(w.Ctx, &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "first"}})).To(Succeed())
	w.Eventually(opened.kinds).Should(Equal([]string{"ADDED", "ADDED", "DELETED"}))
}

func TestObjectIsShownAndOperated(t *testing.T) {
	w := newFixture(t)
	w.startManager(nil)
	s, browser := w.serveAdmin("operating-user", console.Options{})
	w.createApp("web")
	w.ready("web")
	w.Scale("kubectl", harness.Read(w, "web", &appsv1.Deployment{}), 5)
	harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, live *v1beta1.AppService) {
		g.Expect(live.Status.Drifts).To(HaveLen(1))
		g.Expect(harness.Conditions(live)).To(HaveKeyWithValue(v1beta1.ConditionReady, HavePrefix("True")))
	})
	object, csrf := s.url+"/objects/appservices/"+w.Namespace+"/web", w.csrf(browser, s)

	type view struct {
		Object struct{ Metadata map[string]any }
		Row    map[string]any
		Phases []struct {
			Name, Condition, Status, Verdict string
			Children                         []struct{ Kind, Name, Ready string }
		}
		Drifts []map[string]any
		Tree   struct {
			Children []struct {
				Kind     string
				Managers []string
				Children []struct{ Kind string }
			}
		}
		Why string
	}
	// The Deployment may still have pods too many when the AppService is Ready.
	w.Eventually(func(g Gomega) {
		var details view
		w.get(browser, object, &details)
		g.Expect(details.Object.Metadata).NotTo(HaveKey("managedFields"))
		g.Expect(details.Row).To(And(HaveKeyWithValue("ready", "True"), HaveKeyWithValue("drifts", 1.0), HaveKeyWithValue("phase", "Running")))
		isNotConfigured := And(HaveField("Verdict", "not configured"), HaveField("Status", ""), HaveField("Children", BeEmpty()))
		isDone := And(HaveField("Verdict", "done"), HaveField("Status", "True"), HaveField("Children", ConsistOf(HaveField("Ready", "True"))))
		g.Expect(details.Phases).To(HaveExactElements(
			And(HaveField("Name", "Dependencies"), isNotConfigured),
			And(HaveField("Name", "Config"), isDone),
			And(HaveField("Name", "Service"), isDone),
			And(HaveField("Name", "PreDeploy"), isNotConfigured),
			And(HaveField("Name", "Deployment"), HaveField("Condition", "DeploymentReady"), isDone),
			And(HaveField("Name", "Autoscaling"), isNotConfigured),
			And(HaveField("Name", "DisruptionBudget"), isNotConfigured),
			And(HaveField("Name", "Ingress"), isNotConfigured),
		))
		g.Expect(details.Drifts).To(ConsistOf(And(HaveKeyWithValue("child", "Deployment/web"), HaveKeyWithValue("field", "spec.replicas"),
			HaveKeyWithValue("desired", "2"), HaveKeyWithValue("found", "5"), HaveKeyWithValue("action", "Reverted"))))
		g.Expect(details.Tree.Children).To(ContainElement(And(HaveField("Kind", "Deployment"), HaveField("Managers", ContainElement("fixpoint-appservice")),
			HaveField("Children", ContainElement(HaveField("Kind", "ReplicaSet"))))))
		g.Expect(details.Why).To(HavePrefix("AppService " + w.Namespace + "/web is Ready."))
	}).Should(Succeed())

	var blame struct {
		Lines []struct{ Text, Manager string }
	}
	w.get(browser, object+"/blame", &blame)
	w.Expect(blame.Lines).To(ContainElement(And(HaveField("Text", `  image: "registry.test/shop:1"`), HaveField("Manager", "kubectl"))))
	var drifts struct{ Items []map[string]any }
	w.get(browser, s.url+"/drifts?namespace="+w.Namespace, &drifts)
	w.Expect(drifts.Items).To(HaveLen(1))
	w.Eventually(func() []map[string]any { // Events are written after the status
		var events struct{ Items []map[string]any }
		w.get(browser, s.url+"/events?limit=2&kind=AppService&name=web&namespace="+w.Namespace, &events)
		return events.Items
	}).Should(HaveLen(2))

	w.expectEdits(browser, object, csrf)
	w.Expect(w.send(browser, http.MethodPost, object+"/suspend", `{"reason":"maintenance"}`, "X-CSRF-Token", csrf).code).To(Equal(http.StatusOK))
	var suspended view
	w.get(browser, object, &suspended)
	w.Expect(suspended.Row).To(HaveKeyWithValue("suspended", true))
	w.Expect(w.send(browser, http.MethodPost, object+"/resume", "", "X-CSRF-Token", csrf).code).To(Equal(http.StatusOK))
	w.Expect(w.send(browser, http.MethodPost, object+"/reconcile", "", "X-CSRF-Token", csrf).code).To(Equal(http.StatusOK))

	remove := func(query string) answer {
		return w.send(browser, http.MethodDelete, object+query, "", "X-CSRF-Token", csrf)
	}
	for query, refused := range map[string]answer{
		"?uid=another&dryRun=All": {code: http.StatusConflict, body: "deleted and created again since it was read"},
		"?uid=another":            {code: http.StatusConflict, body: "deleted and created again since it was read"},
		"?generation=1":           {code: http.StatusConflict, body: "the spec has changed since it was read"},
		"?generation=first":       {code: http.StatusBadRequest, body: `generation is \"first\"`},
		"?generation=0":           {code: http.StatusBadRequest, body: `generation is \"0\"`},
	} {
		got := remove(query)
		w.Expect(got.code).To(Equal(refused.code), query)
		w.Expect(got.body).To(ContainSubstring(refused.body), query)
	}
	live := harness.Read(w, "web", &v1beta1.AppService{})
	w.Expect(live.DeletionTimestamp).To(BeNil())
	shown := fmt.Sprintf("?uid=%s&generation=%d", live.UID, live.Generation)
	got := remove(shown + "&dryRun=All")
	w.Expect(got.code).To(Equal(http.StatusOK))
	w.Expect(got.body).To(And(ContainSubstring(`"kind":"Deployment"`), ContainSubstring(`"kind":"Pod"`), ContainSubstring(`"kind":"ConfigMap"`)))
	w.Expect(remove(shown).code).To(Equal(http.StatusAccepted))
	w.Eventually(func() bool {
		return apierrors.IsNotFound(w.Suite.API.Get(w.Ctx, w.Key("web"), &v1beta1.AppService{}))
	}).Should(BeTrue())
	w.Expect(w.send(browser, http.MethodGet, object, "").code).To(Equal(http.StatusNotFound))
}

// expectEdits plans an edit, makes it, and makes others that are refused.
func (w *fixture) expectEdits(browser *http.Client, object, csrf string) {
	w.T.Helper()
	const head = "apiVersion: fixpoint.dev/v1beta1\nkind: AppService\nmetadata: {name: web}\nspec:\n  image: registry.test/shop:1\n  config: {COLOR: %s}\n  replicas: %d\n"
	edit := func(method, url, body string) answer {
		return w.send(browser, method, url, body, "X-CSRF-Token", csrf, "Content-Type", "application/yaml")
	}
	var plan struct {
		Actions []struct {
			Verb, Kind, Phase string
			Diff              []string
		}
	}
	planning := edit(http.MethodPost, object+"/plan", fmt.Sprintf(head, "green", 4))
	w.Expect(planning.code).To(Equal(http.StatusOK), planning.body)
	planning.decode(w, &plan)
	w.Expect(plan.Actions).To(ContainElement(And(HaveField("Verb", "update"), HaveField("Kind", "Deployment"), HaveField("Diff", ContainElement("~ spec.replicas: 2 -> 4")))))
	w.Expect(edit(http.MethodPut, object+"?dryRun=All", fmt.Sprintf(head, "green", 4)).body).To(ContainSubstring(`"replicas":4`))
	w.Expect(harness.Read(w, "web", &v1beta1.AppService{}).Spec.Replicas).To(HaveValue(BeEquivalentTo(2)), "a dry run changes nothing")
	w.Expect(edit(http.MethodPut, object, fmt.Sprintf(head, "green", 4)).code).To(Equal(http.StatusOK))
	live := harness.Read(w, "web", &v1beta1.AppService{})
	w.Expect(live.Spec.Replicas).To(HaveValue(BeEquivalentTo(4)))
	held := slices.IndexFunc(live.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "fixpoint-console" })
	w.Expect(held).To(BeNumerically(">=", 0))
	w.Expect(string(live.ManagedFields[held].FieldsV1.GetRawBytes())).To(Equal(`{"f:spec":{"f:replicas":{}}}`), "only what the edit changes")

	got := edit(http.MethodPut, object, strings.Replace(fmt.Sprintf(head, "green", 4), "  config: {COLOR: green}\n", "", 1))
	w.Expect(got.code).To(Equal(http.StatusConflict), got.body)
	w.Expect(got.body).To(ContainSubstring("spec.config cannot be removed by an edit, because kubectl holds it"))
	got = edit(http.MethodPut, object, strings.Replace(fmt.Sprintf(head, "green", 5), "{name: web}", "{name: web, generation: 1}", 1))
	w.Expect(got.code).To(Equal(http.StatusConflict), got.body)
	w.Expect(got.body).To(ContainSubstring("the spec has changed since it was read"))
	w.Expect(edit(http.MethodPut, object, fmt.Sprintf(head, "green", 1)).code).To(Equal(http.StatusUnprocessableEntity))
	w.Expect(edit(http.MethodPut, object, "}{").code).To(Equal(http.StatusBadRequest))
	w.Expect(edit(http.MethodPut, object, strings.Replace(fmt.Sprintf(head, "green", 4), "name: web", "name: other", 1)).body).To(ContainSubstring("metadata.name"))
	var planned struct{ Actions []any }
	w.get(browser, object+"/plan", &planned)
}

func TestCloudOfTheManagerIsShown(t *testing.T) {
	w := newFixture(t)
	fake := fakecloud.New(fakecloud.Options{Seed: 1, Knobs: fakecloud.Instant()})
	demo := fake.SeedDemo()
	endpoint := fake.StartHTTP()
	t.Cleanup(endpoint.Close)
	account := "/subscriptions/" + demo.Subscription + "/resourceGroups/" + demo.Group + "/providers/Microsoft.Storage/storageAccounts/invoices"
	created := w.send(clientOf(fakecloud.Token("me")), http.MethodPut, endpoint.URL+account+"?api-version=2024-01-01",
		`{"location":"`+demo.Location+`","kind":"StorageV2","sku":{"name":"Standard_LRS"},"properties":{}}`, "Content-Type", "application/json")
	w.Expect(created.code).To(BeElementOf(http.StatusOK, http.StatusAccepted), created.body)
	s, browser := w.serveAdmin("cloud-user", console.Options{FakeCloud: endpoint.URL})
	var shown struct{ Accounts, Vaults, Keys, Ledger []map[string]any }
	w.get(browser, s.url+"/cloud", &shown)
	w.Expect(shown.Vaults).To(HaveLen(1))
	w.Expect(shown.Keys).To(HaveLen(1))
	w.Expect(shown.Accounts).To(ConsistOf(HaveKeyWithValue("name", "invoices")))
	w.Expect(shown.Ledger).To(ContainElement(And(HaveKeyWithValue("by", "me"), HaveKeyWithValue("method", "PUT"), HaveKeyWithValue("path", account),
		HaveKeyWithValue("effect", "created"), HaveKey("time"))))
	w.Expect(shown.Keys[0]).To(HaveKeyWithValue("vault", shown.Vaults[0]["name"]))
	w.Expect(w.send(clientOf("not-a-token"), http.MethodGet, s.url+"/cloud", "").code).To(Equal(http.StatusUnauthorized))
	other, otherBrowser := w.serveAdmin("cloud-user", console.Options{})
	w.Expect(w.send(otherBrowser, http.MethodGet, other.url+"/cloud", "").code).To(Equal(http.StatusNotFound))
}

func TestPassesRequestsToTheAPIServerUnchanged(t *testing.T) {
	w := newFixture(t)
	s := w.serveTokens()
	editor := clientOf(w.userWith("editor", false, "fixpoint-appservice-editor-role"))
	all := s.url + "/apis/fixpoint.dev/v1beta1/namespaces/" + w.Namespace + "/appservices"
	const object = `{"apiVersion":"fixpoint.dev/v1beta1","kind":"AppService","metadata":{"name":"web"},"spec":{"image":"registry.test/shop:1"}}`
	json, apply := []string{"Content-Type", "application/json"}, []string{"Content-Type", "application/apply-patch+yaml"}

	w.Expect(w.send(editor, http.MethodPost, all, object, json...).code).To(Equal(http.StatusCreated))
	w.Expect(w.send(editor, http.MethodPost, all, object, json...).code).To(Equal(http.StatusConflict))
	w.Expect(w.send(editor, http.MethodPost, all, "{", json...).code).To(Equal(http.StatusBadRequest))
	w.Expect(w.send(editor, http.MethodPut, all+"/web", "{", json...).code).To(Equal(http.StatusBadRequest))
	w.Expect(w.send(editor, http.MethodPatch, all+"/web", "{", "Content-Type", "application/merge-patch+json").code).To(Equal(http.StatusBadRequest))
	w.Expect(w.send(editor, http.MethodPost, all, strings.Replace(object, "registry.test/shop:1", "", 1), json...).code).To(Equal(http.StatusUnprocessableEntity))
	w.Expect(w.send(editor, http.MethodGet, all+"/missing", "").code).To(Equal(http.StatusNotFound))
	stale := `{"apiVersion":"fixpoint.dev/v1beta1","kind":"AppService","metadata":{"name":"web","resourceVersion":"1"},"spec":{"image":"registry.test/shop:2"}}`
	w.Expect(w.send(editor, http.MethodPut, all+"/web", stale, json...).code).To(Equal(http.StatusConflict))
	got := w.send(editor, http.MethodPatch, all+"/web?fieldManager=me", "apiVersion: fixpoint.dev/v1beta1\nkind: AppService\nspec: {replicas: 3}", apply...)
	w.Expect(got.code).To(Equal(http.StatusOK), got.body)
	w.Expect(w.send(editor, http.MethodGet, all+"?limit=1", "").body).To(ContainSubstring(`"kind":"AppServiceList"`))
	w.Expect(w.send(editor, http.MethodPost, all, strings.Repeat("x", 4<<20), json...).code).To(BeElementOf(http.StatusRequestEntityTooLarge, http.StatusBadGateway))
	impersonated := w.send(editor, http.MethodGet, all+"/web", "", "Impersonate-User", "system:admin")
	w.Expect(impersonated.code).To(Equal(http.StatusOK), "the header is not passed: the user may not impersonate")
	w.Expect(w.send(editor, http.MethodGet, s.url+"/apis/apps/v1/deployments", "").code).To(Equal(http.StatusNotFound))
	w.Expect(w.send(editor, http.MethodGet, s.url+"/apis/fixpoint.dev/..%2fapps/v1/deployments", "").code).To(Equal(http.StatusNotFound))
	w.Expect(w.send(editor, http.MethodDelete, all+"/web", "").code).To(Equal(http.StatusOK))
}

func TestLogAndAnswersHaveNoCredential(t *testing.T) {
	w := newFixture(t)
	s := w.serveTokens()
	token := w.userWith("secretive", false, "fixpoint-appservice-viewer-role")
	local, browser := w.serveAdmin("secretive", console.Options{})
	code := local.Code() // used; an empty string is in every log
	w.Expect(code).To(BeEmpty())
	jar := w.signIn(s, token)
	csrf := w.csrf(jar, s)
	for _, path := range []string{"/session", "/events?namespace=" + w.Namespace + "&token=" + token, "/objects/appservices/x/y", "/apis/fixpoint.dev/v1beta1/appservices", "/nowhere?access_token=" + token, "/open?code=guess-0815"} {
		w.send(jar, http.MethodGet, s.url+path, "")
		w.send(clientOf(token), http.MethodGet, s.url+path, "")
		w.send(browser, http.MethodGet, local.url+path, "")
	}
	w.synced(w.watch(jar, s.url+"/watch?view=summary", ""))
	got := w.send(jar, http.MethodGet, s.url+"/session", "")
	w.Expect(got.body).NotTo(ContainSubstring(token))
	w.send(jar, http.MethodDelete, s.url+"/session", "", "X-CSRF-Token", csrf)
	w.Expect(w.send(jar, http.MethodGet, s.url+"/session", "").code).To(Equal(http.StatusUnauthorized))
	w.Expect(w.logs.String()).To(ContainSubstring(`"path":"/objects/appservices/x/y"`))
	for _, secret := range []string{token, csrf, "guess-0815", strings.Split(token, ".")[2]} {
		w.Expect(w.logs.String()).NotTo(ContainSubstring(secret))
	}
}

// signIn posts a token, as the form of the page does.
func (w *fixture) signIn(s *site, token string) *http.Client {
	w.T.Helper()
	browser := w.browser()
	body, err := json.Marshal(map[string]string{"token": token})
	w.Expect(err).NotTo(HaveOccurred())
	got := w.send(browser, http.MethodPost, s.url+"/session", string(bytes.TrimSpace(body)), "Content-Type", "application/json")
	w.Expect(got.code).To(Equal(http.StatusOK), got.body)
	return browser
}

func TestUserIsForgottenWhenTheTokenIsNoLongerAccepted(t *testing.T) {
	w := newFixture(t)
	s := w.serveTokens()
	token := w.userWith("leaving", true, "fixpoint-appservice-viewer-role")
	w.synced(w.watch(clientOf(token), s.url+"/watch?view=summary", ""))
	account := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "leaving"}}
	account.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("ServiceAccount"))
	account.APIVersion = "v1"
	w.Expect(w.Suite.API.Delete(w.Ctx, account, client.GracePeriodSeconds(0))).To(Succeed())
	w.Eventually(func() int { return w.send(clientOf(token), http.MethodGet, s.url+"/session", "").code }, 2*time.Minute).Should(Equal(http.StatusUnauthorized))
	w.Expect(w.send(clientOf(token), http.MethodGet, s.url+"/watch?view=summary", "").code).To(Equal(http.StatusUnauthorized))
}
