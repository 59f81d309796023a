package mcpserver

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/fixpoint-dev/fixpoint/internal/prober"
)

// offering is a running pod that offers a contract of a digest, or of which that is not known.
func offering(digest string, gate corev1.ConditionStatus) gatedPod {
	pod := gatedPod{gate: gate, running: true}
	if digest != "" {
		pod.Contract = &prober.Contract{Digest: digest}
	}
	return pod
}

func TestGatesFollowContracts(t *testing.T) {
	const (
		unset   = corev1.ConditionStatus("")
		opened  = corev1.ConditionTrue
		refused = corev1.ConditionFalse
	)
	cannotRead := offering("", unset)
	cannotRead.Err = &prober.Error{Kind: prober.Unauthorized, Status: 401}
	refusedAndUnreadable := offering("", refused)
	refusedAndUnreadable.Err = &prober.Error{Kind: prober.Timeout}
	tooLarge := gatedPod{gate: opened, running: true, Offer: prober.Offer{Err: &prober.Error{Kind: prober.TooLarge}}}
	starting := gatedPod{Offer: prober.Offer{Contract: &prober.Contract{Digest: "2"}}}
	type gates = []corev1.ConditionStatus
	cases := map[string]struct {
		pods               []gatedPod
		approved, recorded string
		gates              gates
		// want is the decision without gates; contracts are their digests.
		want                     contractDecision
		record, pending, decided string
	}{
		"no pods":                               {},
		"a new pod that has not been probed":    {pods: []gatedPod{offering("", unset)}, gates: gates{unset}, want: contractDecision{held: 1, unknown: true}},
		"a pod that starts has no contract yet": {pods: []gatedPod{{}}, gates: gates{unset}},
		"the first contract is approved": {
			pods: []gatedPod{offering("", unset), offering("1", unset), offering("1", unset)}, gates: gates{unset, opened, opened},
			want: contractDecision{held: 1, unknown: true}, decided: "1", record: "1"},
		"the first pods differ": {
			pods: []gatedPod{offering("2", unset), offering("1", unset), offering("2", unset)}, gates: gates{refused, refused, refused},
			want: contractDecision{held: 3, others: true}, pending: "1"},
		"the first contract is not the approved one": {
			pods: []gatedPod{offering("2", unset)}, approved: "1", gates: gates{refused},
			want: contractDecision{held: 1}, decided: "1", pending: "2"},
		"a rollout with the same contract": {
			pods: []gatedPod{offering("1", opened), offering("1", unset)}, recorded: "1", gates: gates{opened, opened}, decided: "1", record: "1"},
		"a rollout with another contract waits, and old pods serve": {
			pods: []gatedPod{offering("1", opened), offering("2", unset)}, recorded: "1", gates: gates{opened, refused},
			want: contractDecision{held: 1}, decided: "1", record: "1", pending: "2"},
		"a pod that is not running waits too": {
			pods: []gatedPod{starting}, recorded: "1", gates: gates{refused}, decided: "1", pending: "2"},
		"the new contract is approved: old pods serve until they are replaced": {
			pods: []gatedPod{offering("1", opened), offering("2", refused)}, approved: "2", recorded: "1", gates: gates{opened, opened},
			want: contractDecision{previous: true}, decided: "2"},
		"the last old pod is replaced": {
			pods: []gatedPod{offering("2", opened)}, approved: "2", recorded: "1", gates: gates{opened}, decided: "2", record: "2"},
		"the old contract counts no more": {
			pods: []gatedPod{offering("1", opened), offering("2", opened)}, approved: "2", recorded: "2", gates: gates{refused, opened},
			want: contractDecision{held: 1}, decided: "2", record: "2", pending: "1"},
		"a contract is approved before the rollout": {
			pods: []gatedPod{offering("1", opened)}, approved: "2", recorded: "1", gates: gates{opened},
			want: contractDecision{previous: true}, decided: "2"},
		"a server changes its contract while it runs": {
			pods: []gatedPod{offering("2", opened), offering("1", opened)}, recorded: "1", gates: gates{refused, opened},
			want: contractDecision{held: 1}, decided: "1", record: "1", pending: "2"},
		"all pods change their contract": {
			pods: []gatedPod{offering("2", opened), offering("2", opened)}, approved: "1", recorded: "1", gates: gates{refused, refused},
			want: contractDecision{held: 2}, decided: "1", pending: "2"},
		"it changes back": {
			pods: []gatedPod{offering("1", refused)}, recorded: "1", gates: gates{opened}, decided: "1", record: "1"},
		"after a restart of the manager, nothing changes": {
			pods: []gatedPod{offering("", opened), offering("", refused)}, recorded: "1", gates: gates{unset, unset},
			want: contractDecision{held: 1, unknown: true, unjudged: true}, decided: "1"},
		"after a restart, a pod that was refused does not answer": {
			pods: []gatedPod{refusedAndUnreadable}, recorded: "1", gates: gates{unset},
			want: contractDecision{held: 1, unknown: true, unjudged: true, err: refusedAndUnreadable.Err}, decided: "1"},
		"after a restart, a pod that was refused does not run": {
			pods: []gatedPod{{gate: refused}}, recorded: "1", gates: gates{unset}, want: contractDecision{unjudged: true}, decided: "1"},
		"after a restart, old pods may be those that are not known": {
			pods: []gatedPod{offering("", opened), offering("2", opened)}, approved: "2", recorded: "1", gates: gates{unset, opened}, decided: "2"},
		"a server begins to offer what is refused": {
			pods: []gatedPod{tooLarge, offering("1", opened)}, recorded: "1", gates: gates{refused, opened},
			want: contractDecision{held: 1, unknown: true, err: tooLarge.Err}, decided: "1", record: "1"},
		"what is refused stays refused": {
			pods: []gatedPod{{gate: refused, Offer: tooLarge.Offer}}, recorded: "1", gates: gates{refused}, decided: "1"},
		"what is refused is no first contract": {
			pods: []gatedPod{{Offer: tooLarge.Offer}, offering("1", unset)}, gates: gates{refused, opened}, decided: "1", record: "1"},
		"the contract cannot be read": {
			pods: []gatedPod{cannotRead}, recorded: "1", gates: gates{unset},
			want: contractDecision{held: 1, unknown: true, err: cannotRead.Err}, decided: "1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for range 2 { // in either order
				g := NewWithT(t)
				got := decideContract(c.pods, c.approved, c.recorded)
				g.Expect(got.gates).To(Equal(c.gates))
				g.Expect(got.approved).To(Equal(c.decided))
				g.Expect(digestOf(got.record)).To(Equal(c.record), "recorded")
				g.Expect(digestOf(got.pending)).To(Equal(c.pending), "pending")
				got.gates, got.approved, got.record, got.pending = nil, "", nil, nil
				g.Expect(got).To(Equal(c.want))
				slices.Reverse(c.pods)
				slices.Reverse(c.gates)
			}
		})
	}
}

func digestOf(contract *prober.Contract) string {
	if contract == nil {
		return ""
	}
	return contract.Digest
}

// What a pod offers that takes traffic, and is not known, may be another contract than that of the others.
func TestNoContractIsRecordedWhileAPodThatServesIsNotKnown(t *testing.T) {
	known := offering("a", corev1.ConditionTrue)
	for name, pods := range map[string][]gatedPod{
		"the first": {{gate: corev1.ConditionTrue}, {gate: corev1.ConditionFalse}, known},
		"the last":  {known, {gate: corev1.ConditionFalse}, {gate: corev1.ConditionTrue}},
	} {
		NewWithT(t).Expect(decideContract(pods, known.Contract.Digest, "").record).To(BeNil(), name)
	}
	without := []gatedPod{{gate: corev1.ConditionFalse}, known}
	NewWithT(t).Expect(decideContract(without, known.Contract.Digest, "").record).To(Equal(known.Contract))
}
