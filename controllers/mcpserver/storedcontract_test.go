package mcpserver

import (
	"context"
	"errors"
	"maps"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func TestNextStored(t *testing.T) {
	type data = map[string]string
	for name, c := range map[string]struct {
		live             data
		current, pending contractToStore
		want             data
	}{
		"nothing is known":               {nil, contractToStore{}, contractToStore{}, data{}},
		"the text is not known":          {nil, contractToStore{digest: "1"}, contractToStore{}, data{}},
		"the first contract":             {nil, contractToStore{"1", "one"}, contractToStore{}, data{"current.1": "one"}},
		"at rest":                        {data{"current.1": "one"}, contractToStore{"1", "one"}, contractToStore{}, data{"current.1": "one"}},
		"after a restart":                {data{"current.2": "two", "previous.1": "one"}, contractToStore{digest: "2"}, contractToStore{}, data{"current.2": "two", "previous.1": "one"}},
		"a change":                       {data{"current.1": "one"}, contractToStore{"2", "two"}, contractToStore{}, data{"current.2": "two", "previous.1": "one"}},
		"another change":                 {data{"current.2": "two", "previous.1": "one"}, contractToStore{"3", "three"}, contractToStore{}, data{"current.3": "three", "previous.2": "two"}},
		"a change whose text is unknown": {data{"current.1": "one"}, contractToStore{digest: "2"}, contractToStore{}, data{"current.1": "one"}},
		"a change that was reverted":     {data{"current.2": "two", "previous.1": "one"}, contractToStore{digest: "1"}, contractToStore{}, data{"current.1": "one", "previous.2": "two"}},
		"a pending contract":             {data{"current.1": "one"}, contractToStore{digest: "1"}, contractToStore{"2", "two"}, data{"current.1": "one", "pending.2": "two"}},
		"one that stays, after a restart": {data{"current.1": "one", "pending.2": "two"}, contractToStore{digest: "1"}, contractToStore{digest: "2"},
			data{"current.1": "one", "pending.2": "two"}},
		"one that was approved":   {data{"current.1": "one", "pending.2": "two"}, contractToStore{digest: "2"}, contractToStore{}, data{"current.2": "two", "previous.1": "one"}},
		"one that is gone":        {data{"current.1": "one", "pending.2": "two"}, contractToStore{digest: "1"}, contractToStore{}, data{"current.1": "one"}},
		"one of several at first": {nil, contractToStore{}, contractToStore{"2", "two"}, data{"pending.2": "two"}},
		"the previous one is pending": {data{"current.2": "two", "previous.1": "one"}, contractToStore{digest: "2"}, contractToStore{digest: "1"},
			data{"current.2": "two", "previous.1": "one", "pending.1": "one"}},
		"others have changed it": {data{"current.1": "forged", "x": "y"}, contractToStore{"1", "one"}, contractToStore{}, data{"current.1": "one"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := nextStored(c.live, c.current, c.pending)
			g.Expect(got).To(Equal(c.want))
			g.Expect(nextStored(got, c.current, c.pending)).To(Equal(c.want), "then it is at rest")
			if c.live != nil {
				names := data{}
				for key := range c.live {
					names[key] = ""
				}
				g.Expect(haveSameKeys(nextStored(names, c.current, c.pending), c.want)).To(BeTrue(), "the cache has the names")
			}
		})
	}
}

// configMapReader has one ConfigMap, and counts the reads.
type configMapReader struct {
	client.Reader
	live  *corev1.ConfigMap
	err   error
	reads int
}

func (r *configMapReader) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	r.reads++
	into, ok := object.(*corev1.ConfigMap)
	switch {
	case r.err != nil:
		return r.err
	case r.live == nil || !ok:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "tools-contract")
	}
	r.live.DeepCopyInto(into)
	return nil
}

// textsOf is a prober with texts.
type textsOf struct {
	fakeProber
	texts map[string]string
}

func (p *textsOf) ContractText(digest string) string { return p.texts[digest] }

func TestStoredContractIsReadOnlyToChangeIt(t *testing.T) {
	server := tools()
	server.UID = "uid"
	server.Status.Contract = &v1beta1.MCPServerContractStatus{Digest: "1"}
	owners := []metav1.OwnerReference{{APIVersion: "fixpoint.dev/v1beta1", Kind: "MCPServer", Name: "tools", UID: "uid", Controller: ptr.To(true)}}
	stored := func(data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tools-contract", Namespace: "acme", OwnerReferences: owners}, Data: maps.Clone(data)}
	}
	compact := func(data map[string]string) *corev1.ConfigMap {
		cached := stored(data)
		KeepContractKeys(cached)
		cached.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsType: "Digest"}}
		return cached
	}
	current := map[string]string{"current.1": "one"}
	for name, c := range map[string]struct {
		cached, live *corev1.ConfigMap
		found        string
		texts        map[string]string
		disabled     bool
		want         map[string]string
		reads        int
	}{
		"at rest":                 {cached: compact(current), live: stored(current), found: "1", texts: map[string]string{"1": "one"}},
		"after a restart":         {cached: compact(current), live: stored(current)},
		"another contract":        {cached: compact(current), live: stored(current), found: "2", texts: map[string]string{"2": "two"}, want: map[string]string{"current.2": "two", "previous.1": "one"}, reads: 1},
		"changed by others":       {cached: stored(map[string]string{"current.1": "forged"}), live: stored(map[string]string{"current.1": "forged"}), texts: map[string]string{"1": "one"}, want: current, reads: 1},
		"deleted":                 {texts: map[string]string{"1": "one"}, want: current, reads: 1},
		"deleted, and not probed": {reads: 1},
		"a ConfigMap of a user":   {cached: &corev1.ConfigMap{Data: current}, live: &corev1.ConfigMap{Data: current}, texts: map[string]string{"1": "uno"}, want: map[string]string{"current.1": "uno"}, reads: 1},
		"pending before, and no more": {
			cached: compact(map[string]string{"pending.2": "two"}), live: stored(map[string]string{"pending.2": "two"}), want: map[string]string{}, reads: 1},
		"disabled": {cached: compact(current), live: stored(current), disabled: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			probes := &textsOf{texts: c.texts}
			if c.found != "" {
				probes.result = &prober.Result{Contract: &prober.Contract{Digest: c.found}}
			}
			s := &scope{server: server.DeepCopy(), prober: probes}
			if c.disabled {
				s.server.Spec.Contract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractDisabled}
			}
			uncached := &configMapReader{live: c.live}
			verdict, err := s.readStoredContract(t.Context(), &phases.Cluster{Cached: &configMapReader{live: c.cached}, Uncached: uncached})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verdict == nil).To(Equal(c.want != nil || c.disabled), "whether the ConfigMap is applied or deleted")
			g.Expect(s.storedContract).To(Equal(c.want))
			g.Expect(uncached.reads).To(Equal(c.reads))
			if c.disabled {
				g.Expect(s.desiredStoredContract()).To(BeNil())
			}
		})
	}
	t.Run("unavailable", func(t *testing.T) {
		s := &scope{server: server, prober: &textsOf{}}
		_, err := s.readStoredContract(t.Context(), &phases.Cluster{Cached: &configMapReader{err: errors.New("no answer")}})
		NewWithT(t).Expect(err).To(MatchError("reading ConfigMap acme/tools-contract: no answer"))
	})
}

func TestCacheKeepsTheKeysOfContracts(t *testing.T) {
	g := NewWithT(t)
	owners := []metav1.OwnerReference{{Kind: "MCPServer", Name: "tools", Controller: ptr.To(true)}}
	contract := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tools-contract", OwnerReferences: owners}, Data: map[string]string{"current.1": "one"}}
	files := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tools", OwnerReferences: owners}, Data: map[string]string{"file-1": "one"}}
	KeepContractKeys(contract)
	KeepContractKeys(files)
	g.Expect(contract.Data).To(Equal(map[string]string{"current.1": ""}))
	g.Expect(files.Data).To(BeNil())
}
