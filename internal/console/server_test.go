package console

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/internal/pipetest"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

// fixture is a console in front of a fake API server.
type fixture struct {
	Gomega
	t    *testing.T
	api  *fakeAPI
	site *httptest.Server
	*Server
}

func newFixture(t *testing.T, mode Mode, edits ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{Gomega: NewWithT(t), t: t, api: newFakeAPI(t)}
	listener := httptest.NewUnstartedServer(nil)
	address := listener.Listener.Addr().String()
	o := Options{Config: f.api.config("token-of-owner"), Mode: mode, Hosts: []string{"127.0.0.1"}, Port: address[strings.LastIndex(address, ":")+1:], EventsLimit: 10, Log: logr.Discard()}
	for _, edit := range edits {
		edit(&o)
	}
	var err error
	f.Server, err = New(o)
	f.Expect(err).NotTo(HaveOccurred())
	listener.Config.Handler = f.Server
	listener.Start()
	f.site = listener
	t.Cleanup(func() {
		f.Close()
		listener.CloseClientConnections()
		listener.Close()
	})
	return f
}

func (f *fixture) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	f.Expect(err).NotTo(HaveOccurred())
	return &http.Client{Jar: jar}
}

// send sends a request with the names and values of headers.
func (f *fixture) send(c *http.Client, method, path, body string, headers ...string) (*http.Response, string) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, f.site.URL+path, strings.NewReader(body))
	f.Expect(err).NotTo(HaveOccurred())
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	response, err := c.Do(request)
	f.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	f.Expect(err).NotTo(HaveOccurred())
	return response, string(raw)
}

func (f *fixture) status(c *http.Client, method, path, body string, headers ...string) int {
	f.t.Helper()
	response, _ := f.send(c, method, path, body, headers...)
	return response.StatusCode
}

// csrfOf is what the page reads from the session.
func (f *fixture) csrfOf(c *http.Client, headers ...string) string {
	f.t.Helper()
	_, body := f.send(c, http.MethodGet, "/session", "", headers...)
	var session sessionInfo
	f.Expect(json.Unmarshal([]byte(body), &session)).To(Succeed(), body)
	return session.CSRF
}

const appPath = "/apis/fixpoint.dev/v1beta1/appservices"

func TestOneTimeCodeSignsInOneBrowser(t *testing.T) {
	f := newFixture(t, ModeKubeconfig)
	first, second := f.browser(), f.browser()
	code := f.Code()
	f.Expect(f.status(first, http.MethodGet, "/session", "")).To(Equal(http.StatusUnauthorized))
	f.Expect(f.status(first, http.MethodGet, "/open?code=guess", "")).To(Equal(http.StatusForbidden))
	response, _ := f.send(first, http.MethodGet, "/open?code="+code, "")
	f.Expect(response.StatusCode).To(Equal(http.StatusOK))
	cookie := response.Cookies()[0]
	f.Expect(cookie.HttpOnly).To(BeTrue())
	f.Expect(cookie.SameSite).To(Equal(http.SameSiteStrictMode))
	f.Expect(cookie.Name).To(HaveSuffix(f.options.Port), "cookies of a host are sent to all its ports")
	f.Expect(f.status(second, http.MethodGet, "/open?code="+code, "")).To(Equal(http.StatusForbidden))
	f.Expect(f.status(second, http.MethodGet, "/open?code=", "")).To(Equal(http.StatusForbidden), "a code that was used is not the empty one")
	f.Expect(f.status(first, http.MethodGet, "/session", "")).To(Equal(http.StatusOK))
	f.Expect(f.status(second, http.MethodGet, "/session", "")).To(Equal(http.StatusUnauthorized))
	f.Expect(f.status(second, http.MethodGet, "/session", "", "Cookie", cookie.Name+"=")).To(Equal(http.StatusUnauthorized))
	f.Expect(f.status(first, http.MethodPost, "/session", `{"token":"token-of-eve"}`, "Content-Type", "application/json")).To(Equal(http.StatusMethodNotAllowed))
}

func TestSessionsOfTokens(t *testing.T) {
	f := newFixture(t, ModeToken, func(o *Options) { o.FakeCloud = "http://cloud.test" })
	const json = "application/json"
	jane := f.browser()
	f.Expect(f.status(jane, http.MethodPost, "/session", `{"token":"wrong"}`, "Content-Type", json)).To(Equal(http.StatusUnauthorized))
	f.Expect(f.status(jane, http.MethodPost, "/session", `{"token":""}`, "Content-Type", json)).To(Equal(http.StatusBadRequest))
	f.Expect(f.status(jane, http.MethodPost, "/session", `token-of-jane`, "Content-Type", json)).To(Equal(http.StatusBadRequest))
	f.Expect(f.status(jane, http.MethodPost, "/session", `{"token":"token-of-jane"}`, "Content-Type", "text/plain")).To(Equal(http.StatusUnsupportedMediaType))
	f.Expect(f.status(jane, http.MethodPost, "/session", `{"token":"token-of-jane"}`, "Content-Type", json, "Origin", "https://evil.test")).To(Equal(http.StatusForbidden))
	f.Expect(f.status(jane, http.MethodGet, "/open?code="+f.Code(), "")).To(Equal(http.StatusNotFound), "there is no owner to be")
	f.Expect(f.status(jane, http.MethodPost, "/session", `{"token":"token-of-jane"}`, "Content-Type", json)).To(Equal(http.StatusOK))
	_, body := f.send(jane, http.MethodGet, "/session", "")
	f.Expect(body).To(MatchJSON(fmt.Sprintf(`{"user":"jane","groups":["team"],"mode":"token","csrf":%q,"console":"(devel)","cluster":"127.0.0.1","cloud":true}`, f.csrfOf(jane))))

	f.Expect(f.status(jane, http.MethodDelete, "/session", "")).To(Equal(http.StatusForbidden), "without the CSRF token")
	csrf := f.csrfOf(jane)
	f.Expect(f.status(jane, http.MethodDelete, "/session", "", "X-CSRF-Token", csrf)).To(Equal(http.StatusNoContent))
	f.Expect(f.status(jane, http.MethodGet, "/session", "")).To(Equal(http.StatusUnauthorized))
}

func TestRequestsOfOtherPagesAreRefused(t *testing.T) {
	f := newFixture(t, ModeKubeconfig)
	browser := f.browser()
	f.send(browser, http.MethodGet, "/open?code="+f.Code(), "")
	csrf := f.csrfOf(browser)
	other := newFixture(t, ModeKubeconfig)
	otherBrowser := other.browser()
	other.send(otherBrowser, http.MethodGet, "/open?code="+other.Code(), "")

	for name, c := range map[string]struct {
		headers []string
		want    int
	}{
		"with the token":                 {[]string{"X-CSRF-Token", csrf}, http.StatusOK},
		"with Origin of the console":     {[]string{"X-CSRF-Token", csrf, "Origin", f.site.URL}, http.StatusOK},
		"without a token":                {nil, http.StatusForbidden},
		"with the token of another":      {[]string{"X-CSRF-Token", other.csrfOf(otherBrowser)}, http.StatusForbidden},
		"from another origin":            {[]string{"X-CSRF-Token", csrf, "Origin", "https://evil.test"}, http.StatusForbidden},
		"from another port of localhost": {[]string{"X-CSRF-Token", csrf, "Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		"from another site":              {[]string{"X-CSRF-Token", csrf, "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"with a bearer token alone":      {[]string{"Authorization", "Bearer token-of-jane"}, http.StatusOK},
		"with a basic password":          {[]string{"Authorization", "Basic amFuZTpqYW5l"}, http.StatusUnauthorized},
	} {
		f.Expect(f.status(browser, http.MethodPost, appPath, "{}", c.headers...)).To(Equal(c.want), name)
	}
}

func TestProxyAuthenticates(t *testing.T) {
	f := newFixture(t, ModeProxy, func(o *Options) { o.TokenHeader = "X-Forwarded-Access-Token" })
	browser := f.browser()
	jane := []string{"X-Forwarded-Access-Token", "token-of-jane"}
	f.Expect(f.status(browser, http.MethodGet, "/session", "")).To(Equal(http.StatusUnauthorized))
	f.Expect(f.status(browser, http.MethodGet, "/session", "", "Authorization", "Bearer token-of-jane")).To(Equal(http.StatusUnauthorized), "the header of the proxy is another")
	csrf := f.csrfOf(browser, jane...)
	f.Expect(f.status(browser, http.MethodPost, appPath, "{}", jane...)).To(Equal(http.StatusForbidden), "the proxy adds the token to forged requests too")
	response, body := f.send(browser, http.MethodPost, appPath, "{}", append(jane, "X-CSRF-Token", f.csrfOf(browser, "X-Forwarded-Access-Token", "token-of-eve"))...)
	f.Expect(response.StatusCode).To(Equal(http.StatusForbidden))
	f.Expect(body).To(ContainSubstring(`"reason":"CSRFTokenInvalid"`), "the page tries again with another")
	f.Expect(f.status(browser, http.MethodPost, appPath, "{}", append(jane, "X-CSRF-Token", csrf)...)).To(Equal(http.StatusOK))
}

func TestForeignHostsAreRefused(t *testing.T) {
	f := newFixture(t, ModeKubeconfig)
	for host, want := range map[string]int{
		"127.0.0.1:" + f.options.Port:       http.StatusOK,
		"127.0.0.1:1":                       http.StatusMisdirectedRequest,
		"evil.test:" + f.options.Port:       http.StatusMisdirectedRequest,
		"127.0.0.1.evil.test":               http.StatusMisdirectedRequest,
		"localhost.evil:" + f.options.Port:  http.StatusMisdirectedRequest,
		"evil.test@127.0.0.1:" + "x":        http.StatusMisdirectedRequest,
		strings.Repeat("a", 200) + ".test:": http.StatusMisdirectedRequest,
	} {
		response := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Host = host
		f.ServeHTTP(response, request)
		f.Expect(response.Code).To(Equal(want), host)
	}
	response := httptest.NewRecorder()
	probe := httptest.NewRequest(http.MethodGet, "/healthz", nil)
	probe.Host = "10.0.0.1:8443"
	f.ServeHTTP(response, probe)
	f.Expect(response.Body.String()).To(Equal("ok"), "the kubelet probes the address of the pod")
}

func TestAnswersForbidFramesScriptsAndCaches(t *testing.T) {
	f := newFixture(t, ModeKubeconfig, func(o *Options) { o.TLS = true })
	for _, path := range []string{"/", "/session", "/nowhere", "/assets/nothing.js"} {
		response, body := f.send(f.browser(), http.MethodGet, path, "", "Accept", "text/html")
		f.Expect(response.Header.Get("Content-Security-Policy")).To(And(
			ContainSubstring("default-src 'none'"), ContainSubstring("script-src 'self';"), ContainSubstring("frame-ancestors 'none'"), Not(ContainSubstring("unsafe"))), path)
		f.Expect(response.Header).To(And(HaveKeyWithValue("X-Frame-Options", []string{"DENY"}), HaveKeyWithValue("X-Content-Type-Options", []string{"nosniff"}),
			HaveKeyWithValue("Referrer-Policy", []string{"no-referrer"}), HaveKey("Strict-Transport-Security"), HaveKey("Cache-Control")), path)
		f.Expect(response.Header).NotTo(HaveKey("Access-Control-Allow-Origin"))
		if path != "/" {
			f.Expect(body).To(ContainSubstring(`"kind":"Status"`), path)
		}
	}
	response, body := f.send(f.browser(), http.MethodGet, "/", "", "Accept", "text/html")
	f.Expect(response.Header.Get("Content-Type")).To(HavePrefix("text/html"))
	f.Expect(body).To(ContainSubstring("<!doctype html>"))
	_, body = f.send(f.browser(), http.MethodGet, "/", "")
	var listed struct{ Paths map[string]string }
	f.Expect(json.Unmarshal([]byte(body), &listed)).To(Succeed())
	f.Expect(listed.Paths).To(HaveKey("/watch"))
}

// servePipes serves a console until it is ended, which has to succeed.
func servePipes(t *testing.T) (f *fixture, listener *pipetest.Listener, end func()) {
	t.Helper()
	f, listener = &fixture{Gomega: NewWithT(t), t: t}, pipetest.Listen()
	var err error
	f.Server, err = New(Options{Config: &rest.Config{}, Mode: ModeToken, Hosts: []string{"localhost"}, Log: logr.Discard()})
	f.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Serve(ctx, listener) }()
	return f, listener, func() {
		t.Helper()
		cancel()
		f.Expect(<-ended).To(Succeed())
	}
}

// Browsers open connections ahead of requests.
func TestEndsAlthoughAConnectionHasNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, listener, end := servePipes(t)
		browser, err := listener.Dial(t.Context(), "", "")
		f.Expect(err).NotTo(HaveOccurred())
		synctest.Wait() // the server has accepted it
		end()
		_, err = browser.Read(make([]byte, 1))
		f.Expect(err).To(MatchError(io.EOF), "the connection is closed")
	})
}

// syncedFeed is one of jane's for AppServices, of which there are none, without an API server.
func (f *fixture) syncedFeed() *feed {
	f.t.Helper()
	u, err := f.userOf("token-of-jane")
	f.Expect(err).NotTo(HaveOccurred())
	u.confirmed = time.Now()
	watched := &feed{scope: scope{kind: "AppService"}, hub: u.hub, rows: map[string]entry{}, isSynced: true, isDone: true, done: make(chan struct{})}
	close(watched.done)
	u.hub.feeds[watched.scope] = watched
	return watched
}

// The time of the bubble passes only while everything waits: an event is not sent with the next keep-alive, nor is it
// kept by the compression.
func TestEventsAreSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, listener, end := servePipes(t)
		watched := f.syncedFeed()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/watch?view=summary&kinds=appservices", nil)
		f.Expect(err).NotTo(HaveOccurred())
		request.Header.Set(asJane, "Bearer token-of-jane")
		response, err := (&http.Transport{DialContext: listener.Dial}).RoundTrip(request)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(response.Uncompressed).To(BeTrue())
		s := &reader{Scanner: bufio.NewScanner(response.Body)}
		f.Expect(s.next(f).Kind).To(Equal("SYNC"))
		began := time.Now()
		for i := range 5 {
			synctest.Wait()
			name := fmt.Sprintf("app-%d", i)
			f.Expect(watched.Add(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "fixpoint.dev/v1beta1", "kind": "AppService", "metadata": map[string]any{"namespace": "shop", "name": name},
			}})).To(Succeed())
			f.Expect(s.next(f)).To(And(HaveField("Kind", "ADDED"), HaveField("Data", ContainSubstring(name))))
		}
		f.Expect(time.Now()).To(Equal(began))
		f.Expect(response.Body.Close()).To(Succeed())
		end()
	})
}

// sent is a server-sent event.
type sent struct{ Kind, ID, Data string }

// reader reads server-sent events from a response.
type reader struct {
	*bufio.Scanner
	close func()
}

func (f *fixture) stream(path string, headers ...string) *reader {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.site.URL+path, nil)
	f.Expect(err).NotTo(HaveOccurred())
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	f.Expect(err).NotTo(HaveOccurred())
	f.t.Cleanup(func() { _ = response.Body.Close() })
	f.Expect(response.StatusCode).To(Equal(http.StatusOK))
	body := io.Reader(response.Body)
	if response.Header.Get("Content-Encoding") == "gzip" {
		body, err = gzip.NewReader(body)
		f.Expect(err).NotTo(HaveOccurred())
	}
	scanner := bufio.NewScanner(body)
	scanner.Buffer(nil, 64<<20)
	return &reader{scanner, cancel}
}

// next is the next event, or position alone.
func (s *reader) next(f *fixture) sent {
	f.t.Helper()
	var e sent
	for s.Scan() {
		name, value, _ := strings.Cut(s.Text(), ": ")
		switch name {
		case "event":
			e.Kind = value
		case "id":
			e.ID = value
		case "data":
			e.Data = value
		case "":
			if value == "" && e != (sent{}) {
				return e
			}
		}
	}
	f.t.Fatalf("the stream ended: %v", s.Err())
	return e
}

const asJane = "Authorization"

func TestStreamGoesOnAfterTheAPIServerCutsAndForgets(t *testing.T) {
	f := newFixture(t, ModeToken)
	f.api.set("shop", "a", "1")
	f.api.set("shop", "b", "1")
	s := f.stream("/watch?view=summary&kinds=appservices", asJane, "Bearer token-of-jane")
	f.Expect(s.next(f)).To(And(HaveField("Kind", "SYNC"), HaveField("Data", ContainSubstring(`"name":"a"`))))

	f.api.cutWatches()
	f.api.set("shop", "a", "2")
	f.Expect(s.next(f)).To(And(HaveField("Kind", "MODIFIED"), HaveField("Data", ContainSubstring(`"name":"a"`))))

	f.api.forget(func(set func(namespace, name, image string)) { // these changes fall into the gap of a watch that cannot resume
		set("shop", "a", "3")
		set("shop", "b", "")
		set("shop", "c", "1")
	})
	got := map[string]string{}
	for range 3 {
		e := s.next(f)
		var row struct{ Name string }
		f.Expect(json.Unmarshal([]byte(e.Data), &row)).To(Succeed())
		got[row.Name] = e.Kind
	}
	f.Expect(got).To(Equal(map[string]string{"a": "MODIFIED", "b": "DELETED", "c": "ADDED"}), "what differs, and nothing else")
}

func TestStreamSaysThatTheAPIServerDoesNotAnswer(t *testing.T) {
	f := newFixture(t, ModeToken)
	f.api.set("shop", "a", "1")
	s := f.stream("/watch?view=summary&kinds=appservices", asJane, "Bearer token-of-jane")
	s.next(f)
	f.api.setDown(true)
	f.Expect(s.next(f).Data).To(And(ContainSubstring("The objects could not be read, and are read again"), ContainSubstring(`"name":"a"`)))
	f.api.set("shop", "b", "1")
	f.api.setDown(false)
	for e := s.next(f); !strings.Contains(e.Data, `"name":"b"`); e = s.next(f) {
		f.Expect(e.Kind).To(Equal("SYNC"))
	}
}

func TestStreamResumesOrBeginsAgain(t *testing.T) {
	f := newFixture(t, ModeToken)
	f.api.set("shop", "a", "1")
	jane := []string{asJane, "Bearer token-of-jane"}
	s := f.stream("/watch?view=summary&kinds=appservices", jane...)
	synced := s.next(f)
	s.close()
	f.api.set("shop", "a", "2")
	f.api.set("other", "x", "1")
	f.api.set("shop", "b", "1")

	s = f.stream("/watch?view=summary&kinds=appservices&namespace=shop", append(jane, "Last-Event-ID", synced.ID)...)
	f.Expect(s.next(f).Kind).To(Equal("MODIFIED"))
	f.Expect(s.next(f)).To(And(HaveField("Kind", "ADDED"), HaveField("Data", ContainSubstring(`"name":"b"`))))

	for _, id := range []string{"another-1", synced.ID + "999", "nonsense", ""} {
		s := f.stream("/watch?view=summary&kinds=appservices", append(jane, "Last-Event-ID", id)...)
		f.Expect(s.next(f).Kind).To(Equal("SYNC"), id)
		s.close()
	}
	s = f.stream("/watch?view=summary&kinds=appservices", asJane, "Bearer token-of-joe", "Last-Event-ID", synced.ID)
	f.Expect(s.next(f).Kind).To(Equal("SYNC"), "a position of another user is none")
	f.Expect(f.api.count("jane WATCH")).To(Equal(1))
	f.Expect(f.api.count("joe WATCH")).To(Equal(1))
}

func TestInterruptedListIsSentAgain(t *testing.T) {
	f := newFixture(t, ModeToken)
	f.api.set("shop", "a", "1")
	f.api.set("shop", "b", "1")
	jane := []string{asJane, "Bearer token-of-jane"}
	s := f.stream("/watch?kinds=appservices", jane...)
	for range 2 {
		f.Expect(s.next(f)).To(And(HaveField("Kind", "ADDED"), HaveField("ID", "")), "a client resumes from no part of the list")
	}
	listed := s.next(f)
	f.Expect(listed).To(And(HaveField("Kind", ""), HaveField("ID", Not(BeEmpty()))), "the position after the last object")
	s.close()
	f.api.set("shop", "b", "2")
	s = f.stream("/watch?kinds=appservices", append(jane, "Last-Event-ID", listed.ID)...)
	f.Expect(s.next(f)).To(And(HaveField("Kind", "MODIFIED"), HaveField("Data", ContainSubstring(`"name":"b"`))))
}

// The token of a user may have been renewed since the stream began.
func TestStreamEndsWhenTheCredentialIsNotAccepted(t *testing.T) {
	f := newFixture(t, ModeToken)
	f.api.set("shop", "a", "1")
	const path, bearer = "/watch?view=summary&kinds=appservices", "Bearer token-of-jane"
	s := f.stream(path, asJane, bearer)
	synced := s.next(f)
	f.api.setUnauthorized("jane", true)
	for s.Scan() {
		f.Expect(s.Text()).NotTo(HavePrefix("event: "), "no empty list is sent")
	}
	f.Expect(s.Err()).NotTo(HaveOccurred())
	f.api.setUnauthorized("jane", false)
	s = f.stream(path, asJane, bearer, "Last-Event-ID", synced.ID)
	f.Expect(s.next(f)).To(And(HaveField("Kind", "SYNC"), HaveField("Data", And(ContainSubstring(`"errors":[]`), ContainSubstring(`"name":"a"`)))))
}

// signedIn is the cookie of a session of jane, and the headers of its requests that write.
func (f *fixture) signedIn() (cookie string, headers []string) {
	f.t.Helper()
	response, body := f.send(http.DefaultClient, http.MethodPost, "/session", `{"token":"token-of-jane"}`, "Content-Type", "application/json")
	f.Expect(response.StatusCode).To(Equal(http.StatusOK))
	var is sessionInfo
	f.Expect(json.Unmarshal([]byte(body), &is)).To(Succeed())
	cookie = response.Cookies()[0].Name + "=" + response.Cookies()[0].Value
	return cookie, []string{"Cookie", cookie, csrfHeader, is.CSRF}
}

// Other windows and clients with the cookie must not go on.
func TestSigningOutEndsStreamsOfTheSession(t *testing.T) {
	for name, path := range map[string]string{
		"rows":                "/watch?view=summary&kinds=appservices",
		"of the API server":   appPath + "?watch=true",
		"objects, whole ones": "/watch?kinds=appservices",
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, ModeToken)
			f.api.set("shop", "a", "1")
			cookie, headers := f.signedIn()
			ended, other := f.stream(path, "Cookie", cookie), f.stream(path, asJane, "Bearer token-of-jane")
			f.Expect(ended.Scan()).To(BeTrue())
			f.Expect(other.Scan()).To(BeTrue())

			f.Expect(f.status(http.DefaultClient, http.MethodDelete, "/session", "", headers...)).To(Equal(http.StatusNoContent))
			over := make(chan struct{})
			go func() {
				defer close(over)
				for ended.Scan() {
					_ = ended.Text()
				}
			}()
			f.Eventually(over, "10s").Should(BeClosed())
			f.api.set("shop", "b", "1")
			for other.Scan() && !strings.Contains(other.Text(), `"name":"b"`) {
				f.Expect(other.Err()).NotTo(HaveOccurred())
			}
			f.Expect(other.Text()).To(ContainSubstring(`"name":"b"`), "who sends the token itself goes on")
		})
	}
}

func TestUserWhoSignsInTooOftenSignsOutNoOther(t *testing.T) {
	f := newFixture(t, ModeToken)
	ctx, expire := context.WithCancel(t.Context())
	for i := range maxSessions / 2 {
		f.sessions[fmt.Sprint("of another ", i)] = session{"token", fmt.Sprint("user ", i), ctx, func() {}}
		f.sessions[fmt.Sprint("of eve ", i)] = session{"token", "eve", ctx, func() {}}
	}
	for range 20 {
		f.startSession(httptest.NewRecorder(), "token-of-eve", "eve")
		f.Expect(f.sessions).To(HaveLen(maxSessions))
	}
	counts := map[string]int{}
	for _, is := range f.sessions {
		counts[is.user]++
	}
	f.Expect(counts["eve"]).To(Equal(maxSessions / 2))

	expire()
	f.startSession(httptest.NewRecorder(), "token-of-jane", "jane")
	f.Expect(f.sessions).To(HaveLen(21), "those that have ended are forgotten")
}

func TestStreamEndsWithItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, listener, end := servePipes(t)
		f.syncedFeed()
		began := time.Now()
		id := f.startSession(httptest.NewRecorder(), "token-of-jane", "jane")
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/watch?view=summary&kinds=appservices", nil)
		f.Expect(err).NotTo(HaveOccurred())
		request.AddCookie(&http.Cookie{Name: f.cookieName(), Value: id})
		response, err := (&http.Transport{DialContext: listener.Dial}).RoundTrip(request)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(response.StatusCode).To(Equal(http.StatusOK))
		timeout := time.AfterFunc(2*sessionTime, func() { _ = response.Body.Close() })
		_, err = io.Copy(io.Discard, response.Body)
		f.Expect(err).NotTo(HaveOccurred())
		f.Expect(timeout.Stop()).To(BeTrue())
		f.Expect(time.Since(began)).To(Equal(sessionTime))
		end()
	})
}

func TestSessionIsConfirmedAgainAfterTheCredentialWasNotAccepted(t *testing.T) {
	f := newFixture(t, ModeToken)
	jane := []string{asJane, "Bearer token-of-jane"}
	status := func(path string) int { return f.status(http.DefaultClient, http.MethodGet, path, "", jane...) }
	f.Expect(status("/session")).To(Equal(http.StatusOK))
	f.api.setUnauthorized("jane", true)
	f.Expect(status("/objects/appservices/shop/a")).To(Equal(http.StatusUnauthorized))
	f.Expect(status("/session")).To(Equal(http.StatusUnauthorized))
	f.api.setUnauthorized("jane", false)
	f.Expect(status("/session")).To(Equal(http.StatusOK))
}

func TestSlowStreamIsSentEverythingAgain(t *testing.T) {
	f := newFixture(t, ModeToken)
	u, err := f.userOf("token-of-jane")
	f.Expect(err).NotTo(HaveOccurred())
	watched := &feed{scope: scope{kind: "AppService"}, hub: u.hub, rows: map[string]entry{}, isSynced: true}
	for i := range ringEvents + 10 {
		u.hub.mu.Lock()
		u.hub.append(event{kind: "MODIFIED", feed: watched, row: []byte{byte(i)}})
		u.hub.mu.Unlock()
	}
	_, ok := u.hub.resume(u.hub.id(10), []*feed{watched})
	f.Expect(ok).To(BeTrue(), "the ring has what comes after it")
	_, ok = u.hub.resume(u.hub.id(9), []*feed{watched})
	f.Expect(ok).To(BeFalse(), "the ring no longer has event 10")
	events, _, ok := u.hub.after(u.hub.next - 3)
	f.Expect(ok).To(BeTrue())
	f.Expect(events).To(HaveLen(2))
	u.hub.mu.Lock()
	u.hub.append(event{kind: "MODIFIED", feed: watched, object: make([]byte, ringBytes)})
	u.hub.mu.Unlock()
	f.Expect(len(u.hub.ring)).To(Equal(1), "large objects displace others")
}

func TestRefusedKindsAreNamedAndTriedAgain(t *testing.T) {
	f := newFixture(t, ModeToken)
	f.api.forbidden["jane"] = true
	f.api.set("shop", "a", "1")
	jane := []string{asJane, "Bearer token-of-jane"}
	s := f.stream("/watch?view=summary&kinds=appservices", jane...)
	f.Expect(s.next(f).Data).To(And(ContainSubstring("select a namespace with namespace="), ContainSubstring(`"items":[]`)))
	s = f.stream("/watch?view=summary&kinds=appservices&namespace=shop", jane...)
	f.Expect(s.next(f).Data).To(And(ContainSubstring(`"errors":[]`), ContainSubstring(`"name":"a"`)))
	f.api.mu.Lock()
	f.api.forbidden["jane"] = false
	f.api.mu.Unlock()
	s = f.stream("/watch?view=summary&kinds=appservices", jane...)
	f.Expect(s.next(f).Data).To(ContainSubstring(`"errors":[]`))
	f.Expect(f.status(http.DefaultClient, http.MethodGet, "/watch?kinds=pods", "", jane...)).To(Equal(http.StatusBadRequest))
	f.Expect(f.status(http.DefaultClient, http.MethodGet, "/watch?view=all", "", jane...)).To(Equal(http.StatusBadRequest))
}

// The rights for the selected namespace may remain.
func TestStreamOfANamespaceGoesOnWithoutTheRightsForAllNamespaces(t *testing.T) {
	f := newFixture(t, ModeToken)
	f.api.set("shop", "a", "1")
	const path = "/watch?view=summary&kinds=appservices&namespace=shop"
	jane := []string{asJane, "Bearer token-of-jane"}
	s := f.stream(path, jane...)
	synced := s.next(f)
	f.Expect(synced.Data).To(ContainSubstring(`"name":"a"`))
	f.api.mu.Lock()
	f.api.forbidden["jane"] = true
	f.api.mu.Unlock()
	f.api.cutWatches()
	for s.Scan() {
		f.Expect(s.Text()).NotTo(ContainSubstring("select a namespace"), "one is selected")
	}
	s = f.stream(path, append(jane, "Last-Event-ID", synced.ID)...)
	f.Expect(s.next(f).Data).To(And(ContainSubstring(`"errors":[]`), ContainSubstring(`"name":"a"`)))
}

// A hub may end between the check of the credential and the stream.
func TestStreamDoesNotWaitForAHubThatHasEnded(t *testing.T) {
	f := newFixture(t, ModeToken)
	u, err := f.userOf("token-of-jane")
	f.Expect(err).NotTo(HaveOccurred())
	u.hub.cancel()
	joined := make(chan error, 1)
	go func() {
		_, err := u.hub.join(t.Context(), plugin.Kinds(), "")
		joined <- err
	}()
	f.Eventually(joined, "10s").Should(Receive(MatchError(context.Canceled)))
}

// Rows that have arrived do not hide that the hub or the request has ended: a stream without feeds has nothing to send.
func TestStreamDoesNotJoinWhatHasEnded(t *testing.T) {
	for name, end := range map[string]func(h *hub, request context.CancelFunc){
		"the hub":     func(h *hub, _ context.CancelFunc) { h.cancel() },
		"the request": func(_ *hub, request context.CancelFunc) { request() },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, ModeToken)
			u, err := f.userOf("token-of-jane")
			f.Expect(err).NotTo(HaveOccurred())
			kinds, err := kindsOf("appservices")
			f.Expect(err).NotTo(HaveOccurred())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			feeds, err := u.hub.join(ctx, kinds, "")
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(feeds[0].wait(ctx)).To(Succeed(), "its rows have arrived")
			end(u.hub, cancel)
			for range 100 { // which of several channels a select takes is random
				feeds, err := u.hub.join(ctx, kinds, "")
				f.Expect(err).To(MatchError(context.Canceled))
				f.Expect(feeds).To(BeEmpty())
			}
		})
	}
}

func TestFirstEventHasAllOfTenThousandRows(t *testing.T) {
	f := newFixture(t, ModeToken)
	const objects = 10_000
	for i := range objects {
		f.api.set(fmt.Sprintf("team-%d", i%50), fmt.Sprintf("app-%d", i), "registry.test/shop:1")
	}
	open := func() (time.Duration, int) {
		began := time.Now()
		s := f.stream("/watch?view=summary&kinds=appservices", asJane, "Bearer token-of-jane", "Accept-Encoding", "gzip")
		e := s.next(f)
		took := time.Since(began)
		var synced struct{ Items []any }
		f.Expect(json.Unmarshal([]byte(e.Data), &synced)).To(Succeed())
		f.Expect(synced.Items).To(HaveLen(objects))
		return took, len(e.Data)
	}
	cold, size := open()
	warm, _ := open()
	t.Logf("SYNC of %d rows, %d kB: %s with the list of the API server, %s for the next window", objects, size/1000, cold, warm)
}
