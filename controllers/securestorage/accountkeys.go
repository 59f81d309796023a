package securestorage

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// accountKeys is the Secret with the access keys of the account.
var accountKeys = keysPhase{phases.Child[*scope, *corev1ac.SecretApplyConfiguration, *corev1.Secret]{
	Name:     "AccountKeys",
	Desired:  func(s *scope) (*corev1ac.SecretApplyConfiguration, error) { return s.desiredKeys(), nil },
	Adopt:    func(s *scope, live *corev1.Secret) phases.Verdict { return s.notOwned("Secret", live) },
	Observed: func(s *scope, live *corev1.Secret) { s.exported.secret = live.ResourceVersion },
}}

// accountKeysHint is what to do if the manager lacks the permission to write Secrets.
const accountKeysHint = "set rbac.accountKeys of the chart, or apply the component config/account-keys, or remove spec.export.accountKeys"

// exportsKeys says whether the keys are exported. The schema refuses to export those of an account that is only observed.
func exportsKeys(storage *v1beta1.SecureStorage) bool {
	export := storage.Spec.Export
	return export != nil && export.AccountKeys && !observes(storage)
}

// desiredKeys has no data before the keys are read: then it only says that the Secret is desired.
func (s *scope) desiredKeys() *corev1ac.SecretApplyConfiguration {
	if !exportsKeys(s.storage) {
		return nil
	}
	desired := corev1ac.Secret(s.storage.Name, s.storage.Namespace).WithLabels(labelsOf(s.storage)).WithType(v1beta1.SecretTypeAccountKeys)
	if s.keys == nil {
		return desired
	}
	data := map[string][]byte{v1beta1.ExportAccountName: []byte(accountName(s.storage))}
	if *s.keys != (cloud.AccountKeys{}) { // a plan knows none of a Secret that does not exist
		data[v1beta1.ExportAccountKey1], data[v1beta1.ExportAccountKey2] = []byte(s.keys.Key1), []byte(s.keys.Key2)
	}
	return desired.WithData(data)
}

// keysPhase reads the keys before its child is applied.
type keysPhase struct {
	phases.Child[*scope, *corev1ac.SecretApplyConfiguration, *corev1.Secret]
}

// Declare implements [phases.Phase].
func (k keysPhase) Declare(scheme *runtime.Scheme) (phases.Declaration[*scope], error) {
	d, err := k.Child.Declare(scheme)
	next := d.Next
	d.Next = func(ctx context.Context, r phases.Reconcile[*scope]) (phases.Next, error) {
		if verdict, err := r.Scope.readKeys(ctx, r.Cluster); err != nil || !verdict.IsDone() {
			return verdict, err
		}
		return next(ctx, r)
	}
	d.Next, d.Undo, d.Observe = inPlan(d.Next), inPlan(d.Undo), inPlan(d.Observe)
	return d, err
}

// inPlan skips a question in a plan for an object that neither exports keys nor has exported any: the user may not be
// permitted to read Secrets.
func inPlan(question phases.Question[*scope]) phases.Question[*scope] {
	return func(ctx context.Context, r phases.Reconcile[*scope]) (phases.Next, error) {
		if r.Scope.access.plans && !exportsKeys(r.Scope.storage) && meta.FindStatusCondition(r.Before, v1beta1.ConditionAccountKeysReady) == nil {
			return phases.NotConfigured(), nil
		}
		return question(ctx, r)
	}
}

// readKeys reads the keys once per reconcile, after all other phases: the account is managed, and encrypted with the key.
func (s *scope) readKeys(ctx context.Context, cluster *phases.Cluster) (phases.Verdict, error) {
	if !exportsKeys(s.storage) || s.keys != nil {
		return phases.Done(""), nil
	}
	if s.access.plans {
		return s.assumeKeys(ctx, cluster)
	}
	keys, err := s.accounts.AccountKeys(ctx, s.group(), accountName(s.storage))
	if err != nil {
		return s.classifyError(err)
	}
	s.keys = &keys
	return phases.Done(""), nil
}

// assumeKeys assumes that the Secret has the current keys: a plan reads none from Azure, so that it cannot show any.
func (s *scope) assumeKeys(ctx context.Context, cluster *phases.Cluster) (phases.Verdict, error) {
	var live corev1.Secret
	if _, err := cluster.Get(ctx, client.ObjectKeyFromObject(s.storage), &live); err != nil {
		return nil, fmt.Errorf("reading the Secret with the account keys: %w", err)
	}
	s.keys = &cloud.AccountKeys{Key1: string(live.Data[v1beta1.ExportAccountKey1]), Key2: string(live.Data[v1beta1.ExportAccountKey2])}
	return phases.Done(""), nil
}
