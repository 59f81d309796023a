package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// model is the name of the MCPServer whose children the bare client copies. It stands nowhere else
// in them, so that it can be replaced as text.
const model = "model-of-all"

type bench struct {
	cluster *cluster.Cluster
	user    client.Client
	count   int
}

func unlimited(c *cluster.Cluster, user string) *rest.Config {
	cfg := rest.CopyConfig(c.Config(user, cluster.Masters))
	cfg.QPS = -1
	return cfg
}

func (b *bench) name(i int) string { return fmt.Sprintf("server-%d", i) }

func (b *bench) newNamespace(ctx context.Context, prefix string) (string, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	if err := b.user.Create(ctx, namespace); err != nil {
		return "", err
	}
	account := client.ObjectKey{Namespace: namespace.Name, Name: "default"}
	return namespace.Name, poll(ctx, func(ctx context.Context) (bool, error) {
		err := b.user.Get(ctx, account, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
}

func newServer(namespace, name string) *v1alpha1.MCPServer {
	server := &v1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	server.Spec.Image = "registry.test/tools:1"
	server.Spec.Protocol = v1alpha1.MCPServerProtocol{
		Disabled: true, Interval: metav1.Duration{Duration: 30 * time.Second}, Timeout: metav1.Duration{Duration: 5 * time.Second}}
	return server
}

func poll(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, condition)
}

// each does something for every name, as many at a time as the manager has workers.
func (b *bench) each(ctx context.Context, do func(ctx context.Context, name string) error) error {
	failures := make([]error, b.count)
	workqueue.ParallelizeUntil(ctx, concurrency, b.count, func(i int) { failures[i] = do(ctx, b.name(i)) })
	return errors.Join(failures...)
}

// children are the Service and the Deployment that the manager applies for an MCPServer.
func (b *bench) children(ctx context.Context) ([]string, error) {
	namespace, err := b.newNamespace(ctx, "model-")
	if err != nil {
		return nil, err
	}
	if err := b.user.Create(ctx, newServer(namespace, model)); err != nil {
		return nil, err
	}
	if err := b.untilReady(ctx, namespace, 1); err != nil {
		return nil, err
	}
	key := client.ObjectKey{Namespace: namespace, Name: model}
	var service corev1.Service
	var deployment appsv1.Deployment
	if err := b.user.Get(ctx, key, &service); err != nil {
		return nil, err
	}
	if err := b.user.Get(ctx, key, &deployment); err != nil {
		return nil, err
	}
	first, err := corev1ac.ExtractService(&service, mcpserver.FieldManager)
	if err != nil {
		return nil, err
	}
	second, err := appsv1ac.ExtractDeployment(&deployment, mcpserver.FieldManager)
	if err != nil {
		return nil, err
	}
	return texts(namespace, withoutOwner{first, first.ObjectMetaApplyConfiguration}, withoutOwner{second, second.ObjectMetaApplyConfiguration})
}

// withoutOwner is a configuration whose owner is to be left out.
type withoutOwner struct {
	configuration any
	metadata      *metav1ac.ObjectMetaApplyConfiguration
}

func texts(namespace string, children ...withoutOwner) ([]string, error) {
	var all []string
	for _, child := range children {
		child.metadata.OwnerReferences = nil
		raw, err := json.Marshal(child.configuration)
		if err != nil {
			return nil, err
		}
		all = append(all, strings.ReplaceAll(string(raw), fmt.Sprintf("%q", namespace), `"NAMESPACE"`))
	}
	return all, nil
}

// bare applies the children with nothing around it, and waits for the same Deployments.
func (b *bench) bare(ctx context.Context, children []string) (time.Duration, error) {
	namespace, err := b.newNamespace(ctx, "bare-")
	if err != nil {
		return 0, err
	}
	api, err := client.New(unlimited(b.cluster, bareUser), client.Options{})
	if err != nil {
		return 0, err
	}
	replace := func(text, name string) string {
		return strings.NewReplacer("NAMESPACE", namespace, model, name).Replace(text)
	}
	started := time.Now()
	err = b.each(ctx, func(ctx context.Context, name string) error {
		for _, text := range children {
			object := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(replace(text, name)), &object.Object); err != nil {
				return err
			}
			if err := api.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(bareUser), client.ForceOwnership); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = poll(ctx, func(ctx context.Context) (bool, error) {
		var list appsv1.DeploymentList
		err := b.user.List(ctx, &list, client.InNamespace(namespace))
		available := 0
		for i := range list.Items {
			if list.Items[i].Status.AvailableReplicas > 0 {
				available++
			}
		}
		return available == b.count, err
	})
	return time.Since(started), err
}

// managed makes MCPServers and waits until all are Ready.
func (b *bench) managed(ctx context.Context) (time.Duration, cluster.Requests, error) {
	namespace, err := b.newNamespace(ctx, "managed-")
	if err != nil {
		return 0, nil, err
	}
	mark, err := b.cluster.Audit().Mark()
	if err != nil {
		return 0, nil, err
	}
	started := time.Now()
	err = b.each(ctx, func(ctx context.Context, name string) error { return b.user.Create(ctx, newServer(namespace, name)) })
	if err != nil {
		return 0, nil, err
	}
	if err := b.untilReady(ctx, namespace, b.count); err != nil {
		return 0, nil, err
	}
	took := time.Since(started)
	requests, err := b.settled(ctx, mark)
	return took, requests.Writes(), err
}

func (b *bench) untilReady(ctx context.Context, namespace string, count int) error {
	return poll(ctx, func(ctx context.Context) (bool, error) {
		var list v1alpha1.MCPServerList
		err := b.user.List(ctx, &list, client.InNamespace(namespace))
		ready := 0
		for i := range list.Items {
			if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		return ready == count, err
	})
}

// settled returns the manager's requests when it has sent none for a while.
func (b *bench) settled(ctx context.Context, mark cluster.Mark) (cluster.Requests, error) {
	const quiet = 5 * time.Second
	seen, since := -1, time.Now()
	var requests cluster.Requests
	err := poll(ctx, func(context.Context) (bool, error) {
		var err error
		if requests, err = b.requests(mark); err != nil {
			return false, err
		}
		if len(requests) != seen {
			seen, since = len(requests), time.Now()
		}
		return time.Since(since) > quiet, nil
	})
	return requests, err
}

// requests are those of the manager, watches and Events aside.
func (b *bench) requests(mark cluster.Mark) (cluster.Requests, error) {
	all, err := b.cluster.Audit().Since(mark)
	if err != nil {
		return nil, err
	}
	return all.By(managerUser).Except("events.events.k8s.io").Where(func(r cluster.Request) bool { return r.Verb != "watch" }), nil
}

func (b *bench) atRest(ctx context.Context, window time.Duration) (cluster.Requests, error) {
	mark, err := b.cluster.Audit().Mark()
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(window):
	}
	return b.requests(mark)
}
