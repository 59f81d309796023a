package console

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/internal/console/web"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

// Options configure a console.
type Options struct {
	// Config is how to reach the API server, and in ModeKubeconfig the credential too.
	Config *rest.Config
	Mode   Mode
	// Hosts are the names by which browsers reach the console. Requests to other names are refused.
	Hosts []string
	// Port is that of the listener.
	Port string
	// TLS is true if browsers use HTTPS.
	TLS bool
	// TokenHeader is the header with the token in ModeProxy. The default is Authorization.
	TokenHeader string
	// EventsLimit is how many Events are returned at most.
	EventsLimit int
	// FakeCloud is the URL of the fake cloud to show; empty if the manager uses a real one.
	FakeCloud string
	// Cloud says how plans read the cloud.
	Cloud plugin.Cloud
	Log   logr.Logger
}

const (
	// DefaultEventsLimit is the default of [Options].EventsLimit.
	DefaultEventsLimit = 500
	// maxBody is the size of the largest body that the API server accepts.
	maxBody = 3 << 20
	// answerTime is how long a request may take, streams aside.
	answerTime = time.Minute
)

// Server is the console.
type Server struct {
	options  Options
	log      logr.Logger
	key      []byte
	pages    fs.FS
	handler  http.Handler
	stopping chan struct{}
	stop     sync.Once

	mu       sync.Mutex
	code     string
	sessions map[string]session
	users    map[string]*user
}

// New returns a console. It sends no request.
func New(o Options) (*Server, error) {
	pages, err := fs.Sub(web.Files, "dist")
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o, log: o.Log, key: []byte(randomText()), pages: pages, stopping: make(chan struct{}),
		code: randomText(), sessions: map[string]session{}, users: map[string]*user{},
	}
	s.handler = s.protect(s.routes())
	return s, nil
}

// Code is the one-time code of the URL that signs a browser in: /open?code=.
func (s *Server) Code() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.code
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends all streams and watches.
func (s *Server) Close() {
	s.stop.Do(func() { close(s.stopping) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.users {
		u.hub.cancel()
	}
}

// Serve serves a listener until the context ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: answerTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.Close()
	const patience = 5 * time.Second
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err := server.Shutdown(ending)
	if errors.Is(err, context.DeadlineExceeded) {
		// No failure: browsers also open connections ahead of requests, which count as busy for longer than that.
		s.log.Info("Closing connections that are still in use", "after", patience.String())
		return server.Close()
	}
	return err
}

// handler answers a request of a user.
type handler func(http.ResponseWriter, *http.Request, *caller) error

// signedIn answers the requests of users.
func (s *Server) signedIn(h handler) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := s.authenticate(r)
		if err != nil {
			return err
		}
		if err := s.checkCSRF(r, c); err != nil {
			return err
		}
		if c.signedIn != nil { // a stream must not go on after the session
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(c.signedIn, cancel)()
			r = r.WithContext(ctx)
		}
		err = h(w, r, c)
		if apierrors.IsUnauthorized(err) {
			c.doubt()
		}
		return err
	}
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	open := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				writeError(w, err)
			}
		})
	}
	signedIn := func(pattern string, h handler) { open(pattern, s.signedIn(h)) }
	limited := func(pattern string, h handler) {
		signedIn(pattern, func(w http.ResponseWriter, r *http.Request, c *caller) error {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(r.Context(), answerTime)
			defer cancel()
			return h(w, r.WithContext(ctx), c)
		})
	}
	open("GET /{$}", s.root)
	open("GET /assets/", s.asset)
	open("GET /healthz", healthy)
	open("GET /readyz", healthy)
	open("GET /open", s.open)
	open("POST /session", s.signIn)
	limited("GET /session", s.getSession)
	limited("DELETE /session", s.signOut)
	signedIn("GET /watch", func(w http.ResponseWriter, r *http.Request, c *caller) error { return s.watch(w, r, c.user) })
	limited("GET /crd", s.crds)
	limited("GET /events", s.events)
	limited("GET /drifts", s.drifts)
	limited("GET /cloud", s.cloud)
	const object = "/objects/{resource}/{namespace}/{name}"
	limited("GET "+object, s.details)
	limited("PUT "+object, s.edit)
	limited("DELETE "+object, s.remove)
	limited("GET "+object+"/plan", s.plan)
	limited("POST "+object+"/plan", s.plan)
	limited("GET "+object+"/blame", s.blame)
	limited("GET "+object+"/contract", s.contract)
	limited("POST "+object+"/{verb}", s.act)
	signedIn(passedPath, s.pass)
	open("/", func(_ http.ResponseWriter, r *http.Request) error {
		return notFound("the console has no %s %s: GET / with Accept: application/json lists what there is", r.Method, r.URL.Path)
	})
	return mux
}

func healthy(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := w.Write([]byte("ok"))
	return err
}

// protect does what holds for all requests.
func (s *Server) protect(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		setHeaders(w.Header(), s.options.TLS)
		recorded := &responseRecorder{ResponseWriter: w}
		switch isProbe := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"; {
		case !isProbe && !s.isOwnHost(r.Host):
			writeError(recorded, refuse(http.StatusMisdirectedRequest, "Forbidden", "the console is not called %q: use one of %s", r.Host, strings.Join(s.options.Hosts, ", ")))
		case crossOrigin.Check(r) != nil:
			writeError(recorded, forbidden("the request comes from a page of another origin"))
		default:
			r.Body = http.MaxBytesReader(recorded, r.Body, maxBody)
			compressed, finish := compress(recorded, r)
			next.ServeHTTP(compressed, r)
			finish()
		}
		// Neither the query nor the headers: they may have what authenticates.
		s.log.V(1).Info("Answered request", "method", r.Method, "path", r.URL.Path, "status", recorded.status, "duration", time.Since(began))
	})
}

// isOwnHost is false for names under which another web site reaches this address: DNS rebinding.
func (s *Server) isOwnHost(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, ""
	}
	name = strings.Trim(strings.ToLower(name), "[]")
	if !slices.Contains(s.options.Hosts, name) {
		return false
	}
	return s.options.Mode != ModeKubeconfig || port == s.options.Port
}

func setHeaders(h http.Header, isTLS bool) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "+
		"manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
	if isTLS {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// root is the page for browsers, and a list of what there is for others.
func (s *Server) root(w http.ResponseWriter, r *http.Request) error {
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Cache-Control", "no-cache")
		http.ServeFileFS(w, r, s.pages, "index.html")
		return nil
	}
	writeJSON(w, http.StatusOK, json.RawMessage(contents))
	return nil
}

const contents = `{"paths":{
"/":"the console for browsers; this list for others",
"/healthz":"ok",
"/readyz":"ok",
"/session":"GET: who you are; POST {\"token\":...}: sign in; DELETE: sign out",
"/crd":"the CustomResourceDefinitions of Fixpoint",
"/watch":"server-sent events: ADDED, MODIFIED, DELETED; namespace=, kinds=appservices,mcpservers,securestorages, view=summary; resumes with Last-Event-ID",
"/events":"the latest Events; limit=, namespace=, kind=, name=",
"/drifts":"changes by other field managers; since=168h, namespace=",
"/objects/{resource}/{namespace}/{name}":"GET: an object with phases, children and drifts; PUT: edit; DELETE: delete; uid=, generation= of what was read; dryRun=All",
"/objects/{resource}/{namespace}/{name}/plan":"GET: what the manager would do now; POST: what it would do after an edit",
"/objects/{resource}/{namespace}/{name}/blame":"the object with its field managers",
"/objects/{resource}/{namespace}/{name}/contract":"what an MCPServer offers, and how that has changed",
"/objects/{resource}/{namespace}/{name}/suspend":"POST; also resume and reconcile; {\"reason\":...}",
"/cloud":"what the fake cloud holds",
"/apis/fixpoint.dev/":"the API server, with your rights"
}}`

// hashed are names of assets with a digest of their content.
var hashed = regexp.MustCompile(`-[A-Z0-9]{8}\.[a-z0-9]+$`)

func (s *Server) asset(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Cache-Control", "no-cache")
	if hashed.MatchString(r.URL.Path) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if info, err := fs.Stat(s.pages, name); err != nil || info.IsDir() {
		return notFound("the console has no %s", r.URL.Path)
	}
	http.ServeFileFS(w, r, s.pages, name)
	return nil
}
