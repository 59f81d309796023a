package ssa

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

func data(pairs ...string) *corev1ac.ConfigMapApplyConfiguration {
	c := corev1ac.ConfigMap("c", "n")
	for i := 0; i < len(pairs); i += 2 {
		c.WithData(map[string]string{pairs[i]: pairs[i+1]})
	}
	return c
}

// decideTest is an object that was applied with data a and b, what was done to it since, what is
// desired now, and the decision.
type decideTest struct {
	edit    func(*corev1.ConfigMap)
	wiped   bool // its managed fields were removed
	desired *corev1ac.ConfigMapApplyConfiguration
	policy  DriftPolicy
	action  Action
	drifts  []string
	leave   []string
	reclaim string // as FieldsV1
}

var decideTests = map[string]decideTest{
	"nothing has changed": {
		desired: data("a", "1", "b", "1"), action: ActionNone,
	},
	"another manager changed unmanaged fields": {
		edit:    func(c *corev1.ConfigMap) { c.Labels = map[string]string{"x": "y"}; c.Data["z"] = "9" },
		desired: data("a", "1", "b", "1"), action: ActionNone,
	},
	"the configuration changed": {
		desired: data("a", "2", "c", "1"), action: ActionUpdate,
	},
	"another manager changed a field": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("a", "1", "b", "1"), action: ActionCorrect,
		drifts: []string{`robot changed .data.a from "1" to "9"`},
	},
	"another manager removed a field": {
		edit:    func(c *corev1.ConfigMap) { delete(c.Data, "a") },
		desired: data("a", "1", "b", "1"), action: ActionCorrect,
		drifts: []string{`an unknown field manager removed .data.a (was "1")`},
	},
	"the configuration and a field changed": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("a", "1", "b", "2"), action: ActionUpdate,
		drifts: []string{`robot changed .data.a from "1" to "9"`},
	},
	"another manager took a dropped field": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("b", "1"), action: ActionUpdate, reclaim: `{"f:data":{"f:a":{}}}`,
	},
	"report leaves a dropped field that another took": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("b", "1"), policy: ReportDrift, action: ActionUpdate,
	},
	"report a drift": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("a", "1", "b", "1"), policy: ReportDrift, action: ActionReport,
		drifts: []string{`robot changed .data.a from "1" to "9"`}, leave: []string{".data.a"},
	},
	"report a drift while the configuration changed": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("a", "1", "b", "2"), policy: ReportDrift, action: ActionUpdate,
		drifts: []string{`robot changed .data.a from "1" to "9"`}, leave: []string{".data.a"},
	},
	"the record was removed": {
		edit:    func(c *corev1.ConfigMap) { c.Annotations = nil },
		desired: data("a", "1", "b", "1"), action: ActionUpdate,
	},
	"the record was removed, and a field changed with it": {
		edit:    func(c *corev1.ConfigMap) { c.Annotations = nil; c.Data["a"] = "9" },
		desired: data("a", "1", "b", "1"), action: ActionUpdate,
		drifts: []string{`robot changed .data.a from "1" to "9"`},
	},
	"the managed fields were wiped": {
		wiped:   true,
		desired: data("a", "1"), action: ActionUpdate, policy: ReportDrift,
		reclaim: `{"f:data":{"f:a":{},"f:b":{}},"f:metadata":{"f:annotations":{"f:ssa.fixpoint.dev/fixpoint-bench":{}},"f:ownerReferences":{"k:{\"uid\":\"o\"}":{}}}}`,
		drifts:  []string{"an unknown field manager removed .metadata.managedFields"},
	},
}

func TestUnknownPoliciesAreRefused(t *testing.T) {
	for want, edit := range map[string]func(*Request){
		`ConfigMap n/c: the drift policy "report" is unknown: use Correct or Report`:     func(r *Request) { r.Drift = "report" },
		`ConfigMap n/c: the adoption policy "Always" is unknown: use Never or IfUnowned`: func(r *Request) { r.Adoption = "Always" },
	} {
		g := NewWithT(t)
		applier, err := New(Options{Client: newServer(), FieldManager: "m"})
		g.Expect(err).NotTo(HaveOccurred())
		request := Request{Desired: data("a", "1"), Owner: ownedBy("o")}
		edit(&request)

		_, err = applier.Decide(request)

		g.Expect(err).To(MatchError(want))
		typed, ok := errors.AsType[*Error](err)
		g.Expect(ok && typed.Permanent()).To(BeTrue())
	}
}

func TestDecide(t *testing.T) {
	for name, test := range decideTests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			applier, live, owner := appliedThenEdited(t, test)
			request := Request{Desired: test.desired, Live: live, Owner: owner, Drift: test.policy}
			target, err := applier.prepare(request.Desired, request.Owner, "")
			g.Expect(err).NotTo(HaveOccurred())

			d, err := decide(evidenceOf(target, live), request)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(d.Action).To(Equal(test.action))
			g.Expect(d.Writes()).To(Equal(test.action != ActionNone && test.action != ActionReport))
			g.Expect(d.Left).To(Equal(len(test.leave) > 0))
			var drifts []string
			for _, drift := range d.Drifts {
				drifts = append(drifts, drift.String())
			}
			g.Expect(drifts).To(Equal(test.drifts))
			g.Expect(pathTexts(d.leave)).To(ConsistOf(test.leave))
			g.Expect(textOf(t, d.reclaim)).To(MatchJSON(cmp.Or(test.reclaim, `{}`)))
		})
	}
}

// appliedThenEdited applies data a and b, and edits the object. The applier has cached nothing of it.
func appliedThenEdited(t *testing.T, test decideTest) (*Applier, client.Object, *metav1.OwnerReference) {
	t.Helper()
	server, owner := newServer(), ownedBy("o")
	created, err := newBenchApplier(t, server).Apply(context.Background(), Request{Desired: data("a", "1", "b", "1"), Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	live, _ := created.Live.(*corev1.ConfigMap)
	if test.edit != nil {
		test.edit(live)
		if err := server.Update(context.Background(), live, client.FieldOwner("robot")); err != nil {
			t.Fatal(err)
		}
	}
	if test.wiped {
		live.ManagedFields = nil
	}
	return newBenchApplier(t, server), live, owner
}

// counting counts the objects of which the schema was asked for the fields.
type counting struct {
	managedfields.TypeConverter
	objects *int
}

func (c counting) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	*c.objects++
	return c.TypeConverter.ObjectToTyped(object, options...)
}

// There is an answer for each object, so an answer does not hold what the schema gives.
func TestRepairNeitherAsksTheSchemaAgainNorMakesTheCacheOfAnswersLarger(t *testing.T) {
	g, objects := NewWithT(t), 0
	server, owner := newServer(), ownedBy("o")
	applier, err := New(Options{Client: server, FieldManager: benchManager, TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{
		func(*runtime.Scheme) managedfields.TypeConverter { return counting{kubernetesTypes(), &objects} },
	}})
	g.Expect(err).NotTo(HaveOccurred())
	request := func(live client.Object) Request { return Request{Desired: data("a", "1"), Owner: owner, Live: live} }
	created, err := applier.Apply(t.Context(), request(nil))
	g.Expect(err).NotTo(HaveOccurred())
	live, _ := created.Live.(*corev1.ConfigMap)
	live.Data["a"] = "2"
	g.Expect(server.Update(t.Context(), live, client.FieldOwner("kubectl-edit"))).To(Succeed())

	repaired, err := applier.Apply(t.Context(), request(live))

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(repaired.Action).To(Equal(ActionCorrect))
	g.Expect(objects).To(Equal(1), "the create")
	g.Expect(applier.answers.of).To(HaveLen(1))
	for _, known := range applier.answers.of {
		g.Expect(known.fields).To(BeEmpty())
	}
}

func TestRecordStandsForTheSchemaIfItHoldsTheFieldsThatWereAnswered(t *testing.T) {
	const fields, others = `{"f:data":{"f:a":{}}}`, `{"f:data":{"f:b":{}}}`
	whole := record{packed: pack(fields)}
	cut := record{packed: whole.packed[:len(whole.packed)-8]}
	readable, ok := cut.rawFields()
	NewWithT(t).Expect(ok).To(BeFalse())
	for name, test := range map[string]struct {
		record   record
		answered answer
		want     target
	}{
		"the same":                   {record: whole, answered: answer{fieldsDigest: digestOf([]byte(fields))}, want: target{answer: answer{fields: fields}, schemaFields: fields}},
		"others":                     {record: whole, answered: answer{fieldsDigest: digestOf([]byte(others))}},
		"what is left of a record":   {record: cut, answered: answer{fieldsDigest: digestOf([]byte(readable))}},
		"not those of the schema":    {record: whole, answered: answer{fields: fields, fieldsDigest: digestOf([]byte(fields))}, want: target{answer: answer{fields: fields}}},
		"an answer without a record": {answered: answer{fieldsDigest: digestOf([]byte(fields))}},
	} {
		t.Run(name, func(t *testing.T) {
			e := evidence{record: test.record, target: target{answer: test.answered}}
			e.recall()
			e.target.fieldsDigest = digest{}
			NewWithT(t).Expect(e.target).To(Equal(test.want))
		})
	}
}

func TestLiveObjectIsOnlyReadWhateverItsType(t *testing.T) {
	g := NewWithT(t)
	server, owner := newServer(), ownedBy("o")
	applier := newBenchApplier(t, server)
	created, err := applier.Apply(t.Context(), Request{Desired: data("a", "1"), Owner: owner})
	g.Expect(err).NotTo(HaveOccurred())
	drifted, _ := created.Live.(*corev1.ConfigMap)
	drifted.Data["a"] = "2"
	g.Expect(server.Update(t.Context(), drifted, client.FieldOwner("kubectl-edit"))).To(Succeed())
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(drifted)
	g.Expect(err).NotTo(HaveOccurred())
	for _, live := range []client.Object{drifted, &unstructured.Unstructured{Object: tree}} {
		before := live.DeepCopyObject()

		d, err := applier.Decide(Request{Desired: data("a", "1"), Owner: owner, Live: live})

		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(d.Drifts).To(ConsistOf(HaveField("Actual", `"2"`)))
		g.Expect(live).To(Equal(before))
	}
}

// Without the reference to its owner, nothing would delete the object: it is restored, and another drift is left.
func TestReportRestoresTheReferenceToTheOwner(t *testing.T) {
	orphan := func(c *corev1.ConfigMap) { c.OwnerReferences = nil }
	for name, test := range map[string]struct {
		edit   func(*corev1.ConfigMap)
		action Action
		leave  []string
		drifts []string
	}{
		"alone": {edit: orphan, action: ActionCorrect, drifts: []string{`.metadata.ownerReferences[uid="o"]`}},
		"and another drift": {
			edit:   func(c *corev1.ConfigMap) { orphan(c); c.Data["a"] = "9" },
			action: ActionUpdate, leave: []string{".data.a"}, drifts: []string{".data.a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			applier, live, owner := appliedThenEdited(t, decideTest{edit: test.edit})

			d, err := applier.Decide(Request{Desired: data("a", "1", "b", "1"), Live: live, Owner: owner, Drift: ReportDrift})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(d.Action).To(Equal(test.action))
			g.Expect(pathTexts(d.leave)).To(ConsistOf(test.leave))
			g.Expect(d.Left).To(Equal(len(test.leave) > 0))
			var drifted []string
			for _, drift := range d.Drifts {
				drifted = append(drifted, drift.Path)
			}
			g.Expect(drifted).To(Equal(test.drifts))

			result, err := applier.Execute(t.Context(), d)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(metav1.IsControlledBy(result.Live, &metav1.ObjectMeta{UID: owner.UID})).To(BeTrue())
		})
	}
}

func TestDecideOfANilPointerCreates(t *testing.T) {
	g := NewWithT(t)
	var live *corev1.ConfigMap
	d, err := newBenchApplier(t, newServer()).Decide(Request{Desired: data("a", "1"), Live: live, Owner: ownedBy("o")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Action).To(Equal(ActionCreate))
}

func TestDriftOfManagedFieldsQuotesNoneOfThem(t *testing.T) {
	g := NewWithT(t)
	applier, live, owner := appliedThenEdited(t, decideTest{edit: func(c *corev1.ConfigMap) { c.Data["a"] = "9" }})
	live.SetManagedFields(slices.DeleteFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == benchManager }))

	d, err := applier.Decide(Request{Desired: data("a", "2"), Live: live, Owner: owner})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fmt.Sprint(d.Drifts)).To(Equal("[an unknown field manager removed .metadata.managedFields]"))
}

func TestDecideRedactsDrifts(t *testing.T) {
	g := NewWithT(t)
	changed := decideTest{edit: func(c *corev1.ConfigMap) { c.Data["a"] = "9" }}
	applier, live, owner := appliedThenEdited(t, changed)

	d, err := applier.Decide(Request{Desired: data("a", "1", "b", "1"), Live: live, Owner: owner, Redact: func(drift *Drift) { drift.Actual = "hidden" }})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Drifts).To(ConsistOf(HaveField("String()", `robot changed .data.a from "1" to hidden`)))
}

func TestDecideWithoutLiveObjectCreates(t *testing.T) {
	d, err := newBenchApplier(t, newServer()).Decide(Request{Desired: data("a", "1"), Owner: ownedBy("o")})
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Action).To(Equal(ActionCreate))
	g.Expect(d.Writes()).To(BeTrue())
}

func TestDecideRefusesAnObjectThatIsBeingDeleted(t *testing.T) {
	applier, live, owner := appliedThenEdited(t, decideTest{})
	live.SetDeletionTimestamp(&metav1.Time{})

	_, err := applier.Decide(Request{Desired: data("a", "2"), Live: live, Owner: owner})

	typed := &Error{}
	g := NewWithT(t)
	g.Expect(errors.As(err, &typed)).To(BeTrue())
	g.Expect(typed.Reason).To(Equal(ReasonTerminating))
	g.Expect(typed.Error()).To(Equal("ConfigMap n/c: it is being deleted; it will be recreated"))
	g.Expect(typed.Transient).To(BeTrue())
}

// TestDecideLeavesFieldsToOtherManagers: what is handed over is not reclaimed.
func TestDecideLeavesFieldsToOtherManagers(t *testing.T) {
	g := NewWithT(t)
	taken := decideTest{edit: func(c *corev1.ConfigMap) { c.Data["a"] = "9" }}
	applier, live, owner := appliedThenEdited(t, taken)

	handed, err := applier.Decide(Request{Desired: data("b", "1"), Live: live, Owner: owner, HandOver: []string{"data.a"}})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(handed.reclaim.Empty()).To(BeTrue())
	g.Expect(handed.managedFields.encode()).To(BeNil())
}

// Another manager took the field, and no longer holds it either.
func TestDecideReclaimsNothingOfASharedObject(t *testing.T) {
	g, applier := NewWithT(t), newBenchApplier(t, newServer())
	applied, err := applier.Apply(t.Context(), Request{Desired: data("a", "1", "b", "1")})
	g.Expect(err).NotTo(HaveOccurred())
	entry := appliedEntry(applied.Live, benchManager, "")
	left := fields(t, entry.FieldsV1.GetRawString()).Difference(pathSet(makeFieldPath("data", "a")))
	entry.FieldsV1 = metav1.NewFieldsV1(textOf(t, left))

	d, err := applier.Decide(Request{Desired: data("b", "1"), Live: applied.Live})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Action).To(Equal(ActionUpdate))
	g.Expect(d.reclaim.Empty()).To(BeTrue())
}

// TestDecideIsNotStoppedByManagedFieldsDeeperThanAnySchema: whoever may edit an object may write them.
func TestDecideIsNotStoppedByManagedFieldsDeeperThanAnySchema(t *testing.T) {
	g := NewWithT(t)
	applier, live, owner := appliedThenEdited(t, decideTest{edit: func(c *corev1.ConfigMap) { c.Data["a"] = "9" }})
	deep := strings.Repeat(`{"f:a":`, 9000) + `{}` + strings.Repeat(`}`, 9000)
	entries := live.GetManagedFields()
	for i := range entries {
		entries[i].FieldsV1 = metav1.NewFieldsV1(deep)
		g.Expect(entryFields(&entries[i]).Empty()).To(BeTrue())
	}

	d, err := applier.Decide(Request{Desired: data("a", "1", "b", "1"), Live: live, Owner: owner})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Action).To(Equal(ActionCorrect))
	g.Expect(fmt.Sprint(d.Drifts)).To(Equal(`[an unknown field manager changed .data.a from "1" to "9"]`))
}

func TestCheckOwnership(t *testing.T) {
	owner := *ownedBy("me")
	with := func(change func(*metav1.OwnerReference)) []metav1.OwnerReference {
		other := owner
		change(&other)
		return []metav1.OwnerReference{other}
	}
	for name, test := range map[string]struct {
		references []metav1.OwnerReference
		record     record
		applied    bool // the API server holds the record for the applier
		adopts     bool
		reason     Reason
		transient  bool
	}{
		"controlled by the owner":                           {references: []metav1.OwnerReference{owner}},
		"without a controller":                              {adopts: true},
		"owned, but not controlled":                         {references: with(func(r *metav1.OwnerReference) { r.UID, r.Controller = "x", nil }), adopts: true},
		"the reference removed, with proof":                 {record: record{owner: "me"}, applied: true},
		"the record copied":                                 {record: record{owner: "me"}, adopts: true},
		"the record of another owner":                       {record: record{owner: "x"}, applied: true, adopts: true},
		"controlled by another":                             {references: with(func(r *metav1.OwnerReference) { r.UID, r.Name = "x", "other" }), reason: ReasonOwnedByAnother},
		"controlled by another, with the owner's record":    {references: with(func(r *metav1.OwnerReference) { r.UID, r.Name = "x", "other" }), record: record{owner: "me"}, applied: true, reason: ReasonOwnedByAnother},
		"controlled by an earlier owner of the name":        {references: with(func(r *metav1.OwnerReference) { r.UID = "x" }), reason: ReasonOwnedByAnother, transient: true},
		"controlled by an earlier owner, another version":   {references: with(func(r *metav1.OwnerReference) { r.UID, r.APIVersion = "x", "v2" }), reason: ReasonOwnedByAnother, transient: true},
		"controlled by the same kind and name, other group": {references: with(func(r *metav1.OwnerReference) { r.UID, r.APIVersion = "x", "other.example/v1" }), reason: ReasonOwnedByAnother},
	} {
		t.Run(name, func(t *testing.T) {
			e := evidence{
				target: target{manager: "me", id: identity{gvk: corev1.SchemeGroupVersion.WithKind("ConfigMap"), key: client.ObjectKey{Namespace: "n", Name: "c"}}}, record: test.record, held: &fieldSet{},
				live: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: test.references}},
			}
			if test.applied {
				e.held = fields(t, `{"f:metadata":{"f:annotations":{"f:ssa.fixpoint.dev/me":{}}}}`)
			}
			for _, policy := range []AdoptionPolicy{AdoptNever, AdoptIfUnowned} {
				want := test.reason
				if test.adopts && policy == AdoptNever {
					want = ReasonNotOwned
				}
				expectOwnership(NewWithT(t), e, Request{Owner: &owner, Adoption: policy}, want, test.adopts, test.transient)
			}
		})
	}
}

func expectOwnership(g *WithT, e evidence, req Request, reason Reason, adopts, transient bool) {
	got, err := checkOwnership(e, req)
	if reason == "" {
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got).To(Equal(adopts))
		return
	}
	typed := &Error{}
	g.Expect(errors.As(err, &typed)).To(BeTrue())
	g.Expect(got).To(BeFalse())
	g.Expect(typed.Reason).To(Equal(reason))
	g.Expect(typed.Transient).To(Equal(transient))
	g.Expect(typed.Permanent()).To(Equal(!transient))
	g.Expect(typed.Object).To(Equal("ConfigMap n/c"))
	want := "it is controlled by ConfigMap "
	switch {
	case transient:
		want = "it is still owned by a deleted ConfigMap of the same name"
	case reason == ReasonNotOwned:
		want = "an object of this name exists and no controller owns it; delete or rename it, or set spec.adoptionPolicy to IfUnowned"
	}
	g.Expect(typed.Message).To(HavePrefix(want))
}

// Without the policy, an object without its owner reference would not be adopted.
func TestWhatKeepsTheObjectOfADeletedOwnerIsToldAtOnce(t *testing.T) {
	former, owner := *ownedBy("former"), *ownedBy("me")
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{former}}}
	for policy, remedy := range map[AdoptionPolicy]string{
		AdoptNever:     "To keep it, remove its owner reference, and set spec.adoptionPolicy to IfUnowned",
		AdoptIfUnowned: "To keep it, remove its owner reference",
		"":             "To keep it, remove its owner reference",
	} {
		_, err := checkOwnership(evidence{live: live, held: &fieldSet{}}, Request{Owner: &owner, Adoption: policy})
		NewWithT(t).Expect(err).To(MatchError(HaveSuffix(remedy)), "policy %q", policy)
	}
}

func TestOwnerWithoutAdoptionOffersNone(t *testing.T) {
	e := evidence{live: &corev1.ConfigMap{}, held: &fieldSet{}}
	_, err := checkOwnership(e, Request{Owner: ownedBy("me")})
	NewWithT(t).Expect(err).To(MatchError(HaveSuffix("no controller owns it; delete or rename it")))
}

func TestSharedObjectIsNotAdopted(t *testing.T) {
	adopts, err := checkOwnership(evidence{live: &corev1.ConfigMap{}}, Request{Adoption: AdoptIfUnowned})
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(adopts).To(BeFalse())
}

func TestDecideOfWhatCannotBeReadIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(g *WithT, a *Applier, live client.Object) client.Object
		err  string
	}{
		"the object": {func(_ *WithT, _ *Applier, live client.Object) client.Object {
			return &unreadable{Object: live}
		}, "reading ConfigMap n/c: "},
		"the answer to the last apply": {func(g *WithT, a *Applier, live client.Object) client.Object {
			answered, err := a.prepare(data("a", "2"), ownedBy("o"), "")
			g.Expect(err).NotTo(HaveOccurred())
			answered.expect("[")
			a.remember(answered, live)
			return live
		}, "reading ConfigMap n/c: parsing managed fields: "},
	} {
		t.Run(name, func(t *testing.T) {
			g, counter := NewWithT(t), applies.WithLabelValues("ConfigMap", "main", "Failed")
			applier, live, owner := appliedThenEdited(t, decideTest{})
			live = test.edit(g, applier, live)
			before := testutil.ToFloat64(counter)

			_, err := applier.Decide(Request{Desired: data("a", "2"), Live: live, Owner: owner})

			g.Expect(err).To(MatchError(HavePrefix(test.err)))
			g.Expect(testutil.ToFloat64(counter) - before).To(Equal(1.0))
		})
	}
}

// driftedWithAForeignRecord is an object of which another manager changed a field, and wrote the record as it was.
func driftedWithAForeignRecord(t *testing.T) (*Applier, client.Object, *metav1.OwnerReference) {
	t.Helper()
	applier, live, owner := appliedThenEdited(t, decideTest{edit: func(c *corev1.ConfigMap) { c.Data["a"] = "9" }})
	entry := appliedEntry(live, benchManager, "")
	record := target{manager: benchManager}.recordPath()
	entry.FieldsV1 = metav1.NewFieldsV1(textOf(t, fields(t, entry.FieldsV1.GetRawString()).Difference(pathSet(record))))
	return applier, live, owner
}

func TestRecordOfAnotherManagerReclaimsNothing(t *testing.T) {
	g := NewWithT(t)
	applier, live, owner := driftedWithAForeignRecord(t)

	d, err := applier.Decide(Request{Desired: data("b", "1"), Live: live, Owner: owner})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Action).To(Equal(ActionUpdate))
	g.Expect(d.reclaim.Empty()).To(BeTrue())
}

func TestReportRestoresARecordThatAnotherManagerHolds(t *testing.T) {
	g := NewWithT(t)
	applier, live, owner := driftedWithAForeignRecord(t)

	d, err := applier.Decide(Request{Desired: data("a", "1", "b", "1"), Live: live, Owner: owner, Drift: ReportDrift})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Action).To(Equal(ActionUpdate))
	g.Expect(pathTexts(d.leave)).To(ConsistOf(".data.a"))
}

// The configuration may name the controller itself, so that it is the same with an owner and without.
func TestOwnerIsRecordedEvenIfTheConfigurationNamedIt(t *testing.T) {
	g, server := NewWithT(t), newServer()
	applier := newBenchApplier(t, server)
	owned := data("a", "1")
	g.Expect(setController(owned.ObjectMetaApplyConfiguration, *ownedBy("o"))).To(Succeed())
	shared, err := applier.Apply(t.Context(), Request{Desired: owned})
	g.Expect(err).NotTo(HaveOccurred())

	result, err := applier.Apply(t.Context(), Request{Desired: data("a", "1"), Owner: ownedBy("o"), Live: shared.Live})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Action).To(Equal(ActionUpdate))
	g.Expect(parseRecord(result.Live.GetAnnotations()[RecordAnnotationPrefix+benchManager]).owner).To(BeEquivalentTo("o"))
}

func TestObjectThatWasNeverAppliedHasNotDrifted(t *testing.T) {
	g, server := NewWithT(t), newServer()
	live := owned("c", "o")
	live.Data = map[string]string{"a": "9"}
	g.Expect(server.Create(t.Context(), live, client.FieldOwner("robot"))).To(Succeed())

	d, err := newBenchApplier(t, server).Decide(Request{Desired: data("a", "1"), Owner: ownedBy("o"), Live: live})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Action).To(Equal(ActionUpdate))
	g.Expect(d.Drifts).To(BeEmpty())
}
