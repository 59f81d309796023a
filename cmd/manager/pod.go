package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// namespaceFile is where a pod finds its own namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// registerPod adds the flags that say where the manager's own pods are.
func (s *settings) registerPod(flags *flag.FlagSet) {
	flags.StringVar(&s.options.PodNamespace, "pod-namespace", ownNamespace(namespaceFile), "Namespace of the manager's own pods, which the network policies of MCPServers let in; found out in a pod.")
	flags.Var((*podLabels)(&s.options.PodLabels), "pod-labels", "Labels of the manager's own pods, as key=value, separated by commas; without them the network policies of MCPServers let its whole namespace in.")
}

// ownNamespace is empty outside of a pod.
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

// String implements flag.Value.
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
		return fmt.Errorf("give labels as key=value, separated by commas: %w", err)
	}
	*l = podLabels(parsed)
	return nil
}
