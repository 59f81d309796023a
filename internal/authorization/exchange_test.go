package authorization

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// exchangeServer is an authorization server that exchanges tokens.
type exchangeServer struct {
	*httptest.Server
	mu sync.Mutex
	// requests are those that were received.
	requests []*http.Request
	// status and body are the response; the body is that of a good response with changes if it is nil.
	status  int
	changes map[string]any
	body    *string
	// wait, if set, delays the response until it is closed.
	wait chan struct{}
}

func newExchangeServer(t testing.TB) *exchangeServer {
	t.Helper()
	s := &exchangeServer{status: http.StatusOK}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// respond sets the response.
func (s *exchangeServer) respond(status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, &body
}

// grant sets a good response with changes.
func (s *exchangeServer) grant(changes map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body, s.changes = http.StatusOK, nil, changes
}

func (s *exchangeServer) received() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *exchangeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	s.mu.Lock()
	s.requests = append(s.requests, r)
	status, body, wait := s.status, s.body, s.wait
	good := map[string]any{
		"access_token": fmt.Sprintf("issued-%d", len(s.requests)), "issued_token_type": typeAccessToken, "token_type": "Bearer", "expires_in": 300,
	}
	maps.Copy(good, s.changes)
	s.mu.Unlock()
	if wait != nil {
		<-wait
	}
	w.WriteHeader(status)
	if body != nil {
		_, _ = io.WriteString(w, *body)
		return
	}
	maps.DeleteFunc(good, func(_ string, value any) bool { return value == nil })
	_ = json.NewEncoder(w).Encode(good)
}

// credentials is a directory with client credentials, as the kubelet mounts a Secret.
func credentials(t testing.TB, id, secret string) string {
	t.Helper()
	at := t.TempDir()
	write(t, at, id, secret)
	return at
}

func write(t testing.TB, at, id, secret string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(os.WriteFile(filepath.Join(at, "client-id"), []byte(id), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(at, "client-secret"), []byte(secret), 0o600)).To(Succeed())
}

// exchanging is an endpoint whose server gets exchanged tokens.
func exchanging(t testing.TB, change ...func(*Options)) (*endpoint, *exchangeServer) {
	t.Helper()
	s := newExchangeServer(t)
	use := func(o *Options) {
		o.Exchange = &Exchange{TokenURL: s.URL + "/token", Credentials: credentials(t, "tools", "s3cret\n"), Audience: "orders"}
	}
	return newEndpoint(t, append([]func(*Options){use}, change...)...), s
}

func TestServerGetsTheExchangedToken(t *testing.T) {
	e, s := exchanging(t, func(o *Options) {
		o.Exchange.Resource, o.Exchange.Scopes = "https://orders.example.com", []string{"read", "write"}
		o.Exchange.Credentials = credentials(t, "tools:1", "p ss%ö")
	})
	token := e.token(nil)

	response := e.with(token)

	e.Expect(response.StatusCode).To(Equal(http.StatusOK))
	e.Expect(e.received).To(HaveLen(1))
	e.Expect(e.received[0].Header.Values("Authorization")).To(Equal([]string{"Bearer issued-1"}))
	e.Expect(e.received[0].Header.Get(HeaderSubject)).To(Equal("ann"))
	e.Expect(s.received()).To(HaveLen(1))
	asked := s.received()[0]
	e.Expect(asked.Method + asked.URL.Path).To(Equal("POST/token"))
	e.Expect(asked.PostForm).To(Equal(url.Values{
		"grant_type":    {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"subject_token": {token}, "subject_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"audience":             {"orders"}, "resource": {"https://orders.example.com"}, "scope": {"read write"},
	}))
	id, secret, ok := asked.BasicAuth()
	e.Expect([]any{id, secret, ok}).To(Equal([]any{"tools%3A1", "p+ss%25%C3%B6", true}), "RFC 6749, section 2.3.1")
}

// What is refused without an exchange does not reach the authorization server.
func TestRefusedRequestsAreNotExchanged(t *testing.T) {
	e, s := exchanging(t, destructive)
	for name, send := range map[string]func() *http.Response{
		"no token":       func() *http.Response { return e.do(http.MethodPost, external, "{}") },
		"wrong audience": func() *http.Response { return e.with(e.token(map[string]any{"aud": "other"})) },
		"scopes":         func() *http.Response { return e.with(e.token(map[string]any{"scope": "other"})) },
		"scopes of a tool": func() *http.Response {
			return e.do(http.MethodPost, external, call("echo"), "Authorization", "Bearer "+e.token(nil))
		},
	} {
		e.Expect(send().StatusCode).To(BeNumerically(">=", 400), name)
	}
	e.Expect(s.received()).To(BeEmpty())
}

func TestExchangedTokensAreKeptUntilEitherExpires(t *testing.T) {
	issued := func(e *endpoint, expires time.Duration) string {
		return sign(e.t, signing(), map[string]any{"aud": "orders", "exp": e.clock.in(expires)}, nil)
	}
	for name, c := range map[string]struct {
		caller time.Duration
		grant  func(e *endpoint) map[string]any
		kept   time.Duration
	}{
		"by the response":       {time.Hour, func(*endpoint) map[string]any { return nil }, 300*time.Second - exchangeMargin},
		"by the caller's token": {2 * time.Minute, func(*endpoint) map[string]any { return nil }, 2*time.Minute - exchangeMargin},
		"by the token":          {time.Hour, func(e *endpoint) map[string]any { return map[string]any{"access_token": issued(e, time.Minute)} }, time.Minute - exchangeMargin},
		"by the token alone": {time.Hour, func(e *endpoint) map[string]any {
			return map[string]any{"access_token": issued(e, time.Minute), "expires_in": nil}
		}, time.Minute - exchangeMargin},
		"not known":                 {time.Hour, func(*endpoint) map[string]any { return map[string]any{"expires_in": nil} }, unknownLifetime},
		"longer than a time can be": {2 * time.Hour, func(*endpoint) map[string]any { return map[string]any{"expires_in": 1 << 62} }, 2*time.Hour - exchangeMargin},
		"too short to be kept":      {time.Hour, func(*endpoint) map[string]any { return map[string]any{"expires_in": 10} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := exchanging(t)
			s.grant(c.grant(e))
			token := e.token(map[string]any{"exp": e.clock.in(c.caller)})
			exchanges := func() int {
				e.Expect(e.with(token).StatusCode).To(Equal(http.StatusOK))
				return len(s.received())
			}
			e.Expect(exchanges()).To(Equal(1))
			if c.kept == 0 {
				e.Expect(exchanges()).To(Equal(2))
				return
			}
			e.clock.pass(c.kept - time.Second)
			e.Expect(exchanges()).To(Equal(1))
			e.clock.pass(time.Second)
			s.grant(nil)
			e.Expect(exchanges()).To(Equal(2))
		})
	}
}

func TestTokensOfCallersAreNotMixed(t *testing.T) {
	e, s := exchanging(t)
	ann, bob := e.token(nil), e.token(map[string]any{"sub": "bob"})
	for range 2 {
		for token, issued := range map[string]string{ann: "", bob: ""} {
			e.Expect(e.with(token).StatusCode).To(Equal(http.StatusOK))
			got := e.received[0].Header.Get("Authorization")
			for i, asked := range s.received() {
				if asked.PostForm.Get("subject_token") == token {
					issued = fmt.Sprintf("Bearer issued-%d", i+1)
				}
			}
			e.Expect(got).To(Equal(issued))
		}
	}
	e.Expect(s.received()).To(HaveLen(2))
}

func TestConcurrentRequestsShareAnExchange(t *testing.T) {
	e, s := exchanging(t)
	s.wait = make(chan struct{})
	token := e.token(nil)
	who := &identity{expires: e.clock.now().Add(time.Hour)}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if got, refused := e.auth.exchange.exchange(context.Background(), token, who); refused != nil || got != "issued-1" {
				t.Errorf("got %q, %v", got, refused)
			}
		})
	}
	e.Eventually(s.received).Should(HaveLen(1))
	close(s.wait)
	all.Wait()
	e.Expect(s.received()).To(HaveLen(1))
}

func TestClientThatLeavesDoesNotEndTheExchange(t *testing.T) {
	e, s := exchanging(t)
	s.wait = make(chan struct{})
	who := &identity{expires: e.clock.now().Add(time.Hour)}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, refused := e.auth.exchange.exchange(gone, "a", who)
	e.Expect(refused.status).To(Equal(http.StatusServiceUnavailable))
	close(s.wait)
	e.Eventually(func() string {
		got, _ := e.auth.exchange.exchange(context.Background(), "a", who)
		return got
	}).Should(Equal("issued-1"))
	e.Expect(s.received()).To(HaveLen(1))
}

// Whatever the authorization server says, the server never gets the token of the caller.
func TestFailedExchanges(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		want   int
		says   string
	}{
		"invalid_grant":       {400, `{"error":"invalid_grant"}`, 401, "request another one"},
		"invalid_request":     {400, `{"error":"invalid_request","error_description":"<b>"}`, 401, "request another one"},
		"invalid_target":      {400, `{"error":"invalid_target"}`, 403, "invalid_target"},
		"invalid_scope":       {400, `{"error":"invalid_scope"}`, 403, "grant it there"},
		"access_denied":       {403, `{"error":"access_denied"}`, 403, "grant it there"},
		"unauthorized_client": {400, `{"error":"unauthorized_client"}`, 403, "grant it there"},
		"invalid_client":      {401, `{"error":"invalid_client"}`, 503, "correct them in the Secret"},
		"unavailable":         {503, ``, 503, "retry later"},
		"an error in it":      {500, `{"error":"invalid_grant"}`, 503, "retry later"},
		"too many requests":   {429, `{"error":"invalid_grant"}`, 503, "retry later"},
		"another grant":       {400, `{"error":"unsupported_grant_type"}`, 502, "its status is 400"},
		"an unknown error":    {400, `{"error":"\u0000\"injected"}`, 502, "its status is 400"},
		"no OAuth error":      {404, `not here`, 502, "its status is 404"},
		"a redirect":          {307, ``, 502, "its status is 307"},
		"no JSON":             {200, `<html>`, 502, "not JSON"},
		"an empty response":   {200, ``, 502, "not JSON"},
		"too large":           {200, `{"access_token":"` + strings.Repeat("a", maxResponse) + `"}`, 503, "retry later"},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := exchanging(t)
			s.respond(c.status, c.body)
			response := e.with(e.token(nil))
			expectRefused(e, response, c.want, c.says)
			if c.want == http.StatusUnauthorized || c.want == http.StatusForbidden {
				e.Expect(response.Header.Get("WWW-Authenticate")).To(HavePrefix("Bearer resource_metadata="))
				e.Expect(e.with(e.token(nil)).StatusCode).To(Equal(c.want))
			}
		})
	}
}

func expectRefused(e *endpoint, response *http.Response, status int, says string) {
	e.t.Helper()
	e.Expect(response.StatusCode).To(Equal(status))
	e.Expect(response.Header.Get("Retry-After")).To(Equal(map[bool]string{true: "10"}[status == http.StatusServiceUnavailable]))
	_, description := e.failure(response)
	e.Expect(description).To(ContainSubstring(says))
	e.Expect(description).NotTo(ContainSubstring("injected"))
	e.Expect(e.received).To(BeEmpty())
}

func TestTokensThatAreNotWhatWasAskedForAreNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		grant func(e *endpoint) map[string]any
		says  string
	}{
		"another type":   {func(*endpoint) map[string]any { return map[string]any{"token_type": "DPoP"} }, "not a bearer token"},
		"no type":        {func(*endpoint) map[string]any { return map[string]any{"token_type": nil} }, "not a bearer token"},
		"not applicable": {func(*endpoint) map[string]any { return map[string]any{"token_type": "N_A"} }, "not a bearer token"},
		"an ID token": {func(*endpoint) map[string]any {
			return map[string]any{"issued_token_type": "urn:ietf:params:oauth:token-type:id_token"}
		}, "not an access token"},
		"a refresh token": {func(*endpoint) map[string]any {
			return map[string]any{"issued_token_type": "urn:ietf:params:oauth:token-type:refresh_token"}
		}, "not an access token"},
		"no issued type": {func(*endpoint) map[string]any { return map[string]any{"issued_token_type": nil} }, "not an access token"},
		"no token":       {func(*endpoint) map[string]any { return map[string]any{"access_token": nil} }, "no token"},
		"a token with a new line": {func(*endpoint) map[string]any {
			return map[string]any{"access_token": "a\r\nFixpoint-User-Subject: root"}
		}, "no token that a header can have"},
		"a token with a space":      {func(*endpoint) map[string]any { return map[string]any{"access_token": "a b"} }, "no token that a header can have"},
		"a token of another script": {func(*endpoint) map[string]any { return map[string]any{"access_token": "ä"} }, "no token that a header can have"},
		"padding alone":             {func(*endpoint) map[string]any { return map[string]any{"access_token": "=="} }, "no token that a header can have"},
		"a long token":              {func(*endpoint) map[string]any { return map[string]any{"access_token": strings.Repeat("a", maxToken+1)} }, "longer than"},
		"no lifetime left":          {func(*endpoint) map[string]any { return map[string]any{"expires_in": 0} }, "expired"},
		"a negative lifetime":       {func(*endpoint) map[string]any { return map[string]any{"expires_in": -5} }, "expired"},
		"a lifetime in parts":       {func(*endpoint) map[string]any { return map[string]any{"expires_in": 1.5} }, "expired"},
		"an expired token": {func(e *endpoint) map[string]any {
			return map[string]any{"access_token": sign(e.t, signing(), map[string]any{"aud": "orders", "exp": e.clock.in(-time.Second)}, nil)}
		}, "expired"},
		"another audience": {func(e *endpoint) map[string]any {
			return map[string]any{"access_token": sign(e.t, signing(), map[string]any{"aud": []string{"payments", "Orders"}}, nil)}
		}, "another audience"},
		"an unreadable audience": {func(e *endpoint) map[string]any {
			return map[string]any{"access_token": sign(e.t, signing(), map[string]any{"aud": 1}, nil)}
		}, "cannot be read"},
		"a token of a caller": {func(e *endpoint) map[string]any { return map[string]any{"access_token": e.token(nil)} }, "for another audience"},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := exchanging(t)
			s.grant(c.grant(e))
			for range 2 { // It is not kept.
				expectRefused(e, e.with(e.token(nil)), http.StatusBadGateway, c.says)
			}
			e.Expect(s.received()).To(HaveLen(2))
			s.grant(nil)
			e.Expect(e.with(e.token(nil)).StatusCode).To(Equal(http.StatusOK))
		})
	}
	t.Run("the token of the caller", func(t *testing.T) {
		e, s := exchanging(t, func(o *Options) { o.Exchange.Audience, o.Exchange.Resource = "", external })
		token := e.token(nil)
		s.grant(map[string]any{"access_token": token})
		expectRefused(e, e.with(token), http.StatusBadGateway, "that of the caller")
	})
}

func TestTokensForWhatWasAskedForAreUsed(t *testing.T) {
	for name, c := range map[string]struct {
		audience, resource string
		claims             map[string]any
	}{
		"the audience":           {"orders", "", map[string]any{"aud": "orders"}},
		"one of the audiences":   {"orders", "", map[string]any{"aud": []string{"account", "orders"}}},
		"the resource":           {"", "https://orders.example.com", map[string]any{"aud": "https://ORDERS.example.com:443/"}},
		"either":                 {"orders", "https://orders.example.com", map[string]any{"aud": "https://orders.example.com"}},
		"a token without claims": {"orders", "", map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := exchanging(t, func(o *Options) { o.Exchange.Audience, o.Exchange.Resource = c.audience, c.resource })
			token := sign(t, signing(), c.claims, nil)
			s.grant(map[string]any{"access_token": token, "issued_token_type": typeJWT, "token_type": "bearer"})
			e.Expect(e.with(e.token(nil)).StatusCode).To(Equal(http.StatusOK))
			e.Expect(e.received[0].Header.Get("Authorization")).To(Equal("Bearer " + token))
		})
	}
}

func TestAuthorizationServerThatIsNotReached(t *testing.T) {
	e, s := exchanging(t)
	s.Close()
	expectRefused(e, e.with(e.token(nil)), http.StatusServiceUnavailable, "cannot be asked: retry later")
}

func TestRotatedSecretTakesEffect(t *testing.T) {
	var at string
	e, s := exchanging(t, func(o *Options) { at = o.Exchange.Credentials })
	s.respond(http.StatusUnauthorized, `{"error":"invalid_client"}`)
	expectRefused(e, e.with(e.token(nil)), http.StatusServiceUnavailable, "Secret")

	write(t, at, "tools", "rotated")
	s.grant(nil)

	e.Expect(e.with(e.token(nil)).StatusCode).To(Equal(http.StatusOK))
	_, secret, _ := s.received()[1].BasicAuth()
	e.Expect(secret).To(Equal("rotated"))
}

// The kubelet replaces both files at once.
func TestCredentialsAreOfOneVersion(t *testing.T) {
	// given a mounted Secret, whose client-id is a pipe, which is read until the test has written to it
	var at string
	e, s := exchanging(t, func(o *Options) {
		at = t.TempDir()
		o.Exchange.Credentials = at
	})
	before, after := filepath.Join(at, "..1"), filepath.Join(at, "..2")
	e.Expect(os.Mkdir(before, 0o700)).To(Succeed())
	e.Expect(os.Mkdir(after, 0o700)).To(Succeed())
	e.Expect(syscall.Mkfifo(filepath.Join(before, "client-id"), 0o600)).To(Succeed())
	e.Expect(os.WriteFile(filepath.Join(before, "client-secret"), []byte("old"), 0o600)).To(Succeed())
	write(t, after, "new-tools", "new")
	e.Expect(os.Symlink("..1", filepath.Join(at, "..data"))).To(Succeed())
	for _, name := range []string{"client-id", "client-secret"} {
		e.Expect(os.Symlink(filepath.Join("..data", name), filepath.Join(at, name))).To(Succeed())
	}
	status := make(chan int, 1)
	go func() { status <- e.with(e.token(nil)).StatusCode }()
	pipe, err := os.OpenFile(filepath.Join(before, "client-id"), os.O_WRONLY, 0)
	e.Expect(err).NotTo(HaveOccurred())

	// when the Secret changes meanwhile
	e.Expect(os.Symlink("..2", filepath.Join(at, "..next"))).To(Succeed())
	e.Expect(os.Rename(filepath.Join(at, "..next"), filepath.Join(at, "..data"))).To(Succeed())
	_, err = pipe.WriteString("old-tools")
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(pipe.Close()).To(Succeed())

	// then
	e.Eventually(status, time.Minute).Should(Receive(Equal(http.StatusOK)))
	id, secret, _ := s.received()[0].BasicAuth()
	e.Expect([]string{id, secret}).To(Or(Equal([]string{"old-tools", "old"}), Equal([]string{"new-tools", "new"})))
}

func TestMissingCredentials(t *testing.T) {
	for name, at := range map[string]string{"no files": "/no/such/directory", "an empty file": credentials(t, "tools", "\n")} {
		t.Run(name, func(t *testing.T) {
			e, s := exchanging(t, func(o *Options) { o.Exchange.Credentials = at })
			expectRefused(e, e.with(e.token(nil)), http.StatusServiceUnavailable, "retry later")
			e.Expect(s.received()).To(BeEmpty())
		})
	}
}

func TestRefusalsAreNotAskedForAgainAtOnce(t *testing.T) {
	e, s := exchanging(t)
	s.respond(http.StatusBadRequest, `{"error":"invalid_target"}`)
	token := e.token(nil)
	for range 3 {
		e.Expect(e.with(token).StatusCode).To(Equal(http.StatusForbidden))
	}
	e.Expect(s.received()).To(HaveLen(1))
	s.grant(nil)
	e.clock.pass(refusedFor)
	e.Expect(e.with(token).StatusCode).To(Equal(http.StatusOK))
}

func TestInvalidExchange(t *testing.T) {
	for name, c := range map[string]struct {
		exchange Exchange
		says     string
	}{
		"no URL":         {Exchange{Credentials: "/a", Audience: "a"}, "not a URL"},
		"plain HTTP":     {Exchange{TokenURL: "http://id.example.com/token", Credentials: "/a", Audience: "a"}, "must use https"},
		"no credentials": {Exchange{TokenURL: "https://id.example.com/token", Audience: "a"}, "client credentials"},
		"no target":      {Exchange{TokenURL: "https://id.example.com/token", Credentials: "/a"}, "neither an audience nor a resource"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(Options{Issuers: []Issuer{{URL: "https://id.example.com"}}, Resources: []string{external}, Exchange: &c.exchange})
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(c.says)))
		})
	}
}
