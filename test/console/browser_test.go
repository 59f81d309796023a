package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/console"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// adminConsole is a console with the kubeconfig of an administrator, for one browser.
func (w *fixture) adminConsole(user string, o console.Options) *site {
	w.T.Helper()
	o.Mode, o.Config = console.ModeKubeconfig, shared.Config(user, cluster.Masters)
	return w.serve(o)
}

// objectsOfAllKinds creates an AppService with drifts, an MCPServer that waits and a SecureStorage, and returns the URL
// of the fake cloud.
func (w *fixture) objectsOfAllKinds() string {
	w.T.Helper()
	server := fakecloud.New(fakecloud.Options{Seed: 1})
	demo := server.SeedDemo()
	endpoint := server.StartHTTP()
	w.T.Cleanup(endpoint.Close)
	w.startManager(endpoint)
	w.createApp("web")
	storage := &v1beta1.SecureStorage{ObjectMeta: metav1.ObjectMeta{Name: "invoices", Namespace: w.Namespace}}
	storage.Spec = v1beta1.SecureStorageSpec{
		Provider: v1beta1.SecureStorageProvider{SubscriptionID: demo.Subscription, ResourceGroup: demo.Group, Location: demo.Location},
		Key:      v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: demo.Vault}, Name: demo.Key},
	}
	tools := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Name: "tools", Namespace: w.Namespace}}
	tools.Spec.Image = "registry.test/tools:1"
	tools.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}}}}
	for _, object := range []client.Object{storage, tools} {
		w.Expect(w.As("kubectl").Create(w.Ctx, object)).To(Succeed())
	}
	w.ready("web")
	w.Scale("kubectl-scale", &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: w.Namespace}}, 5)
	harness.Eventually(w, "web", &v1beta1.AppService{}, func(g Gomega, live *v1beta1.AppService) {
		g.Expect(live.Status.Drifts).NotTo(BeEmpty())
	})
	// The view of Events is not read again when only an Event is written.
	w.Eventually(func() []string { return w.Events("AppService", "web") }).Should(ContainElement(ContainSubstring("kubectl-scale changed .spec.replicas")))
	harness.Eventually(w, "invoices", &v1beta1.SecureStorage{}, func(g Gomega, live *v1beta1.SecureStorage) {
		g.Expect(harness.Conditions(live)).To(HaveKeyWithValue(v1beta1.ConditionReady, HavePrefix("True")), harness.Message(live, v1beta1.ConditionReady))
	})
	harness.Eventually(w, "tools", &v1beta1.MCPServer{}, func(g Gomega, live *v1beta1.MCPServer) {
		g.Expect(harness.Conditions(live)).To(HaveKey(v1beta1.ConditionDependenciesReady))
	})
	return endpoint.URL
}

func TestEachViewShowsTheClusterAndIsAccessible(t *testing.T) {
	w := newFixture(t)
	s := w.adminConsole("views-user", console.Options{FakeCloud: w.objectsOfAllKinds()})
	b := w.startChromium(1280, 900)
	b.signIn(s, "#/fleet?ns="+w.Namespace)
	views := []struct {
		hash  string
		click string
		sees  []string
	}{
		{hash: "#/fleet?ns=" + w.Namespace, sees: []string{"invoices", "tools", "web", "1 not ready", "Dependency missing"}},
		{hash: "#/fleet?group=reason&ns=" + w.Namespace, sees: []string{"Dependency missing", "3"}},
		{hash: "#/fleet?q=nothing-matches", sees: []string{"No object matches"}},
		{hash: hashOf("appservices", w.Namespace, "web", ""), sees: []string{"Dependencies", "Config", "Pre deploy", "Deployment", "Done", "ReplicaSet", "fixpoint-appservice", "ServiceReady", "Not configured"}},
		{hash: hashOf("mcpservers", w.Namespace, "tools", ""), sees: []string{"Dependencies", "Waiting", "absent", "Blocked"}},
		{hash: hashOf("mcpservers", w.Namespace, "tools", "contract"), sees: []string{"Tools, prompts and resource templates", "There is no contract"}},
		{hash: hashOf("mcpservers", w.Namespace, "tools", "plan"), sees: []string{"waits: ", "absent"}},
		{hash: hashOf("securestorages", w.Namespace, "invoices", ""), sees: []string{"Storage account", "Key access", "Encryption", "Done", "Export", "Account keys", "Not configured"}},
		{hash: hashOf("appservices", w.Namespace, "web", "events"), sees: []string{"Drift corrected", "kubectl-scale changed .spec.replicas"}},
		{hash: hashOf("appservices", w.Namespace, "web", "drifts"), sees: []string{"spec.replicas", "kubectl-scale", "Reverted"}},
		{hash: hashOf("appservices", w.Namespace, "web", "plan"), sees: []string{"What the manager would do now", "Nothing to do"}},
		{hash: hashOf("appservices", w.Namespace, "web", "yaml"), sees: []string{"registry.test/shop:1", "kubectl", "fixpoint-appservice"}},
		{hash: hashOf("appservices", w.Namespace, "web", ""), click: "Suspend", sees: []string{"Suspend web?"}},
		{hash: hashOf("appservices", w.Namespace, "web", ""), click: "Edit", sees: []string{"Review changes"}},
		{hash: hashOf("appservices", w.Namespace, "web", ""), click: "Delete", sees: []string{"Delete web?", "Deployment web", "Enter web to confirm"}},
		{hash: "#/drifts", sees: []string{"By field manager", "kubectl-scale", w.Namespace + "/web"}},
		{hash: "#/cloud", sees: []string{"Storage accounts", "Succeeded", "Ledger", "PUT"}},
		{hash: "#/kinds", sees: []string{"AppService", "spec", "image", "required"}},
		{hash: "#/kinds/securestorages?q=accountLossPolicy", sees: []string{"SecureStorage", "accountLossPolicy"}},
		{hash: "#/nowhere", sees: []string{"Nothing is at this address"}},
	}
	show := func(i int) {
		evaluate[bool](b, `document.querySelector("dialog[open]")?.close(); true`)
		b.Eventually(func() bool { return evaluate[bool](b, `!document.querySelector("dialog")`) }, browserTime).Should(BeTrue())
		b.show(views[i].hash)
		if views[i].click != "" {
			b.click(views[i].click)
		}
		for _, text := range views[i].sees {
			b.sees(text)
		}
	}
	for _, theme := range []string{"light", "dark"} {
		b.prefer(theme)
		for i, view := range views {
			show(i)
			b.Expect(b.violations()).To(BeEmpty(), "%s %s %s", theme, view.hash, view.click)
			b.Expect(evaluate[bool](b, `document.documentElement.scrollWidth <= innerWidth`)).To(BeTrue(), "%s is wider than the window", view.hash)
		}
	}
	for _, width := range []int64{360, 3840} {
		b.do(chromedp.EmulateViewport(width, 800))
		for i, view := range views {
			show(i)
			b.Expect(evaluate[int](b, `document.documentElement.scrollWidth`)).To(BeNumerically("<=", width), view.hash)
		}
	}
	b.Expect(b.failures()).To(BeEmpty())
	b.Expect(evaluate[[]string](b, `performance.getEntriesByType("resource").map((entry) => entry.name)`)).To(HaveEach(HavePrefix(s.url + "/")))
}

func TestSignsInWithATokenAndShowsWhatTheUserMayRead(t *testing.T) {
	w := newFixture(t)
	s := w.serveTokens()
	b := w.startChromium(1024, 768)
	w.createApp("web")
	token := w.userWith("tenant", false, "fixpoint-appservice-viewer-role")
	b.do(chromedp.Navigate(s.url))
	b.sees("Sign in with a bearer token")
	for _, theme := range []string{"light", "dark"} {
		b.prefer(theme)
		b.Expect(b.violations()).To(BeEmpty(), theme)
	}
	b.submitToken("not-a-token")
	b.sees("does not accept this token")
	b.submitToken(token)
	b.sees("Your rights may cover one namespace")
	b.Expect(b.violations()).To(BeEmpty())
	b.Expect(evaluate[string](b, `document.cookie + JSON.stringify(localStorage) + location.href`)).NotTo(ContainSubstring(token[:20]))

	b.Eventually(func() []string {
		evaluate[bool](b, `(() => { const field = document.querySelector("input[name=namespace]"); if (field) { field.value = `+quote(w.Namespace)+`; field.form.requestSubmit() } return true })()`)
		return b.names()
	}, browserTime).Should(Equal([]string{"AppService/" + w.Namespace + "/web"}))
	b.show("#/drifts")
	b.sees("in namespace " + w.Namespace)
	b.sees("is forbidden")
	b.show(hashOf("appservices", w.Namespace, "web", ""))
	b.sees("Not shown: you may not list")
	b.click("Reconcile")
	b.isTold("cannot patch resource")
	evaluate[bool](b, `document.querySelector(".cluster").click(); true`)
	b.click("Sign out")
	b.sees("Sign in with a bearer token")
	b.Expect(w.logs.String()).NotTo(ContainSubstring(token))
}

func TestBrowserWithoutTheURLIsToldWhereItIs(t *testing.T) {
	w := newFixture(t)
	s := w.adminConsole("other-user", console.Options{})
	b := w.startChromium(1024, 768)
	b.do(chromedp.Navigate(s.url))
	b.sees("open the URL that the console has printed")
	b.Expect(evaluate[int](b, `document.querySelectorAll("input").length`)).To(BeZero())
	b.Expect(b.violations()).To(BeEmpty())
}

// refuseOneRequest answers the next request as if the credential had expired, and counts the answers of /session.
const refuseOneRequest = `(() => {
	const real = window.fetch;
	let refused = false;
	window.sessions = 0;
	window.fetch = async (path, init) => {
		if (!refused) {
			refused = true;
			return new Response('{"message": "Unauthorized"}', {status: 401});
		}
		const response = await real(path, init);
		if (path === "/session") window.sessions++;
		return response;
	};
	return true;
})()`

func TestChangesObjectsAfterShowingWhatHappens(t *testing.T) {
	w := newFixture(t)
	s := w.adminConsole("editing-user", console.Options{})
	b := w.startChromium(1280, 900)
	w.startManager(nil)
	w.createApp("web")
	w.ready("web")
	b.signIn(s, hashOf("appservices", w.Namespace, "web", ""))
	edit := func(from, to string) {
		b.click("Edit")
		b.sees("Review changes")
		evaluate[bool](b, `(() => { const t = document.querySelector(".editor"); t.value = t.value.replace(`+quote(from)+`, `+quote(to)+`);
			t.dispatchEvent(new Event("input", {bubbles: true})); return true })()`)
		b.click("Review changes")
	}
	app := func() *v1beta1.AppService { return harness.Read(w, "web", &v1beta1.AppService{}) }

	edit("replicas: 2", "replicas: 1")
	b.sees("spec.replicas")
	b.Expect(*app().Spec.Replicas).To(BeEquivalentTo(2), "an invalid spec is refused")
	b.click("Cancel")

	edit("COLOR: green", "COLOR: blue")
	b.sees("+   COLOR: blue")
	harness.Update(w, "bob", "web", &v1beta1.AppService{}, func(a *v1beta1.AppService) { a.Spec.Config["SIZE"] = "10" })
	b.click("Apply")
	b.sees("the spec has changed since it was read")
	b.Expect(app().Spec.Config).To(Equal(map[string]string{"COLOR": "green", "SIZE": "10"}), "the change by bob is not reverted")
	b.click("Back")
	b.click("Cancel")
	b.Eventually(func() bool { return evaluate[bool](b, `!document.querySelector("dialog")`) }, browserTime).Should(BeTrue())
	w.ready("web")

	evaluate[bool](b, refuseOneRequest)
	b.click("Reconcile")
	b.Eventually(func() int { return evaluate[int](b, `window.sessions`) }, browserTime).ShouldNot(BeZero(), "the page reads who is signed in")
	b.sees("Conditions")

	edit("replicas: 2", "replicas: 3")
	b.sees("- replicas: 2")
	b.sees("+ replicas: 3")
	b.sees("What the manager would then do")
	b.sees("Update Deployment")
	b.Expect(b.violations()).To(BeEmpty())
	b.Expect(*app().Spec.Replicas).To(BeEquivalentTo(2), "nothing is written before Apply")
	b.click("Apply")
	b.isTold("Applied the spec of web")
	b.Expect(*app().Spec.Replicas).To(BeEquivalentTo(3))

	b.click("Suspend")
	b.enter("reason", "maintenance")
	b.sees("Suspended")
	b.Expect(app().Spec.Suspend).To(BeTrue())
	b.click("Resume")
	b.sees("Running")

	b.click("Delete")
	b.sees("Enter web to confirm")
	w.Expect(w.As("bob").Patch(w.Ctx, app(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`)))).To(Succeed())
	b.enter("confirm", "web")
	b.sees("the spec has changed since it was read")
	b.click("Cancel")

	b.click("Delete")
	b.sees("Enter web to confirm")
	b.enter("confirm", "web")
	w.Eventually(w.IsGone("web", &v1beta1.AppService{}), browserTime).Should(Succeed())
	b.sees("not found")
	b.Expect(b.failures()).To(HaveEach(ContainSubstring("status of 4")), "refusals of the API server")
}

// hostile is text that would run a script if a page took it as HTML or in an attribute.
const hostile = `"><img src=x onerror=window.hacked=1>`

func TestTextsOfUsersAreNeverHTML(t *testing.T) {
	w := newFixture(t)
	s := w.adminConsole("reading-user", console.Options{})
	b := w.startChromium(1280, 900)
	app := w.createApp("web", func(app *v1beta1.AppService) {
		app.Annotations = map[string]string{"example.com/note": hostile}
		app.Spec.Config = map[string]string{"PAGE": hostile}
	})
	now := metav1.Now()
	app.Status = v1beta1.AppServiceStatus{
		URL: "javascript:window.hacked=1//" + hostile, Phase: v1beta1.Phase("Running"),
		Conditions: []metav1.Condition{
			{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Failed", Message: hostile, LastTransitionTime: now},
			{Type: v1beta1.ConditionDeploymentReady, Status: metav1.ConditionFalse, Reason: "Failed", Message: hostile, LastTransitionTime: now},
		},
	}
	w.Expect(client.WithFieldOwner(w.Suite.API, hostile).Status().Update(w.Ctx, app)).To(Succeed())
	w.Expect(w.Suite.API.Create(w.Ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "hostile", Namespace: w.Namespace}, Reason: hostile, Message: hostile, Type: "Warning", FirstTimestamp: now, LastTimestamp: now,
		InvolvedObject: corev1.ObjectReference{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "AppService", Namespace: w.Namespace, Name: "web", UID: app.UID},
		Source:         corev1.EventSource{Component: hostile},
	})).To(Succeed())
	b.signIn(s, "#/fleet?ns="+w.Namespace)
	safe := func() {
		t.Helper()
		b.Expect(evaluate[bool](b, `"hacked" in window`)).To(BeFalse())
		b.Expect(evaluate[int](b, `document.querySelectorAll("img:not([src^='/assets/']), script:not([src^='/assets/']), a[href^='javascript:']").length`)).To(BeZero())
	}
	b.sees(hostile)
	safe()
	for tab, text := range map[string]string{"": hostile, "events": hostile, "yaml": "<img src=x", "plan": "What the manager would do now"} {
		b.show(hashOf("appservices", w.Namespace, "web", tab))
		b.sees(text)
		safe()
	}
	b.click("Edit")
	b.Eventually(func() string { return evaluate[string](b, `document.querySelector(".editor")?.value ?? ""`) }, browserTime).Should(ContainSubstring("<img src=x"))
	safe()
	evaluate[bool](b, `document.querySelector("dialog[open]")?.close(); true`)
	b.show(hashOf("mcpservers", w.Namespace, w.hostileContract(), "contract"))
	for _, text := range []string{"Waiting for approval", "kubectl fixpoint approve mcp/tools", "What would change", ": other description", "description: '" + hostile} {
		b.sees(text)
	}
	safe()
	b.Expect(b.violations()).To(BeEmpty())
	escaped := url.PathEscape(hostile)
	for _, hash := range []string{"#/fleet?q=" + escaped, "#/" + escaped, "#/appservices/" + escaped + "/" + escaped, "#/drifts?manager=" + escaped, "#/kinds?q=" + escaped} {
		evaluate[bool](b, `document.querySelector("dialog[open]")?.close(); true`)
		b.show(hash)
		b.Eventually(func() int { return evaluate[int](b, `document.querySelectorAll(".loading").length`) }, browserTime).Should(BeZero())
		safe()
	}
	// The form that reads tokens and the errors of the server.
	b.do(chromedp.Navigate(s.url + "/?" + escaped))
	b.sees("Live")
	safe()
}

// hostileContract creates an MCPServer whose contracts are hostile, and returns its name.
func (w *fixture) hostileContract() string {
	w.T.Helper()
	const approved, pending = "3f786850e387550fdab836ed7e6dc881", "9f2c5e1ab0c4d7734d5ecbaa1f20c3e8"
	tools := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Name: "tools", Namespace: w.Namespace}}
	tools.Spec.Image, tools.Spec.Contract = "registry.test/tools:1", &v1beta1.MCPServerContract{Policy: v1beta1.ContractPin}
	w.Expect(w.As("kubectl").Create(w.Ctx, tools)).To(Succeed())
	item := v1beta1.MCPServerContractItem{Kind: "tool", Name: hostile, Digest: approved}
	tools.Status.Contract = &v1beta1.MCPServerContractStatus{Digest: approved, Items: []v1beta1.MCPServerContractItem{item}}
	tools.Status.PendingContract = &v1beta1.MCPServerPendingContract{Digest: pending, Change: &v1beta1.MCPServerContractChange{Time: metav1.Now(), DescriptionChanged: []string{"tool/" + hostile}}}
	w.Expect(w.Suite.API.Status().Update(w.Ctx, tools)).To(Succeed())
	text := func(description string) string {
		definition, err := json.Marshal(map[string]string{"name": hostile, "description": description})
		w.Expect(err).NotTo(HaveOccurred())
		all, err := json.Marshal(prober.ContractText{Items: []prober.TextItem{{Kind: prober.Tool, Name: hostile, Definition: definition}}})
		w.Expect(err).NotTo(HaveOccurred())
		return string(all)
	}
	stored := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "tools" + v1beta1.ContractSuffix, Namespace: w.Namespace, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(tools, v1beta1.SchemeGroupVersion.WithKind("MCPServer")),
		}},
		Data: map[string]string{v1beta1.ContractKeyCurrent + approved: text("Reads."), v1beta1.ContractKeyPending + pending: text(hostile)},
	}
	w.Expect(w.Suite.API.Create(w.Ctx, stored)).To(Succeed())
	return tools.Name
}

func TestKeyboardReachesEverything(t *testing.T) {
	w := newFixture(t)
	s := w.adminConsole("keyboard-user", console.Options{})
	b := w.startChromium(1280, 900)
	for _, name := range []string{"alpha", "beta", "gamma"} {
		w.createApp(name)
	}
	b.signIn(s, "#/fleet?ns="+w.Namespace)
	b.sees("gamma")
	press := func(keys string) { b.do(chromedp.KeyEvent(keys)) }
	focus := func(what string) { b.Eventually(b.focused, browserTime).Should(Equal(what)) }
	key := func(name string) string { return "AppService/" + w.Namespace + "/" + name }
	tabTo := func(what string) {
		b.T.Helper()
		var seen []string
		for range 40 {
			press(kb.Tab)
			if seen = append(seen, b.focused()); seen[len(seen)-1] == what {
				return
			}
		}
		b.Expect(seen).To(ContainElement(what), "Tab does not reach it")
	}
	press(kb.Tab)
	focus("Skip to content")
	press("/")
	focus("Search")
	press("beta")
	b.Eventually(b.names, browserTime).Should(HaveLen(1))
	press(kb.Escape) // clears the search
	b.Eventually(b.names, browserTime).Should(HaveLen(3))
	tabTo(key("alpha"))
	press(kb.ArrowDown)
	focus(key("beta"))
	press(kb.End)
	focus(key("gamma"))
	press(kb.Home)
	focus(key("alpha"))
	press(kb.ArrowDown + kb.Enter)
	b.sees("Conditions")
	b.Expect(evaluate[string](b, `location.hash`)).To(Equal(hashOf("appservices", w.Namespace, "beta", "")))

	tabTo("Suspend")
	press(kb.Enter)
	b.sees("Suspend beta?")
	b.Eventually(func() string { return evaluate[string](b, `document.activeElement.id`) }, browserTime).Should(Equal("reason"))
	press(kb.Escape)
	focus("Suspend")
	tabTo("YAML")
	press(kb.Enter)
	b.sees("YAML with field managers")
	press("?")
	b.sees("Keyboard shortcuts")
	press(kb.Escape)
	b.Eventually(func() bool { return evaluate[bool](b, `!document.querySelector("dialog")`) }, browserTime).Should(BeTrue())
	b.Expect(b.failures()).To(BeEmpty())
}

// setReason changes the status, as a controller would.
func (w *fixture) setReason(app *v1beta1.AppService, reason string) {
	w.T.Helper()
	app.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.Now()}}
	w.Expect(w.As("test").Status().Update(w.Ctx, app)).To(Succeed())
}

// recordReasons records of each reason the animation frame at which the page has read it, which is when the read of the
// stream returns it, and the one before which it was painted: the frame after that which puts it into the page. For the
// log, it records the time of the paint too.
const recordReasons = `(() => {
	let frame = 0;
	const next = () => { frame++; requestAnimationFrame(next) };
	requestAnimationFrame(next);
	window.read = {};
	window.painted = {};
	const texts = new WeakMap();
	const read = ReadableStreamDefaultReader.prototype.read;
	ReadableStreamDefaultReader.prototype.read = async function () {
		const result = await read.call(this);
		if (!result.done) {
			const text = (texts.get(this) ?? "") + new TextDecoder().decode(result.value);
			const end = text.lastIndexOf("\n\n") + 1; // the page waits for the rest of an event
			texts.set(this, text.slice(end));
			for (const [, reason] of text.slice(0, end).matchAll(/"reason":"(\w+)"/g)) window.read[reason] ??= frame;
		}
		return result;
	};
	new MutationObserver(() => {
		for (const cell of document.querySelectorAll(".c-reason[title]")) {
			const reason = cell.title;
			if (reason in window.painted) continue;
			window.painted[reason] = null;
			requestAnimationFrame(() => {
				const by = frame;
				setTimeout(() => { window.painted[reason] = {frame: by, time: performance.timeOrigin + performance.now()} });
			});
		}
	}).observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
})()`

func TestUpdatesReachThePage(t *testing.T) {
	w := newFixture(t)
	s := w.adminConsole("live-user", console.Options{})
	b := w.startChromium(1280, 900)
	app := w.createApp("web")
	b.onEachPage(recordReasons)
	b.signIn(s, "#/fleet?ns="+w.Namespace)
	b.sees("web")

	events, err := w.Suite.API.Watch(w.Ctx, &v1beta1.AppServiceList{}, client.InNamespace(w.Namespace))
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(events.Stop)
	arrived := map[string]time.Time{}
	var delays []time.Duration
	const updates = 30
	for i := range updates {
		reason := fmt.Sprintf("Update%d", i)
		w.setReason(app, reason)
		for arrived[reason].IsZero() {
			event := <-events.ResultChan()
			if live, ok := event.Object.(*v1beta1.AppService); ok && len(live.Status.Conditions) > 0 {
				arrived[live.Status.Conditions[0].Reason] = time.Now()
			}
		}
		var painted struct {
			Frame int
			Time  float64
		}
		b.Eventually(func() error {
			return json.Unmarshal([]byte(evaluate[string](b, `JSON.stringify(window.painted[`+quote(reason)+`] || "not yet")`)), &painted)
		}, browserTime, "10ms").Should(Succeed(), reason)
		read := evaluate[int](b, `window.read[`+quote(reason)+`]`)
		b.Expect(painted.Frame-read).To(BeNumerically("<=", 2), "%s is in the page in the next frame after it was read, and painted before the one after that", reason)
		delays = append(delays, time.UnixMicro(int64(painted.Time*1000)).Sub(arrived[reason]))
	}
	slices.Sort(delays)
	// The bar is 300 ms. That the console sends an event at once is shown with a fake clock: TestEventsAreSentAtOnce.
	t.Logf("from the event to the pixel: median %s, worst %s of %d", delays[updates/2], delays[updates-1], updates)
}

// faultyNetwork forwards to a console, and can be cut.
type faultyNetwork struct {
	url string

	mu      sync.Mutex
	ctx     context.Context
	cut     context.CancelFunc
	resumed []string
}

func (w *fixture) faultyNetworkTo(s *site) *faultyNetwork {
	target, err := url.Parse(s.url)
	w.Expect(err).NotTo(HaveOccurred())
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = target.Host }, FlushInterval: -1,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	n := &faultyNetwork{}
	n.repair()
	n.url = w.serveHTTP(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		up := n.ctx
		if r.URL.Path == "/watch" && up.Err() == nil {
			n.resumed = append(n.resumed, r.Header.Get("Last-Event-ID"))
		}
		n.mu.Unlock()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		stop := context.AfterFunc(up, cancel)
		defer stop()
		if up.Err() != nil {
			panic(http.ErrAbortHandler)
		}
		r.Header.Del("Origin") // the console is reached by another port
		r.Header.Del("Sec-Fetch-Site")
		forward.ServeHTTP(out, r.WithContext(ctx))
	}))
	return n
}

func (n *faultyNetwork) repair() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ctx, n.cut = context.WithCancel(context.Background())
}

func (n *faultyNetwork) lastEventIDs() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.resumed)
}

func TestBrokenWatchResumesWithoutAGap(t *testing.T) {
	w := newFixture(t)
	token := w.userWith("everything", true, "view", "fixpoint-appservice-viewer-role", "fixpoint-mcpserver-viewer-role", "fixpoint-securestorage-viewer-role")
	network := w.faultyNetworkTo(w.serveTokens())
	b := w.startChromium(1280, 900)
	changed, deleted := w.createApp("changed"), w.createApp("deleted")
	b.do(chromedp.Navigate(network.url))
	b.sees("Sign in with a bearer token")
	b.submitToken(token)
	b.sees("Live")
	b.show("#/fleet?ns=" + w.Namespace)
	b.sees("deleted")

	for round := range 3 {
		network.cut()
		b.sees("Reconnecting")
		reason, created := fmt.Sprintf("Round%d", round), fmt.Sprintf("created-%d", round)
		w.setReason(changed, reason)
		w.createApp(created)
		w.Expect(w.Suite.API.Delete(w.Ctx, deleted)).To(Succeed())
		network.repair()
		b.sees("Live")
		b.Eventually(b.names, browserTime).Should(And(
			ContainElement("AppService/"+w.Namespace+"/"+created), Not(ContainElement("AppService/"+w.Namespace+"/"+deleted.Name))))
		b.sees(fmt.Sprintf("Round%d", round))
		deleted = &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Name: created, Namespace: w.Namespace}}
	}
	ids := network.lastEventIDs()
	w.Expect(ids[0]).To(BeEmpty())
	w.Expect(ids[1:]).NotTo(ContainElement(""), "it resumes instead of reading all again")
}

func TestTenThousandObjects(t *testing.T) {
	w := newFixture(t)
	const objects, bar = 10_000, 150 << 20
	s := w.serve(console.Options{Mode: console.ModeKubeconfig, Config: w.apiServerWith(objects)})
	b := w.startChromium(1440, 900)
	b.onEachPage(`(() => {
		const observer = new MutationObserver(() => {
			if (!document.querySelector(".c-name a")) return;
			observer.disconnect();
			requestAnimationFrame(() => setTimeout(() => { window.firstPaint = performance.now() }));
		});
		observer.observe(document, {subtree: true, childList: true});
	})()`)
	b.signIn(s, "#/fleet")
	for range 3 {
		b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.url))
		var painted float64
		b.Eventually(func() float64 {
			painted = evaluate[float64](b, `window.firstPaint ?? 0`)
			return painted
		}, browserTime).ShouldNot(BeZero())
		t.Logf("first paint of the rows: %.0f ms", painted)
	}
	b.sees("10,000 objects")
	b.Expect(len(b.names())).To(And(BeNumerically(">", 10), BeNumerically("<", 100)), "only the visible rows are in the page")
	b.Expect(b.names()[0]).To(HaveSuffix("object-00500"), "what is not ready comes first")
	b.Expect(b.violations()).To(BeEmpty())

	evaluate[bool](b, `document.querySelector(".list-view").scrollTop = 1e9; true`)
	b.sees("object-09999")
	for _, group := range []string{"namespace", "phase", "reason"} {
		b.show("#/fleet?group=" + group)
		b.Eventually(func() int { return evaluate[int](b, `document.querySelectorAll(".line.heading").length`) }, browserTime).ShouldNot(BeZero(), group)
	}
	b.show("#/fleet?q=object-04242")
	b.Eventually(b.names, browserTime).Should(HaveLen(1))
	heap := b.heap()
	t.Logf("memory of the page: %d MiB", heap>>20)
	b.Expect(heap).To(BeNumerically("<", bar))
	b.Expect(strings.Join(b.failures(), "\n")).To(BeEmpty())
}
