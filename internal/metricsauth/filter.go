// Package metricsauth authenticates and authorizes the clients of the metrics endpoint by a TokenReview and a
// SubjectAccessReview, as the package metrics/filters of controller-runtime does. That package links
// k8s.io/apiserver, with CEL, gRPC and OpenTelemetry, and templates that keep the linker from dropping methods
// that nothing calls: a third of the binary.
package metricsauth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	// permittedTTL and refusedTTL are how long a decision holds, so that a scrape does not cost two requests
	// each time. A client that has just got the permission should not wait long.
	permittedTTL, refusedTTL = time.Minute, 10 * time.Second
	// maxDecisions bounds the memory that clients without permission can make the manager use.
	maxDecisions = 256
	// reviewTimeout limits both requests to the API server.
	reviewTimeout = 10 * time.Second
)

// NewFilter returns a filter that passes on the requests of clients that the API server authenticates by their
// bearer token and permits the verb on the path, such as get on /metrics. It is a FilterProvider of
// [metricsserver.Options]. The permissions that it needs are create on TokenReviews and SubjectAccessReviews.
func NewFilter(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
	r, err := newReviewer(config, httpClient)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			decision, err := r.review(request)
			switch {
			case err != nil:
				log.Error(err, "Failed to authorize a request for metrics")
				http.Error(w, "Authorization failed", http.StatusInternalServerError)
			case decision.code != http.StatusOK:
				http.Error(w, decision.message, decision.code)
			default:
				handler.ServeHTTP(w, request)
			}
		}), nil
	}, nil
}

type reviewer struct {
	tokens    authenticationclient.TokenReviewInterface
	access    authorizationclient.SubjectAccessReviewInterface
	decisions *cache.LRUExpireCache
}

func newReviewer(config *rest.Config, httpClient *http.Client) (*reviewer, error) {
	tokens, err := authenticationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("building a client for TokenReviews: %w", err)
	}
	access, err := authorizationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("building a client for SubjectAccessReviews: %w", err)
	}
	return &reviewer{tokens: tokens.TokenReviews(), access: access.SubjectAccessReviews(), decisions: cache.NewLRUExpireCache(maxDecisions)}, nil
}

// decision is the status code of the response, and its message unless the request is permitted.
type decision struct {
	code    int
	message string
}

var unauthenticated = decision{http.StatusUnauthorized, "Unauthorized"}

// question is what a decision is about. It has a hash of the token, so that the cache holds no credentials.
type question struct {
	token      [sha256.Size]byte
	verb, path string
}

func (r *reviewer) review(request *http.Request) (decision, error) {
	scheme, token, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return unauthenticated, nil
	}
	q := question{token: sha256.Sum256([]byte(token)), verb: strings.ToLower(request.Method), path: request.URL.Path}
	if known, ok := r.decisions.Get(q); ok {
		if d, ok := known.(decision); ok {
			return d, nil
		}
	}
	ctx, cancel := context.WithTimeout(request.Context(), reviewTimeout)
	defer cancel()
	d, err := r.decide(ctx, token, q)
	switch {
	case err != nil:
		return decision{}, err
	case d.code == http.StatusOK:
		r.decisions.Add(q, d, permittedTTL)
	default:
		r.decisions.Add(q, d, refusedTTL)
	}
	return d, nil
}

func (r *reviewer) decide(ctx context.Context, token string, q question) (decision, error) {
	identity, err := r.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{}) //nolint:forbidigo // the API server stores no review
	if err != nil {
		return decision{}, fmt.Errorf("creating a TokenReview: %w", err)
	}
	if !identity.Status.Authenticated {
		return unauthenticated, nil
	}
	user := identity.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	permission, err := r.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ //nolint:forbidigo // the API server stores no review
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: q.verb, Path: q.path},
	}}, metav1.CreateOptions{})
	if err != nil {
		return decision{}, fmt.Errorf("creating a SubjectAccessReview for %s: %w", user.Username, err)
	}
	if !permission.Status.Allowed || permission.Status.Denied {
		return decision{http.StatusForbidden, fmt.Sprintf("%s needs the permission to %s %s", user.Username, q.verb, q.path)}, nil
	}
	return decision{code: http.StatusOK}, nil
}
