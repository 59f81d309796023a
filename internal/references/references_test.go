package references_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/internal/references"
)

const namespace = "acme"

func secret(name string, data ...string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("secret-" + name)}, Data: map[string][]byte{}}
	for i := 0; i < len(data); i += 2 {
		s.Data[data[i]] = []byte(data[i+1])
	}
	return s
}

func configMap(name string, data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("configmap-" + name)}, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		c.Data[data[i]] = data[i+1]
	}
	return c
}

// cluster is a Reader over objects; it counts reads of data.
type cluster struct {
	client.Client
	reader *references.Reader
	reads  int
	broken error
}

func newCluster(objects ...client.Object) *cluster {
	c := &cluster{}
	c.Client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, under client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if c.broken != nil {
				return c.broken
			}
			if _, ok := into.(*metav1.PartialObjectMetadata); !ok {
				c.reads++
			}
			return under.Get(ctx, key, into, options...)
		}}).Build()
	c.reader = &references.Reader{Metadata: c, Data: c}
	return c
}

func (c *cluster) find(t *testing.T, all ...references.Reference) references.Finding {
	t.Helper()
	finding, err := c.reader.Find(context.Background(), namespace, all)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return finding
}

func (c *cluster) update(t *testing.T, object client.Object) {
	t.Helper()
	NewWithT(t).Expect(c.Update(context.Background(), object)).To(Succeed())
}

func TestFindListsMissingObjectsAndKeys(t *testing.T) {
	objects := []client.Object{
		secret("tokens", "a", "1"), configMap("settings", "b", "2"),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "robot"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "far"}},
	}
	cases := map[string]struct {
		references []references.Reference
		missing    []string
	}{
		"no references": {},
		"everything exists": {references: []references.Reference{
			{Kind: references.Secret, Name: "tokens", Keys: []string{"a"}, Rolls: true}, {Kind: references.ConfigMap, Name: "settings", Keys: []string{"b"}},
			{Kind: references.ServiceAccount, Name: "robot"}}},
		"objects, sorted and each once": {
			[]references.Reference{
				{Kind: references.Secret, Name: "z"}, {Kind: references.Secret, Name: "z", Keys: []string{"k"}, Rolls: true},
				{Kind: references.PersistentVolumeClaim, Name: "data"}, {Kind: references.ServiceAccount, Name: "someone"}, {Kind: references.ConfigMap, Name: "c"}},
			[]string{"ConfigMap c", "PersistentVolumeClaim data", "Secret z", "ServiceAccount someone"}},
		"in another namespace": {[]references.Reference{{Kind: references.Secret, Name: "far"}}, []string{"Secret far"}},
		"keys": {
			[]references.Reference{{Kind: references.Secret, Name: "tokens", Keys: []string{"a", "x"}}, {Kind: references.ConfigMap, Name: "settings", Keys: []string{"y"}, Rolls: true}},
			[]string{"key x of Secret tokens", "key y of ConfigMap settings"}},
		"optional": {references: []references.Reference{
			{Kind: references.Secret, Name: "gone", Optional: true, Rolls: true}, {Kind: references.Secret, Name: "tokens", Keys: []string{"x"}, Optional: true, Rolls: true}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(newCluster(objects...).find(t, c.references...).Missing).To(Equal(c.missing))
		})
	}
}

func TestHashChangesOnlyWithDataThatPodsUse(t *testing.T) {
	all := []references.Reference{
		{Kind: references.Secret, Name: "whole", Rolls: true},
		{Kind: references.Secret, Name: "part", Keys: []string{"taken"}, Rolls: true},
		{Kind: references.ConfigMap, Name: "settings", Rolls: true},
		{Kind: references.Secret, Name: "later", Keys: []string{"k"}, Optional: true, Rolls: true},
		{Kind: references.Secret, Name: "pull"},
	}
	cases := map[string]struct {
		change  func(t *testing.T, c *cluster)
		changes bool
	}{
		"nothing":  {func(*testing.T, *cluster) {}, false},
		"a value":  {func(t *testing.T, c *cluster) { c.update(t, secret("whole", "a", "2")) }, true},
		"a key":    {func(t *testing.T, c *cluster) { c.update(t, secret("whole", "b", "1")) }, true},
		"one more": {func(t *testing.T, c *cluster) { c.update(t, secret("whole", "a", "1", "b", "")) }, true},
		"metadata": {func(t *testing.T, c *cluster) {
			labelled := secret("whole", "a", "1")
			labelled.Labels, labelled.Annotations = map[string]string{"l": "1"}, map[string]string{"a": "1"}
			c.update(t, labelled)
		}, false},
		"a used key":    {func(t *testing.T, c *cluster) { c.update(t, secret("part", "taken", "2", "other", "1")) }, true},
		"an unused key": {func(t *testing.T, c *cluster) { c.update(t, secret("part", "taken", "1", "other", "2")) }, false},
		"a ConfigMap":   {func(t *testing.T, c *cluster) { c.update(t, configMap("settings", "x", "2")) }, true},
		"binary data": {func(t *testing.T, c *cluster) {
			binary := configMap("settings", "x", "1")
			binary.BinaryData = map[string][]byte{"y": {0xff}}
			c.update(t, binary)
		}, true},
		"not used by pods": {func(t *testing.T, c *cluster) { c.update(t, secret("pull", "a", "2")) }, false},
		"an optional one is created": {func(t *testing.T, c *cluster) {
			NewWithT(t).Expect(c.Create(context.Background(), secret("later", "k", "1"))).To(Succeed())
		}, true},
		"an optional one is created without the key": {func(t *testing.T, c *cluster) {
			NewWithT(t).Expect(c.Create(context.Background(), secret("later", "x", "1"))).To(Succeed())
		}, false},
		"recreated with the same data": {func(t *testing.T, c *cluster) {
			NewWithT(t).Expect(c.Delete(context.Background(), secret("whole"))).To(Succeed())
			again := secret("whole", "a", "1")
			again.UID = "another"
			NewWithT(t).Expect(c.Create(context.Background(), again)).To(Succeed())
		}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			data := newCluster(secret("whole", "a", "1"), secret("part", "taken", "1", "other", "1"), configMap("settings", "x", "1"), secret("pull", "a", "1"))
			before := data.find(t, all...).Hash
			g.Expect(before).To(HaveLen(16))

			c.change(t, data)

			after := data.find(t, all...)
			g.Expect(after.Missing).To(BeEmpty())
			g.Expect(after.Hash != before).To(Equal(c.changes))
			// independent of order and repetition
			g.Expect(data.find(t, append([]references.Reference{all[2], all[1]}, all...)...).Hash).To(Equal(after.Hash))
		})
	}
}

func TestHashIsEmptyIfPodsUseNoData(t *testing.T) {
	c := newCluster(secret("pull", "a", "1"))
	finding := c.find(t, references.Reference{Kind: references.Secret, Name: "pull"})
	NewWithT(t).Expect(finding).To(Equal(references.Finding{}))
	NewWithT(t).Expect(c.reads).To(BeZero(), "data is not read without need")
}

func TestDataIsReadOncePerVersion(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(secret("tokens", "a", "1"))
	reference := references.Reference{Kind: references.Secret, Name: "tokens", Rolls: true}
	for range 3 {
		c.find(t, reference)
	}
	g.Expect(c.reads).To(Equal(1))

	c.update(t, secret("tokens", "a", "2"))
	for range 3 {
		c.find(t, reference)
	}
	g.Expect(c.reads).To(Equal(2))

	c.reader.Forget("secret-tokens")
	c.find(t, reference)
	g.Expect(c.reads).To(Equal(3))
}

// Pods must not be replaced because a Secret was deleted that the cache still shows: they wait for it, as for one that the
// cache does not show.
func TestDeletedObjectIsMissingAlthoughTheCacheShowsIt(t *testing.T) {
	for name, object := range map[string]client.Object{"Secret": secret("tokens", "a", "1"), "ConfigMap": configMap("tokens", "a", "1")} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			all := references.Reference{Kind: references.Kind(name), Name: "tokens", Rolls: true}
			optional := references.Reference{Kind: references.Kind(name), Name: "tokens", Keys: []string{"a"}, Optional: true, Rolls: true}
			c := newCluster(object)
			c.reader.Data = newCluster()

			g.Expect(c.find(t, all).Missing).To(Equal([]string{name + " tokens"}))
			g.Expect(c.find(t, optional)).To(Equal(newCluster().find(t, optional)))
		})
	}
}

// changing is metadata that changes after it was read.
type changing struct {
	*cluster
	change func()
}

func (m changing) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	defer m.change()
	return m.cluster.Get(ctx, key, into, options...)
}

// A hash of two versions of one object would replace the pods twice.
func TestHashIsThatOfOneVersion(t *testing.T) {
	g := NewWithT(t)
	// given two fields of a spec that refer to one Secret
	references := []references.Reference{
		{Kind: references.Secret, Name: "tokens", Keys: []string{"a"}, Rolls: true},
		{Kind: references.Secret, Name: "tokens", Keys: []string{"b"}, Rolls: true},
	}
	c := newCluster(secret("tokens", "a", "1", "b", "1"))
	before := c.find(t, references...)

	// when the Secret changes between the reads for the two
	c.reader.Metadata = changing{c, func() { c.update(t, secret("tokens", "a", "2", "b", "2")) }}
	during := c.find(t, references...)

	// then
	c.reader.Metadata = c
	after := c.find(t, references...)
	g.Expect(after.Hash).NotTo(Equal(before.Hash))
	g.Expect(during.Hash).To(Or(Equal(before.Hash), Equal(after.Hash)))
}

func TestErrorsNameTheObject(t *testing.T) {
	c := newCluster()
	c.broken = errors.New("no route to host")
	_, err := c.reader.Find(context.Background(), namespace, []references.Reference{{Kind: references.Secret, Name: "tokens"}})
	NewWithT(t).Expect(err).To(MatchError("getting Secret tokens: no route to host"))
	NewWithT(t).Expect(errors.Is(err, c.broken)).To(BeTrue())
}

// brokenData fails reads of data.
type brokenData struct{ err error }

func (b brokenData) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return b.err
}

func (b brokenData) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return b.err
}

func TestDataThatCannotBeRead(t *testing.T) {
	for kind, object := range map[references.Kind]client.Object{references.Secret: secret("tokens", "a", "1"), references.ConfigMap: configMap("tokens", "a", "1")} {
		t.Run(string(kind), func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(object)
			reference := references.Reference{Kind: kind, Name: "tokens", Keys: []string{"a"}, Rolls: true}

			// An error is told, and is not taken for missing data
			c.reader.Data = brokenData{errors.New("no route to host")}
			_, err := c.reader.Find(t.Context(), namespace, []references.Reference{reference})
			g.Expect(err).To(MatchError("reading " + string(kind) + " tokens: no route to host"))

			// An object that was deleted since the cache was updated is missing
			c.reader.Data = brokenData{apierrors.NewNotFound(schema.GroupResource{}, "tokens")}
			g.Expect(c.find(t, reference).Missing).To(Equal([]string{string(kind) + " tokens"}))

			// And one that can be read again is read, once
			c.reader.Data = c
			g.Expect(c.find(t, reference).Missing).To(BeEmpty())
			c.find(t, reference)
			g.Expect(c.reads).To(Equal(1))
		})
	}
}

func TestFindingTellsWhetherSecretsAreUsed(t *testing.T) {
	tokens, settings := references.Reference{Kind: references.Secret, Name: "tokens", Rolls: true}, references.Reference{Kind: references.ConfigMap, Name: "settings", Rolls: true}
	for name, c := range map[string]struct {
		all  []references.Reference
		want bool
	}{
		"Secret first": {[]references.Reference{tokens, settings}, true},
		"Secret last":  {[]references.Reference{settings, tokens}, true},
		"none":         {[]references.Reference{settings, {Kind: references.Secret, Name: "tokens"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(newCluster(secret("tokens", "a", "1"), configMap("settings")).find(t, c.all...).Secret).To(Equal(c.want))
		})
	}
}

func TestID(t *testing.T) {
	NewWithT(t).Expect(references.Reference{Kind: references.Secret, Name: "tokens"}.ID()).To(Equal("Secret/tokens"))
}
