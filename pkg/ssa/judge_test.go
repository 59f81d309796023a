package ssa

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func data(pairs ...string) *corev1ac.ConfigMapApplyConfiguration {
	c := corev1ac.ConfigMap("c", "n")
	for i := 0; i < len(pairs); i += 2 {
		c.WithData(map[string]string{pairs[i]: pairs[i+1]})
	}
	return c
}

// judging is an object that was applied, what has been done to it since, and what is wanted now.
type judging struct {
	edit    func(*corev1.ConfigMap)
	wiped   bool
	desired *corev1ac.ConfigMapApplyConfiguration
	policy  DriftPolicy
	action  Action
	drifts  []string
	leave   []string
	reclaim string
}

var judgements = map[string]judging{
	"nothing has changed": {
		desired: data("a", "1", "b", "1"), action: ActionNone,
	},
	"others changed what is not ours": {
		edit:    func(c *corev1.ConfigMap) { c.Labels = map[string]string{"x": "y"}; c.Data["z"] = "9" },
		desired: data("a", "1", "b", "1"), action: ActionNone,
	},
	"our configuration changed": {
		desired: data("a", "2", "c", "1"), action: ActionUpdate, reclaim: `{}`,
	},
	"another changed a field": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("a", "1", "b", "1"), action: ActionCorrect, reclaim: `{}`,
		drifts: []string{`robot changed .data.a from "1" to "9"`},
	},
	"another removed a field": {
		edit:    func(c *corev1.ConfigMap) { delete(c.Data, "a") },
		desired: data("a", "1", "b", "1"), action: ActionCorrect, reclaim: `{}`,
		drifts: []string{`somebody removed .data.a (was "1")`},
	},
	"both changed": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("a", "1", "b", "2"), action: ActionUpdate, reclaim: `{}`,
		drifts: []string{`robot changed .data.a from "1" to "9"`},
	},
	"another took what we want no more": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("b", "1"), action: ActionUpdate, reclaim: `{"f:data":{"f:a":{}}}`,
	},
	"reporting leaves that to them": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("b", "1"), policy: ReportDrift, action: ActionUpdate, reclaim: `{}`,
	},
	"reporting a drift": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("a", "1", "b", "1"), policy: ReportDrift, action: ActionReport, reclaim: `{}`,
		drifts: []string{`robot changed .data.a from "1" to "9"`}, leave: []string{".data.a"},
	},
	"reporting, and our configuration changed": {
		edit:    func(c *corev1.ConfigMap) { c.Data["a"] = "9" },
		desired: data("a", "1", "b", "2"), policy: ReportDrift, action: ActionUpdate, reclaim: `{}`,
		drifts: []string{`robot changed .data.a from "1" to "9"`}, leave: []string{".data.a"},
	},
	"the record was removed": {
		edit:    func(c *corev1.ConfigMap) { c.Annotations = nil },
		desired: data("a", "1", "b", "1"), action: ActionUpdate, reclaim: `{}`,
	},
	"the record was removed, and a field changed with it": {
		edit:    func(c *corev1.ConfigMap) { c.Annotations = nil; c.Data["a"] = "9" },
		desired: data("a", "1", "b", "1"), action: ActionUpdate, reclaim: `{}`,
		drifts: []string{`robot changed .data.a from "1" to "9"`},
	},
	"the managed fields were wiped": {
		wiped:   true,
		desired: data("a", "1"), action: ActionUpdate, policy: ReportDrift,
		reclaim: `{"f:data":{"f:a":{},"f:b":{}},"f:metadata":{"f:annotations":{"f:ssa.fixpoint.dev/fixpoint-bench":{}}}}`,
		drifts:  []string{"somebody removed .metadata.managedFields"},
	},
}

func TestJudge(t *testing.T) {
	for name, test := range judgements {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			applier, live := appliedThenEdited(t, test)
			p, err := applier.prepare(Request{Desired: test.desired})
			g.Expect(err).NotTo(HaveOccurred())

			j, err := judge(applier.gather(p, live), test.policy)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(j.action).To(Equal(test.action))
			var drifts []string
			for _, d := range j.drifts {
				drifts = append(drifts, d.String())
			}
			g.Expect(drifts).To(Equal(test.drifts))
			g.Expect(pathTexts(j.leave)).To(ConsistOf(test.leave))
			if test.reclaim != "" {
				g.Expect(textOf(t, j.reclaim)).To(MatchJSON(test.reclaim))
			}
		})
	}
}

// appliedThenEdited applies data a and b, and lets a robot edit the object. The applier has no
// memory of it.
func appliedThenEdited(t *testing.T, test judging) (*Applier, client.Object) {
	t.Helper()
	server := NewServer()
	created, err := newBenchApplier(t, server).Apply(context.Background(), Request{Desired: data("a", "1", "b", "1")})
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
	return newBenchApplier(t, server), live
}

func TestBelongs(t *testing.T) {
	owner := *ownedBy("me")
	with := func(change func(*metav1.OwnerReference)) []metav1.OwnerReference {
		other := owner
		change(&other)
		return []metav1.OwnerReference{other}
	}
	for name, test := range map[string]struct {
		references []metav1.OwnerReference
		record     record
		applied    bool
		whose      belonging
		reason     Reason
		transient  bool
	}{
		"ours":                                {references: []metav1.OwnerReference{owner}, whose: ours},
		"nobody's":                            {whose: unowned},
		"owned, but not controlled":           {references: with(func(r *metav1.OwnerReference) { r.UID, r.Controller = "x", nil }), whose: unowned},
		"the reference removed, and proved":   {record: record{owner: "me"}, applied: true, whose: ours},
		"the record copied":                   {record: record{owner: "me"}, whose: unowned},
		"the record of another owner":         {record: record{owner: "x"}, applied: true, whose: unowned},
		"another's":                           {references: with(func(r *metav1.OwnerReference) { r.UID, r.Name = "x", "other" }), reason: ReasonOwnedByAnother},
		"another's with a record of ours":     {references: with(func(r *metav1.OwnerReference) { r.UID, r.Name = "x", "other" }), record: record{owner: "me"}, applied: true, reason: ReasonOwnedByAnother},
		"an earlier owner of the name":        {references: with(func(r *metav1.OwnerReference) { r.UID = "x" }), reason: ReasonOwnedByAnother, transient: true},
		"an earlier owner at another version": {references: with(func(r *metav1.OwnerReference) { r.UID, r.APIVersion = "x", "v2" }), reason: ReasonOwnedByAnother, transient: true},
		"the same kind and name, other group": {references: with(func(r *metav1.OwnerReference) { r.UID, r.APIVersion = "x", "other.example/v1" }), reason: ReasonOwnedByAnother},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			whose, err := belongs(identity{}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: test.references}}, owner, test.record, test.applied)
			if test.reason == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(whose).To(Equal(test.whose))
				return
			}
			typed := &Error{}
			g.Expect(errors.As(err, &typed)).To(BeTrue())
			g.Expect(typed.Reason).To(Equal(test.reason))
			g.Expect(typed.Transient).To(Equal(test.transient))
		})
	}
}
