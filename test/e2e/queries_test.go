package e2e_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// quietPeriod is how long something must not happen.
const quietPeriod = 3 * time.Second

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

func containsFold(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

func kindLists() []client.ObjectList {
	return []client.ObjectList{&v1beta1.AppServiceList{}, &v1beta1.MCPServerList{}, &v1beta1.SecureStorageList{}}
}

func objectsIn(list client.ObjectList) []client.Object {
	var objects []client.Object
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok {
			objects = append(objects, object)
		}
		return nil
	})
	return objects
}

func podsOf(server *v1beta1.MCPServer) client.MatchingLabels {
	return client.MatchingLabels{"app.kubernetes.io/name": server.Name}
}

// terminationMessage returns the termination message of a container of the pod.
func terminationMessage(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		for _, state := range []corev1.ContainerState{c.State, c.LastTerminationState} {
			if state.Terminated != nil && state.Terminated.Message != "" {
				return strings.TrimSpace(state.Terminated.Message)
			}
		}
	}
	return ""
}

// revision returns the number of rollouts of a Deployment.
func (env *environment) revision(name string) int64 {
	var deployment appsv1.Deployment
	env.Expect(api.Get(env.ctx, env.key(name), &deployment)).To(Succeed())
	revision, err := strconv.ParseInt(deployment.Annotations["deployment.kubernetes.io/revision"], 10, 64)
	env.Expect(err).NotTo(HaveOccurred())
	return revision
}

func (env *environment) events(reason string) []eventsv1.Event {
	var list eventsv1.EventList
	env.Expect(api.List(env.ctx, &list, client.InNamespace(env.namespace))).To(Succeed())
	var found []eventsv1.Event
	for _, e := range list.Items {
		if e.Reason == reason {
			found = append(found, e)
		}
	}
	return found
}

// managers returns the manager's pods that are not terminating.
func (env *environment) managers() []corev1.Pod {
	var list corev1.PodList
	env.Expect(api.List(env.ctx, &list, client.InNamespace(systemNamespace), client.MatchingLabels{"control-plane": "controller-manager"})).To(Succeed())
	var live []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			live = append(live, pod)
		}
	}
	return live
}

// holder returns the pod that holds the Lease, or an empty string.
func holder() (string, error) {
	var lease coordinationv1.Lease
	if err := api.Get(context.Background(), client.ObjectKey{Namespace: systemNamespace, Name: controllers.LeaderElectionID}, &lease); err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	return name, nil
}

// leader returns the pod that leads.
func (env *environment) leader() corev1.Pod {
	env.t.Helper()
	var leader corev1.Pod
	env.Eventually(func(g Gomega) {
		name, err := holder()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(name).NotTo(BeEmpty())
		g.Expect(api.Get(env.ctx, client.ObjectKey{Namespace: systemNamespace, Name: name}, &leader)).To(Succeed())
		g.Expect(leader.DeletionTimestamp).To(BeNil())
	}).Should(Succeed())
	return leader
}

func (env *environment) cloudPod() corev1.Pod {
	var list corev1.PodList
	env.Expect(api.List(env.ctx, &list, client.InNamespace(cloudNamespace))).To(Succeed())
	env.Expect(list.Items).NotTo(BeEmpty())
	return list.Items[0]
}

// cloudGet sends a request to the admin API of the fake cloud.
func (env *environment) cloudGet(path string) ([]byte, error) {
	return clientset.CoreV1().Pods(cloudNamespace).ProxyGet("http", env.cloudPod().Name, "7443", path, nil).DoRaw(env.ctx)
}

// ledger returns all mutating calls to the cloud.
func (env *environment) ledger() []fakecloud.Entry {
	env.t.Helper()
	var entries []fakecloud.Entry
	env.Eventually(func(g Gomega) {
		content, err := env.cloudGet("/_admin/ledger")
		g.Expect(err).NotTo(HaveOccurred())
		entries = nil
		g.Expect(json.Unmarshal(content, &entries)).To(Succeed())
	}).Should(Succeed())
	return entries
}
