package mcpserver

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// maxChangedNames limits each list of names in a change of a contract.
const maxChangedNames = 32

// observesContract reports whether the contract of a server is recorded.
func observesContract(server *v1beta1.MCPServer) bool {
	isDisabled := server.Spec.Contract != nil && server.Spec.Contract.Policy == v1beta1.ContractDisabled
	return !isDisabled && server.Spec.Protocol.Probe != v1beta1.ProbeDisabled
}

// contract is the contract of the status, and whether it has just changed. See [nextContract].
func (s *scope) contract(now metav1.Time) (next *v1beta1.MCPServerContractStatus, changed bool) {
	if !observesContract(s.server) {
		return nil, false
	}
	var found *prober.Contract
	switch {
	case pinsContract(s.server) && s.pinned != nil:
		found = s.pinned.decision.record
	case !pinsContract(s.server) && s.probed != nil:
		found = s.probed.Contract
	}
	return nextContract(s.server.Status.Contract, found, now)
}

// nextContract is the contract of a status whose contract was before, and whether it has changed. What the serving pods
// offer is found; it is nil while that is not known or they differ, and the contract stays. The first contract is not
// a change. If nothing has changed, it returns before.
func nextContract(before *v1beta1.MCPServerContractStatus, found *prober.Contract, now metav1.Time) (next *v1beta1.MCPServerContractStatus, changed bool) {
	if found == nil || before != nil && before.Digest == found.Digest {
		return before, false
	}
	next = contractStatus(found)
	if before == nil {
		return next, false
	}
	next.LastChange = compareContracts(before, next)
	next.LastChange.Time = now
	return next, true
}

// contractStatus is a contract in the form of a status.
func contractStatus(found *prober.Contract) *v1beta1.MCPServerContractStatus {
	status := &v1beta1.MCPServerContractStatus{Digest: found.Digest, Omitted: boundedCount(found.Omitted)}
	for _, item := range found.Items {
		status.Items = append(status.Items, v1beta1.MCPServerContractItem{
			Kind: v1beta1.MCPServerContractItemKind(item.Kind), Name: item.Name, Digest: item.Digest,
		})
	}
	return status
}

// compareContracts names the items that differ. An item that only one of two contracts lists was added or removed,
// unless the other one may have omitted it.
func compareContracts(before, after *v1beta1.MCPServerContractStatus) *v1beta1.MCPServerContractChange {
	change := &v1beta1.MCPServerContractChange{}
	was, is := groupItems(before), groupItems(after)
	for _, key := range was.keys {
		old, current := was.digests[key], is.digests[key]
		switch {
		case current == nil:
			if is.listsAll(key) {
				change.Removed = append(change.Removed, key.String())
			}
		case slices.Equal(old, current), !is.listsAll(key) && containsAll(old, current), !was.listsAll(key) && containsAll(current, old):
		case !slices.Equal(schemas(old), schemas(current)):
			change.SchemaChanged = append(change.SchemaChanged, key.String())
		default:
			change.DescriptionChanged = append(change.DescriptionChanged, key.String())
		}
	}
	for _, key := range is.keys {
		if was.digests[key] == nil && was.listsAll(key) {
			change.Added = append(change.Added, key.String())
		}
	}
	limitNames(change)
	return change
}

func limitNames(change *v1beta1.MCPServerContractChange) {
	for _, names := range []*[]string{&change.Added, &change.Removed, &change.SchemaChanged, &change.DescriptionChanged} {
		if more := len(*names) - maxChangedNames; more > 0 {
			*names = (*names)[:maxChangedNames]
			change.Omitted += int32(more) //nolint:gosec // at most 512
		}
	}
}

// containsAll reports whether a sorted list contains all elements of another one.
func containsAll(list, elements []string) bool {
	for _, element := range elements {
		at, found := slices.BinarySearch(list, element)
		if !found {
			return false
		}
		list = list[at+1:]
	}
	return true
}

// itemKey identifies items. Servers may list several with the same name.
type itemKey struct {
	kind v1beta1.MCPServerContractItemKind
	name string
}

// String is the name of the item in a change, such as tool/search.
func (k itemKey) String() string { return string(k.kind) + "/" + k.name }

// kindOrder is the order of kinds in a contract.
var kindOrder = []v1beta1.MCPServerContractItemKind{
	v1beta1.MCPServerContractItemKind(prober.Tool), v1beta1.MCPServerContractItemKind(prober.Prompt), v1beta1.MCPServerContractItemKind(prober.ResourceTemplate),
}

func (k itemKey) compare(other itemKey) int {
	return cmp.Or(cmp.Compare(slices.Index(kindOrder, k.kind), slices.Index(kindOrder, other.kind)), strings.Compare(k.name, other.name))
}

// itemGroups are the listed items of a contract by their keys, which are in the order of the contract.
type itemGroups struct {
	keys    []itemKey
	digests map[itemKey][]string
	// isCut is true if the contract has omitted items. These are the last ones.
	isCut bool
}

func groupItems(contract *v1beta1.MCPServerContractStatus) itemGroups {
	groups := itemGroups{digests: make(map[itemKey][]string, len(contract.Items)), isCut: contract.Omitted > 0}
	for _, item := range contract.Items {
		key := itemKey{item.Kind, item.Name}
		if groups.digests[key] == nil {
			groups.keys = append(groups.keys, key)
		}
		groups.digests[key] = append(groups.digests[key], item.Digest)
	}
	for _, digests := range groups.digests {
		slices.Sort(digests)
	}
	return groups
}

// listsAll reports whether the contract has omitted no item with the key.
func (g itemGroups) listsAll(key itemKey) bool {
	return !g.isCut || len(g.keys) > 0 && key.compare(g.keys[len(g.keys)-1]) < 0
}

// schemas are the parts of digests that cover the schemas.
func schemas(digests []string) []string {
	parts := make([]string, len(digests))
	for i, digest := range digests {
		parts[i], _, _ = strings.Cut(digest, "-")
	}
	return parts
}

// contractEvents are the Events about a contract that has just changed. The status with the change has been written,
// so that another reconcile does not find it: an Event may be lost, and is not repeated.
func contractEvents(s *scope, summary phases.Summary) []phases.Event {
	next, changed := s.contract(summary.Now)
	if !changed {
		return nil
	}
	event := phases.Event{
		Type: corev1.EventTypeNormal, Reason: v1beta1.EventContractChanged, Action: "ObserveContract",
		Note: "the contract changed: " + describeChange(next.LastChange) + "; see status.contract",
	}
	if mayBreakClients(next.LastChange) {
		event.Type = corev1.EventTypeWarning
	}
	return []phases.Event{event}
}

// mayBreakClients reports whether items were removed, or have another schema, or whether that is not known.
func mayBreakClients(change *v1beta1.MCPServerContractChange) bool {
	return len(change.Removed)+len(change.SchemaChanged) > 0 || len(change.Added)+len(change.DescriptionChanged) == 0
}

// maxEventNames limits the names of each kind of change in an Event. Names are those of a server, so they are quoted.
const maxEventNames = 3

// describeChange names what has changed, the most important first.
func describeChange(change *v1beta1.MCPServerContractChange) string {
	var parts []string
	for _, part := range []struct {
		what  string
		names []string
	}{
		{"removed", change.Removed}, {"other schema", change.SchemaChanged}, {"other description", change.DescriptionChanged}, {"added", change.Added},
	} {
		if len(part.names) > 0 {
			parts = append(parts, part.what+": "+quotedNames(part.names))
		}
	}
	if len(parts) == 0 {
		return "in parts that status.contract does not show"
	}
	return strings.Join(parts, "; ")
}

func quotedNames(names []string) string {
	var quoted []string
	for _, name := range names[:min(len(names), maxEventNames)] {
		kind, name, _ := strings.Cut(name, "/")
		quoted = append(quoted, kind+" "+strconv.Quote(name))
	}
	text := strings.Join(quoted, ", ")
	if more := len(names) - maxEventNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// contractConfiguration is the contract as a part of the status to apply.
func contractConfiguration(contract *v1beta1.MCPServerContractStatus) *fixpointac.MCPServerContractStatusApplyConfiguration {
	configuration := fixpointac.MCPServerContractStatus().WithDigest(contract.Digest)
	for _, item := range contract.Items {
		configuration.WithItems(fixpointac.MCPServerContractItem().WithKind(item.Kind).WithName(item.Name).WithDigest(item.Digest))
	}
	if contract.Omitted > 0 {
		configuration.WithOmitted(contract.Omitted)
	}
	if contract.LastChange != nil {
		configuration.WithLastChange(changeConfiguration(contract.LastChange))
	}
	return configuration
}

// changeConfiguration does not go by JSON, because each reconcile calls it.
func changeConfiguration(change *v1beta1.MCPServerContractChange) *fixpointac.MCPServerContractChangeApplyConfiguration {
	configuration := fixpointac.MCPServerContractChange().WithTime(change.Time).
		WithAdded(change.Added...).WithRemoved(change.Removed...).
		WithSchemaChanged(change.SchemaChanged...).WithDescriptionChanged(change.DescriptionChanged...)
	if change.Omitted > 0 {
		configuration.WithOmitted(change.Omitted)
	}
	return configuration
}
