package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
)

// namespaceFile contains the namespace of the pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// registerPod adds the flags that select the manager's own pods.
func (s *settings) registerPod(flags *flag.FlagSet) {
	flags.StringVar(&s.options.PodNamespace, "pod-namespace", ownNamespace(namespaceFile), "Namespace of the manager's own pods, from which the NetworkPolicies of MCPServers allow traffic. Defaults to the namespace of the pod.")
	flags.Func("pod-overrides", "What the manager permits in the pods of MCPServers: none (no spec.podOverrides), restricted (pods that satisfy the restricted Pod Security Standard; the default) or all. With none and restricted, this also applies to the security contexts in the spec.", func(text string) (err error) {
		s.options.PodOverrides, err = mcpserver.ParseOverridesPolicy(text)
		return err
	})
	flags.Var((*podLabels)(&s.options.PodLabels), "pod-labels", "Comma-separated key=value labels of the manager's own pods. Without labels, the NetworkPolicies of MCPServers allow traffic from its whole namespace.")
}

// ownNamespace returns the namespace of the pod, and an empty string outside of a pod.
func ownNamespace(file string) string {
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		return namespace
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// podLabels is a flag such as app=manager,team=a.
type podLabels map[string]string

func (l *podLabels) String() string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(*l)) {
		pairs = append(pairs, key+"="+(*l)[key])
	}
	return strings.Join(pairs, ",")
}

// Set implements flag.Value.
func (l *podLabels) Set(text string) error {
	parsed, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return fmt.Errorf("set labels as key=value, separated by commas: %w", err)
	}
	*l = podLabels(parsed)
	return nil
}
