package mcpserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// network leads the connections that a prober opens to pods to servers beside the cluster: the URL,
// the Host and the certificate that is expected are those of the Service, as on a real network.
type network struct {
	w  *fixture
	mu sync.Mutex
	// byImage and byPod are where connections to pods of an image, and to single pods, lead to. The
	// others lead to the server of the fixture.
	byImage, byPod map[string]*fakeServer
	// pods are those of the namespace by their addresses; nil for an address whose pod is gone. A probe has seconds, of
	// which a request to a busy API server may take all, so a watch collects them.
	pods map[string]*corev1.Pod
	// changed is closed when pods changes.
	changed chan struct{}
}

// newNetwork watches the pods of the test until it ends.
func newNetwork(w *fixture) *network {
	w.T.Helper()
	n := &network{w: w, byImage: map[string]*fakeServer{}, byPod: map[string]*fakeServer{}, pods: map[string]*corev1.Pod{}, changed: make(chan struct{})}
	clientset, err := kubernetes.NewForConfig(shared.Admin())
	w.Expect(err).NotTo(HaveOccurred())
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(w.Namespace))
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { n.show(object, false) },
		UpdateFunc: func(_, object any) { n.show(object, false) },
		DeleteFunc: func(object any) { n.show(object, true) },
	})
	w.Expect(err).NotTo(HaveOccurred())
	factory.StartWithContext(w.T.Context())
	w.T.Cleanup(factory.Shutdown)
	return n
}

// show notes what the watch shows of a pod. The address of a pod that is gone may be that of another one by now.
func (n *network) show(object any, isGone bool) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Status.PodIP == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch before := n.pods[pod.Status.PodIP]; {
	case !isGone:
		n.pods[pod.Status.PodIP] = pod
	case before != nil && before.UID == pod.UID:
		n.pods[pod.Status.PodIP] = nil
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// podAt waits until the watch has shown a pod with the address. It returns nil if the pod is gone.
func (n *network) podAt(ctx context.Context, address string) (*corev1.Pod, error) {
	for {
		n.mu.Lock()
		pod, known := n.pods[address]
		changed := n.changed
		n.mu.Unlock()
		if known {
			return pod, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// newNetworkedFixture has a manager that probes each pod by its address.
func newNetworkedFixture(t *testing.T, edits ...func(*controllers.Options)) (*fixture, *network) {
	t.Helper()
	t.Parallel()
	w := newFixture(t)
	n := newNetwork(w)
	options := controllers.Options{Namespaces: []string{w.Namespace}, Controllers: []string{mcpserver.Name}, ProbeDial: n.dial}
	for _, edit := range edits {
		edit(&options)
	}
	w.StartManager(shared.Config(harness.ManagerUser), options)
	return w, n
}

// lead leads the connections to all pods of an image to a server.
func (n *network) lead(image string, to *fakeServer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byImage[image] = to
}

// leadPod leads the connections to one pod to a server.
func (n *network) leadPod(name string, to *fakeServer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byPod[name] = to
}

var errNobody = errors.New("no pod has this address")

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	pod, err := n.podAt(ctx, host)
	if err != nil {
		return nil, err
	}
	if pod == nil || fmt.Sprint(pod.Spec.Containers[0].Ports[0].ContainerPort) != port {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errNobody}
	}
	return (&net.Dialer{}).DialContext(ctx, network, n.serverOf(pod.Name, pod.Spec.Containers[0].Image).http.Listener.Addr().String())
}

func (n *network) serverOf(pod, image string) *fakeServer {
	n.mu.Lock()
	defer n.mu.Unlock()
	if server := n.byPod[pod]; server != nil {
		return server
	}
	if server := n.byImage[image]; server != nil {
		return server
	}
	return n.w.server
}
