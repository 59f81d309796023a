package securestorage

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// A poll that finds nothing to do is answered from lists that many objects share. See docs/adr/0036.

// isUnchanged says whether Azure shows what the last reconcile of this version of the object saw, which found nothing
// to do. Errors are reported by the reconcile.
func (s *scope) isUnchanged(ctx context.Context, poll cloud.Poll) bool {
	if s.readCredential(ctx) != nil {
		return false
	}
	exported, err := s.cachedExport(ctx)
	return err == nil && s.access.cloud.Unchanged(ctx, string(s.storage.UID), s.versions(exported), *s.credential, poll)
}

// versions are those of the object and of the objects that it exports.
func (s *scope) versions(exported exportedVersions) string {
	return strings.Join([]string{s.storage.ResourceVersion, exported.configMap, exported.secret}, "/")
}

// cachedExport reads the versions of the exported objects from the cache.
func (s *scope) cachedExport(ctx context.Context) (exported exportedVersions, err error) {
	if s.storage.Spec.Export != nil {
		exported.configMap, err = s.cachedVersion(ctx, &corev1.ConfigMap{})
	}
	if err == nil && exportsKeys(s.storage) {
		exported.secret, err = s.cachedVersion(ctx, &corev1.Secret{})
	}
	return exported, err
}

func (s *scope) cachedVersion(ctx context.Context, into client.Object) (string, error) {
	err := s.access.cache.Get(ctx, client.ObjectKeyFromObject(s.storage), into)
	return into.GetResourceVersion(), client.IgnoreNotFound(err)
}

// currentPoll returns the poll of the object's resource group at this time. The accounts of a resource group are in the
// same lists, so their polls begin together; those of different resource groups do not.
func (s *scope) currentPoll() cloud.Poll {
	interval := s.specifiedPoll()
	group := strings.ToLower(cloud.GroupID(s.storage.Spec.Provider.SubscriptionID, s.group()))
	offset := partOf(interval, group)
	return cloud.Poll{Interval: interval, Began: s.clock.Now().Add(-offset).Truncate(interval).Add(offset)}
}

// rememberIfSettled records what this reconcile saw, if it found nothing to do: the object is ready, and its status
// is current. Otherwise the next poll reads the resources themselves.
func (s *scope) rememberIfSettled(summary phases.Summary, desired *fixpointac.SecureStorageApplyConfiguration) {
	object := string(s.storage.UID)
	if !summary.Ready || summary.Deleting || summary.Suspended || !isCurrent(&s.storage.Status, desired) {
		s.access.cloud.Forget(object)
		return
	}
	s.access.cloud.Remember(object, s.versions(s.exported), *s.credential, &s.seen)
}

// isCurrent says whether a status is as desired.
func isCurrent(status *v1beta1.SecureStorageStatus, desired *fixpointac.SecureStorageApplyConfiguration) bool {
	return equality.Semantic.DeepEqual(status, workload.MustConvert(desired.Status, &v1beta1.SecureStorageStatus{}))
}
