package plugin

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/buildinfo"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

var update = flag.Bool("update", false, "Write the golden files and the examples of docs/kubectl.md.")

// golden is one output of a command.
type golden struct {
	// command is what a user types. The first output of a command that has documented is an example in docs/kubectl.md.
	command    string
	documented bool
	text       string
}

func statusOf(o object, children ...client.Object) string {
	return statusText(detailsOf(o, children, nil), now)
}

func whyOf(e evidence) string { return wrap(whyText(e, now)) }

// goldens are the outputs of all commands that only print, in their states, by the name of the file.
func goldens(t *testing.T) map[string]golden {
	t.Helper()
	running := app("web", isRunning, hasDrifted)
	all := map[string]golden{
		"status-running":   {"status appservice/web", true, statusOf(running, service(), deployment(3))},
		"status-waiting":   {"status appservice/web", false, statusOf(app("web", cannotPull), service(), deployment(1))},
		"status-stalled":   {"status appservice/web", false, statusOf(app("web", isStalled), service(), deployment(3))},
		"status-hook":      {"status appservice/web", false, statusOf(app("web", hasFailedHook), service(), failedJob(), deployment(3))},
		"status-suspended": {"status appservice/web", false, statusOf(app("web", isSuspended), deployment(3))},
		"status-new":       {"status appservice/web", false, statusOf(app("web", isNew))},
		"status-behind":    {"status appservice/web", false, statusOf(app("web", isBehind))},
		"status-deleted":   {"status appservice/web", false, statusOf(app("web", isDeleted), deployment(3))},
		"status-cloud":     {"status securestorage/invoices", true, statusOf(storage())},
		"status-mcpserver": {"status mcpserver/tools", false, statusText(detailsOf(mcpServer(), nil, []string{"you may not list Service objects in namespace agents"}), now)},
		"status-fleet":     {"status -A", true, fleetText(fleetRows([]object{running, app("shop", cannotPull), storage(), mcpServer()}), now, "")},
		"status-nothing":   {"status", false, fleetText(nil, now, "shop")},

		"mcp-connect":           {"mcp connect tools", true, connectionText(connectionOf(reachable(isExternal)))},
		"mcp-contract":          {"mcp contract tools", true, contractText(exampleContract(), now)},
		"mcp-contract-diff":     {"mcp contract tools --diff", true, diffText(exampleDiff(), reachable(isPinned), true)},
		"mcp-contract-pinned":   {"mcp contract tools", false, contractText(exampleContract(), now) + pendingText(reachable(isPinned))},
		"approve":               {"approve mcp/tools", true, approvalText(reachable(isPinned), "9f2c5e1ab0c4d7734d5ecbaa1f20c3e8")},
		"mcp-connect-protected": {"mcp connect tools", false, connectionText(connectionOf(reachable(isExternal, requiresTokens)))},
		"mcp-connect-internal":  {"mcp connect tools", false, connectionText(connectionOf(reachable(hasToken)))},

		"tree": {"tree appservice/web", true, treeText(exampleTree(), nil, now)},

		"why-pull":          {"why appservice/web", true, whyOf(pullEvidence())},
		"why-crash":         {"why appservice/web", false, whyOf(evidence{object: app("web", cannotPull), deployment: deployment(0), pods: []corev1.Pod{*pod("web-2-x", crashes)}})},
		"why-unschedulable": {"why appservice/web", false, whyOf(evidence{object: app("web", cannotPull), deployment: deployment(0), pods: []corev1.Pod{*pod("web-2-x", isUnschedulable)}})},
		"why-config":        {"why appservice/web", false, whyOf(evidence{object: app("web", cannotPull), deployment: deployment(0), pods: []corev1.Pod{*pod("web-2-x", waits("CreateContainerConfigError", `secret "db" not found`))}})},
		"why-probe":         {"why appservice/web", false, whyOf(evidence{object: app("web", cannotPull), deployment: deployment(0), pods: []corev1.Pod{*pod("web-2-x", isNotReady)}, events: []eventsv1.Event{event(pod("web-2-x"), "Unhealthy", "Readiness probe failed: HTTP 503")}})},
		"why-contract":      {"why mcpserver/tools", false, whyOf(evidence{object: mcpServer(), deployment: deployment(0), pods: []corev1.Pod{*pod("tools-2-x", isHeld)}})},
		"why-quota":         {"why appservice/web", false, whyOf(quotaEvidence())},
		"why-stalled":       {"why appservice/web", false, whyOf(evidence{object: app("web", isStalled), notes: []string{"you may not list Pod objects in namespace shop"}})},
		"why-hook":          {"why appservice/web", false, whyOf(evidence{object: app("web", hasFailedHook)})},
		"why-suspended":     {"why appservice/web", false, whyOf(evidence{object: app("web", isSuspended)})},
		"why-new":           {"why appservice/web", false, whyOf(evidence{object: app("web", isNew), managers: 0})},
		"why-behind":        {"why appservice/web", false, whyOf(evidence{object: app("web", isBehind), managers: 3})},
		"why-unknown":       {"why appservice/web", false, whyOf(evidence{object: app("web", isNew), managers: -1})},
		"why-ready":         {"why appservice/web", false, whyOf(evidence{object: running})},
		"why-deleted":       {"why appservice/web", false, whyOf(evidence{object: app("web", isDeleted)})},
		"why-cloud":         {"why securestorage/invoices", false, whyOf(evidence{object: storage()})},
		"why-mcpserver":     {"why mcpserver/tools", false, whyOf(evidence{object: mcpServer()})},
		"why-fleet":         {"why -A", true, whyFleet([]object{running, app("shop", cannotPull), app("cart", cannotPull), app("new", isNew), storage(), mcpServer()}, "")},
		"why-fleet-ready":   {"why -A", false, whyFleet([]object{running}, "")},

		"drift":       {"drift -A", true, driftText(driftRows([]object{running}), now, 0)},
		"drift-cloud": {"drift securestorage/invoices", false, driftText(eventRows([]eventsv1.Event{cloudDrift()}), now, 0)},
		"drift-none":  {"drift --since 1h", false, driftText(nil, now, time.Hour)},

		"plan":           {"plan appservice/web", true, planText(examplePlan(t))},
		"plan-nothing":   {"plan appservice/web", false, planText(planResult{Planned: 1, Plans: []objectPlan{{Object: "AppService shop/web", Phases: []plannedPhase{{Phase: "Service", Verdict: verdictDone}}}}})},
		"plan-cloud":     {"plan -f invoices.yaml", true, planText(cloudPlan(t))},
		"plan-suspended": {"plan appservice/web", false, planText(planResult{Planned: 1, Plans: []objectPlan{{Object: "AppService shop/web", Suspended: true, Phases: []plannedPhase{{Phase: "Service", Verdict: "not reached"}}}}})},
		"plan-fleet":     {"plan --all -A", false, planText(planResult{Planned: 400})},

		"blame": {"blame deployment/web", true, blameText(exampleBlamed(t), now)},

		"version":          {"version", true, versionText(exampleVersions("v1.4.0"))},
		"version-mismatch": {"version", false, versionText(mismatchedVersions())},
	}
	maps.Copy(all, adoptGoldens(t))
	return all
}

func exampleTree() node {
	running := app("web", isRunning)
	d := nodeOf(deployment(3))
	set := nodeOf(replicaSet("web-7d4b", 3, 3, time.Hour))
	set.children = []node{nodeOf(pod("web-7d4b-abcde")), nodeOf(pod("web-7d4b-fghij", waits("ContainerCreating", "")))}
	d.children = []node{set}
	return node{object: running.Object, kind: "AppService", ready: "True", note: "Ready", children: []node{nodeOf(service()), d}}
}

func crashes(p *corev1.Pod) {
	p.Status.ContainerStatuses[0].Ready = false
	p.Status.ContainerStatuses[0].RestartCount = 4
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137}
}

func isUnschedulable(p *corev1.Pod) {
	p.Status.Phase, p.Status.ContainerStatuses = corev1.PodPending, nil
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available: 3 Insufficient memory."}}
}

func isHeld(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady"},
		{Type: v1beta1.PodConditionContract, Status: corev1.ConditionFalse},
	}
}

func isNotReady(p *corev1.Pod) {
	p.Status.ContainerStatuses[0].Ready = false
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "containers with unready status: [app]"}}
}

func pullEvidence() evidence {
	failing := pod("web-7d4b-abcde", waits("ImagePullBackOff", `Back-off pulling image "registry.example.com/shop:2"`))
	return evidence{
		object: app("web", cannotPull), deployment: deployment(1), replicaSets: []appsv1.ReplicaSet{*replicaSet("web-7d4b", 0, 1, time.Minute)},
		pods:   []corev1.Pod{*pod("web-5c9f-zzzzz"), *failing},
		events: []eventsv1.Event{event(failing, "Failed", `Failed to pull image "registry.example.com/shop:2": not found`)},
	}
}

func quotaEvidence() evidence {
	set := replicaSet("web-7d4b", 0, 1, time.Minute)
	set.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota: pods"}}
	return evidence{object: app("web", cannotPull), deployment: deployment(1), replicaSets: []appsv1.ReplicaSet{*set}}
}

func cloudDrift() eventsv1.Event {
	e := eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Reason: driftCorrected, Note: "storage account invoices: .sku was changed from Standard_LRS to Premium_LRS; reverted"}
	e.Regarding = corev1.ObjectReference{Kind: "SecureStorage", Name: "invoices"}
	e.EventTime = metav1.NewMicroTime(now.Add(-3 * time.Minute))
	return e
}

// examplePlan goes through the functions that describe what an engine and its dry runs answered.
func examplePlan(t *testing.T) planResult {
	t.Helper()
	before, after := deployment(3), deployment(3)
	before.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry.example.com/shop:1"}, {Name: "proxy", Image: "proxy:1"}}
	after.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry.example.com/shop:2", Env: []corev1.EnvVar{{Name: "COLOR", Value: "green"}}}, {Name: "proxy", Image: "proxy:1"}}
	before.Spec.Replicas = &[]int32{5}[0]
	created := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}, Data: map[string]string{"COLOR": "green"}}
	plan := phases.Plan{Phases: []phases.PlannedPhase{
		{Name: "Config", Verdict: phases.Done("ConfigMap web applied"), Changes: []phases.Change{{Phase: "Config", Action: ssa.ActionCreate, Object: "ConfigMap web"}}},
		{Name: "Service", Verdict: phases.Done("Service web applied")},
		{Name: "Deployment", Verdict: phases.Wait(v1beta1.ReasonRolloutProgressing, "waiting for updated pods to be created", 0), Changes: []phases.Change{{
			Phase: "Deployment", Action: ssa.ActionCorrect, Object: "Deployment web",
			Drifts: []ssa.Drift{{Path: ".spec.replicas", Manager: "kubectl", Desired: "3", Actual: "5"}},
		}}},
		{Name: "Autoscaling"},
	}}
	described, err := describePlan(app("web", isRunning), plan, []execution{{action: ssa.ActionCreate, after: created}, {action: ssa.ActionCorrect, before: before, after: after}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return planResult{Planned: 1, Plans: []objectPlan{described}, Notes: []string{"you may not list IngressClasses, so the class of every Ingress is assumed to exist"}}
}

func cloudPlan(t *testing.T) planResult {
	t.Helper()
	const encrypt = "encrypt storage account invoices with key demo-key (encryption.keySource is Microsoft.Storage, desired Microsoft.Keyvault)"
	step := func(phase string, verdict phases.Verdict, what string) phases.PlannedPhase {
		return phases.PlannedPhase{Name: phase, Verdict: verdict, Changes: []phases.Change{{Phase: phase, Action: phases.ActionEnsure, Object: what, Pending: true}}}
	}
	plan := phases.Plan{Phases: []phases.PlannedPhase{
		step("StorageAccount", phases.Done(""), "update storage account invoices (tags.fixpoint.dev-owner is not set, desired 3f0c; identity.type is None, desired SystemAssigned)"),
		{Name: "Identity", Verdict: phases.Done("")},
		step("KeyAccess", phases.Done(""), "grant the storage account access to the keys of key vault demo-vault"),
		step("Encryption", phases.Wait(v1beta1.ReasonEncrypting, encrypt, 0), encrypt),
	}}
	described, err := describePlan(storage(), plan, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return planResult{Planned: 1, Plans: []objectPlan{described}, Notes: []string{"Azure was read with your own login; the manager uses another credential, whose permissions are not known"}}
}

func exampleBlamed(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	d := deployment(3)
	d.Spec.Template.Labels = map[string]string{"team": "shop"}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry.example.com/shop:2", Args: []string{"--color", "green"}}}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &unstructured.Unstructured{Object: tree}
}

func exampleVersions(tag string) versions {
	v := versions{
		Plugin:   buildinfo.Info{Version: "v1.4.0", Commit: "0123abc", Date: "2026-01-01T00:00:00Z", Go: "go1.26.8"},
		Managers: []managerVersion{{"fixpoint-system/fixpoint-controller-manager", "ghcr.io/fixpoint-dev/fixpoint:" + tag + "@sha256:0123", "3/3"}},
	}
	for _, k := range kinds {
		v.CRDs = append(v.CRDs, crdVersion{Name: k.resource + ".fixpoint.dev", Served: []string{"v1alpha1", "v1beta1"}})
	}
	return v
}

func mismatchedVersions() versions {
	v := exampleVersions("v1.3.0")
	v.CRDs[0].Served, v.CRDs[1].Served, v.CRDs[2].Missing = nil, []string{"v9"}, []string{"status.lastHandledReconcileAt"}
	v.Notes = []string{"you may not read the CustomResourceDefinition x"}
	return v
}

func TestOutputsMatchGoldenFiles(t *testing.T) {
	all := goldens(t)
	for name, is := range all {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			path := filepath.Join("testdata", name+".txt")
			content := "$ kubectl fixpoint " + is.command + "\n" + is.text
			if *update {
				g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
			}
			want, err := os.ReadFile(path)
			g.Expect(err).NotTo(HaveOccurred(), "run go test ./internal/plugin -update")
			g.Expect(content).To(Equal(string(want)), "run go test ./internal/plugin -update if this is intended")
		})
	}
	files, err := filepath.Glob("testdata/*.txt")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		_, exists := all[strings.TrimSuffix(filepath.Base(file), ".txt")]
		NewWithT(t).Expect(exists).To(BeTrue(), "%s belongs to no test: delete it", file)
	}
}

// The examples in the page are the golden files of these commands.
func TestDocumentationShowsTheOutputs(t *testing.T) {
	g := NewWithT(t)
	const page = "../../docs/kubectl.md"
	raw, err := os.ReadFile(page)
	g.Expect(err).NotTo(HaveOccurred())
	text := string(raw)
	all := goldens(t)
	names := make([]string, 0, len(all))
	for name, is := range all {
		if is.documented {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		begin, end := "<!-- "+name+" -->\n```console\n", "```\n"
		head, rest, found := strings.Cut(text, begin)
		g.Expect(found).To(BeTrue(), "docs/kubectl.md has no block after <!-- %s -->", name)
		shown, tail, found := strings.Cut(rest, end)
		g.Expect(found).To(BeTrue(), "the block %s of docs/kubectl.md does not end", name)
		want := "$ kubectl fixpoint " + all[name].command + "\n" + all[name].text
		if *update {
			text = head + begin + want + end + tail
			continue
		}
		g.Expect(shown).To(Equal(want), "run go test ./internal/plugin -update")
	}
	if *update {
		g.Expect(os.WriteFile(page, []byte(text), 0o644)).To(Succeed()) //nolint:gosec // documentation
	}
	for _, command := range New(testStreams()).Commands() {
		if name := command.Name(); name != "help" && name != "completion" {
			g.Expect(text).To(ContainSubstring("kubectl fixpoint "+name), "docs/kubectl.md does not show the command %s", name)
		}
	}
}
