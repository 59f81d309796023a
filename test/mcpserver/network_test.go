package mcpserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
}

// newNetworkedFixture has a manager that probes each pod by its address.
func newNetworkedFixture(t *testing.T, edits ...func(*controllers.Options)) (*fixture, *network) {
	t.Helper()
	t.Parallel()
	w := newFixture(t)
	n := &network{w: w, byImage: map[string]*fakeServer{}, byPod: map[string]*fakeServer{}}
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
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(n.w.Namespace)); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		container := pod.Spec.Containers[0]
		if pod.Status.PodIP != host || fmt.Sprint(container.Ports[0].ContainerPort) != port {
			continue
		}
		return (&net.Dialer{}).DialContext(ctx, network, n.serverOf(pod.Name, container.Image).http.Listener.Addr().String())
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: errNobody}
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
