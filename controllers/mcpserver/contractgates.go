package mcpserver

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/fixpoint-dev/fixpoint/internal/prober"
)

// gatedPod is a pod that takes traffic only if its contract is approved.
type gatedPod struct {
	// gate is the status of the readiness gate; empty before it is set.
	gate corev1.ConditionStatus
	// running is true if all containers are ready, so that only the gate may keep the pod from traffic.
	running bool
	// Offer is what the pod offers. Its Contract is nil while that is not known.
	prober.Offer
}

// contractDecision is what follows from the contracts of pods.
type contractDecision struct {
	// gates are what the gates of the pods should be, in their order; empty leaves a gate as it is.
	gates []corev1.ConditionStatus
	// approved is the digest of the approved contract; empty if none is.
	approved string
	// record is the approved contract, once all pods that take traffic offer it.
	record *prober.Contract
	// pending is a contract that is offered and not approved; others is true if there are more of them.
	pending *prober.Contract
	others  bool
	// previous is true if pods offer the contract that was approved before.
	previous bool
	// held is the number of running pods that take no traffic because of the gate.
	held int
	// unknown is true if the contract of some of these is not known, and err is why.
	unknown bool
	err     *prober.Error
	// unjudged is true if a pod was refused and its contract is not known: a manager that has just started has not probed
	// it, or could not.
	unjudged bool
}

// decideContract decides which pods take traffic. approved is the digest that the user has approved, and recorded the one
// of the status: what clients get. Either may be empty.
//
//   - Without both, the first contract is approved, if all pods that are known offer the same.
//   - A pod that offers the approved contract takes traffic. So does one that offers the recorded one, until it is
//     replaced: an approval before a rollout must not end what serves. Once no pod offers it, it counts no more.
//   - A pod that offers another contract takes no traffic, even if it did before.
//   - A pod that offers what the prober refuses to read takes no traffic either: clients may read it.
//   - A pod whose contract is not known for another reason stays as it is: a new one takes no traffic yet, and others go
//     on, because the reason may be the network, or that the manager has just started.
func decideContract(pods []gatedPod, approved, recorded string) contractDecision {
	d := contractDecision{approved: cmp.Or(approved, recorded, firstContract(pods))}
	var current *prober.Contract
	servesUnknown := false
	for _, pod := range pods {
		gate := corev1.ConditionStatus("")
		switch {
		case pod.Refused():
			gate = corev1.ConditionFalse
		case pod.Contract == nil:
			servesUnknown = servesUnknown || pod.gate == corev1.ConditionTrue
		case pod.Contract.Digest == d.approved:
			gate, current = corev1.ConditionTrue, pod.Contract
		case pod.Contract.Digest == recorded:
			gate, d.previous = corev1.ConditionTrue, true
		default:
			gate = corev1.ConditionFalse
			d.addPending(pod.Contract)
		}
		d.gates = append(d.gates, gate)
		d.addHeld(pod, gate)
	}
	if !d.previous && !servesUnknown {
		d.record = current
	}
	return d
}

// firstContract is the digest that all known pods offer; empty if none is known, or if they differ.
func firstContract(pods []gatedPod) string {
	first := ""
	for _, pod := range pods {
		switch {
		case pod.Contract == nil:
		case first == "":
			first = pod.Contract.Digest
		case first != pod.Contract.Digest:
			return ""
		}
	}
	return first
}

// addPending keeps the contract with the first digest, so that the message does not depend on the order of the pods.
func (d *contractDecision) addPending(contract *prober.Contract) {
	switch {
	case d.pending == nil:
		d.pending = contract
	case d.pending.Digest != contract.Digest:
		d.others = true
		if contract.Digest < d.pending.Digest {
			d.pending = contract
		}
	}
}

func (d *contractDecision) addHeld(pod gatedPod, gate corev1.ConditionStatus) {
	d.unjudged = d.unjudged || pod.Contract == nil && !pod.Refused() && pod.gate == corev1.ConditionFalse
	if !pod.running || cmp.Or(gate, pod.gate) == corev1.ConditionTrue {
		return
	}
	d.held++
	if pod.Contract == nil {
		d.unknown = true
		d.err = cmp.Or(d.err, pod.Err)
	}
}
