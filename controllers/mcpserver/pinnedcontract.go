package mcpserver

import (
	"context"
	"fmt"
	"net"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// pinnedContract lets only pods take traffic whose contract is approved, with spec.contract.policy Pin. It sets the gates
// of the pods before all phases, because the Deployment is not ready without them, and waits after the Deployment.
var pinnedContract = contractPhase{phases.Step[*scope]{
	Name:       "Contract",
	Configured: func(s *scope) bool { return pinsContract(s.server) },
	Observe:    observeContract,
}}

// pinsContract reports whether pods take traffic only if their contract is approved.
func pinsContract(server *v1beta1.MCPServer) bool {
	return server.Spec.Contract != nil && server.Spec.Contract.Policy == v1beta1.ContractPin
}

// withContractGate makes the pods wait for the gate. spec.podOverrides may add others, and cannot remove it.
func withContractGate(pod *corev1ac.PodSpecApplyConfiguration, server *v1beta1.MCPServer) {
	isGate := func(gate corev1ac.PodReadinessGateApplyConfiguration) bool {
		return gate.ConditionType != nil && *gate.ConditionType == v1beta1.PodConditionContract
	}
	if pinsContract(server) && !slices.ContainsFunc(pod.ReadinessGates, isGate) {
		pod.WithReadinessGates(corev1ac.PodReadinessGate().WithConditionType(v1beta1.PodConditionContract))
	}
}

// approvedContract is the digest that the user has approved; empty if none.
func approvedContract(server *v1beta1.MCPServer) string {
	if digest := server.Spec.Contract.Digest; digest != "" {
		return digest
	}
	return server.Annotations[v1beta1.AnnotationApprovedContract]
}

// recordedContract is the digest of the contract of the status; empty if none.
func recordedContract(server *v1beta1.MCPServer) string {
	if server.Status.Contract == nil {
		return ""
	}
	return server.Status.Contract.Digest
}

// pinned is what a reconcile has found of the contracts of pods, and decided about them. err is why it could not.
type pinned struct {
	decision contractDecision
	err      error
}

// statusApplier applies the status of an object. [ssa.Applier] implements it.
type statusApplier interface {
	ApplyStatus(ctx context.Context, desired ssa.Configuration, live client.Object) (ssa.Result, error)
}

// contractPhase sets the gates before all phases.
type contractPhase struct{ phases.Step[*scope] }

// Declare implements [phases.Phase].
func (c contractPhase) Declare(scheme *runtime.Scheme) (phases.Declaration[*scope], error) {
	d, err := c.Step.Declare(scheme)
	d.First = func(ctx context.Context, r phases.Reconcile[*scope]) (phases.Next, error) {
		if !pinsContract(r.Scope.server) || r.Scope.plans {
			return nil, nil
		}
		return r.Scope.decideGates(ctx), nil
	}
	return d, err
}

// decideGates returns the action that sets the gates, or nil if they are as they should be. An error is that of the phase
// alone: it must not keep earlier phases from correcting the pods.
func (s *scope) decideGates(ctx context.Context) phases.Next {
	s.pinned = &pinned{}
	offers, err := s.offers(ctx)
	var live []corev1.Pod
	if err == nil {
		live, err = s.gatedPods(ctx)
	}
	if err != nil {
		s.pinned.err = err
		return nil
	}
	approved, recorded := approvedContract(s.server), recordedContract(s.server)
	pods := make([]gatedPod, len(live))
	for i := range live {
		pods[i] = gatedPodOf(&live[i], offers[live[i].UID], approved, recorded)
	}
	s.pinned.decision = decideContract(pods, approved, recorded)
	var changes []gateChange
	for i, gate := range s.pinned.decision.gates {
		if gate != "" && gate != pods[i].gate {
			changes = append(changes, gateChange{&live[i], gate})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return phases.Do{
		Action: phases.ActionEnsure, What: "set the readiness gates of pods by their contracts", Reason: v1beta1.ReasonContractPending,
		Func: func(ctx context.Context) (phases.Verdict, error) { return s.setGates(ctx, changes) },
	}
}

// offers are the contracts of the pods, by their UIDs and the hosts of their addresses: another pod may have got an address.
func (s *scope) offers(ctx context.Context) (map[types.UID]map[string]prober.Offer, error) {
	pods, err := s.aim(ctx)
	if err != nil || len(pods.addresses)+len(pods.unready) == 0 {
		return nil, err
	}
	result, _ := s.prober.Result(client.ObjectKeyFromObject(s.server))
	offers := make(map[types.UID]map[string]prober.Offer, len(result.Offers))
	for address, offer := range result.Offers {
		host, _, _ := net.SplitHostPort(address)
		uid := types.UID(pods.identities[address])
		if offers[uid] == nil {
			offers[uid] = map[string]prober.Offer{}
		}
		offers[uid][host] = lessApproved(offers[uid][host], offer, approvedContract(s.server), recordedContract(s.server))
	}
	return offers, nil
}

// lessApproved is one of two contracts of a pod that has several addresses or ports: one that was refused, or else one that
// is neither approved nor recorded, or else the recorded one.
func lessApproved(a, b prober.Offer, approved, recorded string) prober.Offer {
	distance := func(offer prober.Offer) int {
		switch {
		case offer.Refused():
			return 3
		case offer.Contract == nil:
			return -1
		case offer.Contract.Digest == approved:
			return 0
		case offer.Contract.Digest == recorded:
			return 1
		default:
			return 2
		}
	}
	if distance(a) > distance(b) {
		return a
	}
	return b
}

// gatedPods are the pods with the gate that have not ended and are not terminating. They are read from the API server,
// because the cache holds no pods, and a gate that was reset has to be found. An evicted pod keeps its gate, and nothing
// can ask it for its contract.
func (s *scope) gatedPods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := s.uncached.List(ctx, &list, client.InNamespace(s.server.Namespace), client.MatchingLabels(selectorOf(s.server))); err != nil {
		return nil, fmt.Errorf("listing the pods of MCPServer %s: %w", s.server.Name, err)
	}
	isGate := func(gate corev1.PodReadinessGate) bool { return gate.ConditionType == v1beta1.PodConditionContract }
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || workload.HasEnded(&pod) || !slices.ContainsFunc(pod.Spec.ReadinessGates, isGate)
	}), nil
}

// gatedPodOf finds the contract of a pod by its addresses in its status, which only a kubelet may write: others may write
// EndpointSlices.
func gatedPodOf(pod *corev1.Pod, offers map[string]prober.Offer, approved, recorded string) gatedPod {
	var gated gatedPod
	if gate := podCondition(pod, v1beta1.PodConditionContract); gate != nil {
		gated.gate = gate.Status
	}
	ready := podCondition(pod, corev1.ContainersReady)
	gated.running = ready != nil && ready.Status == corev1.ConditionTrue
	for _, ip := range pod.Status.PodIPs {
		if at, ok := offers[ip.IP]; ok {
			gated.Offer = lessApproved(gated.Offer, at, approved, recorded)
		}
	}
	return gated
}

func podCondition(pod *corev1.Pod, conditionType corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == conditionType {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// gateChange is a gate to set.
type gateChange struct {
	pod  *corev1.Pod
	gate corev1.ConditionStatus
}

// configuration is the condition of the pod. The kubelet computes from it whether the pod is ready.
func (c gateChange) configuration(now metav1.Time) *corev1ac.PodApplyConfiguration {
	condition := corev1ac.PodCondition().WithType(v1beta1.PodConditionContract).WithStatus(c.gate).WithLastTransitionTime(now).
		WithReason("Approved").WithMessage("the contract of the pod is approved")
	if c.gate != corev1.ConditionTrue {
		condition.WithReason("NotApproved").WithMessage("the contract of the pod is not approved: see the condition ContractReady of the MCPServer")
	}
	return corev1ac.Pod(c.pod.Name, c.pod.Namespace).WithStatus(corev1ac.PodStatus().WithConditions(condition))
}

// setGates sets gates. A pod that has changed since it was read is read again, and one that is gone needs none.
func (s *scope) setGates(ctx context.Context, changes []gateChange) (phases.Verdict, error) {
	now := metav1.NewTime(s.clock.Now())
	for _, change := range changes {
		_, err := s.podStatus.ApplyStatus(ctx, change.configuration(now), change.pod)
		switch {
		case err == nil, apierrors.IsNotFound(err):
		case ssa.IsStale(err):
			return nil, err
		default:
			s.pinned.err = setup.WithPermissionHint(err, "set rbac.contractGates of the chart, or apply the component config/contract-gates, or set spec.contract.policy to Observe")
		}
	}
	return phases.Done("the readiness gates of pods are set"), nil
}

// observeContract waits until no pod is kept from traffic by its contract.
func observeContract(_ context.Context, s *scope) (phases.Observation, error) {
	switch {
	case s.plans:
		return lastContractVerdict(s.server), nil
	case s.pinned == nil:
		return phases.Wait(v1beta1.ReasonContractPending, "waiting for the contracts of the pods", 0), nil
	case s.pinned.err != nil:
		return nil, s.pinned.err
	}
	isComplete, oldServe := false, false
	if s.deployment != nil {
		isComplete, oldServe = workload.Ready(s.deployment).IsDone(), oldReplicasAvailable(s.deployment)
	}
	return contractVerdict(s.server, s.pinned.decision, isComplete, oldServe), nil
}

// contractVerdict is the verdict on a decision. isComplete is true if no rollout is under way, and oldServe if enough old
// pods serve during one.
func contractVerdict(server *v1beta1.MCPServer, d contractDecision, isComplete, oldServe bool) phases.Verdict {
	switch {
	case d.pending != nil:
		return phases.Wait(v1beta1.ReasonContractNotApproved, pendingMessage(server, d), 0).AsWarning()
	case d.err == nil && isStillPending(server, d) && lastContractVerdict(server).Reason() == v1beta1.ReasonContractNotApproved:
		return lastContractVerdict(server)
	case d.err != nil:
		return phases.Wait(v1beta1.ReasonContractPending,
			"the contract of pods cannot be read, so they take no traffic: "+d.err.Error()+"; "+remedy(server, d.err), 0).AsWarning()
	case d.unknown && oldServe:
		return phases.DoneBecause(v1beta1.ReasonOldReplicasServing, "old pods still serve; waiting for the contract of the new pods")
	case d.unknown:
		return phases.Wait(v1beta1.ReasonContractPending,
			"waiting for the contract of the pods, which take no traffic until then; pods in the host network are not probed", 0)
	case d.previous && isComplete && d.record == nil:
		return phases.Wait(v1beta1.ReasonContractNotApproved,
			"all pods offer the previous contract, and take traffic until others offer the approved one: "+
				"roll out a server that offers it, or approve the previous one again: "+approval(server, recordedContract(server)), 0).AsWarning()
	case d.previous:
		return phases.DoneBecause(v1beta1.ReasonOldReplicasServing, "old pods with the previous contract still serve; waiting for pods with the approved one")
	default:
		return phases.Done("all pods that take traffic offer the approved contract")
	}
}

// pendingMessage names what differs from the approved contract, and how to approve it.
func pendingMessage(server *v1beta1.MCPServer, d contractDecision) string {
	message := "pods offer a contract that is not approved, and take no traffic"
	if change := pendingChange(server.Status.Contract, d.pending); change != nil {
		message += ": " + describeChange(change)
	}
	if d.approved == "" {
		message = "the first pods offer different contracts, so none is approved"
	}
	if d.others {
		message += "; other pods offer yet others"
	}
	return message + ". To approve it, " + approval(server, d.pending.Digest)
}

// approval is how to approve a contract. A digest in the spec counts more than that of the command.
func approval(server *v1beta1.MCPServer, digest string) string {
	set := "set spec.contract.digest to " + digest
	if server.Spec.Contract.Digest != "" {
		return set
	}
	return "run kubectl fixpoint approve mcp/" + server.Name + " -n " + server.Namespace + " --digest " + digest + ", or " + set
}

// pendingChange is how a contract differs from the one of the status; nil without one.
func pendingChange(recorded *v1beta1.MCPServerContractStatus, pending *prober.Contract) *v1beta1.MCPServerContractChange {
	if recorded == nil || recorded.Digest == pending.Digest {
		return nil
	}
	return compareContracts(recorded, contractStatus(pending))
}

// lastContractVerdict is that of the status, for a plan, and after a restart of the manager.
func lastContractVerdict(server *v1beta1.MCPServer) phases.Verdict {
	last := meta.FindStatusCondition(server.Status.Conditions, v1beta1.ConditionContractReady)
	switch {
	case last != nil && last.Reason == v1beta1.ReasonContractNotApproved:
		return phases.Wait(v1beta1.ReasonContractNotApproved, last.Message, 0).AsWarning()
	case last != nil && last.Reason == v1beta1.ReasonContractPending:
		return phases.Wait(v1beta1.ReasonContractPending, last.Message, 0)
	case last != nil && last.Reason == v1beta1.ReasonOldReplicasServing:
		return phases.DoneBecause(v1beta1.ReasonOldReplicasServing, last.Message)
	default:
		return phases.Done("all pods that take traffic offer the approved contract")
	}
}

// holdsPods reports whether running pods take no traffic because of their contracts.
func (s *scope) holdsPods() bool {
	if !pinsContract(s.server) {
		return false
	}
	if s.plans {
		return !lastContractVerdict(s.server).IsDone()
	}
	return s.pinned != nil && (s.pinned.decision.held > 0 || s.pinned.err != nil)
}

// withHeldPods lets the phase Contract report pods that only their contract keeps from being available: the Deployment
// cannot know, and later phases need not wait for an approval.
func withHeldPods(s *scope, verdict phases.Verdict) phases.Verdict {
	if !s.holdsPods() {
		return verdict
	}
	switch verdict.Reason() {
	case v1beta1.ReasonRolloutProgressing, v1beta1.ReasonRolloutStalled:
	default:
		return verdict
	}
	if verdict.IsDone() {
		return phases.DoneBecause(v1beta1.ReasonOldReplicasServing, verdict.Message()+"; new pods wait for phase Contract").
			RecheckAfter(rolloutRecheckInterval).WhileReconciling()
	}
	return phases.DoneBecause(v1beta1.ReasonContractPending, "pods may wait only for phase Contract: "+verdict.Message()).
		RecheckAfter(rolloutRecheckInterval).WhileReconciling()
}

// isStillPending reports whether the contract of the status waits for approval although nothing is known of the pod that
// offered it.
func isStillPending(server *v1beta1.MCPServer, d contractDecision) bool {
	before := server.Status.PendingContract
	return d.pending == nil && d.unjudged && before != nil && before.Digest != d.approved
}

// pendingContract is the contract of the status that waits for approval; the previous one while that is not known.
func (s *scope) pendingContract(now metav1.Time) *v1beta1.MCPServerPendingContract {
	before := s.server.Status.PendingContract
	switch {
	case !pinsContract(s.server):
		return nil
	case s.pinned == nil, s.pinned.err != nil:
		return before
	case isStillPending(s.server, s.pinned.decision):
		return before
	case s.pinned.decision.pending == nil:
		return nil
	}
	pending := &v1beta1.MCPServerPendingContract{Digest: s.pinned.decision.pending.Digest}
	if pending.Change = pendingChange(s.server.Status.Contract, s.pinned.decision.pending); pending.Change != nil {
		pending.Change.Time = now
		if before != nil && before.Change != nil && before.Digest == pending.Digest {
			pending.Change.Time = before.Change.Time
		}
	}
	return pending
}
