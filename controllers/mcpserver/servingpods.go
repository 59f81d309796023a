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
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// servingPods are the ready pods behind the Service, by its EndpointSlices.
type servingPods struct {
	// addresses are their host:port addresses, and identities the pod UID at each address.
	addresses  []string
	identities map[string]string
	// versions are the names of their ReplicaSets, sorted.
	versions []string
	// oldServing is true while terminating pods still serve.
	oldServing bool
}

// maxVersions is the limit of status.askedVersions.
const maxVersions = 16

func (s *scope) servingPods(ctx context.Context) (servingPods, error) {
	var list discoveryv1.EndpointSliceList
	err := s.reader.List(ctx, &list, client.InNamespace(s.server.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.server.Name})
	if err != nil {
		return servingPods{}, fmt.Errorf("listing the EndpointSlices of Service %s: %w", s.server.Name, err)
	}
	return servingPodsOf(list.Items), nil
}

// servingPodsOf takes the ports from the EndpointSlices, because during a rollout that changes the port
// old pods still listen on the old one.
func servingPodsOf(endpoints []discoveryv1.EndpointSlice) servingPods {
	t := servingPods{identities: map[string]string{}}
	var pods []string
	for i := range endpoints {
		slice := &endpoints[i]
		for _, port := range slice.Ports {
			if port.Port == nil || port.Name == nil || *port.Name != portName {
				continue
			}
			for j := range slice.Endpoints {
				endpoint := &slice.Endpoints[j]
				if len(endpoint.Addresses) == 0 {
					continue
				}
				if isFalse(endpoint.Conditions.Ready) {
					t.oldServing = t.oldServing || isTrue(endpoint.Conditions.Serving) && isTrue(endpoint.Conditions.Terminating)
					continue
				}
				address := net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*port.Port)))
				t.addresses = append(t.addresses, address)
				if pod := endpoint.TargetRef; pod != nil {
					t.identities[address] = string(pod.UID)
					pods = append(pods, pod.Name)
				}
			}
		}
	}
	t.versions = versionsOf(pods)
	return t
}

// versionsOf derives the ReplicaSets from the names of the pods, which are the name of the ReplicaSet and
// a random suffix. Long names are truncated; then a hash of the pod names is the version.
func versionsOf(pods []string) []string {
	versions := map[string]bool{}
	for _, pod := range pods {
		stopWatches := strings.LastIndexByte(pod, '-')
		if stopWatches < 0 || len(pod) >= validation.DNS1123LabelMaxLength {
			return []string{fingerprint(pods)}
		}
		versions[pod[:stopWatches]] = true
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

func isFalse(b *bool) bool { return b != nil && !*b }
