package mcpserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// storedContract is the ConfigMap with the contracts in full. The status has only digests.
var storedContract = storedContractPhase{phases.Child[*scope, *corev1ac.ConfigMapApplyConfiguration, *corev1.ConfigMap]{
	Name:      "StoredContract",
	ChildName: func(s *scope) string { return storedContractName(s.server) },
	Desired:   func(s *scope) (*corev1ac.ConfigMapApplyConfiguration, error) { return s.desiredStoredContract(), nil },
}}

// storedContractName is the name of the ConfigMap, beside the one with spec.files.
func storedContractName(server *v1beta1.MCPServer) string {
	return server.Name + v1beta1.ContractSuffix
}

// The keys of the ConfigMap are one of these, and the digest of the contract. So its state is in the names, and the cache
// need not hold the values.
const (
	currentPrefix  = v1beta1.ContractKeyCurrent
	previousPrefix = v1beta1.ContractKeyPrevious
	pendingPrefix  = v1beta1.ContractKeyPending
)

// KeepContractKeys keeps the names of the keys of a ConfigMap in the cache that is one with contracts. Its phase reads the
// values only when they have to change.
func KeepContractKeys(cached *corev1.ConfigMap) {
	owner := metav1.GetControllerOfNoCopy(cached)
	if owner == nil || cached.Name != owner.Name+v1beta1.ContractSuffix {
		cached.Data = nil
	}
	for key := range cached.Data {
		cached.Data[key] = ""
	}
}

// contractToStore is a contract of the status. text is the contract in full; empty if it is not known.
type contractToStore struct{ digest, text string }

// nextStored returns the data of the ConfigMap, given those that exist. It depends on the texts only in the values.
//
//   - The current contract is stored once its text is known. Until then, the one that was stored stays.
//   - The one that was current before is the previous one.
//   - The pending contract is the one that waits for approval. It becomes the current one with its approval.
func nextStored(live map[string]string, current, pending contractToStore) map[string]string {
	next := map[string]string{}
	before := keyWith(live, currentPrefix)
	key := before
	if current.digest != "" {
		if text, ok := textOf(live, current); ok {
			key = currentPrefix + current.digest
			next[key] = text
		}
	}
	switch {
	case key == before && key != "":
		if _, ok := next[key]; !ok {
			next[key] = live[key]
		}
		if previous := keyWith(live, previousPrefix); previous != "" && previous != previousPrefix+digestIn(key) {
			next[previous] = live[previous]
		}
	case before != "":
		next[previousPrefix+digestIn(before)] = live[before]
	}
	if pending.digest != "" && key != currentPrefix+pending.digest {
		if text, ok := textOf(live, pending); ok {
			next[pendingPrefix+pending.digest] = text
		}
	}
	return next
}

// textOf is the text of a contract, or what is stored of it.
func textOf(live map[string]string, contract contractToStore) (text string, ok bool) {
	if contract.text != "" {
		return contract.text, true
	}
	for _, prefix := range []string{currentPrefix, pendingPrefix, previousPrefix} {
		if text, ok := live[prefix+contract.digest]; ok {
			return text, true
		}
	}
	return "", false
}

// keyWith is the first key with a prefix; empty if there is none.
func keyWith(data map[string]string, prefix string) string {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if strings.HasPrefix(key, prefix) {
			return key
		}
	}
	return ""
}

// digestIn is the digest in a key.
func digestIn(key string) string {
	_, digest, _ := strings.Cut(key, ".")
	return digest
}

// desiredStoredContract has no data before they are read: then it only says that the ConfigMap is desired.
func (s *scope) desiredStoredContract() *corev1ac.ConfigMapApplyConfiguration {
	if !observesContract(s.server) || s.storedContract == nil && s.server.Status.Contract == nil && s.server.Status.PendingContract == nil {
		return nil
	}
	return corev1ac.ConfigMap(storedContractName(s.server), s.server.Namespace).WithLabels(labelsOf(s.server)).WithData(s.storedContract)
}

// contractsToStore are the contracts of the status that this reconcile leads to, as far as they are known.
func (s *scope) contractsToStore() (current, pending contractToStore) {
	before := s.server.Status.Contract
	if before != nil {
		current.digest = before.Digest
	}
	if found := s.foundContract(); found != nil {
		current.digest = found.Digest
	}
	if waiting := s.pendingContract(metav1.Time{}); waiting != nil {
		pending.digest = waiting.Digest
	}
	current.text, pending.text = s.prober.ContractText(current.digest), s.prober.ContractText(pending.digest)
	return current, pending
}

// foundContract is what all serving pods offer; nil while that is not known. The phase Protocol reads it later in the reconcile.
func (s *scope) foundContract() *prober.Contract {
	switch {
	case !pinsContract(s.server):
		result, _ := s.prober.Result(client.ObjectKeyFromObject(s.server))
		return result.Contract
	case s.pinned != nil:
		return s.pinned.decision.record
	default:
		return nil
	}
}

// storedContractPhase reads what is stored before its child is applied.
type storedContractPhase struct {
	phases.Child[*scope, *corev1ac.ConfigMapApplyConfiguration, *corev1.ConfigMap]
}

// Declare implements [phases.Phase].
func (p storedContractPhase) Declare(scheme *runtime.Scheme) (phases.Declaration[*scope], error) {
	d, err := p.Child.Declare(scheme)
	next := d.Next
	d.Next = func(ctx context.Context, r phases.Reconcile[*scope]) (phases.Next, error) {
		verdict, err := r.Scope.readStoredContract(ctx, r.Cluster)
		if err != nil || verdict != nil {
			return verdict, err
		}
		// Nothing waits for the ConfigMap when its owner is deleted. Right after an upgrade of the definitions, the API server
		// refuses references that block, because it does not know the new version of the owner yet.
		r.Reference.BlockOwnerDeletion = nil
		return withoutCondition(next(ctx, r))
	}
	d.Observe = func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
		return phases.NotConfigured(), nil
	}
	return d, err
}

// withoutCondition omits the condition of a phase that is done: nothing depends on it, and status.contract says that there
// is a contract.
func withoutCondition(next phases.Next, err error) (phases.Next, error) {
	if verdict, ok := next.(phases.Verdict); ok && verdict.IsDone() {
		return phases.NotConfigured(), err
	}
	return next, err
}

// readStoredContract reads the ConfigMap, and decides what it should be. The verdict is nil if the phase continues. As long
// as the ConfigMap in the cache is as it was applied, and has the right contracts, nothing else is read.
func (s *scope) readStoredContract(ctx context.Context, cluster *phases.Cluster) (phases.Verdict, error) {
	if !observesContract(s.server) || s.storedContract != nil {
		return nil, nil
	}
	cached, err := s.existingContract(ctx, cluster.Cached)
	if err != nil {
		return nil, err
	}
	if s.plans { // a plan probes no pods
		return phases.NotConfigured(), nil
	}
	current, pending := s.contractsToStore()
	if cached != nil && cached.DeletionTimestamp == nil && ssa.IsCompact(cached) && haveSameKeys(cached.Data, nextStored(cached.Data, current, pending)) {
		return phases.NotConfigured(), nil
	}
	live, err := s.existingContract(ctx, cluster.Uncached)
	if err != nil {
		return nil, err
	}
	var data map[string]string
	if live != nil && metav1.IsControlledBy(live, s.server) {
		data = live.Data
	}
	next := nextStored(data, current, pending)
	if len(next) == 0 && len(data) == 0 {
		return phases.NotConfigured(), nil // Nothing is known yet, as after an upgrade.
	}
	s.storedContract = next
	return nil, nil
}

// existingContract is nil if the ConfigMap does not exist.
func (s *scope) existingContract(ctx context.Context, reader client.Reader) (*corev1.ConfigMap, error) {
	var live corev1.ConfigMap
	key := client.ObjectKey{Namespace: s.server.Namespace, Name: storedContractName(s.server)}
	err := reader.Get(ctx, key, &live)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	return &live, nil
}

func haveSameKeys(a, b map[string]string) bool {
	return slices.Equal(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
}
