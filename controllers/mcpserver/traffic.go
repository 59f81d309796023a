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

// traffic is which pods take it, by the Service's own account.
type traffic struct {
	// addresses are where they listen, and identities which pod listens at each.
	addresses  []string
	identities map[string]string
	// versions are the ReplicaSets that the pods are of, sorted.
	versions []string
	// lingers is true while pods that are about to end still serve.
	lingers bool
}

// maxVersions is how many there may be in the status.
const maxVersions = 16

func (s *scope) traffic(ctx context.Context) (traffic, error) {
	var list discoveryv1.EndpointSliceList
	err := s.reader.List(ctx, &list, client.InNamespace(s.server.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.server.Name})
	if err != nil {
		return traffic{}, fmt.Errorf("listing the endpoints of Service %s: %w", s.server.Name, err)
	}
	return trafficOf(list.Items), nil
}

// trafficOf takes the ports from the slices: while a change of it is rolled out, the pods of the
// earlier version still listen on the old one, and that is where the Service leads to.
func trafficOf(endpoints []discoveryv1.EndpointSlice) traffic {
	t := traffic{identities: map[string]string{}}
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
					t.lingers = t.lingers || isTrue(endpoint.Conditions.Serving) && isTrue(endpoint.Conditions.Terminating)
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

// versionsOf are the ReplicaSets of pods: a pod's name is that of its ReplicaSet and five letters. Of
// a name that is too long for that the end of the first part is lost; then it is the pods themselves
// that are told apart.
func versionsOf(pods []string) []string {
	versions := map[string]bool{}
	for _, pod := range pods {
		end := strings.LastIndexByte(pod, '-')
		if end < 0 || len(pod) >= validation.DNS1123LabelMaxLength {
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

func isFalse(b *bool) bool { return b != nil && !*b }
