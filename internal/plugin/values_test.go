package plugin

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func fieldsOf(g Gomega, text string) map[string]any {
	var fields map[string]any
	g.Expect(yaml.Unmarshal([]byte(text), &fields)).To(Succeed())
	return fields
}

func TestEditAppliesWhatDiffersAndWhatEditsHold(t *testing.T) {
	for name, c := range map[string]struct{ held, before, after, want string }{
		"nothing differs":          {`{}`, `{image: a, replicas: 2}`, `{image: a, replicas: 2}`, `{}`},
		"a value":                  {`{}`, `{image: a, replicas: 2}`, `{image: b, replicas: 2}`, `{image: b}`},
		"a field of a map":         {`{}`, `{config: {A: "1", B: "2"}}`, `{config: {A: "1", B: "3"}}`, `{config: {B: "3"}}`},
		"a new map":                {`{}`, `{}`, `{config: {A: "1"}}`, `{config: {A: "1"}}`},
		"a list":                   {`{}`, `{env: [{name: A, value: "1"}]}`, `{env: [{name: A, value: "2"}]}`, `{env: [{name: A, value: "2"}]}`},
		"a field of an edit stays": {`{replicas: 3}`, `{image: a, replicas: 3}`, `{image: b, replicas: 3}`, `{image: b, replicas: 3}`},
		"a field of an edit goes":  {`{config: {A: "1"}}`, `{config: {A: "1", B: "2"}}`, `{config: {B: "2"}}`, `{}`},
		"an empty map":             {`{}`, `{config: {A: "1"}}`, `{config: {}}`, `{config: {}}`},
		"a key of an atomic map":   {`{}`, `{nodeSelector: {a: "1", b: "2"}}`, `{nodeSelector: {a: "1", b: "3"}}`, `{nodeSelector: {a: "1", b: "3"}}`},
		"a key that goes":          {`{}`, `{nodeSelector: {a: "1", b: "2"}}`, `{nodeSelector: {a: "1"}}`, `{nodeSelector: {a: "1"}}`},
		"an atomic map of others":  {`{}`, `{image: a, nodeSelector: {a: "1"}}`, `{image: b, nodeSelector: {a: "1"}}`, `{image: b}`},
		"an atomic map of an edit": {`{nodeSelector: {a: "1"}}`, `{image: a, nodeSelector: {a: "1"}}`, `{image: b, nodeSelector: {a: "1"}}`, `{image: b, nodeSelector: {a: "1"}}`},
		"an empty atomic map":      {`{}`, `{nodeSelector: {a: "1"}}`, `{nodeSelector: {}}`, `{nodeSelector: {}}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			spec, err := specSchema(mustKind("appservice"))
			g.Expect(err).NotTo(HaveOccurred())
			got := editedFields(spec, fieldsOf(g, c.held), fieldsOf(g, c.before), fieldsOf(g, c.after))
			g.Expect(got).To(Equal(fieldsOf(g, c.want)))
		})
	}
}

// An apply of one key of an atomic map would remove all others.
func TestEditAppliesAtomicMapsBelowTheSpecAsAWhole(t *testing.T) {
	g := NewWithT(t)
	spec, err := specSchema(mustKind("mcpserver"))
	g.Expect(err).NotTo(HaveOccurred())
	before := fieldsOf(g, `{image: a, scheduling: {nodeSelector: {a: "1", b: "2"}, priorityClassName: high}}`)
	after := fieldsOf(g, `{image: a, scheduling: {nodeSelector: {a: "1", b: "3"}, priorityClassName: high}}`)
	g.Expect(editedFields(spec, nil, before, after)).To(Equal(fieldsOf(g, `{scheduling: {nodeSelector: {a: "1", b: "3"}}}`)))
}

func TestRemovedFieldsOfAnEdit(t *testing.T) {
	g := NewWithT(t)
	before := fieldsOf(g, `{image: a, config: {A: "1", B: "2"}, env: [{name: A}], ingress: {host: a}}`)
	g.Expect(removedFields(before, before, nil)).To(BeEmpty())
	after := fieldsOf(g, `{image: b, config: {A: "1", C: "3"}, env: []}`)
	g.Expect(removedFields(before, after, nil)).To(Equal([][]string{{"config", "B"}, {"env"}, {"ingress"}}))
}

func TestDefaultsOfFieldsComeFromTheDefinition(t *testing.T) {
	g := NewWithT(t)
	k := mustKind("appservice")
	g.Expect(defaultOf(k, []string{"adoptionPolicy"})).To(BeEquivalentTo(v1beta1.AdoptionNever))
	g.Expect(defaultOf(k, []string{"image"})).To(BeNil())
	g.Expect(defaultOf(k, []string{"no", "such", "field"})).To(BeNil())
}

func TestRowsOfObjects(t *testing.T) {
	g := NewWithT(t)
	row := rowOf(app("web", isRunning, hasDrifted))
	g.Expect(row).To(And(HaveField("Ready", "True"), HaveField("Phase", "Running"), HaveField("Drifts", 3), HaveField("ObservedGeneration", int64(2))))
	g.Expect(row.LastDrift.Time).To(BeTemporally("==", before(2*60e9).Time))
	g.Expect(rowOf(app("new", isNew))).To(And(HaveField("Ready", "Unknown"), HaveField("Since", BeNil())))
	g.Expect(rowOf(app("web", isSuspended)).Suspended).To(BeTrue())
	g.Expect(rowOf(app("web", isDeleted)).Deleting).To(BeTrue())
}

func TestPhasesHaveTheirChildrenAndWhatIsWaitedFor(t *testing.T) {
	g := NewWithT(t)
	byName := map[string]Phase{}
	for _, p := range phaseValues(app("web", cannotPull), []node{nodeOf(service()), nodeOf(deployment(1))}, nil, now) {
		byName[p.Name] = p
	}
	g.Expect(byName["Service"]).To(And(HaveField("Status", "True"), HaveField("Gate", ""), HaveField("Children", ConsistOf(And(HaveField("Kind", "Service"), HaveField("Ready", "True"))))))
	g.Expect(byName["Deployment"].Children).To(ConsistOf(And(HaveField("Ready", "False"), HaveField("Message", "1/3, 1 updated"))))
	g.Expect(byName["Deployment"].Gate).To(HavePrefix("Waits for Deployment, which fails at "))
	g.Expect(byName["Ingress"].Children).To(ConsistOf(HaveField("Ready", "Missing")))
	g.Expect(byName["Autoscaling"]).To(And(HaveField("Status", ""), HaveField("Verdict", "not configured"), HaveField("Children", BeEmpty())))
}

// What a user may not list is not known to be missing.
func TestDetailsClaimNothingAboutWhatTheUserMayNotList(t *testing.T) {
	g := NewWithT(t)
	live, isSet := app("web", cannotPull).Object.(*v1beta1.AppService)
	g.Expect(isSet).To(BeTrue())
	c := &Client{clients: refusing(clientOf(live), forbidden, "IngressList", "ReplicaSetList")}
	d, err := c.Details(t.Context(), "appservices", "shop", "web")
	g.Expect(err).NotTo(HaveOccurred())
	children := map[string][]Child{}
	for _, phase := range d.Phases {
		children[phase.Name] = phase.Children
	}
	g.Expect(children["Deployment"]).To(ConsistOf(HaveField("Ready", "Missing")), "the user may list Deployments, and there is none")
	g.Expect(children["Ingress"]).To(BeEmpty())
	g.Expect(d.Notes).To(Equal([]string{"you may not list Ingress objects in namespace shop"}))
}

// The status of a SecureStorage does not record what was reverted in Azure.
func TestDetailsHaveTheDriftsInTheCloud(t *testing.T) {
	live, _ := storage().Object.(*v1beta1.SecureStorage)
	live.Status.Drifts = []v1beta1.Drift{{Time: before(time.Hour), Kind: "Secret", Name: "invoices", Action: v1beta1.DriftCorrected}}
	corrected := eventsv1.Event{Note: "tags.team was set", EventTime: metav1.NewMicroTime(now), Regarding: corev1.ObjectReference{Kind: "SecureStorage", Name: "invoices"}}
	corrected.Namespace = "shop"
	detailsWith := func(g Gomega, events func(client.ObjectList, client.ListOptions) error) Details {
		there := clientOf(live)
		there.WithWatch = interceptor.NewClient(there.WithWatch, interceptor.Funcs{
			List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, isEvents := list.(*eventsv1.EventList); !isEvents {
					return api.List(ctx, list, options...)
				}
				given := client.ListOptions{}
				given.ApplyOptions(options)
				return events(list, given)
			},
		})
		d, err := (&Client{clients: there}).Details(t.Context(), "securestorages", "shop", "invoices")
		g.Expect(err).NotTo(HaveOccurred())
		return d
	}
	t.Run("those of the status and of Events, the latest first", func(t *testing.T) {
		g := NewWithT(t)
		d := detailsWith(g, func(list client.ObjectList, options client.ListOptions) error {
			g.Expect(options.Namespace).To(Equal("shop"))
			g.Expect(options.FieldSelector.String()).To(And(ContainSubstring("regarding.name=invoices"), ContainSubstring("reason=DriftCorrected")))
			return meta.SetList(list, []runtime.Object{&corrected})
		})
		g.Expect(d.Drifts).To(HaveExactElements(
			And(HaveField("Message", "tags.team was set"), HaveField("Action", "Reverted"), HaveField("Kind", "SecureStorage"), HaveField("Name", "invoices")),
			HaveField("Child", "Secret/invoices"),
		))
		g.Expect(d.Notes).To(BeEmpty())
	})
	t.Run("without permission", func(t *testing.T) {
		g := NewWithT(t)
		d := detailsWith(g, func(list client.ObjectList, _ client.ListOptions) error { return forbidden(list) })
		g.Expect(d.Drifts).To(HaveLen(1))
		g.Expect(d.Notes).To(Equal([]string{"drifts of SecureStorages, because you may not list Events"}))
	})
}

func TestJobOfAHookIsShownWithItsPhase(t *testing.T) {
	g := NewWithT(t)
	preDeployOf := func(children ...node) Phase {
		all := phaseValues(app("web", hasFailedHook), children, nil, now)
		return all[slices.IndexFunc(all, func(p Phase) bool { return p.Name == "PreDeploy" })]
	}
	g.Expect(preDeployOf(nodeOf(service()), nodeOf(failedJob()))).To(And(HaveField("Verdict", "stalled"),
		HaveField("Children", ConsistOf(Child{Kind: "Job", Namespace: "shop", Name: "web-0123456789", Ready: "False", Message: "0/1, failed"}))))
	g.Expect(preDeployOf(nodeOf(service()))).To(HaveField("Children", BeEmpty()), "the name of the Job is not known")
	succeeded := failedJob()
	succeeded.Status.Succeeded, succeeded.Status.Conditions[0].Type = 1, batchv1.JobComplete
	g.Expect(childValue(nodeOf(succeeded))).To(And(HaveField("Ready", "True"), HaveField("Message", "1/1")))
}

// clientOf reads objects of the API server of a test. Secrets are forbidden.
func clientOf(objects ...client.Object) *clients {
	forbidSecrets := interceptor.Funcs{List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, isSecrets := list.(*corev1.SecretList); isSecrets {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", nil)
		}
		return api.List(ctx, list, options...)
	}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(forbidSecrets).Build()
	return &clients{WithWatch: api, namespace: "shop"}
}

func TestTreeHasTheJobOfAHookWithItsPods(t *testing.T) {
	g := NewWithT(t)
	o, job := app("web", hasFailedHook), failedJob()
	job.Labels = map[string]string{workload.LabelName: "web"}
	g.Expect(controllerutil.SetControllerReference(o.Object, job, scheme)).To(Succeed())
	p := pod("web-0123456789-x")
	p.Labels = map[string]string{batchv1.JobNameLabel: job.Name}
	g.Expect(controllerutil.SetControllerReference(job, p, scheme)).To(Succeed())
	tree, notes, err := clientOf(o.Object, job, p).tree(t.Context(), o)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(notes).To(BeEmpty())
	g.Expect(below(nodeValue(tree))).To(HaveExactElements(
		And(HaveField("Kind", "Job"), HaveField("Name", job.Name)), And(HaveField("Kind", "Pod"), HaveField("Name", p.Name))))
}

func TestTreeHasTheReplicaSetsIfPodsMayNotBeListed(t *testing.T) {
	g := NewWithT(t)
	o, d, set, old := app("web", isRunning), deployment(3), replicaSet("web-7d4b", 3, 3, time.Hour), replicaSet("web-5c9f", 1, 1, 2*time.Hour)
	d.ManagedFields, d.Labels, d.Spec.Selector = nil, map[string]string{workload.LabelName: "web"}, &metav1.LabelSelector{}
	g.Expect(controllerutil.SetControllerReference(o.Object, d, scheme)).To(Succeed())
	g.Expect(controllerutil.SetControllerReference(d, set, scheme)).To(Succeed())
	g.Expect(controllerutil.SetControllerReference(d, old, scheme)).To(Succeed())
	tree, notes, err := refusing(clientOf(o.Object, d, set, old), forbidden, "PodList").tree(t.Context(), o)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(notes).To(Equal([]string{"you may not list Pod objects in namespace shop"}))
	g.Expect(below(nodeValue(tree))).To(HaveExactElements(HaveField("Name", "web"), HaveField("Name", set.Name), HaveField("Name", old.Name)))
}

func TestSecretsAreListedOnlyIfKeysAreExported(t *testing.T) {
	g := NewWithT(t)
	o := storage()
	_, notes, err := clientOf().tree(t.Context(), o)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(notes).To(BeEmpty(), "the keys are not exported")
	live, _ := o.Object.(*v1beta1.SecureStorage)
	live.Status.Conditions = append(live.Status.Conditions, done("AccountKeys", "Secret invoices applied"))
	_, notes, err = clientOf().tree(t.Context(), mustKind("securestorage").object(live))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(notes).To(Equal([]string{"you may not list Secret objects in namespace shop"}))
}

func TestOnlyARolloutBlamesPods(t *testing.T) {
	g := NewWithT(t)
	g.Expect(app("web", cannotPull).isRollingOut()).To(BeTrue())
	g.Expect(app("web", hasFailedHook).isRollingOut()).To(BeFalse(), "its Deployment is left unchanged")
	g.Expect(app("web", isRunning).isRollingOut()).To(BeFalse())
	serves := app("web", isRunning, func(a *v1beta1.AppService) {
		a.Status.Conditions = append(a.Status.Conditions, condition(v1beta1.ConditionReconciling, metav1.ConditionTrue, v1beta1.ReasonRolloutProgressing, "the old pods serve"))
	})
	g.Expect(serves.isRollingOut()).To(BeTrue())
}

func TestTreeAndDriftsAsValues(t *testing.T) {
	g := NewWithT(t)
	tree := nodeValue(exampleTree())
	g.Expect(tree).To(And(HaveField("Kind", "AppService"), HaveField("Ready", "True")))
	pods := tree.Children[1].Children[0].Children
	g.Expect(tree.Children[1].Managers).To(Equal([]string{"fixpoint-appservice", "kubectl-edit"}))
	g.Expect(pods).To(HaveLen(2))
	drift := driftValue(driftRows([]object{app("web", isRunning, hasDrifted)})[0])
	g.Expect(drift).To(And(HaveField("Kind", "AppService"), HaveField("Child", "Deployment/web"), HaveField("Field", "spec.replicas"),
		HaveField("Desired", "3"), HaveField("Found", "5"), HaveField("Action", "Reverted")))
	g.Expect(isReadyObject(node{object: app("new", isNew).Object, ready: "-"})).To(Equal(metav1.ConditionUnknown))
}

func TestPlannedActionsAreVerbs(t *testing.T) {
	g := NewWithT(t)
	plan := objectPlan{Phases: []plannedPhase{
		{Phase: "Service", Verdict: verdictDone, Changes: []plannedChange{
			{Action: ssa.ActionCorrect, Object: "Service/web", Drifts: []string{"kubectl changed .spec.type"}, Fields: []fieldChange{{"spec.type", `"NodePort"`, `"ClusterIP"`}}},
			{Action: ssa.ActionReport, Object: "Service/web", Drifts: []string{"kubectl added a label"}},
		}},
		{Phase: "StorageAccount", Verdict: verdictWaits, Message: "the account is created", Changes: []plannedChange{{Action: phases.ActionEnsure, Object: "storage account a"}}},
		{Phase: "Encryption", Verdict: verdictNotReached, Unknown: "forbidden"},
	}}
	g.Expect(plannedActions(app("web"), plan)).To(Equal([]PlannedAction{
		{Verb: "update", Kind: "Service", Namespace: "shop", Name: "web", Phase: "Service", Diff: []string{`~ spec.type: "NodePort" -> "ClusterIP"`}, Message: "correct: kubectl changed .spec.type"},
		{Verb: "none", Kind: "Service", Namespace: "shop", Name: "web", Phase: "Service", Diff: []string{}, Message: "reported only: kubectl added a label"},
		{Verb: "step", Kind: "AppService", Namespace: "shop", Name: "web", Phase: "StorageAccount", Diff: []string{}, Message: "ensure storage account a"},
		{Verb: "none", Kind: "AppService", Namespace: "shop", Name: "web", Phase: "StorageAccount", Diff: []string{}, Message: "waits: the account is created"},
		{Verb: "none", Kind: "AppService", Namespace: "shop", Name: "web", Phase: "Encryption", Diff: []string{}, Message: "not known: forbidden"},
	}))
	g.Expect(plannedActions(app("web"), objectPlan{Suspended: true, Phases: []plannedPhase{{Phase: "Service", Verdict: verdictNotReached}}})).To(Equal([]PlannedAction{
		{Verb: "none", Kind: "AppService", Namespace: "shop", Name: "web", Diff: []string{}, Message: "suspended: nothing is done until it is resumed"},
	}))
}

func TestPlanNamesTheLoginThatReadsAzure(t *testing.T) {
	g := NewWithT(t)
	invoices, _ := storage().Object.(*v1beta1.SecureStorage)
	invoices.ResourceVersion = "1"
	notesWith := func(credential cloud.Credentials) []string {
		p := &planner{settings: settings{credential: credential}}
		p.noteCloud(invoices)
		return p.notes
	}
	g.Expect(notesWith(ownLogin{cloud.AzureCredentials{}})).To(ConsistOf(HavePrefix("Azure was read with your own login")))
	g.Expect(notesWith(noLogin{})).To(BeEmpty())
}
