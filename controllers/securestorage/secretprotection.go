package securestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// SecretFinalizer keeps a Secret for as long as the deletion of a SecureStorage needs its credentials. It must never
// change. See docs/adr/0048.
const SecretFinalizer = "fixpoint.dev/credentials-protection"

// secretProtection adds the finalizer to Secrets, and removes it.
type secretProtection struct {
	// cached reads SecureStorages, and the metadata of Secrets. uncached reads from the API server.
	cached, uncached client.Reader
	finalizers       finalizers
	// mu lets no Secret be released while it is found to be protected.
	mu sync.Mutex
}

// finalizers is the part of [ssa.Applier] that writes finalizers.
type finalizers interface {
	EnsureFinalizer(ctx context.Context, live client.Object, finalizer string) (client.Object, error)
	RemoveFinalizer(ctx context.Context, live client.Object, finalizer string) error
}

// neededSecret returns the name of the Secret that the deletion of the SecureStorage needs, or an empty name.
func neededSecret(storage *v1beta1.SecureStorage) string {
	ref := storage.Spec.Provider.CredentialsSecretRef
	if ref == nil || !deletes(storage) || !slices.Contains(storage.Finalizers, Finalizer) {
		return ""
	}
	return ref.Name
}

// protect adds the finalizer before the first resource is created with the credentials. A nil receiver, as in a plan,
// writes nothing.
func (p *secretProtection) protect(ctx context.Context, storage *v1beta1.SecureStorage) error {
	name := neededSecret(storage)
	if p == nil || name == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var secret corev1.Secret
	err := p.uncached.Get(ctx, client.ObjectKey{Namespace: storage.Namespace, Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return secretMissing(name)
	case err != nil:
		return fmt.Errorf("protecting Secret %s: %w", name, err)
	case slices.Contains(secret.Finalizers, SecretFinalizer):
		return nil
	case secret.DeletionTimestamp != nil:
		return credentialMissing("Secret %s (spec.provider.credentialsSecretRef) is being deleted; create it again when it is gone, or name another Secret", name)
	}
	if _, err := p.finalizers.EnsureFinalizer(ctx, &secret, SecretFinalizer); err != nil {
		return fmt.Errorf("protecting Secret %s: %w", name, err)
	}
	return nil
}

// wrap updates the finalizers in the namespace before each reconcile.
func (p *secretProtection) wrap(inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		failure := p.update(ctx, request.NamespacedName)
		result, err := inner.Reconcile(ctx, request)
		if err := errors.Join(failure, err); err != nil {
			return reconcile.Result{}, err
		}
		return result, nil
	})
}

// update adds the finalizer to the Secret of the SecureStorage, which may be new or named since the last reconcile, and
// removes it from all Secrets of the namespace that no SecureStorage needs any more.
func (p *secretProtection) update(ctx context.Context, key client.ObjectKey) error {
	var storage v1beta1.SecureStorage
	if err := p.cached.Get(ctx, key, &storage); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting SecureStorage %s: %w", key, err)
	}
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := p.cached.List(ctx, secrets, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the Secrets of namespace %s: %w", key.Namespace, err)
	}
	needed, err := neededIn(ctx, p.cached, key.Namespace)
	if err != nil {
		return err
	}
	own := neededSecret(&storage)
	var failures []error
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		isProtected := slices.Contains(secret.Finalizers, SecretFinalizer)
		switch {
		case isProtected && secret.Name != own && !needed.Has(secret.Name):
			failures = append(failures, ignoreChanged(p.release(ctx, client.ObjectKeyFromObject(secret))))
		case secret.Name == own && !isProtected && secret.DeletionTimestamp == nil && !hasNoRecord(&storage):
			failures = append(failures, ignoreChanged(p.protect(ctx, &storage)))
		}
	}
	return errors.Join(failures...)
}

// release removes the finalizer, unless a SecureStorage needs the Secret.
func (p *secretProtection) release(ctx context.Context, key client.ObjectKey) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The cache may not show a SecureStorage that was just created.
	if needed, err := neededIn(ctx, p.uncached, key.Namespace); err != nil || needed.Has(key.Name) {
		return err
	}
	var secret corev1.Secret
	err := p.uncached.Get(ctx, key, &secret)
	if err == nil {
		err = p.finalizers.RemoveFinalizer(ctx, &secret, SecretFinalizer)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing Secret %s: %w", key, err)
	}
	return nil
}

// neededIn returns the names of the Secrets that the SecureStorages of a namespace need.
func neededIn(ctx context.Context, reader client.Reader, namespace string) (sets.Set[string], error) {
	var storages v1beta1.SecureStorageList
	if err := reader.List(ctx, &storages, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the SecureStorages of namespace %s, whose Secrets are kept: %w", namespace, err)
	}
	names := sets.Set[string]{}
	for i := range storages.Items {
		names.Insert(neededSecret(&storages.Items[i]))
	}
	return names, nil
}

// ignoreChanged ignores that a Secret is not as it was read: its change triggers a reconcile.
func ignoreChanged(err error) error {
	var missing *credentialError
	if ssa.IsStale(err) || errors.As(err, &missing) {
		return nil
	}
	return err
}
