package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// podAddress says whose address an address is.
type podAddress int

const (
	// ownPod is the address of a pod of the MCPServer. Zero is none of either.
	ownPod podAddress = iota + 1
	// nodeAddress is the address of a node, which is that of a pod in the host network.
	nodeAddress
)

// podReader finds the addresses of the pods of MCPServers. It lists the pods from the API server, because
// the cache holds no pods, and caches the addresses until an EndpointSlice changes. It is safe for
// concurrent use.
type podReader struct {
	uncached client.Reader
	// known has the podAddresses by MCPServer.
	known sync.Map
}

// podAddresses are the addresses of pods for a version of the EndpointSlices.
type podAddresses struct {
	version string
	of      map[string]podAddress
}

// addresses are the addresses of the pods of a server, by the pods' own status, which only a kubelet may
// write.
func (r *podReader) addresses(ctx context.Context, server *v1beta1.MCPServer, endpoints []discoveryv1.EndpointSlice) (map[string]podAddress, error) {
	if len(endpoints) == 0 {
		return nil, nil
	}
	key := client.ObjectKeyFromObject(server)
	version := string(server.UID) + versionOf(endpoints)
	cached, _ := r.known.Load(key)
	if known, _ := cached.(podAddresses); known.version == version {
		return known.of, nil
	}
	var pods corev1.PodList
	if err := r.uncached.List(ctx, &pods, client.InNamespace(server.Namespace), client.MatchingLabels(selectorOf(server))); err != nil {
		return nil, fmt.Errorf("listing the pods of MCPServer %s: %w", server.Name, err)
	}
	of := addressesOf(pods.Items)
	r.known.Store(key, podAddresses{version, of})
	return of, nil
}

// addressesOf maps the addresses of running pods.
func addressesOf(pods []corev1.Pod) map[string]podAddress {
	of := map[string]podAddress{}
	for i := range pods {
		pod := &pods[i]
		if workload.HasEnded(pod) {
			continue // the address may be that of another pod by now
		}
		for _, ip := range pod.Status.PodIPs {
			if pod.Spec.HostNetwork || isNodeAddress(pod, ip.IP) {
				of[ip.IP] = nodeAddress
			} else if of[ip.IP] != nodeAddress {
				of[ip.IP] = ownPod
			}
		}
	}
	return of
}

func isNodeAddress(pod *corev1.Pod, ip string) bool {
	return ip == pod.Status.HostIP || slices.ContainsFunc(pod.Status.HostIPs, func(host corev1.HostIP) bool { return host.IP == ip })
}

// versionOf changes whenever an EndpointSlice changes.
func versionOf(endpoints []discoveryv1.EndpointSlice) string {
	versions := make([]string, 0, len(endpoints))
	for i := range endpoints {
		versions = append(versions, string(endpoints[i].UID)+"@"+endpoints[i].ResourceVersion)
	}
	slices.Sort(versions)
	return strings.Join(versions, ",")
}

// forget drops the cached addresses of an MCPServer. A nil reader has none.
func (r *podReader) forget(server client.ObjectKey) {
	if r != nil {
		r.known.Delete(server)
	}
}
