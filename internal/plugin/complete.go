package plugin

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// completionTimeout bounds how long a key press waits for the API server.
const completionTimeout = 3 * time.Second

// completeObjects completes KIND, and after the slash NAME.
func (o *options) completeObjects(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kindName, _, slash := strings.Cut(typed, "/")
	var found []string
	if !slash {
		for _, k := range kinds {
			found = append(found, strings.ToLower(k.name)+"/")
		}
		return found, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	k, err := kindOf(kindName)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, name := range o.names(command.Context(), k.list(), true) {
		found = append(found, kindName+"/"+name)
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeServers completes names of MCPServers, after their kind and a slash if these are typed.
func (o *options) completeServers(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	prefix, isServer := serverPrefix(typed)
	if len(args) > 0 || !isServer {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found := o.names(command.Context(), &v1beta1.MCPServerList{}, true)
	for i := range found {
		found[i] = prefix + found[i]
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// serverPrefix is what is typed before the name of an MCPServer: nothing, or its kind and a slash.
func serverPrefix(typed string) (prefix string, isServer bool) {
	kindName, _, slash := strings.Cut(typed, "/")
	if !slash {
		return "", true
	}
	k, err := kindOf(kindName)
	return kindName + "/", err == nil && k.resource == "mcpservers"
}

// names lists the names of objects, at most a page; none if they cannot be read.
func (o *options) names(ctx context.Context, list client.ObjectList, inNamespace bool) []string {
	c, err := o.connect()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	gvks, _, err := scheme.ObjectKinds(list)
	if err != nil {
		return nil
	}
	metadata := &metav1.PartialObjectMetadataList{}
	metadata.SetGroupVersionKind(gvks[0])
	options := []client.ListOption{client.Limit(pageSize)}
	if inNamespace {
		options = append(options, client.InNamespace(c.namespace))
	}
	if err := c.List(ctx, metadata, options...); err != nil {
		return nil
	}
	var names []string
	for i := range metadata.Items {
		names = append(names, metadata.Items[i].Name)
	}
	return names
}

func withSubcommands(command *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{command}
	for _, sub := range command.Commands() {
		all = append(all, withSubcommands(sub)...)
	}
	return all
}

// completeFlags completes namespaces, contexts and formats.
func completeFlags(root *cobra.Command, o *options) {
	complete := func(flag string, values func(context.Context) []string) {
		for _, command := range withSubcommands(root) {
			if command.LocalFlags().Lookup(flag) == nil {
				continue
			}
			// It fails for a flag that does not exist, or that is completed already.
			_ = command.RegisterFlagCompletionFunc(flag, func(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
				return values(command.Context()), cobra.ShellCompDirectiveNoFileComp
			})
		}
	}
	complete("namespace", func(ctx context.Context) []string { return o.names(ctx, &corev1.NamespaceList{}, false) })
	complete("output", func(context.Context) []string { return []string{"json", "yaml"} })
	complete("context", func(context.Context) []string {
		config, err := o.kubeconfig.RawConfig()
		if err != nil {
			return nil
		}
		var names []string
		for name := range config.Contexts {
			names = append(names, name)
		}
		return names
	})
}
