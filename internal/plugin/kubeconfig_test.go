package plugin

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

// withKubeconfig returns options that were parsed from flags.
func withKubeconfig(t *testing.T, args ...string) (*options, error) {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o := &options{kubeconfig: kubeconfig(flags)}
	return o, flags.Parse(args)
}

func TestFlagsTakePrecedenceOverTheKubeconfig(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "config")
	g.Expect(os.WriteFile(path, []byte(`
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: c, cluster: {server: "https://c.test"}}, {name: d, cluster: {server: "https://d.test"}}]
users: [{name: u, user: {token: of-u}}]
contexts: [{name: one, context: {cluster: c, user: u, namespace: shop}}, {name: two, context: {cluster: d, user: u}}]
`), 0o600)).To(Succeed())
	t.Setenv("KUBECONFIG", path)

	for name, c := range map[string]struct {
		args      []string
		namespace string
		want      rest.Config
	}{
		"no flags":        {nil, "shop", rest.Config{Host: "https://c.test", BearerToken: "of-u"}},
		"another context": {[]string{"--context=two"}, "default", rest.Config{Host: "https://d.test", BearerToken: "of-u"}},
		"as kubectl abbreviates": {
			[]string{"-n", "web", "-s", "https://e.test"}, "web", rest.Config{Host: "https://e.test", BearerToken: "of-u"},
		},
		"another user": {[]string{"--token=mine"}, "shop", rest.Config{Host: "https://c.test", BearerToken: "mine"}},
		"impersonated": {
			[]string{"--as=jane", "--as-group=a", "--as-group=b", "--as-user-extra=scopes=x", "--as-user-extra=scopes=y=z"}, "shop",
			rest.Config{Host: "https://c.test", BearerToken: "of-u", Impersonate: rest.ImpersonationConfig{
				UserName: "jane", Groups: []string{"a", "b"}, Extra: map[string][]string{"scopes": {"x", "y=z"}},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o, err := withKubeconfig(t, c.args...)
			g.Expect(err).NotTo(HaveOccurred())
			config, err := o.restConfig()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(rest.Config{Host: config.Host, BearerToken: config.BearerToken, Impersonate: config.Impersonate}).To(Equal(c.want))
			namespace, _, err := o.kubeconfig.Namespace()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(namespace).To(Equal(c.namespace))
		})
	}
}

func TestKubeconfigsThatCannotBeUsed(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"there is none":              {nil, "no kubeconfig was found: set --kubeconfig or the environment variable KUBECONFIG, or write ~/.kube/config"},
		"the file does not exist":    {[]string{"--kubeconfig=/does/not/exist"}, "loading the kubeconfig: stat /does/not/exist: no such file or directory"},
		"the context does not exist": {[]string{"--context=other"}, `loading the kubeconfig: context "other" does not exist`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o, err := withKubeconfig(t, c.args...)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = o.restConfig()
			g.Expect(err).To(MatchError(c.want))
		})
	}
	g := NewWithT(t)
	_, err := withKubeconfig(t, "--as-user-extra=scopes")
	g.Expect(err).To(MatchError(ContainSubstring("use KEY=VALUE")))
}
