package cluster

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Masters is the group with all permissions.
const Masters = "system:masters"

// Admin is the user of [Cluster.Admin].
const Admin = "admin"

const frontProxyUser = "front-proxy-client"

// Admin returns a config with all permissions.
func (c *Cluster) Admin() *rest.Config { return c.Config(Admin, Masters) }

// Config returns a config for a user in the given groups, as RBAC and the audit log see it. Any name is valid. The config has
// no rate limit and belongs to the caller. Config panics if it cannot create a certificate.
func (c *Cluster) Config(user string, groups ...string) *rest.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	identity, err := c.identity(user, groups)
	if err != nil {
		panic(err)
	}
	return &rest.Config{
		Host: c.URL(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.credentials.ca.pem, CertData: identity.certificate, KeyData: identity.key,
		},
		QPS: -1,
	}
}

// Kubeconfig writes a kubeconfig of a user in the given groups and returns its path.
func (c *Cluster) Kubeconfig(user string, groups ...string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kubeconfigOf(user, groups)
}

// kubeconfigOf implements Kubeconfig for callers that hold c.mu.
func (c *Cluster) kubeconfigOf(user string, groups []string) (string, error) {
	identity, err := c.identity(user, groups)
	if err != nil {
		return "", err
	}
	const name = "fixpoint-local"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthorityData: c.credentials.ca.pem}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: identity.certificate, ClientKeyData: identity.key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	path := c.dir.file(fmt.Sprintf("kubeconfig-%s", fileName(user, groups)))
	// A kubectl of another test may be reading the file.
	written := path + ".new"
	if err := clientcmd.WriteToFile(*config, written); err != nil {
		return "", fmt.Errorf("writing a kubeconfig for %s: %w", user, err)
	}
	if err := os.Rename(written, path); err != nil {
		return "", fmt.Errorf("writing a kubeconfig for %s: %w", user, err)
	}
	return path, nil
}

// URL is the address of the API server.
func (c *Cluster) URL() string { return "https://" + loopback + ":" + c.apiPort.String() }

// identity caches the certificates, so that connections of a user are shared. The caller holds c.mu.
func (c *Cluster) identity(user string, groups []string) (pair, error) {
	key := identityKey(user, groups)
	if known, ok := c.users[key]; ok {
		return known, nil
	}
	made, err := c.credentials.ca.client(user, groups)
	if err != nil {
		return pair{}, fmt.Errorf("creating a certificate for user %q: %w", user, err)
	}
	c.users[key] = made
	return made, nil
}

func identityKey(user string, groups []string) string {
	return strings.Join(append([]string{user}, groups...), "\x00")
}

// fileName returns a readable or at least unique file name for a user.
func fileName(user string, groups []string) string {
	safe := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, user)
	if safe == user && len(groups) == 0 {
		return user
	}
	return fmt.Sprintf("%s-%x", safe, sha256.Sum256([]byte(identityKey(user, groups))))[:len(safe)+9]
}
