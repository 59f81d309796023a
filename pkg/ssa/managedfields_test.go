package ssa

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// managed writes an entry as "manager operation subresource".
func managed(manager string, operation metav1.ManagedFieldsOperationType, subresource, text string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, Subresource: subresource, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(text),
	}
}

func atVersion(apiVersion string, entry metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
	entry.APIVersion = apiVersion
	return entry
}

const (
	byUpdate = metav1.ManagedFieldsOperationUpdate
	byApply  = metav1.ManagedFieldsOperationApply
)

func TestMigrate(t *testing.T) {
	for name, test := range map[string]struct {
		adopting    bool
		subresource string
		before      []metav1.ManagedFieldsEntry
		after       []metav1.ManagedFieldsEntry // nil: no change
	}{
		"other managers keep their fields": {
			before: []metav1.ManagedFieldsEntry{managed("kubectl-edit", byUpdate, "", `{"f:a":{}}`)},
		},
		"the fields of a former manager are taken, desired or not": {
			before: []metav1.ManagedFieldsEntry{managed("old", byUpdate, "", `{"f:a":{},"f:z":{}}`)},
			after:  []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:a":{},"f:z":{}}`)},
		},
		"they are added to the applier's fields": {
			before: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:a":{}}`), managed("me", byUpdate, "", `{"f:z":{}}`)},
			after:  []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:a":{},"f:z":{}}`)},
		},
		"the fields of a subresource stay with a former manager": {
			before: []metav1.ManagedFieldsEntry{managed("old", byUpdate, "status", `{"f:status":{}}`)},
		},
		"the status is migrated on its own": {
			subresource: "status",
			before:      []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:a":{}}`), managed("old", byUpdate, "status", `{"f:status":{}}`)},
			after:       []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:a":{}}`), managed("me", byApply, "status", `{"f:status":{}}`)},
		},
		"before-first-apply keeps the status": {
			subresource: "status",
			before:      []metav1.ManagedFieldsEntry{managed(beforeFirstApply, byUpdate, "status", `{"f:a":{}}`)},
		},
		"a former manager that applies keeps its fields": {
			before: []metav1.ManagedFieldsEntry{managed("old", byApply, "", `{"f:a":{}}`)},
		},
		"adopting takes the desired fields, and leaves the rest": {
			adopting: true,
			before:   []metav1.ManagedFieldsEntry{managed("kubectl-create", byUpdate, "", `{"f:a":{},"f:z":{}}`), managed("argo", byApply, "", `{"f:a":{}}`)},
			after:    []metav1.ManagedFieldsEntry{managed("kubectl-create", byUpdate, "", `{"f:z":{}}`), managed("argo", byApply, "", `{"f:a":{}}`)},
		},
		"an entry that is left without fields is removed": {
			adopting: true,
			before:   []metav1.ManagedFieldsEntry{managed("kubectl-create", byUpdate, "", `{"f:a":{}}`), managed("x", byUpdate, "", `{"f:z":{}}`)},
			after:    []metav1.ManagedFieldsEntry{managed("x", byUpdate, "", `{"f:z":{}}`)},
		},
		"before-first-apply gives up desired and held fields": {
			before: []metav1.ManagedFieldsEntry{managed(beforeFirstApply, byUpdate, "", `{"f:a":{},"f:h":{},"f:z":{}}`)},
			after:  []metav1.ManagedFieldsEntry{managed(beforeFirstApply, byUpdate, "", `{"f:z":{}}`)},
		},
		"before-first-apply gives up the fields at another version of the API": {
			before: []metav1.ManagedFieldsEntry{atVersion("v1beta1", managed(beforeFirstApply, byUpdate, "", `{"f:a":{},"f:h":{},"f:z":{}}`))},
			after:  []metav1.ManagedFieldsEntry{atVersion("v1beta1", managed(beforeFirstApply, byUpdate, "", `{"f:z":{}}`))},
		},
		"other managers keep the fields at another version of the API": {
			adopting: true,
			before:   []metav1.ManagedFieldsEntry{atVersion("v1beta1", managed("kubectl-create", byUpdate, "", `{"f:a":{},"f:z":{}}`))},
		},
		"no managed fields": {},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			target := target{id: identity{gvk: corev1.SchemeGroupVersion.WithKind("ConfigMap")}, manager: "me", subresource: test.subresource}
			d := Decision{Action: ActionUpdate, Request: Request{Owner: ownedBy("o")}, reclaim: &fieldSet{}, evidence: evidence{
				target: target, live: &corev1.ConfigMap{}, entry: &metav1.ManagedFieldsEntry{}, expected: fields(t, `{"f:a":{},"f:b":{}}`), held: fields(t, `{"f:h":{}}`),
			}}
			if test.adopting {
				d.Action = ActionAdopt
			}
			live := &metav1.ObjectMeta{ManagedFields: test.before}
			unchanged := live.DeepCopy()
			m := parseManagedFields(live)

			m.inherit(target.entry(), sets.New("me", "old"))
			if test.subresource == "" {
				m.take(d.released)
			}

			g.Expect(m.encode()).To(Equal(test.after))
			g.Expect(live).To(Equal(unchanged), "the cached object is only read")
		})
	}
}

func TestMigrateLeavesOtherVersionsUnchanged(t *testing.T) {
	entry := atVersion("v1beta1", managed("old", byUpdate, "", `{"f:a":{}}`))
	m := parseManagedFields(&metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{entry}})

	m.inherit(applyEntry("me", "v1", ""), sets.New("old"))

	NewWithT(t).Expect(m.changed).To(BeFalse())
}

func TestHandOver(t *testing.T) {
	for name, test := range map[string]struct {
		before []metav1.ManagedFieldsEntry
		wanted string
		after  []metav1.ManagedFieldsEntry // nil: no change
	}{
		"a field that is dropped": {
			before: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{},"f:y":{}}`)}, wanted: `{"f:y":{}}`,
			after: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{},"f:y":{}}`), managed("me-handover", byApply, "", `{"f:x":{}}`)},
		},
		"the fields of a struct that is dropped": {
			before: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{"f:a":{},"f:b":{}}}`), managed("other", byUpdate, "", `{"f:x":{"f:c":{}}}`)}, wanted: `{}`,
			after: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{"f:a":{},"f:b":{}}}`), managed("other", byUpdate, "", `{"f:x":{"f:c":{}}}`), managed("me-handover", byApply, "", `{"f:x":{"f:a":{},"f:b":{}}}`)},
		},
		"beside a field that is handed over already": {
			before: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{}}`), managed("me-handover", byApply, "", `{"f:z":{}}`)}, wanted: `{}`,
			after: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{}}`), managed("me-handover", byApply, "", `{"f:x":{},"f:z":{}}`)},
		},
		"a field that is still desired":           {before: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{}}`)}, wanted: `{"f:x":{}}`},
		"a field of another manager":              {before: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:y":{}}`), managed("other", byUpdate, "", `{"f:x":{}}`)}, wanted: `{}`},
		"a field that was handed over before":     {before: []metav1.ManagedFieldsEntry{managed("me-handover", byApply, "", `{"f:x":{}}`)}, wanted: `{}`},
		"a field that is handed over and applied": {before: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{}}`), managed("me-handover", byApply, "", `{"f:x":{}}`)}, wanted: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := parseManagedFields(&metav1.ObjectMeta{ManagedFields: test.before})

			m.handOver(applyEntry("me", "v1", ""), fields(t, test.wanted), parseFieldPaths([]string{"x"}))

			g.Expect(m.encode()).To(Equal(test.after))
		})
	}
}

func TestSeize(t *testing.T) {
	for name, test := range map[string]struct {
		before []metav1.ManagedFieldsEntry
		after  []metav1.ManagedFieldsEntry // nil: no change
	}{
		"the applier is its only manager": {
			before: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{}}`), managed("other", byUpdate, "", `{"f:y":{}}`)},
		},
		"another manager holds it": {
			before: []metav1.ManagedFieldsEntry{managed("other", byUpdate, "", `{"f:x":{},"f:y":{}}`), managed("me", byApply, "", `{"f:a":{}}`)},
			after:  []metav1.ManagedFieldsEntry{managed("other", byUpdate, "", `{"f:y":{}}`), managed("me", byApply, "", `{"f:a":{},"f:x":{}}`)},
		},
		"several hold it, and it is all that they hold": {
			before: []metav1.ManagedFieldsEntry{managed("one", byUpdate, "", `{"f:x":{}}`), managed("two", byApply, "", `{"f:x":{}}`), managed("me", byApply, "", `{"f:x":{}}`)},
			after:  []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{}}`)},
		},
		"no manager holds it": {
			before: []metav1.ManagedFieldsEntry{managed("other", byUpdate, "", `{"f:y":{}}`)},
			after:  []metav1.ManagedFieldsEntry{managed("other", byUpdate, "", `{"f:y":{}}`), managed("me", byApply, "", `{"f:x":{}}`)},
		},
		"no managed fields exist": {
			after: []metav1.ManagedFieldsEntry{managed("me", byApply, "", `{"f:x":{}}`)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := parseManagedFields(&metav1.ObjectMeta{ManagedFields: test.before})

			m.seize(applyEntry("me", "v1", ""), fields(t, `{"f:x":{}}`))

			g.Expect(m.encode()).To(ConsistOf(test.after))
		})
	}
}

func TestEmptied(t *testing.T) {
	for name, test := range map[string]struct {
		mine, other, wanted string
		emptied             string
	}{
		"a struct that loses its last field":           {mine: `{"f:x":{"f:a":{}}}`, other: `{"f:x":{},"f:y":{}}`, wanted: `{}`, emptied: `{"f:x":{}}`},
		"with the structs around it":                   {mine: `{"f:x":{"f:y":{"f:a":{}}}}`, other: `{"f:x":{".":{},"f:y":{}}}`, wanted: `{}`, emptied: `{"f:x":{".":{},"f:y":{}}}`},
		"a list that loses its last item":              {mine: `{"f:x":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}`, other: `{"f:x":{}}`, wanted: `{}`, emptied: `{"f:x":{}}`},
		"a struct that keeps a field":                  {mine: `{"f:x":{"f:a":{},"f:b":{}}}`, other: `{"f:x":{}}`, wanted: `{"f:x":{"f:b":{}}}`, emptied: `{}`},
		"a struct with a field of the other manager":   {mine: `{"f:x":{"f:a":{}}}`, other: `{"f:x":{".":{},"f:b":{}}}`, wanted: `{}`, emptied: `{}`},
		"a field that the other manager holds as well": {mine: `{"f:x":{"f:a":{}}}`, other: `{"f:x":{".":{},"f:a":{}}}`, wanted: `{}`, emptied: `{}`},
		"a struct that was empty":                      {mine: `{"f:a":{}}`, other: `{"f:x":{}}`, wanted: `{}`, emptied: `{}`},
		"a struct that is wanted empty":                {mine: `{"f:x":{"f:a":{}}}`, other: `{"f:x":{}}`, wanted: `{"f:x":{}}`, emptied: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := parseManagedFields(&metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
				managed("me", byApply, "", test.mine), atVersion("v1beta1", managed("other", byUpdate, "", test.other)),
			}})

			g.Expect(fieldsJSON(m.emptied(applyEntry("me", "v1", ""), fields(t, test.wanted)))).To(Equal(test.emptied))
		})
	}
}

func TestTakeLeavesTheFieldsOfACopy(t *testing.T) {
	g := NewWithT(t)
	read := parseManagedFields(&metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{managed("other", byUpdate, "", `{"f:x":{}}`)}})
	planned := read

	planned.seize(applyEntry("me", "v1", ""), fields(t, `{"f:x":{}}`))

	g.Expect(textOf(t, read.entries[0].set)).To(Equal(`{"f:x":{}}`))
}

func TestSharedObjectOfAnotherManagerIsNotMigrated(t *testing.T) {
	g, server := NewWithT(t), newServer()
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, Data: map[string]string{"a": "1"}}
	g.Expect(server.Create(t.Context(), live, client.FieldOwner("kubectl-create"))).To(Succeed())
	applier := newBenchApplier(t, server)

	d, err := applier.Decide(Request{Desired: data("a", "1"), Live: live})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Action).To(Equal(ActionUpdate))
	g.Expect(d.managedFields.encode()).To(BeNil())
}

// Without an entry, the API server would remove what others have set together with what is reclaimed.
func TestFieldsOfOthersAreAttributedIfManagedFieldsWereWiped(t *testing.T) {
	g, server := NewWithT(t), newServer()
	desired := func() *appsv1ac.DeploymentApplyConfiguration {
		return appsv1ac.Deployment("d", "n").WithSpec(appsv1ac.DeploymentSpec().WithReplicas(1))
	}
	created, err := newBenchApplier(t, server).Apply(t.Context(), Request{Desired: desired().WithLabels(map[string]string{"a": "1"}), Owner: ownedBy("o")})
	g.Expect(err).NotTo(HaveOccurred())
	live, _ := created.Live.(*appsv1.Deployment)
	live.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sidecar"}}
	live.Status.Replicas = 1
	live.ManagedFields, live.TypeMeta = nil, metav1.TypeMeta{}
	applier := newBenchApplier(t, server)
	d, err := applier.Decide(Request{Desired: desired(), Owner: ownedBy("o"), Live: live})
	g.Expect(err).NotTo(HaveOccurred())

	entries, _, err := applier.Writes(d)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(HaveLen(2))
	g.Expect(entries[0]).To(And(HaveField("Manager", beforeFirstApply), HaveField("Operation", byUpdate), HaveField("APIVersion", "apps/v1")))
	g.Expect(entries[0].FieldsV1.GetRawString()).To(And(
		ContainSubstring(`"f:containers":{"k:{\"name\":\"sidecar\"}":{".":{},"f:name":{}`), Not(ContainSubstring("f:status")), Not(ContainSubstring(`"f:a":`))))
	g.Expect(entries[1]).To(And(HaveField("Manager", benchManager), HaveField("Operation", byApply)))
	g.Expect(entries[1].FieldsV1.GetRawString()).To(ContainSubstring(`"f:labels":{"f:a":{}}`))
}

func TestOtherManagersKeepTheirEntriesWhenADroppedFieldIsReclaimed(t *testing.T) {
	g := NewWithT(t)
	applier, live, owner := appliedThenEdited(t, decideTest{edit: func(c *corev1.ConfigMap) { c.Data["a"], c.Data["z"] = "9", "9" }})
	d, err := applier.Decide(Request{Desired: data("b", "1"), Live: live, Owner: owner})
	g.Expect(err).NotTo(HaveOccurred())

	entries, _, err := applier.Writes(d)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(ConsistOf(HaveField("Manager", benchManager), And(HaveField("Manager", "robot"), HaveField("FieldsV1.GetRawString()", `{"f:data":{"f:z":{}}}`))))
}

func TestObstaclesAreWhatTheAPIServerRefusesBesideTheConfiguration(t *testing.T) {
	const port80, port81, renamed = `"k:{\"port\":80}"`, `"k:{\"port\":81}"`, `"k:{\"port\":82}"`
	for name, test := range map[string]struct {
		remove, unique string
		leave          string // a path of a drift
		left           bool
		desired        string // what the API server records for the configuration
		found          string
	}{
		"a field that is not desired":                    {remove: "strategy", desired: `{}`, found: `{"f:strategy":{".":{},"f:surge":{}}}`},
		"a field that is desired":                        {remove: "strategy", desired: `{"f:strategy":{"f:surge":{}}}`, found: `{}`},
		"a field that does not exist":                    {remove: "paused", desired: `{}`, found: `{}`},
		"an item with the name of a desired one":         {unique: "ports.name", desired: `{"f:ports":{` + port80 + `:{".":{},"f:name":{}}}}`, found: `{"f:ports":{` + port81 + `:{".":{},"f:name":{},"f:port":{}}}}`},
		"an item with the name of a drift that is left":  {unique: "ports.name", left: true, desired: `{"f:ports":{` + port80 + `:{".":{},"f:name":{}}}}`, found: `{}`},
		"a field, although a drift is left":              {remove: "strategy", left: true, desired: `{}`, found: `{"f:strategy":{".":{},"f:surge":{}}}`},
		"alternatives of a desired field":                {remove: "budget.min|max", desired: `{"f:budget":{"f:min":{}}}`, found: `{"f:budget":{"f:max":{}}}`},
		"no alternatives that are desired":               {remove: "budget.min|max", desired: `{"f:budget":{"f:min":{},"f:max":{}}}`, found: `{}`},
		"no alternatives, if none is desired":            {remove: "budget.min|max", desired: `{"f:budget":{"f:unit":{}}}`, found: `{}`},
		"no alternatives of a drift that is left":        {remove: "budget.min|max", leave: "budget.min", desired: `{"f:budget":{"f:min":{}}}`, found: `{}`},
		"alternatives beside another drift that is left": {remove: "budget.min|max", leave: "strategy", desired: `{"f:budget":{"f:min":{}}}`, found: `{"f:budget":{"f:max":{}}}`},
		"alternatives in a desired item":                 {remove: "ports.number|name", desired: `{"f:ports":{` + port81 + `:{".":{},"f:number":{}}}}`, found: `{"f:ports":{` + port81 + `:{"f:name":{}}}}`},
		"alternatives with what is below them":           {remove: "budget.min|of", desired: `{"f:budget":{"f:min":{"f:x":{}}}}`, found: `{"f:budget":{"f:of":{".":{},"f:all":{}}}}`},
		"no item, if the desired one has another name":   {unique: "ports.name", desired: `{"f:ports":{` + renamed + `:{".":{},"f:name":{}}}}`, found: `{}`},
		"no item that does not exist":                    {unique: "ports.name", desired: `{"f:ports":{"k:{\"port\":9}":{".":{},"f:name":{}}}}`, found: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			liveTree, err := decode([]byte(`{"strategy":{"surge":1},"budget":{"max":1,"of":{"all":1}},"ports":[{"port":80,"name":"http"},{"port":81,"name":"http"}]}`))
			g.Expect(err).NotTo(HaveOccurred())
			tree, err := decode([]byte(`{"ports":[{"port":80,"name":"http"},{"port":82,"name":"grpc"}]}`))
			g.Expect(err).NotTo(HaveOccurred())
			// Given that the managed fields also hold an item that was removed
			others := managed("other", byUpdate, "", `{"f:ports":{`+port80+`:{".":{},"f:name":{}},`+port81+`:{".":{},"f:name":{}},"k:{\"port\":8}":{".":{},"f:name":{}}}}`)
			m := parseManagedFields(&metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{others}})
			d := Decision{Left: test.left, reclaim: &fieldSet{}, evidence: evidence{target: target{tree: tree}, liveTree: liveTree, expected: fields(t, test.desired), managed: m}}
			if test.remove != "" {
				d.Request.RemoveFields = []string{test.remove}
			}
			if test.leave != "" {
				d.leave = parseFieldPaths([]string{test.leave})
			}
			if test.unique != "" {
				d.Request.UniqueFields = []string{test.unique}
			}

			g.Expect(textOf(t, d.obstacles())).To(MatchJSON(test.found))
		})
	}
}

// The other manager keeps what it does not need for a struct that is desired, such as the replicas.
func TestFirstApplyReleasesDesiredStructsOfAnotherManager(t *testing.T) {
	g, server := NewWithT(t), newServer()
	surge := intstr.FromInt32(1)
	live := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d", OwnerReferences: []metav1.OwnerReference{*ownedBy("o")}},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(5)), Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge}}},
	}
	g.Expect(server.Create(t.Context(), live, client.FieldOwner("kubectl-create"))).To(Succeed())
	applier := newBenchApplier(t, server)
	desired := appsv1ac.Deployment("d", "n").WithSpec(appsv1ac.DeploymentSpec().WithStrategy(appsv1ac.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType)))
	d, err := applier.Decide(Request{Desired: desired, Live: live, Owner: ownedBy("o")})
	g.Expect(err).NotTo(HaveOccurred())

	entries, _, err := applier.Writes(d)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(ContainElement(And(HaveField("Manager", "kubectl-create"),
		HaveField("FieldsV1.GetRawString()", And(ContainSubstring("f:replicas"), Not(ContainSubstring("f:maxSurge")))))))
}
