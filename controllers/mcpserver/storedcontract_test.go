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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
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
		"it does not wait any more, and its text is unknown": {data{"current.1": "one"}, contractToStore{digest: "1"}, contractToStore{digest: "2"}, data{"current.1": "one"}},
		"the current one is pending too":                     {data{"current.1": "one"}, contractToStore{"1", "one"}, contractToStore{"1", "one"}, data{"current.1": "one"}},
		"the previous one is the current one":                {data{"current.1": "one", "previous.1": "one"}, contractToStore{"1", "one"}, contractToStore{}, data{"current.1": "one"}},
		"a key without a digest, and no contract":            {data{"pending.": "x"}, contractToStore{}, contractToStore{}, data{}},
		"the current one is pending after another":           {data{"current.1": "one"}, contractToStore{"2", "two"}, contractToStore{digest: "1"}, data{"current.2": "two", "previous.1": "one", "pending.1": "one"}},
		"a key without a digest":                             {data{"current.1": "one", "pending.": "x"}, contractToStore{digest: "1"}, contractToStore{}, data{"current.1": "one"}},
		"others have changed it":                             {data{"current.1": "forged", "x": "y"}, contractToStore{"1", "one"}, contractToStore{}, data{"current.1": "one"}},
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
				probes.set = map[client.ObjectKey]prober.Target{client.ObjectKeyFromObject(server): {}}
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
	unowned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tools-contract"}, Data: map[string]string{"current.1": "one"}}
	KeepContractKeys(contract)
	KeepContractKeys(files)
	KeepContractKeys(unowned)
	g.Expect(unowned.Data).To(BeNil())
	g.Expect(contract.Data).To(Equal(map[string]string{"current.1": ""}))
	g.Expect(files.Data).To(BeNil())
}

func TestStoredContractIsDesiredOnceAContractIsKnown(t *testing.T) {
	text := map[string]string{"current.1": "one"}
	for name, c := range map[string]struct {
		change    func(*scope)
		isDesired bool
		data      map[string]string
	}{
		"nothing is known": {func(*scope) {}, false, nil},
		"a contract":       {func(s *scope) { s.server.Status.Contract = &v1beta1.MCPServerContractStatus{} }, true, nil},
		"a pending one":    {func(s *scope) { s.server.Status.PendingContract = &v1beta1.MCPServerPendingContract{} }, true, nil},
		"a text":           {func(s *scope) { s.storedContract = text }, true, text},
		"disabled": {func(s *scope) {
			s.server.Spec.Contract, s.storedContract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractDisabled}, text
		}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{server: tools()}
			c.change(s)
			desired, err := storedContract.Desired(s)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(desired != nil).To(Equal(c.isDesired))
			if c.isDesired {
				g.Expect(*desired.Namespace + "/" + *desired.Name).To(Equal("acme/" + storedContract.ChildName(s)))
				g.Expect(desired.Labels).To(Equal(labelsOf(s.server)))
				g.Expect(desired.Data).To(Equal(c.data))
			}
		})
	}
}

func TestContractsToStore(t *testing.T) {
	texts := &textsOf{texts: map[string]string{"1": "one", "2": "two", "3": "three"}}
	for name, c := range map[string]struct {
		change           func(*scope)
		current, pending contractToStore
	}{
		"none":           {func(*scope) {}, contractToStore{}, contractToStore{}},
		"the recorded":   {func(s *scope) { s.server.Status.Contract = &v1beta1.MCPServerContractStatus{Digest: "1"} }, contractToStore{"1", "one"}, contractToStore{}},
		"one that waits": {func(s *scope) { s.pinned = &pinned{decision: contractDecision{pending: &prober.Contract{Digest: "2"}}} }, contractToStore{}, contractToStore{"2", "two"}},
		"an approved one beside one that waits": {func(s *scope) {
			s.server.Status.Contract = &v1beta1.MCPServerContractStatus{Digest: "1"}
			s.pinned = &pinned{decision: contractDecision{record: &prober.Contract{Digest: "3"}, pending: &prober.Contract{Digest: "2"}}}
		}, contractToStore{"3", "three"}, contractToStore{"2", "two"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// What the serving pods offer does not count where pods wait for an approval.
			texts.result = &prober.Result{Contract: &prober.Contract{Digest: "9"}}
			s := &scope{server: tools(pin), prober: texts}
			c.change(s)
			current, pending := s.contractsToStore()
			g.Expect(current).To(Equal(c.current))
			g.Expect(pending).To(Equal(c.pending))
		})
	}
}

func TestStoredContractThatIsBeingDeletedIsRead(t *testing.T) {
	g := NewWithT(t)
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tools-contract", Namespace: "acme", DeletionTimestamp: ptr.To(metav1.Now()),
		ManagedFields: []metav1.ManagedFieldsEntry{{FieldsType: "Digest"}}}, Data: map[string]string{"current.1": ""}}
	server := tools()
	server.Status.Contract = &v1beta1.MCPServerContractStatus{Digest: "1"}
	s := &scope{server: server, prober: &textsOf{texts: map[string]string{"1": "one"}}}
	uncached := &configMapReader{live: live}
	_, err := s.readStoredContract(t.Context(), &phases.Cluster{Cached: &configMapReader{live: live}, Uncached: uncached})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(uncached.reads).To(Equal(1))
	g.Expect(s.storedContract).To(Equal(map[string]string{"current.1": "one"}))

	_, err = s.readStoredContract(t.Context(), nil)
	g.Expect(err).NotTo(HaveOccurred(), "it is read once per reconcile")
}

func TestStoredContractOfAnotherOwnerIsNotTakenOver(t *testing.T) {
	g := NewWithT(t)
	server := tools()
	server.Status.Contract = &v1beta1.MCPServerContractStatus{Digest: "1"}
	for name, owners := range map[string][]metav1.OwnerReference{
		"none":             nil,
		"of the same name": {{APIVersion: "fixpoint.dev/v1beta1", Kind: "MCPServer", Name: "tools", UID: "uid of a deleted one", Controller: ptr.To(true)}},
	} {
		others := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tools-contract", Namespace: "acme", OwnerReferences: owners}, Data: map[string]string{"current.9": "nine"}}
		s := &scope{server: server, prober: &textsOf{texts: map[string]string{"1": "one"}}}
		_, err := s.readStoredContract(t.Context(), &phases.Cluster{Cached: &configMapReader{live: others}, Uncached: &configMapReader{live: others}})
		g.Expect(err).NotTo(HaveOccurred(), name)
		g.Expect(s.storedContract).To(Equal(map[string]string{"current.1": "one"}), "its data are not those of a previous contract: "+name)
	}
}

func TestQuestionsAboutTheStoredContract(t *testing.T) {
	g := NewWithT(t)
	declared, err := storedContract.Declare(clientgoscheme.Scheme)
	g.Expect(err).NotTo(HaveOccurred())
	server := tools()
	server.Status.Contract = &v1beta1.MCPServerContractStatus{Digest: "1"}
	ask := func(question phases.Question[*scope], plans bool, cluster *phases.Cluster) (phases.Next, error) {
		s := &scope{server: server, prober: &textsOf{}, readers: readers{plans: plans}}
		return question(t.Context(), phases.Reconcile[*scope]{Scope: s, Owner: server, Cluster: cluster})
	}
	unavailable := &configMapReader{err: errors.New("no answer")}
	for name, cluster := range map[string]*phases.Cluster{
		"the cache":      {Cached: unavailable},
		"the API server": {Cached: &configMapReader{}, Uncached: unavailable},
	} {
		_, err = ask(declared.Next, false, cluster)
		g.Expect(err).To(MatchError("reading ConfigMap acme/tools-contract: no answer"), name)
	}
	next, err := ask(declared.Next, true, &phases.Cluster{Cached: &configMapReader{}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(next).To(Equal(phases.NotConfigured()), "a plan reads nothing past the cache")
	next, err = ask(declared.Observe, false, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(next).To(Equal(phases.NotConfigured()))
	_, err = storedContract.Declare(runtime.NewScheme())
	g.Expect(err).To(HaveOccurred(), "ConfigMaps are not in the scheme")
}

func TestStoredContractHasNoConditionOnceItIsApplied(t *testing.T) {
	g := NewWithT(t)
	failed := errors.New("failed")
	for name, c := range map[string]struct{ next, want phases.Next }{
		"done":   {phases.Done("ConfigMap applied"), phases.NotConfigured()},
		"waits":  {phases.Wait("Failed", "no", 0), phases.Wait("Failed", "no", 0)},
		"a step": {phases.Do{What: "apply"}, phases.Do{What: "apply"}},
	} {
		next, err := withoutCondition(c.next, failed)
		g.Expect(err).To(Equal(failed), name)
		g.Expect(next).To(Equal(c.want), name)
	}
}
