package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeconfig returns the configuration that the kubeconfig and the flags give, and adds the flags, which are those of
// kubectl. It is read when it is first used. [k8s.io/cli-runtime] has the same with kustomize, which imports the package
// plugin, so that the linker keeps every exported method: binaries are twice as large.
func kubeconfig(flags *pflag.FlagSet) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests.")

	overrides := &clientcmd.ConfigOverrides{}
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	// The API server has not accepted passwords since Kubernetes 1.19.
	names.AuthOverrideFlags.Username, names.AuthOverrideFlags.Password = clientcmd.FlagInfo{}, clientcmd.FlagInfo{}
	clientcmd.BindOverrideFlags(overrides, flags, names)
	flags.Func("as-user-extra", "User extras to impersonate for the operation, this flag can be repeated to specify multiple values for the same key.", func(extra string) error {
		key, value, ok := strings.Cut(extra, "=")
		if !ok {
			return errors.New("use KEY=VALUE")
		}
		if overrides.AuthInfo.ImpersonateUserExtra == nil {
			overrides.AuthInfo.ImpersonateUserExtra = map[string][]string{}
		}
		overrides.AuthInfo.ImpersonateUserExtra[key] = append(overrides.AuthInfo.ImpersonateUserExtra[key], value)
		return nil
	})
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// restConfig returns the configuration of clients.
func (o *options) restConfig() (*rest.Config, error) {
	config, err := o.kubeconfig.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no kubeconfig was found: set --kubeconfig or the environment variable KUBECONFIG, or write ~/.kube/config")
	}
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	return config, nil
}
