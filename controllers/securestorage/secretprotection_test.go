package securestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func withSecret(name string) func(*v1beta1.SecureStorageSpec) {
	return func(s *v1beta1.SecureStorageSpec) {
		s.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: name}
		s.Provider.WorkloadIdentity = nil
	}
}

func withIdentity(s *v1beta1.SecureStorageSpec) {
	s.Provider.CredentialsSecretRef, s.Provider.WorkloadIdentity = nil, &v1beta1.SecureStorageWorkloadIdentity{}
}

// storageNamed has an account in Azure, and the finalizer of the controller.
func storageNamed(name string, edits ...func(*v1beta1.SecureStorageSpec)) *v1beta1.SecureStorage {
	storage := &v1beta1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Namespace: "billing", Name: name, Finalizers: []string{Finalizer}},
		Spec:       v1beta1.SecureStorageSpec{DeletionPolicy: v1beta1.DeletionDelete},
		Status:     v1beta1.SecureStorageStatus{AccountID: "/subscriptions/1/account"},
	}
	for _, edit := range edits {
		edit(&storage.Spec)
	}
	return storage
}

func TestNeededSecret(t *testing.T) {
	unfinalized := storageNamed("invoices", withSecret("azure"))
	unfinalized.Finalizers = []string{"example.com/other"}
	cases := map[string]struct {
		storage *v1beta1.SecureStorage
		want    string
	}{
		"account is deleted":       {storageNamed("invoices", withSecret("azure")), "azure"},
		"account is retained":      {storageNamed("invoices", withSecret("azure"), retain), ""},
		"account is only observed": {storageNamed("invoices", withSecret("azure"), observe), ""},
		"workload identity":        {storageNamed("invoices", withIdentity), ""},
		"teardown is complete":     {unfinalized, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { NewWithT(t).Expect(neededSecret(c.storage)).To(Equal(c.want)) })
	}
}

// TestNamespaceWithoutItsSecretIsDeletedAfterACrashAtAnyCall: the namespace controller deletes the Secret first, whatever
// the controller has done by then.
func TestNamespaceWithoutItsSecretIsDeletedAfterACrashAtAnyCall(t *testing.T) {
	whole := newFixtureWith(t, fastCloud(), "role", withSecret("own"))
	untilReady := func() {
		for !whole.isReady() {
			whole.clock.Step(whole.reconcile())
		}
	}
	for _, crash := range whole.crashesUntil(untilReady) {
		t.Run(crash.call, func(t *testing.T) {
			// given a process that crashes at this call to the cloud or to the API server
			f := crash.open(t)
			if crash.survivor == nil {
				f.clock.Step(afterCrash)
			}
			// when the namespace is deleted, with the Secret first
			f.deleteSecret("own")
			f.delete()
			// then the deletion completes, unless the Secret has gone, because nothing was created yet
			if f.secrets["billing/own"] == nil {
				f.Expect(f.created()).To(BeZero())
				return
			}
			f.runUntilDeleted()
			f.expectNothingLeft()
			f.reconcile()
			f.Expect(f.secrets).NotTo(HaveKey("billing/own"))
		})
	}
}

// deleteSecret deletes a Secret as a user does. Without a finalizer it is removed at once.
func (f *fixture) deleteSecret(name string) {
	key := "billing/" + name
	if len(f.secrets[key].Finalizers) == 0 {
		delete(f.secrets, key)
		return
	}
	f.secrets[key].DeletionTimestamp = &metav1.Time{Time: f.clock.Now()}
}

func TestSecretIsReleasedWhenItIsNotNeeded(t *testing.T) {
	for name, edit := range map[string]func(*v1beta1.SecureStorageSpec){
		"spec names another Secret":     withSecret("other"),
		"spec names an identity":        withIdentity,
		"account is retained":           retain,
		"account is only observed":      observe,
		"spec names no credentials now": func(s *v1beta1.SecureStorageSpec) { s.Provider.CredentialsSecretRef = nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureWith(t, fastCloud(), "role", withSecret("own"))
			other := f.secrets["billing/own"].DeepCopy()
			other.UID = "2"
			f.secrets["billing/other"] = other
			f.runUntilReady()
			f.Expect(f.isProtected("own")).To(BeTrue())
			f.process.access.tokens = tokensOf{}

			f.edit(edit)
			f.reconcile()

			f.Expect(f.isProtected("own")).To(BeFalse())
			f.Expect(f.isProtected("other")).To(Equal(neededSecret(f.storage) == "other"))
		})
	}
}

// TestSecretWithoutAccountIsNotProtected: a Secret whose credential never worked is needed for nothing.
func TestSecretWithoutAccountIsNotProtected(t *testing.T) {
	f := newFixtureWith(t, fastCloud(), "role", withSecret("own"))
	f.secrets["billing/own"].Data["clientSecret"] = []byte("wrong")
	f.runUntilReason(v1beta1.ReasonCredentialsInvalid)
	f.Expect(f.isProtected("own")).To(BeFalse())
}

func TestNothingIsCreatedWithASecretThatIsBeingDeleted(t *testing.T) {
	f := newFixtureWith(t, fastCloud(), "role", withSecret("own"))
	f.secrets["billing/own"].DeletionTimestamp = &metav1.Time{Time: f.clock.Now()}
	ready := f.runUntilReason(v1beta1.ReasonCredentialsMissing)
	f.Expect(ready.Message).To(ContainSubstring("Secret own (spec.provider.credentialsSecretRef) is being deleted; create it again"))
	f.Expect(f.created()).To(BeZero())
}

// secretsOf writes finalizers to the fake client.
type secretsOf struct{ client.Client }

func (s secretsOf) EnsureFinalizer(ctx context.Context, live client.Object, finalizer string) (client.Object, error) {
	live.SetFinalizers(append(live.GetFinalizers(), finalizer))
	return live, s.Update(ctx, live)
}

func (s secretsOf) RemoveFinalizer(ctx context.Context, live client.Object, finalizer string) error {
	live.SetFinalizers(slices.DeleteFunc(live.GetFinalizers(), func(f string) bool { return f == finalizer }))
	return s.Update(ctx, live)
}

func TestUpdateOfProtection(t *testing.T) {
	secret := func(name string, finalizers ...string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "billing", Name: name, Finalizers: finalizers}}
	}
	deleting := secret("azure", "example.com/other")
	deleting.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	elsewhere := storageNamed("invoices", withSecret("azure"))
	elsewhere.Namespace = "shop"
	unrecorded := storageNamed("invoices", withSecret("azure"))
	unrecorded.Status = v1beta1.SecureStorageStatus{}
	protected := secret("azure", "example.com/other", SecretFinalizer)
	both := []string{"example.com/other", SecretFinalizer}
	cases := map[string]struct {
		secret   *corev1.Secret
		storages []client.Object
		want     []string
	}{
		"new":                        {secret("azure"), []client.Object{storageNamed("invoices", withSecret("azure"))}, []string{SecretFinalizer}},
		"protected":                  {protected, []client.Object{storageNamed("invoices", withSecret("azure"))}, both},
		"nothing in Azure yet":       {secret("azure"), []client.Object{unrecorded}, nil},
		"created a moment ago":       {protected, []client.Object{unrecorded}, both},
		"being deleted":              {deleting, []client.Object{storageNamed("invoices", withSecret("azure"))}, []string{"example.com/other"}},
		"needed by another":          {protected, []client.Object{storageNamed("invoices", withIdentity), storageNamed("orders", withSecret("azure"))}, both},
		"needed by none":             {protected, []client.Object{storageNamed("invoices", withIdentity), storageNamed("orders", withSecret("azure"), retain)}, []string{"example.com/other"}},
		"last one is gone":           {protected, nil, []string{"example.com/other"}},
		"needed in other namespaces": {protected, []client.Object{elsewhere}, []string{"example.com/other"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(c.secret.DeepCopy()).WithObjects(c.storages...).Build()
			p := &secretProtection{cached: api, uncached: api, finalizers: secretsOf{api}}

			g.Expect(p.update(t.Context(), client.ObjectKey{Namespace: "billing", Name: "invoices"})).To(Succeed())

			var found corev1.Secret
			g.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(c.secret), &found)).To(Succeed())
			g.Expect(found.Finalizers).To(Equal(c.want))
		})
	}
}

// Another release may have claimed the other namespace.
func TestSecretsOfOtherNamespacesKeepTheirFinalizers(t *testing.T) {
	g := NewWithT(t)
	elsewhere := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "azure", Finalizers: []string{SecretFinalizer}}}
	api := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(elsewhere, storageNamed("invoices", withIdentity)).Build()
	writes := 0
	p := &secretProtection{cached: api, uncached: api, finalizers: counted{secretsOf{api}, nil, &writes}}
	g.Expect(p.update(t.Context(), client.ObjectKey{Namespace: "billing", Name: "invoices"})).To(Succeed())
	g.Expect(writes).To(BeZero())
	var found corev1.Secret
	g.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(elsewhere), &found)).To(Succeed())
	g.Expect(found.Finalizers).To(Equal([]string{SecretFinalizer}))
}

// An error is retried, and blocks nothing: neither the next attempt nor other Secrets.
func TestProtectionReportsErrors(t *testing.T) {
	storage := storageNamed("invoices", withSecret("azure"))
	named := func(name string, finalizers ...string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "billing", Name: name, Finalizers: finalizers}}
	}
	failure := errors.New("the API server does not respond")
	for name, c := range map[string]struct {
		get, list func(object any) bool
		message   string
	}{
		"SecureStorage": {get: is[*v1beta1.SecureStorage], message: "getting SecureStorage billing/invoices"},
		"Secrets":       {list: is[*metav1.PartialObjectMetadataList], message: "listing the Secrets of namespace billing"},
		"SecureStorages": {
			list: is[*v1beta1.SecureStorageList], message: "listing the SecureStorages of namespace billing, whose Secrets are kept",
		},
		"Secret": {get: is[*corev1.Secret], message: "protecting Secret azure"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(storage.DeepCopy(), named("azure"), named("former", SecretFinalizer, "example.com/other")).Build()
			fails := true
			broken := interceptor.NewClient(api, interceptor.Funcs{
				Get: func(ctx context.Context, with client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
					if fails && c.get != nil && c.get(into) {
						return failure
					}
					return with.Get(ctx, key, into, options...)
				},
				List: func(ctx context.Context, with client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
					if fails && c.list != nil && c.list(into) {
						return failure
					}
					return with.List(ctx, into, options...)
				},
			})
			p := &secretProtection{cached: broken, uncached: broken, finalizers: secretsOf{api}}
			key := client.ObjectKey{Namespace: "billing", Name: "invoices"}
			g.Expect(p.update(t.Context(), key)).To(MatchError(And(ContainSubstring(c.message), ContainSubstring(failure.Error()))))
			fails = false
			g.Expect(p.update(t.Context(), key)).To(Succeed())
			for secret, want := range map[string]bool{"azure": true, "former": false} {
				var found corev1.Secret
				g.Expect(api.Get(t.Context(), client.ObjectKey{Namespace: "billing", Name: secret}, &found)).To(Succeed())
				g.Expect(slices.Contains(found.Finalizers, SecretFinalizer)).To(Equal(want), secret)
			}
		})
	}
}

func is[T any](object any) bool {
	_, ok := object.(T)
	return ok
}

func TestProtectedSecretThatNoStorageNamesIsEnqueued(t *testing.T) {
	g := NewWithT(t)
	reader := fake.NewClientBuilder().WithScheme(testScheme()).Build()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "billing", Name: "azure"}}
	g.Expect(storagesWith(reader)(t.Context(), secret)).To(BeEmpty())
	secret.Finalizers = []string{SecretFinalizer}
	g.Expect(storagesWith(reader)(t.Context(), secret)).To(HaveLen(1))
}

// counted counts the writes of finalizers, which fail with an error.
type counted struct {
	secretsOf
	err    error
	writes *int
}

// EnsureFinalizer implements [finalizers].
func (c counted) EnsureFinalizer(ctx context.Context, live client.Object, finalizer string) (client.Object, error) {
	if *c.writes++; c.err != nil {
		return nil, c.err
	}
	return c.secretsOf.EnsureFinalizer(ctx, live, finalizer)
}

// RemoveFinalizer implements [finalizers].
func (c counted) RemoveFinalizer(ctx context.Context, live client.Object, finalizer string) error {
	if *c.writes++; c.err != nil {
		return c.err
	}
	return c.secretsOf.RemoveFinalizer(ctx, live, finalizer)
}

// protectionCase is a Secret, and what is known about it.
type protectionCase struct {
	secret *corev1.Secret
	// cached and live are the SecureStorages in the cache and in the API server.
	cached, live []client.Object
	others       []client.Object
	readErr      error
	writeErr     error

	want []string
	err  string
	// asked is how often the API server is asked who needs Secrets, reads is how often for a Secret, and writes how often
	// it changes one.
	asked, reads, writes int
}

func (c protectionCase) run(t *testing.T, do func(p *secretProtection) error) {
	t.Helper()
	g := NewWithT(t)
	asked, reads, writes := 0, 0, 0
	server := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(c.live...).WithObjects(c.others...)
	cache := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(c.cached...).WithObjects(c.others...)
	if c.secret != nil {
		server, cache = server.WithObjects(c.secret.DeepCopy()), cache.WithObjects(c.secret.DeepCopy())
	}
	api := server.Build()
	uncached := interceptor.NewClient(api, interceptor.Funcs{Get: func(ctx context.Context, with client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
		if reads++; c.readErr != nil {
			return c.readErr
		}
		return with.Get(ctx, key, into, options...)
	}, List: func(ctx context.Context, with client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
		asked++
		return with.List(ctx, into, options...)
	}})
	err := do(&secretProtection{cached: cache.Build(), uncached: uncached, finalizers: counted{secretsOf{api}, c.writeErr, &writes}})
	if c.err == "" {
		g.Expect(err).NotTo(HaveOccurred())
	} else {
		g.Expect(err).To(MatchError(c.err))
	}
	g.Expect([]int{asked, reads, writes}).To(Equal([]int{c.asked, c.reads, c.writes}))
	if c.secret != nil {
		var found corev1.Secret
		g.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(c.secret), &found)).To(Succeed())
		g.Expect(found.Finalizers).To(Equal(c.want))
	}
}

func secretNamed(name string, finalizers ...string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "billing", Name: name, Finalizers: finalizers}}
}

func deletingSecret(name string) *corev1.Secret {
	secret := secretNamed(name, "example.com/other")
	secret.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	return secret
}

func TestProtect(t *testing.T) {
	needs := storageNamed("invoices", withSecret("azure"))
	failure := errors.New("the API server does not respond")
	for name, c := range map[string]struct {
		storage *v1beta1.SecureStorage
		protectionCase
	}{
		"not protected":        {needs, protectionCase{secret: secretNamed("azure"), want: []string{SecretFinalizer}, reads: 1, writes: 1}},
		"protected":            {needs, protectionCase{secret: secretNamed("azure", SecretFinalizer), want: []string{SecretFinalizer}, reads: 1}},
		"not needed":           {storageNamed("invoices", withIdentity), protectionCase{secret: secretNamed("azure")}},
		"missing":              {needs, protectionCase{err: "Secret azure (spec.provider.credentialsSecretRef) does not exist; create it", reads: 1}},
		"being deleted":        {needs, protectionCase{secret: deletingSecret("azure"), want: []string{"example.com/other"}, err: "Secret azure (spec.provider.credentialsSecretRef) is being deleted; create it again when it is gone, or name another Secret", reads: 1}},
		"it cannot be read":    {needs, protectionCase{secret: secretNamed("azure"), readErr: failure, err: "protecting Secret azure: the API server does not respond", reads: 1}},
		"it cannot be changed": {needs, protectionCase{secret: secretNamed("azure"), writeErr: failure, err: "protecting Secret azure: the API server does not respond", reads: 1, writes: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			c.run(t, func(p *secretProtection) error { return p.protect(t.Context(), c.storage) })
		})
	}
	var none *secretProtection
	NewWithT(t).Expect(none.protect(t.Context(), needs)).To(Succeed(), "a plan writes nothing")
}

// The cache may be behind: before a Secret is released, the API server is asked who needs it.
func TestRelease(t *testing.T) {
	needs := []client.Object{storageNamed("invoices", withSecret("azure"))}
	failure := errors.New("the API server does not respond")
	protected := []string{"example.com/other", SecretFinalizer}
	for name, c := range map[string]protectionCase{
		"needed by none":       {secret: secretNamed("azure", protected...), want: []string{"example.com/other"}, reads: 1, writes: 1, asked: 1},
		"needed":               {secret: secretNamed("azure", protected...), live: needs, want: protected, asked: 1},
		"another is needed":    {secret: secretNamed("gcp", protected...), live: needs, want: []string{"example.com/other"}, reads: 1, writes: 1, asked: 1},
		"it cannot be read":    {secret: secretNamed("azure", protected...), readErr: failure, want: protected, err: "releasing Secret billing/azure: the API server does not respond", reads: 1, asked: 1},
		"it cannot be changed": {secret: secretNamed("azure", protected...), writeErr: failure, want: protected, err: "releasing Secret billing/azure: the API server does not respond", reads: 1, writes: 1, asked: 1},
		"it is gone":           {reads: 1, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			key := client.ObjectKey{Namespace: "billing", Name: "azure"}
			if c.secret != nil {
				key = client.ObjectKeyFromObject(c.secret)
			}
			c.run(t, func(p *secretProtection) error { return p.release(t.Context(), key) })
		})
	}
	t.Run("it is not known who needs it", func(t *testing.T) {
		g := NewWithT(t)
		api := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(secretNamed("azure", SecretFinalizer)).Build()
		broken := interceptor.NewClient(api, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return failure }})
		writes := 0
		p := &secretProtection{cached: api, uncached: broken, finalizers: counted{secretsOf{api}, nil, &writes}}
		g.Expect(p.release(t.Context(), client.ObjectKey{Namespace: "billing", Name: "azure"})).To(MatchError(ContainSubstring("listing the SecureStorages of namespace billing, whose Secrets are kept")))
		g.Expect(writes).To(BeZero())
		// and nothing is locked afterwards
		p.uncached = api
		g.Expect(p.release(t.Context(), client.ObjectKey{Namespace: "billing", Name: "azure"})).To(Succeed())
		g.Expect(writes).To(Equal(1))
	})
}

// What is as it should be needs no request, and what has changed meanwhile is no error.
func TestUpdateReadsWhatItChanges(t *testing.T) {
	needs := []client.Object{storageNamed("invoices", withSecret("azure"))}
	unrecorded := storageNamed("invoices", withSecret("azure"))
	unrecorded.Status = v1beta1.SecureStorageStatus{}
	others := []client.Object{secretNamed("a"), secretNamed("b"), secretNamed("c")}
	stale := &ssa.Error{Reason: ssa.ReasonStale, Transient: true}
	failure := errors.New("the API server does not respond")
	for name, c := range map[string]protectionCase{
		"nothing is needed":      {secret: secretNamed("azure"), others: others},
		"it is protected":        {secret: secretNamed("azure", SecretFinalizer), cached: needs, live: needs, others: others, want: []string{SecretFinalizer}},
		"it is not protected":    {secret: secretNamed("azure"), cached: needs, live: needs, others: others, want: []string{SecretFinalizer}, reads: 1, writes: 1},
		"nothing in Azure":       {secret: secretNamed("azure"), cached: []client.Object{unrecorded}, live: []client.Object{unrecorded}, others: others},
		"it is being deleted":    {secret: deletingSecret("azure"), cached: needs, live: needs, others: others, want: []string{"example.com/other"}},
		"it is gone":             {cached: needs, live: needs, others: others},
		"created a moment ago":   {secret: secretNamed("azure", SecretFinalizer), live: needs, want: []string{SecretFinalizer}, asked: 1},
		"released meanwhile":     {secret: secretNamed("azure", SecretFinalizer), writeErr: stale, want: []string{SecretFinalizer}, reads: 1, writes: 1, asked: 1},
		"changed meanwhile":      {secret: secretNamed("azure"), cached: needs, live: needs, writeErr: stale, reads: 1, writes: 1},
		"it cannot be released":  {secret: secretNamed("azure", SecretFinalizer), writeErr: failure, want: []string{SecretFinalizer}, err: "releasing Secret billing/azure: the API server does not respond", reads: 1, writes: 1, asked: 1},
		"it cannot be protected": {secret: secretNamed("azure"), cached: needs, live: needs, writeErr: failure, err: "protecting Secret azure: the API server does not respond", reads: 1, writes: 1},
		"another one needs it":   {secret: secretNamed("azure", SecretFinalizer), cached: []client.Object{storageNamed("orders", withSecret("azure"))}, live: needs, want: []string{SecretFinalizer}},
	} {
		t.Run(name, func(t *testing.T) {
			c.run(t, func(p *secretProtection) error {
				return p.update(t.Context(), client.ObjectKey{Namespace: "billing", Name: "invoices"})
			})
		})
	}
	t.Run("it is not known who needs it", func(t *testing.T) {
		g := NewWithT(t)
		api := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(secretNamed("azure", SecretFinalizer)).Build()
		broken := interceptor.NewClient(api, interceptor.Funcs{List: func(ctx context.Context, with client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			if is[*v1beta1.SecureStorageList](into) {
				return failure
			}
			return with.List(ctx, into, options...)
		}})
		writes := 0
		p := &secretProtection{cached: broken, uncached: api, finalizers: counted{secretsOf{api}, nil, &writes}}
		g.Expect(p.update(t.Context(), client.ObjectKey{Namespace: "billing", Name: "invoices"})).To(MatchError(ContainSubstring("listing the SecureStorages")))
		g.Expect(writes).To(BeZero())
	})
	t.Run("the list of the cache is behind", func(t *testing.T) {
		g := NewWithT(t)
		api := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(needs...).WithObjects(secretNamed("azure", SecretFinalizer)).Build()
		behind := interceptor.NewClient(api, interceptor.Funcs{List: func(ctx context.Context, with client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			if is[*v1beta1.SecureStorageList](into) {
				return nil
			}
			return with.List(ctx, into, options...)
		}})
		writes := 0
		p := &secretProtection{cached: behind, uncached: behind, finalizers: counted{secretsOf{api}, nil, &writes}}
		g.Expect(p.update(t.Context(), client.ObjectKey{Namespace: "billing", Name: "invoices"})).To(Succeed())
		g.Expect(writes).To(BeZero(), "its own SecureStorage needs it")
	})
}

// An error of either is retried, and the object is reconciled all the same.
func TestProtectionWrapsTheReconcile(t *testing.T) {
	later := reconcile.Result{RequeueAfter: time.Minute}
	failure := errors.New("the object cannot be reconciled")
	for name, c := range map[string]struct {
		cached client.Reader
		inner  error
		want   reconcile.Result
		errs   []string
	}{
		"none":       {cached: fake.NewClientBuilder().WithScheme(testScheme()).Build(), want: later},
		"reconcile":  {cached: fake.NewClientBuilder().WithScheme(testScheme()).Build(), inner: failure, errs: []string{failure.Error()}},
		"protection": {cached: unreadable{}, errs: []string{"getting SecureStorage billing/invoices"}},
		"both":       {cached: unreadable{}, inner: failure, errs: []string{"getting SecureStorage billing/invoices", failure.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			g, reconciled := NewWithT(t), 0
			p := &secretProtection{cached: c.cached}
			request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "billing", Name: "invoices"}}
			result, err := p.wrap(reconcile.Func(func(_ context.Context, given reconcile.Request) (reconcile.Result, error) {
				reconciled++
				g.Expect(given).To(Equal(request))
				return later, c.inner
			})).Reconcile(t.Context(), request)
			g.Expect(reconciled).To(Equal(1))
			g.Expect(result).To(Equal(c.want))
			g.Expect(err != nil).To(Equal(len(c.errs) > 0))
			for _, text := range c.errs {
				g.Expect(err).To(MatchError(ContainSubstring(text)))
			}
		})
	}
}

func TestIgnoresThatASecretHasChanged(t *testing.T) {
	g := NewWithT(t)
	g.Expect(ignoreChanged(nil)).To(Succeed())
	g.Expect(ignoreChanged(secretMissing("azure"))).To(Succeed(), "it was deleted since it was listed")
	g.Expect(ignoreChanged(fmt.Errorf("protecting Secret azure: %w", &ssa.Error{Reason: ssa.ReasonStale}))).To(Succeed())
	g.Expect(ignoreChanged(&ssa.Error{Reason: ssa.ReasonForbidden})).NotTo(Succeed())
	g.Expect(ignoreChanged(errors.New("the API server does not respond"))).NotTo(Succeed())
}
