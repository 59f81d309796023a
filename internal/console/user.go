package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

// user is one credential, and the access to the API server with it.
type user struct {
	// digest identifies the credential.
	digest    string
	transport http.RoundTripper
	reviews   authenticationclient.SelfSubjectReviewInterface
	api       dynamic.Interface
	values    *plugin.Client
	hub       *hub

	mu        sync.Mutex
	is        authenticationv1.UserInfo
	confirmed time.Time
	used      time.Time
}

// confirmTime is how long the API server's word on who a user is holds.
const confirmTime = 10 * time.Second

func randomText() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

func digestOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// configOf is the configuration of requests with a credential; the empty token is the kubeconfig's own.
func (s *Server) configOf(token string) *rest.Config {
	if token == "" {
		return rest.CopyConfig(s.options.Config)
	}
	config := rest.AnonymousClientConfig(s.options.Config)
	config.BearerToken = token
	return config
}

// userOf is the user with a credential.
func (s *Server) userOf(token string) (*user, error) {
	digest := digestOf(token)
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.users[digest]; u != nil {
		u.used = time.Now()
		return u, nil
	}
	s.dropUsers()
	u, err := s.newUser(digest, s.configOf(token))
	if err != nil {
		return nil, err
	}
	s.users[digest] = u
	return u, nil
}

func (s *Server) newUser(digest string, config *rest.Config) (*user, error) {
	config.QPS = -1 // API Priority and Fairness limits requests on the server
	config.UserAgent = "fixpoint-console"
	config.WarningHandler = rest.NoWarnings{}
	u := &user{digest: digest, used: time.Now()}
	var err error
	if u.transport, err = rest.TransportFor(config); err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	shared := &http.Client{Transport: u.transport}
	reviews, err := authenticationclient.NewForConfigAndClient(config, shared)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	u.reviews = reviews.SelfSubjectReviews()
	if u.api, err = dynamic.NewForConfigAndClient(config, shared); err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	if u.values, err = plugin.NewClient(config, s.options.Cloud); err != nil {
		return nil, err
	}
	u.hub = newHub(u.api)
	return u, nil
}

// maxUsers bounds the credentials that are remembered.
const maxUsers = 1000

// dropUsers forgets the users without streams who were not seen for a while, or for the longest time.
func (s *Server) dropUsers() {
	var oldest *user
	for digest, u := range s.users {
		if u.hub.isBusy() {
			continue
		}
		if time.Since(u.used) > idleTime {
			u.hub.cancel()
			delete(s.users, digest)
		} else if oldest == nil || u.used.Before(oldest.used) {
			oldest = u
		}
	}
	if len(s.users) >= maxUsers && oldest != nil {
		oldest.hub.cancel()
		delete(s.users, oldest.digest)
	}
}

// forget drops a user whose hub has stopped.
func (s *Server) forget(u *user) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[u.digest] == u {
		delete(s.users, u.digest)
	}
}

// confirm asks the API server who the user is, so that an expired credential sees nothing of what is remembered.
func (s *Server) confirm(ctx context.Context, u *user) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.confirmed) < confirmTime {
		return nil
	}
	review, err := u.reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}) //nolint:forbidigo // the API server stores no review
	if err != nil {
		return err
	}
	u.is, u.confirmed = review.Status.UserInfo, time.Now()
	return nil
}

// identity is what the API server has said last about who the user is.
func (u *user) identity() authenticationv1.UserInfo {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.is
}

// doubt makes the next confirm ask the API server, after it has not accepted the credential.
func (u *user) doubt() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.confirmed = time.Time{}
}
