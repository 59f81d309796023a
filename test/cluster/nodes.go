package cluster

import (
	"context"
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// stages configures how kwok simulates nodes and pods.
//
//go:embed stages.yaml
var stages []byte

func nodesArgs(c *Cluster, _ *port) ([]string, error) {
	kubeconfig, err := c.kubeconfigOf("kwok", []string{Masters})
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--config=" + c.dir.file("kwok.yaml"),
		"--manage-all-nodes",
		"--cidr=10.244.0.0/16",
		"--node-ip=10.0.0.1",
		"--node-lease-duration-seconds=40",
	}, err
}

// nodesReady creates missing nodes and checks that all accept pods.
func nodesReady(ctx context.Context, c *Cluster, _ *port) error {
	clientset, err := client(c.Admin())
	if err != nil {
		return err
	}
	for i := range c.options.Nodes {
		if err := nodeReady(ctx, clientset, fmt.Sprintf("node-%d", i+1), c.options.Parts.has(ControllerManager)); err != nil {
			return err
		}
	}
	return nil
}

func nodeReady(ctx context.Context, clientset kubernetes.Interface, name string, untainted bool) error {
	node, err := clientset.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = clientset.CoreV1().Nodes().Create(ctx, newNode(name), metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("creating node %s: %w", name, err)
	}
	if !isReady(node) {
		return fmt.Errorf("node %s is not ready", name)
	}
	// The controller manager removes the taint of an unready node with a delay.
	if untainted && len(node.Spec.Taints) > 0 {
		return fmt.Errorf("node %s has the taint %s", name, node.Spec.Taints[0].Key)
	}
	return nil
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			corev1.LabelHostname:   name,
			corev1.LabelArchStable: "amd64",
			corev1.LabelOSStable:   "linux",
			// Topology spread constraints need zones.
			corev1.LabelTopologyZone: "zone-" + name,
		},
	}}
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
