package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

// fleet is what the manager has to look after.
type fleet struct {
	api          client.Client
	o            options
	subscription string
}

func newFleet(c *cluster.Cluster, o options, subscription string) (*fleet, error) {
	api, err := client.New(c.Admin(), client.Options{Scheme: controllers.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &fleet{api: api, o: o, subscription: subscription}, nil
}

// writers is how many objects are made at a time.
const writers = 8

func (f *fleet) create(ctx context.Context) error {
	objects := make(chan client.Object)
	go func() {
		defer close(objects)
		for _, object := range f.objects() {
			objects <- object
		}
	}()
	var once sync.Once
	var failure error
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for object := range objects {
				if err := f.api.Create(ctx, object); err != nil {
					once.Do(func() { failure = fmt.Errorf("making %s: %w", object.GetName(), err) })
				}
			}
		})
	}
	group.Wait()
	return failure
}

func (f *fleet) objects() []client.Object {
	var objects []client.Object
	for i := range f.o.appServices {
		objects = append(objects, &v1beta1.AppService{ObjectMeta: named("app", i), Spec: v1beta1.AppServiceSpec{
			Image:            "registry.test/web:1",
			Replicas:         ptr.To[int32](2),
			Config:           map[string]string{"GREETING": "hello", "LOG_LEVEL": "info"},
			DisruptionBudget: &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))},
		}})
	}
	for i := range f.o.mcpServers {
		objects = append(objects, &v1beta1.MCPServer{ObjectMeta: named("mcp", i), Spec: v1beta1.MCPServerSpec{
			Image:    "registry.test/tools:1",
			Replicas: ptr.To[int32](1),
			Files:    []v1beta1.MCPServerFile{{Path: "/etc/settings", Content: "mode: fast"}},
			Protocol: v1beta1.MCPServerProtocol{Interval: metav1.Duration{Duration: 30 * time.Second}, Timeout: metav1.Duration{Duration: 5 * time.Second}},
		}})
	}
	for i := range f.o.secureOnes {
		objects = append(objects, &v1beta1.SecureStorage{ObjectMeta: named("sst", i), Spec: v1beta1.SecureStorageSpec{
			Provider: v1beta1.SecureStorageProvider{SubscriptionID: f.subscription, ResourceGroup: "fixpoint-demo", Location: "westeurope"},
			Key:      v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: "fixpoint-demo"}, Name: "storage"},
		}})
	}
	return objects
}

func named(prefix string, i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%05d", prefix, i)}
}

// await waits until all are Ready.
func (f *fleet) await(ctx context.Context) error {
	ticker := time.NewTicker(5 * time.Second)
	defer ticker.Stop()
	for {
		waiting, err := f.waiting(ctx)
		if err == nil && waiting == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d objects are not Ready in time", waiting), err, context.Cause(ctx))
		case <-ticker.C:
			fmt.Fprintf(os.Stderr, "%d objects are not Ready yet\n", waiting)
		}
	}
}

func (f *fleet) waiting(ctx context.Context) (int, error) {
	var apps v1beta1.AppServiceList
	var servers v1beta1.MCPServerList
	var storages v1beta1.SecureStorageList
	for _, list := range []client.ObjectList{&apps, &servers, &storages} {
		if err := f.api.List(ctx, list); err != nil {
			return 0, fmt.Errorf("listing: %w", err)
		}
	}
	waiting := 0
	count := func(conditions []metav1.Condition) {
		if !meta.IsStatusConditionTrue(conditions, "Ready") {
			waiting++
		}
	}
	for i := range apps.Items {
		count(apps.Items[i].Status.Conditions)
	}
	for i := range servers.Items {
		count(servers.Items[i].Status.Conditions)
	}
	for i := range storages.Items {
		count(storages.Items[i].Status.Conditions)
	}
	return waiting, nil
}

// settle waits until the memory of a process has not changed by more than a hundredth for a while: the
// garbage collector gives back to the system what it does not need, within minutes.
func settle(ctx context.Context, pid int) (measure.Memory, error) {
	const looks, pause = 6, 5 * time.Second
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	last, steady := measure.Memory{}, 0
	for steady < looks {
		now, err := measure.MemoryOf(pid)
		if err != nil {
			return measure.Memory{}, err
		}
		if difference := now.Resident - last.Resident; max(difference, -difference) < now.Resident/100 {
			steady++
		} else {
			steady = 0
			last = now
		}
		select {
		case <-ctx.Done():
			return now, nil
		case <-ticker.C:
		}
	}
	return measure.MemoryOf(pid)
}
