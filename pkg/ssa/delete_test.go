package ssa

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

const foreground, background = metav1.DeletePropagationForeground, metav1.DeletePropagationBackground

// owned is an object that the owner with this UID controls.
func owned(name string, uid types.UID) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, OwnerReferences: []metav1.OwnerReference{*ownedBy(uid)}}}
}

func TestDeleteDeletesOnlyWhatTheOwnerControls(t *testing.T) {
	update := func(change func(*corev1.ConfigMap)) func(g *WithT, server *countingServer, live *corev1.ConfigMap) {
		return func(g *WithT, server *countingServer, live *corev1.ConfigMap) {
			change(live)
			g.Expect(server.Update(context.Background(), live)).To(Succeed())
		}
	}
	for name, test := range map[string]struct {
		// read is done before the object is read, and since after.
		read, since func(g *WithT, server *countingServer, live *corev1.ConfigMap)
		propagation metav1.DeletionPropagation
		gone        bool
		left        string // how it is then
	}{
		"in the background":           {propagation: background, gone: true, left: "gone"},
		"in the foreground":           {propagation: foreground, left: "terminating"},
		"with a finalizer":            {propagation: background, left: "terminating", read: update(func(c *corev1.ConfigMap) { c.Finalizers = []string{teardown} })},
		"controlled by another":       {propagation: background, left: "kept", read: update(func(c *corev1.ConfigMap) { c.OwnerReferences[0].UID = "another" })},
		"changed since":               {propagation: background, gone: true, left: "gone", since: update(func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "1"} })},
		"released since":              {propagation: background, left: "kept", since: update(func(c *corev1.ConfigMap) { c.OwnerReferences = nil })},
		"taken by another controller": {propagation: background, left: "kept", since: update(func(c *corev1.ConfigMap) { c.OwnerReferences[0].UID = "another" })},
		"gone already": {propagation: background, gone: true, left: "gone", since: func(g *WithT, server *countingServer, live *corev1.ConfigMap) {
			g.Expect(server.Delete(context.Background(), live)).To(Succeed())
		}},
		"recreated since": {propagation: background, left: "kept", since: func(g *WithT, server *countingServer, live *corev1.ConfigMap) {
			g.Expect(server.Delete(context.Background(), live)).To(Succeed())
			g.Expect(server.Create(context.Background(), owned("c", "o"))).To(Succeed())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			// Given an object that the owner controls, as a cache shows it
			g, server, stored := NewWithT(t), newServer(), owned("c", "o")
			g.Expect(server.Create(context.Background(), stored)).To(Succeed())
			if test.read != nil {
				test.read(g, server, stored)
			}
			live := stored.DeepCopy()
			if test.since != nil {
				test.since(g, server, stored)
			}

			// When it is deleted
			gone, err := newBenchApplier(t, server).Delete(context.Background(), live, *ownedBy("o"), test.propagation)

			// Then nothing else is
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(gone).To(Equal(test.gone))
			left, now := "kept", &corev1.ConfigMap{}
			if err := server.Get(context.Background(), client.ObjectKeyFromObject(live), now); apierrors.IsNotFound(err) {
				left = "gone"
			} else if now.DeletionTimestamp != nil {
				left = "terminating"
			}
			g.Expect(left).To(Equal(test.left))
		})
	}
}

func TestDeleteSendsNothingForWhatIsBeingDeleted(t *testing.T) {
	g, server, live := NewWithT(t), newServer(), owned("c", "o")
	live.DeletionTimestamp = &metav1.Time{}
	gone, err := newBenchApplier(t, server).Delete(context.Background(), live, *ownedBy("o"), background)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(gone).To(BeFalse())
	g.Expect(server.requests).To(BeZero())
}

func TestSlowKindsAreNotGoneAtOnce(t *testing.T) {
	meta := owned("c", "o").ObjectMeta
	for _, live := range []client.Object{&corev1.Pod{ObjectMeta: meta}, &corev1.Namespace{ObjectMeta: meta}} {
		g, server := NewWithT(t), newServer()
		g.Expect(server.Create(context.Background(), live)).To(Succeed())
		gone, err := newBenchApplier(t, server).Delete(context.Background(), live, *ownedBy("o"), background)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(gone).To(BeFalse(), "%T", live)
	}
}

// oldReader shows an object as it was.
type oldReader struct {
	client.Reader
	old   *corev1.ConfigMap
	err   error
	reads int
}

func (r *oldReader) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.reads++
	if found, ok := into.(*corev1.ConfigMap); ok && r.err == nil {
		r.old.DeepCopyInto(found)
	}
	return r.err
}

func TestDeleteGivesUpWhenTheObjectKeepsChanging(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		reads int
		want  string
	}{
		"it reads the same again": {nil, attempts, "has changed since it was read"},
		"it cannot read":          {apierrors.NewServiceUnavailable("later"), 1, "reading ConfigMap n/c: ConfigMap n/c: the API server did not accept the request"},
	} {
		t.Run(name, func(t *testing.T) {
			g, server, live := NewWithT(t), newServer(), owned("c", "o")
			g.Expect(server.Create(context.Background(), live)).To(Succeed())
			before := server.requests
			live.ResourceVersion = "1"
			reader := &oldReader{old: live, err: test.err}
			applier, err := New(Options{Client: server, Reader: reader, FieldManager: benchManager})
			g.Expect(err).NotTo(HaveOccurred())

			gone, err := applier.Delete(context.Background(), live, *ownedBy("o"), background)

			g.Expect(gone).To(BeFalse())
			g.Expect(err).To(MatchError(ContainSubstring(test.want)))
			g.Expect(reader.reads).To(Equal(test.reads))
			g.Expect(server.requests - before).To(Equal(test.reads))
		})
	}
}

func TestDeletesAreCounted(t *testing.T) {
	g, server, live := NewWithT(t), newServer(), owned("c", "o")
	g.Expect(server.Create(context.Background(), live)).To(Succeed())
	counter := applies.WithLabelValues("ConfigMap", "main", "Delete")
	before := testutil.ToFloat64(counter)
	_, err := newBenchApplier(t, server).DryRun().Delete(context.Background(), live, *ownedBy("o"), background)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(testutil.ToFloat64(counter)-before).To(BeZero(), "a dry run")
	g.Expect(server.Get(context.Background(), client.ObjectKeyFromObject(live), &corev1.ConfigMap{})).To(Succeed())
	_, err = newBenchApplier(t, server).Delete(context.Background(), live, *ownedBy("o"), background)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(testutil.ToFloat64(counter) - before).To(Equal(1.0))
}

func TestFailedDeleteIsClassifiedAndCounted(t *testing.T) {
	g, live := NewWithT(t), owned("c", "o")
	server := &countingServer{Server: ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{Intercept: func(call ssatest.Call) error {
		if call.Verb == "delete" {
			return forbidden(`User "m" cannot delete resource "configmaps"`)
		}
		return nil
	}})}
	g.Expect(server.Create(context.Background(), live)).To(Succeed())
	counter := applies.WithLabelValues("ConfigMap", "main", "Forbidden")
	before := testutil.ToFloat64(counter)

	gone, err := newBenchApplier(t, server).Delete(context.Background(), live, *ownedBy("o"), background)

	g.Expect(gone).To(BeFalse())
	typed := &Error{}
	g.Expect(errors.As(err, &typed)).To(BeTrue())
	g.Expect(typed.Reason).To(Equal(ReasonForbidden))
	g.Expect(testutil.ToFloat64(counter) - before).To(Equal(1.0))
}

func TestOwnedListsWhatTheOwnerControls(t *testing.T) {
	for name, namesake := range map[string]types.UID{"with the name of the owner": "o", "another object of the name": "x"} {
		t.Run(name, func(t *testing.T) {
			g, server := NewWithT(t), newServer()
			g.Expect(IndexController(context.Background(), server, &corev1.ConfigMap{})).To(Succeed())
			elsewhere := owned("c", "o")
			elsewhere.Namespace = "elsewhere"
			for _, object := range []client.Object{
				owned("c", "o"), owned("d", "o"), owned("e", "x"), owned("owner", namesake), elsewhere,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "f"}},
			} {
				g.Expect(server.Create(context.Background(), object)).To(Succeed())
			}

			list := &corev1.ConfigMapList{}
			found, err := OwnedIn(context.Background(), server.Cache(), &metav1.ObjectMeta{Namespace: "n", Name: "owner", UID: "o"}, "n", list)

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Items).To(ConsistOf(HaveField("Name", "c"), HaveField("Name", "d")), "the namesake is not indexed")
			want := []any{HaveField("Name", "c"), HaveField("Name", "d")}
			if namesake == "o" {
				want = append(want, HaveField("Name", "owner"))
			}
			g.Expect(found).To(ConsistOf(want...))
		})
	}
}

// unindexed lists what the owner controls with the object of its name, as a reader does that is no cache.
type unindexed struct{ client.Reader }

func (u unindexed) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return u.Reader.List(ctx, list)
}

func TestOwnedListsTheNamesakeOnce(t *testing.T) {
	g, server := NewWithT(t), newServer()
	g.Expect(server.Create(context.Background(), owned("owner", "o"))).To(Succeed())
	found, err := OwnedIn(context.Background(), unindexed{server}, &metav1.ObjectMeta{Namespace: "n", Name: "owner", UID: "o"}, "n", &corev1.ConfigMapList{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(HaveLen(1))
}

func TestOwnedFailsIfItCannotList(t *testing.T) {
	server := ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{Intercept: func(ssatest.Call) error { return errors.New("no cache") }})
	_, err := OwnedIn(context.Background(), server, &metav1.ObjectMeta{Name: "web", UID: "u"}, "", &corev1.ConfigMapList{})
	NewWithT(t).Expect(err).To(MatchError("listing what web controls: no cache"))
}

func TestDeleteCarriesUIDAndResourceVersion(t *testing.T) {
	for _, dryRun := range []bool{false, true} {
		g, server, live := NewWithT(t), newServer(), owned("c", "o")
		g.Expect(server.Create(t.Context(), live)).To(Succeed())
		applier := newBenchApplier(t, server)
		if dryRun {
			applier = applier.DryRun()
		}

		_, err := applier.Delete(t.Context(), live, *ownedBy("o"), foreground)

		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(server.deletes).To(HaveLen(1))
		g.Expect(server.deletes[0].Preconditions).To(Equal(&metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion}))
		g.Expect(server.deletes[0].PropagationPolicy).To(HaveValue(Equal(foreground)))
		g.Expect(server.deletes[0].DisableReadYourWritesConsistency).To(Equal(dryRun), "a dry run leaves no write to read")
	}
}

func TestDeleteOfAnObjectThatIsGoneAfterAChangeIsNoError(t *testing.T) {
	g, server, live := NewWithT(t), newServer(), owned("c", "o")
	g.Expect(server.Create(t.Context(), live)).To(Succeed())
	live.ResourceVersion = "1"
	applier, err := New(Options{Client: server, Reader: &emptyReader{Client: server}, FieldManager: benchManager})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = applier.Delete(t.Context(), live, *ownedBy("o"), background)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestIndexControllerFailsIfTheCacheHasNoSuchKind(t *testing.T) {
	NewWithT(t).Expect(IndexController(t.Context(), newServer(), &unknownKind{})).NotTo(Succeed())
}

func TestOwnedNeedsNoNamesake(t *testing.T) {
	found, err := OwnedIn(t.Context(), unindexed{newServer()}, &metav1.ObjectMeta{Namespace: "n", Name: "owner", UID: "o"}, "n", &corev1.ConfigMapList{})
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(BeEmpty())
}

// Lists of other shapes than the generated ones.
type (
	pointerList struct {
		corev1.ConfigMapList

		Items []*corev1.ConfigMap
	}
	statusList struct {
		corev1.ConfigMapList

		Items []metav1.Status
	}
	itemlessList struct {
		metav1.TypeMeta
		metav1.ListMeta
	}
)

func (l *itemlessList) DeepCopyObject() runtime.Object { return l }

func TestOwnedOfListsOfOtherShapes(t *testing.T) {
	for name, test := range map[string]struct {
		list client.ObjectList
		err  string
	}{
		"pointers":   {&pointerList{}, ""},
		"no objects": {&statusList{Items: make([]metav1.Status, 1)}, "the items of *ssa.statusList are no objects"},
		"no items":   {&itemlessList{}, "finding the items of *ssa.itemlessList: "},
	} {
		t.Run(name, func(t *testing.T) {
			g, server := NewWithT(t), newServer()
			g.Expect(server.Create(t.Context(), owned("owner", "o"))).To(Succeed())
			found, err := OwnedIn(t.Context(), unlisted{server}, &metav1.ObjectMeta{Namespace: "n", Name: "owner", UID: "o"}, "n", test.list)
			if test.err != "" {
				g.Expect(err).To(MatchError(HavePrefix(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(ConsistOf(HaveField("Name", "owner")))
		})
	}
}

// unlisted leaves lists as they are.
type unlisted struct{ client.Reader }

func (unlisted) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
