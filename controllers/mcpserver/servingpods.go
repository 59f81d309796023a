package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// servingPods are the ready pods behind the Service, by its EndpointSlices.
type servingPods struct {
	// addresses are their host:port addresses, and identities the pod UID at each address.
	addresses  []string
	identities map[string]string
	// unready are the addresses of pods that are neither ready nor terminating. identities contains them.
	unready []string
	// versions are the names of their ReplicaSets, sorted.
	versions []string
	// oldServing is true while terminating pods still serve.
	oldServing bool
	// hostNetwork is true if some pods use the network of their node, and unknown if some addresses are not
	// those of pods of the MCPServer. Neither is in addresses.
	hostNetwork, unknown bool
}

// maxVersions is the limit of status.probedVersions.
const maxVersions = 16

func (s *scope) servingPods(ctx context.Context) (servingPods, error) {
	var list discoveryv1.EndpointSliceList
	err := s.reader.List(ctx, &list, client.InNamespace(s.server.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.server.Name})
	if err != nil {
		return servingPods{}, fmt.Errorf("listing the EndpointSlices of Service %s: %w", s.server.Name, err)
	}
	if s.pods == nil {
		return servingPodsOf(list.Items, func(string) podAddress { return ownPod }), nil
	}
	known, err := s.pods.addresses(ctx, s.server, list.Items)
	if err != nil {
		return servingPods{}, err
	}
	return servingPodsOf(list.Items, func(address string) podAddress { return known[address] }), nil
}

// servingPodsOf takes the ports from the EndpointSlices, because during a rollout that changes the port
// old pods still listen on the old one. Others may write EndpointSlices of the Service, so the addresses
// must be those of pods.
func servingPodsOf(endpoints []discoveryv1.EndpointSlice, podAt func(address string) podAddress) servingPods {
	t := servingPods{identities: map[string]string{}}
	var pods []string
	for i := range endpoints {
		slice := &endpoints[i]
		for _, port := range slice.Ports {
			if port.Port == nil || port.Name == nil || *port.Name != portName {
				continue
			}
			for j := range slice.Endpoints {
				if pod, ok := t.add(&slice.Endpoints[j], *port.Port, podAt); ok {
					pods = append(pods, pod)
				}
			}
		}
	}
	t.versions = versionsOf(pods)
	return t
}

// add adds an endpoint if it is ready, and returns the name of its pod, if it has one.
func (t *servingPods) add(endpoint *discoveryv1.Endpoint, port int32, podAt func(address string) podAddress) (pod string, ok bool) {
	if len(endpoint.Addresses) == 0 {
		return "", false
	}
	if !ptr.Deref(endpoint.Conditions.Ready, true) {
		t.oldServing = t.oldServing || isTrue(endpoint.Conditions.Serving) && isTrue(endpoint.Conditions.Terminating)
		t.addUnready(endpoint, port, podAt)
		return "", false
	}
	switch podAt(endpoint.Addresses[0]) {
	case ownPod:
	case nodeAddress:
		t.hostNetwork = true
		return "", false
	default:
		t.unknown = true
		return "", false
	}
	address := net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(port)))
	t.addresses = append(t.addresses, address)
	if endpoint.TargetRef == nil {
		return "", false
	}
	t.identities[address] = string(endpoint.TargetRef.UID)
	return endpoint.TargetRef.Name, true
}

func (t *servingPods) addUnready(endpoint *discoveryv1.Endpoint, port int32, podAt func(address string) podAddress) {
	if isTrue(endpoint.Conditions.Terminating) || podAt(endpoint.Addresses[0]) != ownPod {
		return
	}
	address := net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(port)))
	t.unready = append(t.unready, address)
	if endpoint.TargetRef != nil {
		t.identities[address] = string(endpoint.TargetRef.UID)
	}
}

// versionsOf derives the ReplicaSets from the names of the pods, which are the name of the ReplicaSet and
// a random suffix. Long names are truncated; then a hash of the pod names is the version.
func versionsOf(pods []string) []string {
	versions := map[string]bool{}
	for _, pod := range pods {
		end := strings.LastIndexByte(pod, '-')
		if end < 1 || len(pod) >= validation.DNS1123LabelMaxLength {
			return []string{fingerprint(pods)}
		}
		versions[pod[:end]] = true
	}
	if len(versions) > maxVersions {
		return []string{fingerprint(pods)}
	}
	return slices.Sorted(maps.Keys(versions))
}

func fingerprint(pods []string) string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(pods)), "\n")))
	return "pods-" + hex.EncodeToString(sum[:8])
}
