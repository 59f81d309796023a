package deploy

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Right is a verb on a resource, or on a path, as a rule of a role grants it.
type Right struct{ Verb, Group, Resource, NonResourceURL string }

// String is what a person would call it.
func (r Right) String() string {
	if r.NonResourceURL != "" {
		return r.Verb + " " + r.NonResourceURL
	}
	if r.Group == "" {
		return r.Verb + " " + r.Resource
	}
	return r.Verb + " " + r.Resource + "." + r.Group
}

// Recorder is an authorizer that has no opinion, and remembers what it is asked about service
// accounts. So it knows every right that is used, also those that no audit log shows: creating by an
// apply, or setting an owner whose deletion waits for its child.
type Recorder struct {
	server *httptest.Server

	mu   sync.Mutex
	used map[string]map[Right]int
}

// NewRecorder starts one.
func NewRecorder() *Recorder {
	r := &Recorder{used: map[string]map[Right]int{}}
	r.server = httptest.NewTLSServer(http.HandlerFunc(r.answer))
	return r
}

// Close stops it.
func (r *Recorder) Close() { r.server.Close() }

// Used are the rights that the user has made use of so far, or tried to.
func (r *Recorder) Used(user string) map[Right]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	used := map[Right]bool{}
	for right := range r.used[user] {
		used[right] = true
	}
	return used
}

func (r *Recorder) answer(w http.ResponseWriter, request *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.record(review.Spec)
	review.Status = authorizationv1.SubjectAccessReviewStatus{}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// Unrecorded is a group of users in reviews that tests send, which use no right.
const Unrecorded = "fixpoint.test:unrecorded"

func (r *Recorder) record(asked authorizationv1.SubjectAccessReviewSpec) {
	if slices.Contains(asked.Groups, Unrecorded) {
		return
	}
	right := Right{}
	switch {
	case asked.ResourceAttributes != nil:
		a := asked.ResourceAttributes
		right = Right{Verb: a.Verb, Group: a.Group, Resource: a.Resource}
		if a.Subresource != "" {
			right.Resource += "/" + a.Subresource
		}
	case asked.NonResourceAttributes != nil:
		right = Right{Verb: asked.NonResourceAttributes.Verb, NonResourceURL: asked.NonResourceAttributes.Path}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used[asked.User] == nil {
		r.used[asked.User] = map[Right]int{}
	}
	r.used[asked.User][right]++
}

// configuration asks the recorder first, and then goes on as ever. The timeout is the longest that is allowed: without an
// answer, which a busy machine may delay, the request is denied.
const configuration = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: recorder
  webhook:
    cacheAuthorizedRequests: false
    cacheUnauthorizedRequests: false
    authorizedTTL: 1s
    unauthorizedTTL: 1s
    timeout: 30s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo:
      type: KubeConfigFile
      kubeConfigFile: %s
    matchConditions:
    - expression: request.user.startsWith('system:serviceaccount:') && !request.user.startsWith('system:serviceaccount:kube-system:')
- type: Node
  name: node
- type: RBAC
  name: rbac
`

// WriteConfig writes into dir what the API server needs to ask the recorder, and returns the file
// that its --authorization-config names.
func (r *Recorder) WriteConfig(dir string) (string, error) {
	const name = "recorder"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   r.server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw}),
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	config.CurrentContext = name
	kubeconfig := filepath.Join(dir, "recorder.kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return "", fmt.Errorf("writing the recorder's kubeconfig: %w", err)
	}
	path := filepath.Join(dir, "authorization.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, configuration, kubeconfig), 0o600); err != nil {
		return "", fmt.Errorf("writing the authorization's configuration: %w", err)
	}
	return path, nil
}

// IsForEverybody reports whether a right needs no role: discovery, self subject access reviews, and the right
// to set the finalizers of every kind, which the API server checks first to avoid a check for each kind.
func (r Right) IsForEverybody() bool {
	switch {
	case r == Right{Verb: "update", Group: "*", Resource: "*/finalizers"}:
		return true
	case r.NonResourceURL != "":
		return strings.HasPrefix(r.NonResourceURL, "/api") || strings.HasPrefix(r.NonResourceURL, "/openapi") || r.NonResourceURL == "/version"
	default:
		return r.Group == "authorization.k8s.io" && strings.HasPrefix(r.Resource, "selfsubject")
	}
}
