package metricsauth

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
)

// apiServer answers reviews: the token "reader" belongs to a user who may get /metrics, "other" to one who may
// not, and "denied" to one whom an authorizer denies.
type apiServer struct {
	tokens []authenticationv1.TokenReviewSpec
	access []authorizationv1.SubjectAccessReviewSpec
	broken bool
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.broken {
		http.Error(w, "unavailable", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		s.tokens = append(s.tokens, review.Spec)
		switch review.Spec.Token {
		case "reader", "other", "denied":
			review.Status.Authenticated = true
			review.Status.User = authenticationv1.UserInfo{
				Username: review.Spec.Token, UID: "uid-1", Groups: []string{"people"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"web"}},
			}
		default:
			review.Status.Error = "invalid bearer token"
		}
		_ = json.NewEncoder(w).Encode(review)
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		s.access = append(s.access, review.Spec)
		attributes := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User != "other" && attributes.Verb == "get" && attributes.Path == "/metrics"
		review.Status.Denied = review.Spec.User == "denied"
		_ = json.NewEncoder(w).Encode(review)
	default:
		http.NotFound(w, r)
	}
}

// endpoint is a metrics endpoint behind the filter.
func endpoint(t *testing.T, api *apiServer) http.Handler {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	filter, err := NewFilter(config, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	handler, err := filter(logr.Discard(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1")) }))
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func get(handler http.Handler, method, path, authorization string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, http.NoBody)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	return response
}

func TestServesAuthorizedClientsOnly(t *testing.T) {
	cases := map[string]struct {
		method, path, authorization string
		code                        int
		body                        string
	}{
		"a reader":                         {"GET", "/metrics", "Bearer reader", http.StatusOK, "up 1"},
		"a reader, scheme in lower case":   {"GET", "/metrics", "bearer reader", http.StatusOK, "up 1"},
		"a reader on another path":         {"GET", "/debug", "Bearer reader", http.StatusForbidden, "reader needs the permission to get /debug\n"},
		"a reader with another verb":       {"POST", "/metrics", "Bearer reader", http.StatusForbidden, "reader needs the permission to post /metrics\n"},
		"a user without permission":        {"GET", "/metrics", "Bearer other", http.StatusForbidden, "other needs the permission to get /metrics\n"},
		"a user whom an authorizer denies": {"GET", "/metrics", "Bearer denied", http.StatusForbidden, "denied needs the permission to get /metrics\n"},
		"an invalid token":                 {"GET", "/metrics", "Bearer forged", http.StatusUnauthorized, "Unauthorized\n"},
		"no token":                         {"GET", "/metrics", "", http.StatusUnauthorized, "Unauthorized\n"},
		"an empty token":                   {"GET", "/metrics", "Bearer ", http.StatusUnauthorized, "Unauthorized\n"},
		"a password":                       {"GET", "/metrics", "Basic cmVhZGVyOg==", http.StatusUnauthorized, "Unauthorized\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			response := get(endpoint(t, &apiServer{}), c.method, c.path, c.authorization)
			g.Expect(response.Code).To(Equal(c.code))
			g.Expect(response.Body.String()).To(Equal(c.body))
		})
	}
}

func TestAuthorizesTheWholeIdentity(t *testing.T) {
	g, api := NewWithT(t), &apiServer{}
	get(endpoint(t, api), "GET", "/metrics", "Bearer reader")
	g.Expect(api.access).To(ConsistOf(authorizationv1.SubjectAccessReviewSpec{
		User: "reader", UID: "uid-1", Groups: []string{"people"}, Extra: map[string]authorizationv1.ExtraValue{"pod": {"web"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"},
	}))
}

func TestRequestsWithoutTokenCostNoReview(t *testing.T) {
	g, api := NewWithT(t), &apiServer{}
	get(endpoint(t, api), "GET", "/metrics", "")
	g.Expect(api.tokens).To(BeEmpty())
}

func TestDecisionsAreCachedByTokenVerbAndPath(t *testing.T) {
	g, api := NewWithT(t), &apiServer{}
	handler := endpoint(t, api)
	for range 3 {
		g.Expect(get(handler, "GET", "/metrics", "Bearer reader").Code).To(Equal(http.StatusOK))
		g.Expect(get(handler, "GET", "/metrics", "Bearer other").Code).To(Equal(http.StatusForbidden))
		g.Expect(get(handler, "GET", "/metrics", "Bearer forged").Code).To(Equal(http.StatusUnauthorized))
		g.Expect(get(handler, "GET", "/debug", "Bearer reader").Code).To(Equal(http.StatusForbidden))
	}
	g.Expect(api.tokens).To(HaveLen(4))
	g.Expect(api.access).To(HaveLen(3))
}

func TestDecisionsExpire(t *testing.T) {
	g, api := NewWithT(t), &apiServer{}
	server := httptest.NewServer(api)
	defer server.Close()
	now := testingclock.NewFakePassiveClock(time.Now())
	r, err := newReviewer(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, server.Client())
	g.Expect(err).NotTo(HaveOccurred())
	r.decisions = cache.NewLRUExpireCacheWithClock(maxDecisions, now)
	reviewsOf := func(token string) int {
		before := len(api.tokens)
		request := httptest.NewRequest("GET", "/metrics", http.NoBody)
		request.Header.Set("Authorization", "Bearer "+token)
		_, err := r.review(request)
		g.Expect(err).NotTo(HaveOccurred())
		return len(api.tokens) - before
	}
	g.Expect([]int{reviewsOf("reader"), reviewsOf("other")}).To(Equal([]int{1, 1}))

	now.SetTime(now.Now().Add(refusedTTL + time.Second))
	g.Expect([]int{reviewsOf("reader"), reviewsOf("other")}).To(Equal([]int{0, 1}))
	now.SetTime(now.Now().Add(permittedTTL))
	g.Expect([]int{reviewsOf("reader"), reviewsOf("other")}).To(Equal([]int{1, 1}))
}

func TestErrorsOfTheAPIServerAreNotCached(t *testing.T) {
	g, api := NewWithT(t), &apiServer{broken: true}
	handler := endpoint(t, api)
	response := get(handler, "GET", "/metrics", "Bearer reader")
	g.Expect(response.Code).To(Equal(http.StatusInternalServerError))
	g.Expect(response.Body.String()).To(Equal("Authorization failed\n"))
	api.broken = false
	g.Expect(get(handler, "GET", "/metrics", "Bearer reader").Code).To(Equal(http.StatusOK))
}
