package console

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fixpoint-dev/fixpoint/internal/buildinfo"
)

// Mode says whose credential requests carry.
type Mode string

// The modes.
const (
	// ModeKubeconfig: the credential of the kubeconfig, for who has opened the URL with the one-time code.
	ModeKubeconfig Mode = "kubeconfig"
	// ModeToken: a bearer token with which the user has signed in.
	ModeToken Mode = "token"
	// ModeProxy: a bearer token that an authenticating proxy adds to each request.
	ModeProxy Mode = "proxy"
)

const (
	csrfHeader = "X-CSRF-Token"
	// reasonCSRF lets the page tell a CSRF token that is not current from what the user may not do.
	reasonCSRF = "CSRFTokenInvalid"
	// sessionTime is how long a user stays signed in.
	sessionTime = 12 * time.Hour
	// maxSessions bounds the sessions that are remembered.
	maxSessions = 10_000
)

// session is a browser that has signed in. Its token stays in the memory of this process.
type session struct {
	token string
	// user is the name of who has signed in.
	user string
	// ctx ends with the session: when it expires, or when end is called.
	ctx context.Context
	end context.CancelFunc
}

// caller is who sent a request.
type caller struct {
	*user
	// binding is what the CSRF token is bound to; empty if the request itself proves who sent it.
	binding string
	session string
	// signedIn ends with the session; nil if the request itself proves who sent it.
	signedIn context.Context
}

// authenticate finds the credential of a request.
func (s *Server) authenticate(r *http.Request) (*caller, error) {
	token, err := s.bearer(r)
	if err != nil {
		return nil, err
	}
	if token != "" {
		u, err := s.userOf(token)
		if err != nil {
			return nil, err
		}
		c := &caller{user: u}
		if s.options.Mode == ModeProxy {
			c.binding = u.digest // a browser sends the proxy's cookie without being asked
		}
		return c, nil
	}
	id := s.sessionID(r)
	s.mu.Lock()
	found, ok := s.sessions[id]
	s.mu.Unlock()
	if !ok || found.ctx.Err() != nil {
		return nil, unauthorized("%s", s.signInHint())
	}
	u, err := s.userOf(found.token)
	return &caller{user: u, binding: id, session: id, signedIn: found.ctx}, err
}

// bearer is the token that a request carries, or empty.
func (s *Server) bearer(r *http.Request) (string, error) {
	if name := s.options.TokenHeader; s.options.Mode == ModeProxy && name != "" {
		return strings.TrimPrefix(r.Header.Get(name), "Bearer "), nil
	}
	value := r.Header.Get("Authorization")
	if value == "" {
		return "", nil
	}
	scheme, token, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(token) == "" {
		return "", unauthorized("the header Authorization has the scheme %q: set Bearer and a token", scheme)
	}
	return strings.TrimSpace(token), nil
}

func (s *Server) signInHint() string {
	switch s.options.Mode {
	case ModeKubeconfig:
		return "this browser is not signed in: open the URL that the console has printed, or start the console again for a new one"
	case ModeProxy:
		return "the proxy has passed no token: sign in at the proxy, or correct its configuration"
	default:
		return "nobody is signed in: POST a token to /session, or set the header Authorization"
	}
}

func (s *Server) sessionID(r *http.Request) string {
	if cookie, err := r.Cookie(s.cookieName()); err == nil {
		return cookie.Value
	}
	return ""
}

// cookieName has the port, because the cookies of a host are those of all its ports.
func (s *Server) cookieName() string {
	if s.options.TLS {
		return "__Host-fixpoint-console"
	}
	return "fixpoint-console-" + s.options.Port
}

// csrf is the CSRF token of a caller.
func (s *Server) csrf(c *caller) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(c.binding))
	return hex.EncodeToString(mac.Sum(nil))
}

// checkCSRF refuses requests that another web page may have sent.
func (s *Server) checkCSRF(r *http.Request, c *caller) error {
	if c.binding == "" || slices.Contains(safeMethods, r.Method) {
		return nil
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(csrfHeader)), []byte(s.csrf(c))) != 1 {
		return refuse(http.StatusForbidden, reasonCSRF, "the header %s is missing or not current: set it to csrf of GET /session", csrfHeader)
	}
	return nil
}

var safeMethods = []string{http.MethodGet, http.MethodHead, http.MethodOptions}

// sessionInfo is the answer to GET /session.
type sessionInfo struct {
	User    string   `json:"user"`
	Groups  []string `json:"groups"`
	Mode    Mode     `json:"mode"`
	CSRF    string   `json:"csrf"`
	Console string   `json:"console"`
	Cluster string   `json:"cluster"`
	Cloud   bool     `json:"cloud"`
}

func (s *Server) getSession(w http.ResponseWriter, r *http.Request, c *caller) error {
	if err := s.confirm(r.Context(), c.user); err != nil {
		return err
	}
	is := c.identity()
	host := s.options.Config.Host
	if parsed, err := url.Parse(host); err == nil && parsed.Host != "" {
		host = parsed.Hostname()
	}
	writeJSON(w, http.StatusOK, sessionInfo{
		User: is.Username, Groups: append([]string{}, is.Groups...), Mode: s.options.Mode, CSRF: s.csrf(c),
		Console: buildinfo.Get().Version, Cluster: host, Cloud: s.options.FakeCloud != "",
	})
	return nil
}

// signIn keeps a token for a browser.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) error {
	if s.options.Mode != ModeToken {
		return refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "users do not sign in here: %s", s.signInHint())
	}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the header Content-Type is %q: set application/json", kind)
	}
	var body struct{ Token string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return badRequest("the body is not JSON with a token")
	}
	token := strings.TrimSpace(body.Token)
	if token == "" {
		return badRequest("token is empty: set it to a bearer token, such as one of kubectl create token")
	}
	u, err := s.userOf(token)
	if err != nil {
		return err
	}
	if err := s.confirm(r.Context(), u); err != nil {
		return err
	}
	id := s.startSession(w, token, u.identity().Username)
	return s.getSession(w, r, &caller{user: u, binding: id, session: id})
}

// startSession starts a session of a user and sets its cookie.
func (s *Server) startSession(w http.ResponseWriter, token, user string) string {
	id := randomText()
	s.mu.Lock()
	s.makeRoom()
	ctx, end := context.WithTimeout(context.Background(), sessionTime)
	s.sessions[id] = session{token, user, ctx, end}
	s.mu.Unlock()
	s.setCookie(w, id, int(sessionTime.Seconds()))
	return id
}

// makeRoom forgets the sessions that have ended. If there are still too many, it ends the oldest of the user who has most: no
// user can sign out others.
func (s *Server) makeRoom() {
	counts, most := map[string]int{}, ""
	for id, is := range s.sessions {
		if is.ctx.Err() != nil {
			delete(s.sessions, id)
			continue
		}
		if counts[is.user]++; counts[is.user] > counts[most] {
			most = is.user
		}
	}
	if len(s.sessions) < maxSessions {
		return
	}
	oldest, first := "", time.Time{}
	for id, is := range s.sessions {
		if end, _ := is.ctx.Deadline(); is.user == most && (oldest == "" || end.Before(first)) {
			oldest, first = id, end
		}
	}
	s.sessions[oldest].end()
	delete(s.sessions, oldest)
}

func (s *Server) setCookie(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: s.cookieName(), Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: s.options.TLS, SameSite: http.SameSiteStrictMode,
	})
}

func (s *Server) signOut(w http.ResponseWriter, _ *http.Request, c *caller) error {
	s.mu.Lock()
	if is, ok := s.sessions[c.session]; ok {
		is.end()
		delete(s.sessions, c.session)
	}
	s.mu.Unlock()
	s.setCookie(w, "", -1)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// open signs in the browser that opens the printed URL. Its code works once.
func (s *Server) open(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	isCode := s.code != "" && subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("code")), []byte(s.code)) == 1
	if isCode {
		s.code = ""
	}
	s.mu.Unlock()
	if s.options.Mode != ModeKubeconfig {
		return notFound("users do not sign in by a URL here")
	}
	if !isCode {
		return forbidden("the code is not valid, or was used: start the console again for a new URL")
	}
	s.startSession(w, "", "")
	// With SameSite=Strict, browsers send the cookie only with requests of the console's own pages.
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(`<!doctype html><title>Fixpoint</title><meta http-equiv="refresh" content="0; url=/"><a href="/">Open the console</a>`))
	return nil
}
