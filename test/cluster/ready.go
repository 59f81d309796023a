package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// awaitUsable waits until the namespace default has the objects that every pod needs.
func (c *Cluster) awaitUsable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	clientset, err := client(c.Admin())
	if err != nil {
		return err
	}
	err = await(ctx, "the namespace default", func(ctx context.Context) error {
		return c.usable(ctx, clientset)
	})
	if err != nil {
		return err
	}
	c.options.report("the local cluster is ready")
	return nil
}

func (c *Cluster) usable(ctx context.Context, clientset kubernetes.Interface) error {
	core := clientset.CoreV1()
	if _, err := core.Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
		return err
	}
	if !c.options.Parts.has(ControllerManager) {
		return nil
	}
	if _, err := core.ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return err
	}
	_, err := core.ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	return err
}

// await polls until a function succeeds. Invalid and Forbidden errors end the wait.
func await(ctx context.Context, what string, done func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		last = done(ctx)
		if apierrors.IsInvalid(last) || apierrors.IsForbidden(last) {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, firstError(last, err))
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
