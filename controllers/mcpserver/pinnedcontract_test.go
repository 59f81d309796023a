package mcpserver

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func pin(s *spec) { s.Contract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractPin} }

// pinnedTools is an MCPServer whose pods are pinned, with a recorded contract.
func pinnedTools(recordedContract *prober.Contract) *v1beta1.MCPServer {
	server := tools(pin)
	server.Status.Contract = recorded(recordedContract)
	return server
}

func TestContractVerdict(t *testing.T) {
	one := &prober.Contract{Digest: "d1", Items: []prober.Item{{Kind: prober.Tool, Name: "add", Digest: "1-1"}}}
	two := &prober.Contract{Digest: "d2", Items: []prober.Item{{Kind: prober.Tool, Name: "drop", Digest: "1-1"}}}
	const differs = `pods offer a contract that is not approved, and take no traffic: removed: tool "add"; added: tool "drop"`
	const approve = ". To approve it, run kubectl fixpoint approve mcp/tools -n acme --digest d2, or set spec.contract.digest to d2"
	cases := map[string]struct {
		recorded             *prober.Contract
		spec                 string
		last                 *metav1.Condition
		decision             contractDecision
		isComplete, oldServe bool
		want                 outcome
	}{
		"approved": {one, "", nil, contractDecision{approved: "d1", record: one}, true, false,
			outcome{"done", "Ready", "all pods that take traffic offer the approved contract"}},
		"approved, and no pod runs": {one, "", nil, contractDecision{approved: "d1"}, true, false,
			outcome{"done", "Ready", "all pods that take traffic offer the approved contract"}},
		"approved, and some pods are old": {one, "d2", nil, contractDecision{approved: "d2", previous: true, record: two}, true, false,
			outcome{"done", "OldReplicasServing", "old pods with the previous contract still serve; waiting for pods with the approved one"}},
		"another contract": {one, "", nil, contractDecision{approved: "d1", pending: two, held: 1}, false, true,
			outcome{"wait", "ContractNotApproved", differs + approve}},
		"another one than in the spec": {one, "d1", nil, contractDecision{approved: "d1", pending: two, others: true}, true, false,
			outcome{"wait", "ContractNotApproved", differs + "; other pods offer yet others. To approve it, set spec.contract.digest to d2"}},
		"the first one is not that of the spec": {nil, "d1", nil, contractDecision{approved: "d1", pending: two}, false, false,
			outcome{"wait", "ContractNotApproved", "pods offer a contract that is not approved, and take no traffic. To approve it, set spec.contract.digest to d2"}},
		"the first pods differ": {nil, "", nil, contractDecision{pending: two, others: true}, false, false,
			outcome{"wait", "ContractNotApproved", "the first pods offer different contracts, so none is approved; other pods offer yet others" + approve}},
		"not known yet": {nil, "", nil, contractDecision{unknown: true, held: 1}, false, false,
			outcome{"wait", "ContractPending", "waiting for the contract of the pods, which take no traffic until then; pods in the host network are not probed"}},
		"not known yet, and old pods serve": {one, "", nil, contractDecision{approved: "d1", unknown: true, held: 1}, false, true,
			outcome{"done", "OldReplicasServing", "old pods still serve; waiting for the contract of the new pods"}},
		"not readable": {one, "", nil, contractDecision{unknown: true, held: 1, err: &prober.Error{Kind: prober.Invalid}}, false, true,
			outcome{"wait", "ContractPending", "the contract of pods cannot be read, so they take no traffic: " + (&prober.Error{Kind: prober.Invalid}).Error() +
				"; correct spec.protocol and the objects that it refers to"}},
		"closed": {one, "", nil, contractDecision{unknown: true, held: 1, err: &prober.Error{Kind: prober.Unauthorized, Status: 401}}, true, false,
			outcome{"wait", "ContractPending", "the contract of pods cannot be read, so they take no traffic: " +
				"the server responded with 401 Unauthorized; to probe it with a token, set spec.protocol.credentialsSecretRef"}},
		"refused for its content": {one, "", nil, contractDecision{unknown: true, held: 1, err: &prober.Error{Kind: prober.TooLarge}}, true, false,
			outcome{"wait", "ContractPending", "the contract of pods cannot be read, so they take no traffic: the response is too large" +
				"; reduce what the server returns: see Limits of the probes in docs/mcpserver.md"}},
		"approved before the rollout": {one, "d2", nil, contractDecision{approved: "d2", previous: true}, false, true,
			outcome{"done", "OldReplicasServing", "old pods with the previous contract still serve; waiting for pods with the approved one"}},
		"approved, and no rollout follows": {one, "d2", nil, contractDecision{approved: "d2", previous: true}, true, false,
			outcome{"wait", "ContractNotApproved",
				"all pods offer the previous contract, and take traffic until others offer the approved one: roll out a server that offers it, " +
					"or approve the previous one again: set spec.contract.digest to d1"}},
		"after a restart of the manager": {one, "", &metav1.Condition{Type: v1beta1.ConditionContractReady, Reason: v1beta1.ReasonContractNotApproved, Message: "as before"},
			contractDecision{approved: "d1", unknown: true, unjudged: true, held: 1}, true, false, outcome{"wait", "ContractNotApproved", "as before"}},
		"after a restart of the manager, and the pod that was refused does not run": {
			one, "", &metav1.Condition{Type: v1beta1.ConditionContractReady, Reason: v1beta1.ReasonContractNotApproved, Message: "as before"},
			contractDecision{approved: "d1", unjudged: true}, true, false, outcome{"wait", "ContractNotApproved", "as before"}},
		"approved during the restart": {
			one, "d2", &metav1.Condition{Type: v1beta1.ConditionContractReady, Reason: v1beta1.ReasonContractNotApproved, Message: "as before"},
			contractDecision{approved: "d2", unknown: true, unjudged: true, held: 1}, true, false,
			outcome{"wait", "ContractPending", "waiting for the contract of the pods, which take no traffic until then; pods in the host network are not probed"}},
		"blocked before a restart of the manager": {
			one, "", &metav1.Condition{Type: v1beta1.ConditionContractReady, Reason: phases.ReasonBlocked, Message: "waiting for phase Dependencies"},
			contractDecision{approved: "d1", unknown: true, unjudged: true, held: 1}, true, false,
			outcome{"wait", "ContractPending", "waiting for the contract of the pods, which take no traffic until then; pods in the host network are not probed"}},
		"not readable after a restart of the manager": {one, "", &metav1.Condition{Type: v1beta1.ConditionContractReady, Reason: v1beta1.ReasonContractNotApproved, Message: "as before"},
			contractDecision{approved: "d1", unknown: true, unjudged: true, held: 1, err: &prober.Error{Kind: prober.Invalid}}, true, false,
			outcome{"wait", "ContractPending", "the contract of pods cannot be read, so they take no traffic: " + (&prober.Error{Kind: prober.Invalid}).Error() +
				"; correct spec.protocol and the objects that it refers to"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := pinnedTools(c.recorded)
			server.Spec.Contract.Digest = c.spec
			if c.last != nil {
				server.Status.Conditions = []metav1.Condition{*c.last}
				server.Status.PendingContract = &v1beta1.MCPServerPendingContract{Digest: "d2"}
			}
			NewWithT(t).Expect(outcomeOf(contractVerdict(server, c.decision, c.isComplete, c.oldServe))).To(Equal(c.want))
		})
	}
}

func TestHeldPodsDoNotKeepLaterPhasesWaiting(t *testing.T) {
	progressing := phases.Wait(v1beta1.ReasonRolloutProgressing, "waiting for updated pods to become available", 0)
	held := &pinned{decision: contractDecision{held: 1}}
	cases := map[string]struct {
		pinned  *pinned
		verdict phases.Verdict
		want    outcome
	}{
		"none is held": {&pinned{}, progressing, outcomeOf(progressing)},
		"pods wait": {held, progressing,
			outcome{"done", "ContractPending", "pods may wait only for phase Contract: waiting for updated pods to become available"}},
		"the gates could not be set": {&pinned{err: errors.New("forbidden")}, progressing,
			outcome{"done", "ContractPending", "pods may wait only for phase Contract: waiting for updated pods to become available"}},
		"pods wait for too long": {held, phases.Stalled(v1beta1.ReasonRolloutStalled, "too long"),
			outcome{"done", "ContractPending", "pods may wait only for phase Contract: too long"}},
		"old pods serve, for too long": {held, phases.DoneBecause(v1beta1.ReasonRolloutStalled, "old pods still serve").WhileStalled(),
			outcome{"done", "OldReplicasServing", "old pods still serve; new pods wait for phase Contract"}},
		"pods crash": {held, phases.Wait(v1beta1.ReasonPodsFailing, "crashes", 0), outcome{"wait", "PodsFailing", "crashes"}},
		"complete":   {held, phases.Done("complete"), outcome{"done", "Ready", "complete"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			verdict := withHeldPods(&scope{server: tools(pin), pinned: c.pinned}, c.verdict)
			g.Expect(outcomeOf(verdict)).To(Equal(c.want))
			if c.want != outcomeOf(c.verdict) {
				g.Expect(verdict.After()).To(Equal(rolloutRecheckInterval))
			}
		})
	}
}

func TestPendingContractOfTheStatus(t *testing.T) {
	g := NewWithT(t)
	one, two := foundContract("tool/add=1-1"), foundContract("tool/drop=1-1")
	s := &scope{server: pinnedTools(one), pinned: &pinned{decision: contractDecision{pending: two}}}

	first := s.pendingContract(earlier)
	g.Expect(first.Digest).To(Equal(two.Digest))
	g.Expect(first.Change).To(And(HaveField("Time", earlier), HaveField("Added", ConsistOf("tool/drop")), HaveField("Removed", ConsistOf("tool/add"))))

	g.Expect(asJSON(t, first)).To(MatchYAML(`
digest: "digest of [tool/drop=1-1]"
change: {time: "2026-01-01T00:00:00Z", added: [tool/drop], removed: [tool/add]}`))

	s.server.Status.PendingContract = &v1beta1.MCPServerPendingContract{Digest: two.Digest}
	g.Expect(s.pendingContract(earlier)).To(Equal(first), "the change was not known before")
	s.server.Status.PendingContract = &v1beta1.MCPServerPendingContract{Digest: "d9", Change: &v1beta1.MCPServerContractChange{Time: earlier}}
	g.Expect(s.pendingContract(later).Change.Time).To(Equal(later), "another one waited before")
	s.pinned.decision.unjudged = true
	g.Expect(s.pendingContract(later).Digest).To(Equal(two.Digest), "what pods offer now counts")
	s.pinned.decision.unjudged = false

	s.server.Status.PendingContract = first
	g.Expect(s.pendingContract(later)).To(Equal(first), "since when it waits")
	before := s.pinned
	s.pinned = nil
	g.Expect(s.pendingContract(later)).To(Equal(first), "before the decision")
	s.pinned = &pinned{err: errors.New("forbidden")}
	g.Expect(s.pendingContract(later)).To(Equal(first), "without a decision")
	s.pinned = before

	s.pinned.decision = contractDecision{unjudged: true}
	g.Expect(s.pendingContract(later)).To(Equal(first), "until the pods are probed again")
	s.pinned.decision.err = &prober.Error{Kind: prober.Timeout}
	g.Expect(s.pendingContract(later)).To(Equal(first), "until the pods answer")
	s.pinned.decision.approved = two.Digest
	g.Expect(s.pendingContract(later)).To(BeNil(), "it is approved")
	s.pinned.decision = contractDecision{}
	g.Expect(s.pendingContract(later)).To(BeNil())
	s.pinned.decision.unjudged, s.server.Status.PendingContract = true, nil
	g.Expect(s.pendingContract(later)).To(BeNil(), "none has waited")

	s.pinned.decision, s.server.Status.Contract = contractDecision{pending: two}, nil
	g.Expect(s.pendingContract(later)).To(Equal(&v1beta1.MCPServerPendingContract{Digest: two.Digest}))
	s.server.Spec.Contract = nil
	g.Expect(s.pendingContract(later)).To(BeNil())
}

// Under Pin, the status records the approved contract, and not what the pods agree on.
func TestStatusRecordsTheApprovedContract(t *testing.T) {
	g := NewWithT(t)
	one, two := foundContract("tool/add=1-1"), foundContract("tool/drop=1-1")
	s := &scope{server: pinnedTools(one), probed: &prober.Result{Contract: two}, pinned: &pinned{}}
	next, changed := s.contract(later)
	g.Expect(next.Digest).To(Equal(one.Digest))
	g.Expect(changed).To(BeFalse())
	s.pinned.decision.record = two
	next, changed = s.contract(later)
	g.Expect(next.Digest).To(Equal(two.Digest))
	g.Expect(changed).To(BeTrue())
}

func TestPodsHaveTheGate(t *testing.T) {
	gates := func(change ...func(*spec)) []string {
		desired, err := desiredDeployment(&scope{server: tools(change...), settings: settings})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		var types []string
		for _, gate := range desired.Spec.Template.Spec.ReadinessGates {
			types = append(types, string(*gate.ConditionType))
		}
		return types
	}
	overrides := func(raw string) func(*spec) {
		return func(s *spec) {
			NewWithT(t).Expect(unmarshal(raw, &s.PodOverrides)).To(Succeed())
		}
	}
	g := NewWithT(t)
	g.Expect(gates()).To(BeEmpty())
	g.Expect(gates(pin)).To(ConsistOf("fixpoint.dev/contract"))
	g.Expect(gates(pin, overrides(`{"spec": {"readinessGates": [{"conditionType": "a/b"}]}}`))).To(ConsistOf("a/b", "fixpoint.dev/contract"))
	g.Expect(gates(pin, overrides(`{"spec": {"readinessGates": [{"conditionType": "fixpoint.dev/contract"}]}}`))).To(ConsistOf("fixpoint.dev/contract"))
}

// statuses are applied statuses, or err.
type statuses struct {
	applied []string
	err     error
}

func (s *statuses) ApplyStatus(_ context.Context, _ ssa.Configuration, live client.Object) (ssa.Result, error) {
	if s.err != nil {
		return ssa.Result{}, s.err
	}
	s.applied = append(s.applied, live.GetName())
	return ssa.Result{}, nil
}

// offersOf is a prober with offers by address.
type offersOf struct {
	target prober.Target
	offers map[string]string
}

func (o *offersOf) Set(_ client.ObjectKey, target prober.Target) { o.target = target }
func (o *offersOf) Forget(client.ObjectKey)                      { o.target = prober.Target{} }
func (o *offersOf) ContractText(string) string                   { return "" }
func (o *offersOf) Result(client.ObjectKey) (prober.Result, bool) {
	result := prober.Result{Offers: map[string]prober.Offer{}}
	for address, digest := range o.offers {
		result.Offers[address] = prober.Offer{Contract: &prober.Contract{Digest: digest}}
	}
	return result, true
}

func gatedPodAt(name, ip string, gate corev1.ConditionStatus) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name, Labels: selectorOf(tools())},
		Spec:       corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: v1beta1.PodConditionContract}}},
		Status: corev1.PodStatus{
			PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}},
		},
	}
	if gate != "" {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: v1beta1.PodConditionContract, Status: gate})
	}
	return pod
}

func TestGatesAreSetBeforeAllPhases(t *testing.T) {
	g := NewWithT(t)
	leaving, plain := gatedPodAt("leaving", "10.0.0.4", corev1.ConditionTrue), gatedPodAt("plain", "10.0.0.5", "")
	leaving.DeletionTimestamp, leaving.Finalizers = ptr.To(metav1.Now()), []string{"test/keep"}
	plain.Spec.ReadinessGates = nil
	elsewhere := gatedPodAt("elsewhere", "10.0.0.1", "") // of an MCPServer with the same name
	elsewhere.Namespace = "other"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "tools-1", Labels: map[string]string{discoveryv1.LabelServiceName: "tools"}},
		Ports:      []discoveryv1.EndpointPort{{Name: ptr.To(portName), Port: ptr.To[int32](8080)}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
			{Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}},
			{Addresses: []string{"10.0.0.4"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Terminating: ptr.To(true)}},
		},
	}
	cluster := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(slice, leaving, plain, elsewhere,
		gatedPodAt("kept", "10.0.0.1", corev1.ConditionTrue), gatedPodAt("new", "10.0.0.2", ""), gatedPodAt("without", "10.0.0.3", "")).Build()
	probes := &offersOf{offers: map[string]string{"10.0.0.1:8080": "d1", "10.0.0.2:8080": "d2"}}
	written := &statuses{}
	s := &scope{
		server: pinnedTools(&prober.Contract{Digest: "d1"}), reader: cluster, uncached: cluster, prober: probes,
		readers: readers{podStatus: written, keys: &keyReader{}}, clock: clocktesting.NewFakePassiveClock(time.Now()),
	}

	next := s.decideGates(t.Context())
	action, ok := next.(phases.Do)
	g.Expect(ok).To(BeTrue())
	g.Expect(probes.target.Unready).To(ConsistOf("10.0.0.2:8080"))
	g.Expect(probes.target.Verify).To(BeTrue())
	g.Expect(written.applied).To(BeEmpty(), "a phase only proposes")
	verdict, err := action.Func(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verdict.IsDone()).To(BeTrue())
	g.Expect(written.applied).To(ConsistOf("new"))
	g.Expect(s.pinned.decision.held).To(Equal(2))

	// When the gates cannot be written, then that is an error of this phase, and not of all.
	written.err = &ssa.Error{Reason: ssa.ReasonForbidden, Message: "no"}
	verdict, err = action.Func(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verdict.IsDone()).To(BeTrue())
	_, err = observeContract(t.Context(), s)
	g.Expect(err).To(MatchError(ContainSubstring("config/contract-gates")))

	// When a pod has changed meanwhile, then the reconcile starts again.
	written.err = &ssa.Error{Reason: ssa.ReasonStale}
	_, err = action.Func(t.Context())
	g.Expect(ssa.IsStale(err)).To(BeTrue())
}

// A pod gets the address of one that has just ended before the EndpointSlice says so.
func TestGateDoesNotDependOnTheContractOfAnotherPodThatHadTheAddress(t *testing.T) {
	for name, c := range map[string]struct {
		uid   string
		gates []corev1.ConditionStatus
	}{
		"the pod that was probed": {"uid of tools-b-11111", []corev1.ConditionStatus{corev1.ConditionTrue}},
		"another pod":             {"uid of tools-b-22222", []corev1.ConditionStatus{""}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod := gatedPodAt("tools-b", "10.0.0.1", "")
			pod.UID = types.UID(c.uid)
			s := pinnedScope(&offersOf{offers: map[string]string{"10.0.0.1:8080": "d1"}}, &statuses{}, pod,
				slice("a", "tools", 8080, ofPod("10.0.0.1", "tools-b-11111", discoveryv1.EndpointConditions{Ready: ptr.To(true)})))
			s.decideGates(t.Context())
			g.Expect(s.pinned.err).NotTo(HaveOccurred())
			g.Expect(s.pinned.decision.gates).To(Equal(c.gates))
		})
	}
}

// pinnedScope is a scope in a cluster with objects, whose gates are written to written.
func pinnedScope(probes Prober, written *statuses, objects ...client.Object) *scope {
	cluster := newClient(objects...)
	return &scope{
		server: pinnedTools(&prober.Contract{Digest: "d1"}), reader: cluster, uncached: cluster, prober: probes,
		readers: readers{podStatus: written, keys: &keyReader{}, references: &references.Reader{}}, clock: clocktesting.NewFakePassiveClock(earlier.Time),
	}
}

// withoutLists is a reader that lists all but the kind of a list.
func withoutLists(forbidden client.ObjectList) client.Reader {
	return interceptor.NewClient(newClient(slice("a", "tools", 8080, endpoint("10.0.0.1", nil))), interceptor.Funcs{
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if reflect.TypeOf(list) == reflect.TypeOf(forbidden) {
				return errors.New("no answer")
			}
			return inner.List(ctx, list, options...)
		}})
}

func TestGatesThatCannotBeDecidedAreAnErrorOfThePhaseAlone(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*scope)
		want   string
	}{
		"no EndpointSlices": {func(s *scope) { s.reader = withoutLists(&discoveryv1.EndpointSliceList{}) }, "listing the EndpointSlices of Service tools: no answer"},
		"no pods":           {func(s *scope) { s.uncached = withoutLists(&corev1.PodList{}) }, "listing the pods of MCPServer tools: no answer"},
		"no credentials": {func(s *scope) {
			s.server.Spec.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "key"}
			s.keys.metadata = s.reader
		}, `getting Secret key: secrets "key" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := pinnedScope(&offersOf{}, &statuses{}, slice("a", "tools", 8080, endpoint("10.0.0.1", nil)))
			c.change(s)
			probes := &offersOf{target: prober.Target{URL: "before"}}
			s.prober = probes
			g.Expect(s.decideGates(t.Context())).To(BeNil())
			_, err := observeContract(t.Context(), s)
			g.Expect(err).To(MatchError(c.want))
			if name != "no pods" { // whose addresses are known
				g.Expect(probes.target.URL).To(BeEmpty(), "addresses and credentials that are not known are not probed")
			}
			g.Expect(s.holdsPods()).To(BeTrue(), "pods may be held")
		})
	}
}

func TestGatesThatAreAsDecidedAreNotWritten(t *testing.T) {
	g := NewWithT(t)
	probes := &offersOf{offers: map[string]string{"10.0.0.1:8080": "d1"}}
	s := pinnedScope(probes, &statuses{}, gatedPodAt("kept", "10.0.0.1", corev1.ConditionTrue), gatedPodAt("starting", "10.0.0.2", corev1.ConditionFalse),
		slice("a", "tools", 8080, endpoint("10.0.0.1", nil)))
	g.Expect(s.decideGates(t.Context())).To(BeNil())
	g.Expect(s.pinned.decision.approved).To(Equal("d1"))
}

func TestPodsAreNotProbedWithoutAnAddress(t *testing.T) {
	g := NewWithT(t)
	probes := &offersOf{target: prober.Target{URL: "before"}}
	s := pinnedScope(probes, &statuses{})
	g.Expect(s.decideGates(t.Context())).To(BeNil())
	g.Expect(s.pinned.err).NotTo(HaveOccurred())
	g.Expect(probes.target.URL).To(BeEmpty())
}

func TestPodsThatEndHaveNoGate(t *testing.T) {
	g := NewWithT(t)
	leaving, evicted, plain := gatedPodAt("leaving", "10.0.0.1", ""), gatedPodAt("evicted", "10.0.0.2", ""), gatedPodAt("plain", "10.0.0.3", "")
	leaving.DeletionTimestamp, leaving.Finalizers = ptr.To(metav1.Now()), []string{"test/keep"}
	evicted.Status.Phase = corev1.PodFailed
	plain.Spec.ReadinessGates = nil
	s := pinnedScope(&offersOf{}, &statuses{}, leaving, evicted, plain, gatedPodAt("runs", "10.0.0.4", ""))
	g.Expect(s.gatedPods(t.Context())).To(HaveExactElements(HaveField("Name", "runs")))
}

// statusesOf fails the statuses of pods by name.
type statusesOf map[string]error

func (s statusesOf) ApplyStatus(_ context.Context, _ ssa.Configuration, live client.Object) (ssa.Result, error) {
	return ssa.Result{}, s[live.GetName()]
}

func TestGatesOfOtherPodsAreSetBesideOneThatFails(t *testing.T) {
	changes := []gateChange{{gatedPodAt("a", "10.0.0.1", ""), corev1.ConditionTrue}, {gatedPodAt("b", "10.0.0.2", ""), corev1.ConditionTrue}}
	quota := &ssa.Error{Reason: ssa.ReasonQuotaExceeded, Message: "full"}
	for name, c := range map[string]struct {
		errors statusesOf
		want   OmegaMatcher
	}{
		"none fails":  {statusesOf{}, BeNil()},
		"one is gone": {statusesOf{"a": apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a")}, BeNil()},
		"one fails":   {statusesOf{"a": errors.New("no answer")}, MatchError("no answer")},
		"one is refused for another reason than a missing permission": {statusesOf{"a": quota}, BeIdenticalTo(quota)},
		"the permission is missing":                                   {statusesOf{"a": &ssa.Error{Reason: ssa.ReasonForbidden, Message: "denied"}}, MatchError(ContainSubstring("denied: set rbac.contractGates of the chart"))},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := pinnedScope(&offersOf{}, nil)
			s.podStatus, s.pinned = c.errors, &pinned{}
			verdict, err := s.setGates(t.Context(), changes)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verdict.IsDone()).To(BeTrue())
			g.Expect(s.pinned.err).To(c.want)
		})
	}
}

func TestApprovedContract(t *testing.T) {
	g := NewWithT(t)
	server := pinnedTools(&prober.Contract{Digest: "d1"})
	g.Expect(approvedContract(server)).To(BeEmpty())
	server.Annotations = map[string]string{"fixpoint.dev/approved-contract": "d2"}
	g.Expect(approvedContract(server)).To(Equal("d2"))
	server.Spec.Contract.Digest = "d3"
	g.Expect(approvedContract(server)).To(Equal("d3"))
	g.Expect(recordedContract(server)).To(Equal("d1"))
	g.Expect(recordedContract(tools(pin))).To(BeEmpty())
	g.Expect(pendingChange(server.Status.Contract, &prober.Contract{Digest: "d1"})).To(BeNil(), "it is the recorded one")
}

func TestGatesAreDecidedOnlyForPinnedContracts(t *testing.T) {
	for name, c := range map[string]struct {
		server  *v1beta1.MCPServer
		plans   bool
		decides bool
	}{
		"pinned":   {tools(pin), false, true},
		"observed": {tools(), false, false},
		"a plan":   {tools(pin), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := pinnedScope(&offersOf{}, &statuses{}, gatedPodAt("new", "10.0.0.1", corev1.ConditionTrue), gatedPodAt("other", "10.0.0.2", ""),
				slice("a", "tools", 8080, endpoint("10.0.0.1", nil), endpoint("10.0.0.2", ptr.To(false))))
			s.prober = &offersOf{offers: map[string]string{"10.0.0.1:8080": "d1", "10.0.0.2:8080": "d1"}}
			s.server, s.plans = c.server, c.plans
			s.server.Status.Contract = &v1beta1.MCPServerContractStatus{Digest: "d1"}
			g.Expect(pinnedContract.Configured(s)).To(Equal(pinsContract(c.server)))
			declared, err := pinnedContract.Declare(clientgoscheme.Scheme)
			g.Expect(err).NotTo(HaveOccurred())
			next, err := declared.First(t.Context(), phases.Reconcile[*scope]{Scope: s})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.pinned != nil).To(Equal(c.decides))
			if c.decides {
				g.Expect(next).To(And(HaveField("Action", phases.ActionEnsure), HaveField("Reason", "ContractPending")))
			} else {
				g.Expect(next).To(BeNil())
			}
		})
	}
}

func TestPhaseContractOfAnInvalidStepIsAnError(t *testing.T) {
	_, err := contractPhase{}.Declare(clientgoscheme.Scheme)
	NewWithT(t).Expect(err).To(MatchError("Observe is nil"))
}

func TestObserveContract(t *testing.T) {
	const approved = "all pods that take traffic offer the approved contract"
	last := func(reason string) func(*scope) {
		return func(s *scope) {
			s.plans = true
			s.server.Status.Conditions = []metav1.Condition{{Type: "ContractReady", Reason: reason, Message: "as before"}}
		}
	}
	decision := contractDecision{approved: "d2", previous: true}
	complete := func(d *appsv1.Deployment) { d.Status.Replicas, d.Status.UpdatedReplicas = 2, 2 }
	for name, c := range map[string]struct {
		change func(*scope)
		want   outcome
		holds  bool
	}{
		"before the decision":         {func(*scope) {}, outcome{"wait", "ContractPending", "waiting for the contracts of the pods"}, false},
		"a plan at first":             {func(s *scope) { s.plans = true }, outcome{"done", "Ready", approved}, false},
		"a plan, ready before":        {last("Ready"), outcome{"done", "Ready", approved}, false},
		"a plan, not approved before": {last("ContractNotApproved"), outcome{"wait", "ContractNotApproved", "as before"}, true},
		"a plan, pending before":      {last("ContractPending"), outcome{"wait", "ContractPending", "as before"}, true},
		"a plan, old replicas before": {last("OldReplicasServing"), outcome{"done", "OldReplicasServing", "as before"}, false},
		"approved":                    {func(s *scope) { s.pinned = &pinned{} }, outcome{"done", "Ready", approved}, false},
		"without a Deployment":        {func(s *scope) { s.pinned = &pinned{decision: decision} }, outcome{"done", "OldReplicasServing", "old pods with the previous contract still serve; waiting for pods with the approved one"}, false},
		"after the rollout": {func(s *scope) { s.pinned, s.deployment = &pinned{decision: decision}, rollout(complete) },
			outcome{"wait", "ContractNotApproved", "all pods offer the previous contract, and take traffic until others offer the approved one: roll out a server that offers it, " +
				"or approve the previous one again: run kubectl fixpoint approve mcp/tools -n acme --digest d1, or set spec.contract.digest to d1"}, false},
		"old replicas serve": {func(s *scope) {
			s.pinned, s.deployment = &pinned{decision: contractDecision{unknown: true, held: 1}}, rollout()
		},
			outcome{"done", "OldReplicasServing", "old pods still serve; waiting for the contract of the new pods"}, true},
		"observed": {func(s *scope) { s.server.Spec.Contract, s.pinned = nil, &pinned{decision: contractDecision{held: 1}} }, outcome{"done", "Ready", approved}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{server: pinnedTools(&prober.Contract{Digest: "d1"})}
			c.change(s)
			observed, err := observeContract(t.Context(), s)
			g.Expect(err).NotTo(HaveOccurred())
			verdict, ok := observed.(phases.Verdict)
			g.Expect(ok).To(BeTrue())
			g.Expect(outcomeOf(verdict)).To(Equal(c.want))
			g.Expect(s.holdsPods()).To(Equal(c.holds))
		})
	}
}

func TestGateOfAPodWhoseContractIsNotKnown(t *testing.T) {
	unreadable := &prober.Error{Kind: prober.Timeout}
	offers := map[string]prober.Offer{"10.0.0.1": {Err: unreadable}}
	g := NewWithT(t)
	pod := gatedPodAt("a", "10.0.0.1", "")
	pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: "10.0.0.9"})
	g.Expect(gatedPodOf(pod, offers, "d1", "").Err).To(Equal(unreadable), "although another address was not asked")
	g.Expect(gatedPodOf(pod, offers, "d1", "").running).To(BeTrue())
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	g.Expect(gatedPodOf(pod, offers, "d1", "").running).To(BeFalse())
	pod.Status.Conditions = nil
	g.Expect(gatedPodOf(pod, offers, "d1", "").running).To(BeFalse())

	known := prober.Offer{Contract: &prober.Contract{Digest: "d1"}}
	g.Expect(lessApproved(known, prober.Offer{}, "d1", "")).To(Equal(known), "a contract counts more than none")
	g.Expect(lessApproved(known, prober.Offer{}, "", "d1")).To(Equal(known))
	another := prober.Offer{Contract: &prober.Contract{Digest: "d2"}}
	g.Expect(lessApproved(another, known, "d9", "d1")).To(Equal(another), "one that is not recorded is judged")
	refused := prober.Offer{Err: &prober.Error{Kind: prober.TooLarge}}
	g.Expect(lessApproved(another, refused, "d9", "d1")).To(Equal(refused))
	offers["10.0.0.1"] = refused
	g.Expect(gatedPodOf(gatedPodAt("a", "10.0.0.1", ""), offers, "d1", "").Refused()).To(BeTrue())
}

func TestGateThatStandsInOverridesWithoutATypeIsIgnored(t *testing.T) {
	pod := corev1ac.PodSpec().WithReadinessGates(corev1ac.PodReadinessGate())
	withContractGate(pod, tools(pin))
	NewWithT(t).Expect(pod.ReadinessGates).To(HaveLen(2))
}

func TestGateOfAPod(t *testing.T) {
	g := NewWithT(t)
	offers := map[string]prober.Offer{"10.0.0.1": {Contract: &prober.Contract{Digest: "d1"}}, "fd00::1": {Contract: &prober.Contract{Digest: "d2"}}}
	pod := gatedPodAt("a", "10.0.0.1", corev1.ConditionTrue)
	g.Expect(gatedPodOf(pod, offers, "d1", "").Contract.Digest).To(Equal("d1"))
	pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: "fd00::1"})
	g.Expect(gatedPodOf(pod, offers, "d1", "").Contract.Digest).To(Equal("d2"), "the one that is not approved")
	g.Expect(gatedPodOf(pod, offers, "", "d1").Contract.Digest).To(Equal("d2"), "the one that is not recorded")
	g.Expect(gatedPodOf(pod, offers, "d2", "d1").Contract.Digest).To(Equal("d1"), "the one that counts only until it is replaced")
	pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: "10.0.0.9"})
	g.Expect(gatedPodOf(pod, offers, "d1", "").Contract.Digest).To(Equal("d2"), "and not the address of which nothing is known")
	const configured = `
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: acme}
status:
  conditions:
  - {type: fixpoint.dev/contract, lastTransitionTime: "2026-01-01T00:00:00Z", `
	g.Expect(asJSON(t, gateChange{pod, corev1.ConditionFalse}.configuration(earlier))).To(MatchYAML(configured +
		`status: "False", reason: NotApproved, message: "the contract of the pod is not approved: see the condition ContractReady of the MCPServer"}`))
	g.Expect(asJSON(t, gateChange{pod, corev1.ConditionTrue}.configuration(earlier))).To(MatchYAML(configured +
		`status: "True", reason: Approved, message: the contract of the pod is approved}`))
}
