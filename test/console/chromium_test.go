package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	. "github.com/onsi/gomega"
)

const (
	// browserTime is how long a test waits for the browser. With several at a time on a busy machine, one starts within a
	// minute.
	browserTime = 10 * time.Minute
	pagesDir    = "../../internal/console/web"
)

// chromium is a window of Chromium, with a profile of its own.
type chromium struct {
	*fixture
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// recordToasts keeps the messages that pages show for a few seconds only.
const recordToasts = `(() => {
	window.said = [];
	const seen = new WeakSet();
	new MutationObserver(() => {
		for (const toast of document.querySelectorAll(".toast")) {
			if (seen.has(toast)) continue;
			seen.add(toast);
			window.said.push(toast.textContent);
		}
	}).observe(document, {subtree: true, childList: true});
})()`

// startChromium opens a window of the size. It is called after the console was started, so that the window is closed
// first: pages keep connections.
func (w *fixture) startChromium(width, height int64) *chromium {
	w.T.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		w.T.Fatalf("these tests need Chromium: apt-get install chromium: %v", err)
	}
	allocator, stop := chromedp.NewExecAllocator(w.Ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(browserTime))...)
	w.T.Cleanup(stop)
	b := &chromium{fixture: w, ctx: w.openWindow(allocator)}
	b.do(chromedp.EmulateViewport(width, height))
	b.onEachPage(recordToasts)
	console := chromedp.Console(b.ctx)
	go func() {
		for message, err := range console {
			if err != nil {
				return
			}
			isIcon := strings.HasSuffix(message.URL, "/favicon.ico") // browsers ask for it at pages without an icon, such as /open
			if (message.IsException() || message.Type == "error") && !isIcon {
				b.mu.Lock()
				b.problems = append(b.problems, fmt.Sprintf("%s: %s (%s)", message.Type, message.Text, message.URL))
				b.mu.Unlock()
			}
		}
	}()
	return b
}

// openWindow starts Chromium, which lives as long as the context that it returns. While it starts, Chromium seldom
// crashes: a thread of it calls getenv while another one changes the environment. No page is open then.
func (w *fixture) openWindow(allocator context.Context) context.Context {
	w.T.Helper()
	const starts = 3
	for start := 1; ; start++ {
		ctx, closeWindow := chromedp.NewContext(allocator)
		err := chromedp.Do(ctx)
		if err == nil {
			w.T.Cleanup(closeWindow)
			return ctx
		}
		closeWindow()
		if start == starts || !strings.Contains(err.Error(), "chrome failed to start") {
			w.T.Fatalf("starting Chromium, attempt %d: %v", start, err)
		}
		w.T.Logf("Chromium crashed while it started: %v", err)
	}
}

// do runs actions in the window.
func (b *chromium) do(actions ...chromedp.Action[chromedp.Void]) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, browserTime)
	defer cancel()
	b.Expect(chromedp.Do(ctx, actions...)).To(Succeed())
}

// evaluate returns what a JavaScript expression, or the promise that it returns, is.
func evaluate[T any](b *chromium, expression string) T {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, browserTime)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	for isNavigating(err) {
		value, err = chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	}
	b.Expect(err).NotTo(HaveOccurred(), expression)
	return value
}

// isNavigating is true for the errors of the browser while it leaves one page for the next.
func isNavigating(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "navigated or closed") || strings.Contains(err.Error(), "execution context"))
}

// prefer sets the theme, without animations.
func (b *chromium) prefer(theme string) {
	b.T.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	b.Expect(err).NotTo(HaveOccurred())
}

// onEachPage runs a script before those of each page that is opened from now on.
func (b *chromium) onEachPage(script string) {
	b.T.Helper()
	_, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	b.Expect(err).NotTo(HaveOccurred())
}

// sees waits until the text is visible in the page. Controls and CSS may change the case of letters; it is ignored.
func (b *chromium) sees(text string) {
	b.T.Helper()
	b.Eventually(func() string { return evaluate[string](b, `document.body ? document.body.innerText : ""`) }, browserTime).Should(ContainSubstring(text))
}

// isTold waits until the page has shown a message with the text since it was opened. Messages go after a few seconds.
func (b *chromium) isTold(text string) {
	b.T.Helper()
	b.Eventually(func() []string { return evaluate[[]string](b, `window.said ?? []`) }, browserTime).Should(ContainElement(ContainSubstring(text)))
}

// show opens a view of the page that is open.
func (b *chromium) show(hash string) {
	b.T.Helper()
	evaluate[bool](b, `location.hash = `+quote(hash)+`; true`)
}

// click clicks the button or link with the text, once it is enabled.
func (b *chromium) click(text string) {
	b.T.Helper()
	find := `[...document.querySelectorAll("dialog[open] button, dialog[open] a, button, a")].find((e) => e.textContent.trim() === ` + quote(text) + ` && !e.disabled)`
	b.Eventually(func() bool { return evaluate[bool](b, `(() => { const e = `+find+`; e?.click(); return !!e })()`) }, browserTime).Should(BeTrue(), "no button %q", text)
}

// enter types a text and Enter, once the field with the ID has the focus.
func (b *chromium) enter(id, text string) {
	b.T.Helper()
	b.Eventually(func() string { return evaluate[string](b, `document.activeElement?.id ?? ""`) }, browserTime).Should(Equal(id))
	_, err := chromedp.Call(b.ctx, input.InsertText, input.InsertTextParams{Text: text})
	b.Expect(err).NotTo(HaveOccurred())
	b.do(chromedp.KeyEvent(kb.Enter))
}

// submitToken signs in with a bearer token.
func (b *chromium) submitToken(token string) {
	b.T.Helper()
	evaluate[bool](b, `document.getElementById("token").focus(); true`)
	b.enter("token", token)
}

// focused describes the element with the focus.
func (b *chromium) focused() string {
	b.T.Helper()
	return evaluate[string](b, `(() => { const e = document.activeElement; return e.getAttribute("aria-label") || e.dataset.key || e.textContent.trim().slice(0, 60) || e.id || e.tagName })()`)
}

// failures are the exceptions and errors in the console of the browser, such as refusals by the Content Security Policy.
func (b *chromium) failures() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.problems...)
}

func quote(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can be marshalled
	}
	return string(raw)
}

var axeSource = sync.OnceValues(readAxe)

// readAxe reads axe-core from the packages of the pages, which it installs if they are missing.
func readAxe() (string, error) {
	file := filepath.Join(pagesDir, "node_modules", "axe-core", "axe.min.js")
	if _, err := os.Stat(file); err != nil {
		install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		install.Dir = pagesDir
		if out, err := install.CombinedOutput(); err != nil {
			return "", fmt.Errorf("installing axe-core, which needs Node.js 20 or later with npm: %w\n%s", err, out)
		}
	}
	source, err := os.ReadFile(file)
	return string(source), err
}

// violations are what axe-core finds in the page.
func (b *chromium) violations() []string {
	b.T.Helper()
	source, err := axeSource()
	b.Expect(err).NotTo(HaveOccurred())
	evaluate[bool](b, `globalThis.axe !== undefined || (`+asFunction(source)+`, true)`)
	return evaluate[[]string](b, `axe.run(document, {resultTypes: ["violations"]}).then((result) => result.violations.flatMap((violation) =>
		violation.nodes.map((node) => violation.id + ": " + violation.help + ": " + node.target.join(" ") + ": " + node.failureSummary)))`)
}

// asFunction makes a script an expression that runs it in the global scope.
func asFunction(script string) string { return `(0, eval)(` + quote(script) + `)` }

// names are the objects in the list, from the top.
func (b *chromium) names() []string {
	b.T.Helper()
	return evaluate[[]string](b, `[...document.querySelectorAll(".c-name a")].map((link) => link.dataset.key)`)
}

// signIn opens a console that has the user's kubeconfig.
func (b *chromium) signIn(s *site, hash string) {
	b.T.Helper()
	b.do(chromedp.Navigate(s.url + "/open?code=" + s.Code()))
	b.Eventually(func() string { return evaluate[string](b, `location.pathname`) }, browserTime).Should(Equal("/"))
	b.sees("Live")
	b.show(hash)
}

// addresses of an object's view.
func hashOf(resource, namespace, name string, tab string) string {
	return strings.TrimSuffix("#/"+resource+"/"+namespace+"/"+name+"?tab="+tab, "?tab=")
}
