package ssa

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A compact object is decided like the whole one, or not at all; and one that has drifted stays whole.
func TestDecideOfACompactObject(t *testing.T) {
	for name, test := range decideTests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			applier, live, owner := appliedThenEdited(t, test)
			request := Request{Desired: test.desired, Live: live, Owner: owner, Drift: test.policy}
			whole, err := applier.Decide(request)
			g.Expect(err).NotTo(HaveOccurred())
			cached, _ := live.DeepCopyObject().(client.Object)

			isCompact := Compact(cached, benchManager)

			g.Expect(IsCompact(cached)).To(Equal(isCompact))
			if !isCompact {
				g.Expect(cached).To(Equal(live), "it is left as it is")
				return
			}
			g.Expect(whole.Drifts).To(BeEmpty())
			g.Expect(whole.reclaim.Empty()).To(BeTrue())
			request.Live = cached
			decision, err := applier.Decide(request)
			if whole.Action == ActionNone {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(decision.Action).To(Equal(ActionNone))
			} else {
				g.Expect(IsStale(err)).To(BeTrue())
			}
		})
	}
}

func TestCompactKeepsTheIdentity(t *testing.T) {
	g := NewWithT(t)
	_, live, _ := appliedThenEdited(t, decideTest{})
	cached, _ := live.DeepCopyObject().(client.Object)

	g.Expect(Compact(cached, benchManager)).To(BeTrue())

	g.Expect(cached.GetUID()).To(Equal(live.GetUID()))
	g.Expect(cached.GetResourceVersion()).To(Equal(live.GetResourceVersion()))
	g.Expect(cached.GetOwnerReferences()).To(Equal(live.GetOwnerReferences()))
	g.Expect(cached.GetAnnotations()).To(BeEmpty())
	again, _ := cached.DeepCopyObject().(client.Object)
	g.Expect(Compact(again, benchManager)).To(BeTrue())
	g.Expect(again).To(Equal(cached), "the transform of a cache is idempotent")
}

// The digest of a compact object holds for this configuration of this owner under this manager only.
func TestCompactObjectOfAnotherConfigurationIsNotAsDesired(t *testing.T) {
	applier, live, owner := appliedThenEdited(t, decideTest{})
	Compact(live, benchManager)
	for name, request := range map[string]Request{
		"another value": {Desired: data("a", "1", "b", "2"), Owner: owner},
		"another field": {Desired: data("a", "1"), Owner: owner},
		"another owner": {Desired: data("a", "1", "b", "1"), Owner: ownedBy("x")},
		"no owner":      {Desired: data("a", "1", "b", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			g, counter := NewWithT(t), applies.WithLabelValues("ConfigMap", "main", "Stale")
			before := testutil.ToFloat64(counter)
			request.Live = live
			_, err := applier.Decide(request)
			g.Expect(IsStale(err)).To(BeTrue())
			typed := &Error{}
			g.Expect(errors.As(err, &typed)).To(BeTrue())
			g.Expect(typed).To(Equal(&Error{Reason: ReasonStale, Object: "ConfigMap n/c", Message: typed.Message, Transient: true}))
			g.Expect(testutil.ToFloat64(counter)).To(Equal(before), "the caller decides again")
		})
	}
}

func TestCompactLeavesWhatIsNotApplied(t *testing.T) {
	for name, edit := range map[string]func(*corev1.ConfigMap){
		"another manager":             func(c *corev1.ConfigMap) { c.ManagedFields[0].Manager = "robot" },
		"an entry of another version": func(c *corev1.ConfigMap) { c.ManagedFields[0].Subresource = "status" },
		"no record":                   func(c *corev1.ConfigMap) { c.Annotations = nil },
		"a record of nothing":         func(c *corev1.ConfigMap) { c.Annotations[RecordAnnotationPrefix+benchManager] = "v1/x/y/" },
		"a record that is no base64":  func(c *corev1.ConfigMap) { c.Annotations[RecordAnnotationPrefix+benchManager] = "v1/x/y/!" },
		"a record that is no deflate": func(c *corev1.ConfigMap) { c.Annotations[RecordAnnotationPrefix+benchManager] = "v1/x/y/AAAA" },
		"a later version of a record": func(c *corev1.ConfigMap) {
			c.Annotations[RecordAnnotationPrefix+benchManager] = "v2" + c.Annotations[RecordAnnotationPrefix+benchManager][2:]
		},
		"an entry without fields, and a record without": func(c *corev1.ConfigMap) {
			c.ManagedFields[0].FieldsV1, c.Annotations[RecordAnnotationPrefix+benchManager] = nil, "v1/x/y/"
		},
		"an update by the manager": func(c *corev1.ConfigMap) { c.ManagedFields[0].Operation = byUpdate },
		"no managed fields":        func(c *corev1.ConfigMap) { c.ManagedFields = nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, live, _ := appliedThenEdited(t, decideTest{})
			configMap, _ := live.(*corev1.ConfigMap)
			edit(configMap)
			before := configMap.DeepCopy()
			g.Expect(Compact(configMap, benchManager)).To(BeFalse())
			g.Expect(configMap).To(Equal(before))
		})
	}
}

// A change of the configuration reads the whole object, once.
func TestApplyReadsACompactObjectPastTheCache(t *testing.T) {
	g := NewWithT(t)
	server, owner := newServer(), ownedBy("o")
	applier := newBenchApplier(t, server)
	created, err := applier.Apply(context.Background(), Request{Desired: data("a", "1", "b", "1"), Owner: owner})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(Compact(created.Live, benchManager)).To(BeTrue())
	g.Expect(applier.Apply(context.Background(), Request{Desired: data("a", "1", "b", "1"), Live: created.Live, Owner: owner})).To(HaveField("Action", ActionNone))

	result, err := applier.Apply(context.Background(), Request{Desired: data("a", "2"), Live: created.Live, Owner: owner})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Action).To(Equal(ActionUpdate))
	g.Expect(result.Live).To(HaveField("Data", map[string]string{"a": "2"}))
}

// The fields of a kind without schema are those that the server recorded: they are remembered after the answer.
func TestAnswersKeepFieldsThatTheSchemaDoesNotGive(t *testing.T) {
	g := NewWithT(t)
	applier, live, owner := appliedThenEdited(t, decideTest{})
	prepared, err := applier.prepare(data("a", "1", "b", "1"), owner, "")
	g.Expect(err).NotTo(HaveOccurred())
	applier.remember(prepared, live)
	remembered, err := applier.prepare(data("a", "1", "b", "1"), owner, "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(remembered.fields).To(BeEmpty(), "the schema gives them")
	g.Expect(applier.complete(&remembered)).To(Succeed())
	g.Expect(remembered.fields).To(Equal(prepared.fields))
	remembered.raw = nil
	g.Expect(applier.complete(&remembered)).To(Succeed(), "it is decoded once")

	prepared.expect(`{"f:data":{}}`)
	applier.remember(prepared, live)
	remembered, err = applier.prepare(data("a", "1", "b", "1"), owner, "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(remembered.fields).To(Equal(`{"f:data":{}}`))
	g.Expect(remembered.fieldsDigest).To(Equal(digestOf([]byte(`{"f:data":{}}`))))
	g.Expect(applier.complete(&remembered)).To(Succeed())
	g.Expect(remembered.fields).To(Equal(`{"f:data":{}}`), "the answer counts, and not the schema")
}

type brokenReader struct{ client.Reader }

func (brokenReader) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (brokenReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("no cache")
}

func TestOwnedFailsIfTheNamesakeCannotBeRead(t *testing.T) {
	_, err := OwnedIn(context.Background(), brokenReader{}, &metav1.ObjectMeta{Name: "web", UID: "u"}, "", &corev1.ConfigMapList{})
	NewWithT(t).Expect(err).To(MatchError("reading what web controls: no cache"))
}
