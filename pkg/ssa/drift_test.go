package ssa

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// edit is a write of data by another manager.
type edit struct {
	manager string
	apply   bool // by Server-Side Apply with force, not by Update
	data    map[string]string
}

// TestDriftNamesTheManagerThatChangedTheField: also where other managers agree on its value since.
func TestDriftNamesTheManagerThatChangedTheField(t *testing.T) {
	for name, test := range map[string]struct {
		edits []edit
		drift string
	}{
		"one manager": {
			[]edit{{"robot", false, map[string]string{"a": "9"}}},
			`robot changed .data.a from "1" to "9"`,
		},
		"another applies the same value later": {
			[]edit{{"robot", false, map[string]string{"a": "9"}}, {"argo", true, map[string]string{"a": "9"}}},
			`robot changed .data.a from "1" to "9"`,
		},
		"two apply the same value later": {
			[]edit{{"robot", false, map[string]string{"a": "9"}}, {"argo", true, map[string]string{"a": "9"}}, {"flux", true, map[string]string{"a": "9"}}},
			`robot changed .data.a from "1" to "9"`,
		},
		"one that agreed writes something else later": {
			[]edit{{"robot", false, map[string]string{"a": "9"}}, {"argo", true, map[string]string{"a": "9"}}, {"argo", true, map[string]string{"a": "9", "z": "1"}}},
			`robot changed .data.a from "1" to "9"`,
		},
		"an update repeats what another applied": {
			[]edit{{"argo", true, map[string]string{"a": "9"}}, {"robot", false, map[string]string{"a": "9", "z": "1"}}},
			`argo changed .data.a from "1" to "9"`,
		},
		"an update changes what others agreed on": {
			[]edit{{"argo", true, map[string]string{"a": "8"}}, {"flux", true, map[string]string{"a": "8"}}, {"robot", false, map[string]string{"a": "9"}}},
			`robot changed .data.a from "1" to "9"`,
		},
		"an apply changes what an update had changed": {
			[]edit{{"robot", false, map[string]string{"a": "8"}}, {"argo", true, map[string]string{"a": "9"}}},
			`argo changed .data.a from "1" to "9"`,
		},
		"only applies: the API server does not record which one was first": {
			[]edit{{"argo", true, map[string]string{"a": "9"}}, {"flux", true, map[string]string{"a": "9"}}},
			`flux changed .data.a from "1" to "9"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, ctx, server := NewWithT(t), context.Background(), newServer()
			applier := newBenchApplier(t, server)
			_, err := applier.Apply(ctx, Request{Desired: data("a", "1"), Owner: ownedBy("o")})
			g.Expect(err).NotTo(HaveOccurred())
			last := map[string]int64{}
			for i, e := range test.edits {
				g.Expect(e.write(ctx, server)).To(Succeed())
				last[e.manager] = int64(i)
			}
			live := &corev1.ConfigMap{}
			g.Expect(server.Get(ctx, client.ObjectKey{Namespace: "n", Name: "c"}, live)).To(Succeed())
			for i := range live.ManagedFields { // the API server's field manager writes its own times, in seconds
				live.ManagedFields[i].Time = &metav1.Time{Time: time.Unix(1_700_000_000+last[live.ManagedFields[i].Manager], 0)}
			}

			d, err := applier.Decide(Request{Desired: data("a", "1"), Owner: ownedBy("o"), Live: live})

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(fmt.Sprint(d.Drifts)).To(Equal("[" + test.drift + "]"))
		})
	}
}

// A struct of which all fields were taken looks like an atomic field, which another version may have.
func TestDriftNamesTheManagerThatHoldsTheFieldByItsName(t *testing.T) {
	entry := func(manager, apiVersion, fieldsV1 string) managedEntry {
		e := applyEntry(manager, apiVersion, "")
		e.Operation = metav1.ManagedFieldsOperationUpdate
		return managedEntry{ManagedFieldsEntry: e, set: fields(t, fieldsV1)}
	}
	emptied := entry("before-first-apply", "v1alpha1", `{"f:spec":{"f:key":{}}}`)
	robot := entry("robot", "v1beta1", `{"f:spec":{"f:key":{"f:name":{}}}}`)
	path := makeFieldPath("spec", "key", "name")
	g := NewWithT(t)
	for _, entries := range [][]managedEntry{{emptied, robot}, {robot, emptied}} {
		g.Expect(managedFields{entries: entries}.takerOf(path, "v1beta1").Manager).To(Equal("robot"))
	}
	g.Expect(managedFields{entries: []managedEntry{emptied}}.takerOf(path, "v1beta1").Manager).To(Equal("before-first-apply"))
}

func (e edit) write(ctx context.Context, server client.Client) error {
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	if e.apply {
		raw, err := json.Marshal(data().WithData(e.data))
		if err != nil {
			return err
		}
		return server.Patch(ctx, live, client.RawPatch(types.ApplyPatchType, raw), client.FieldOwner(e.manager), client.ForceOwnership)
	}
	if err := server.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
		return err
	}
	live.Data = e.data
	return server.Update(ctx, live, client.FieldOwner(e.manager))
}

func TestDriftString(t *testing.T) {
	for text, drift := range map[string]Drift{
		`robot changed .data.a from "1" to "9"`:                        {Path: ".data.a", Manager: "robot", Desired: `"1"`, Actual: `"9"`},
		`an unknown field manager removed .data.a (was "1")`:           {Path: ".data.a", Desired: `"1"`},
		`an unknown field manager removed .metadata.managedFields`:     {Path: ".metadata.managedFields"},
		`an unknown field manager changed .data.a from "1" to "\"x\""`: {Path: ".data.a", Desired: `"1"`, Actual: `"\"x\""`},
	} {
		NewWithT(t).Expect(drift.String()).To(Equal(text))
	}
}

func TestTakerOfAFieldHoldsItOrAnAtomicStructAtAnotherVersion(t *testing.T) {
	for name, test := range map[string]struct {
		entry metav1.ManagedFieldsEntry
		taker bool
	}{
		"the field":                             {managed("x", byUpdate, "", `{"f:spec":{"f:a":{"f:b":{}}}}`), true},
		"another field":                         {managed("x", byUpdate, "", `{"f:spec":{"f:c":{}}}`), false},
		"the struct around it, at its version":  {managed("x", byUpdate, "", `{"f:spec":{"f:a":{}}}`), false},
		"the struct around it, at another":      {atVersion("v2", managed("x", byUpdate, "", `{"f:spec":{"f:a":{}}}`)), true},
		"another field, at another version too": {atVersion("v2", managed("x", byUpdate, "", `{"f:spec":{"f:c":{}}}`)), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := parseManagedFields(&metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{test.entry}})
			g.Expect(m.takerOf(makeFieldPath("spec", "a", "b"), "v1") != nil).To(Equal(test.taker))
		})
	}
}

func TestNullDiffersFromAFieldThatDoesNotExist(t *testing.T) {
	null := map[string]any{"a": nil}
	for name, test := range map[string]struct {
		desired, live map[string]any
		want          string
	}{
		"desired": {null, map[string]any{}, "an unknown field manager removed .a (was null)"},
		"live":    {map[string]any{}, null, "an unknown field manager changed .a from  to null"},
	} {
		_, drifts := describeDrift(evidence{target: target{tree: test.desired}, liveTree: test.live}, []fieldPath{makeFieldPath("a")})
		NewWithT(t).Expect(drifts).To(ConsistOf(HaveField("String()", test.want)), name)
	}
}
