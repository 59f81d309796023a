package securestorage

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// export is the ConfigMap with what workloads need to find the account.
var export = phases.Child[*scope, *corev1ac.ConfigMapApplyConfiguration, *corev1.ConfigMap]{
	Name:     "Export",
	Desired:  func(s *scope) (*corev1ac.ConfigMapApplyConfiguration, error) { return s.desiredExport(), nil },
	Adopt:    func(s *scope, live *corev1.ConfigMap) phases.Verdict { return s.notOwned("ConfigMap", live) },
	Observed: func(s *scope, live *corev1.ConfigMap) { s.exported.configMap = live.ResourceVersion },
}

func (s *scope) desiredExport() *corev1ac.ConfigMapApplyConfiguration {
	if s.storage.Spec.Export == nil {
		return nil
	}
	return corev1ac.ConfigMap(s.storage.Name, s.storage.Namespace).WithLabels(labelsOf(s.storage)).WithData(s.exportedData())
}

// exportedData has no empty values: an endpoint that the account does not have is missing.
func (s *scope) exportedData() map[string]string {
	data := map[string]string{v1beta1.ExportAccountName: accountName(s.storage)}
	if s.account == nil {
		return data
	}
	e := s.account.Endpoints
	maps.Copy(data, map[string]string{
		v1beta1.ExportBlobEndpoint: e.Blob, v1beta1.ExportDFSEndpoint: e.DFS, v1beta1.ExportFileEndpoint: e.File,
		v1beta1.ExportQueueEndpoint: e.Queue, v1beta1.ExportTableEndpoint: e.Table, v1beta1.ExportWebEndpoint: e.Web,
		v1beta1.ExportKeyURI: s.account.Encryption.CurrentKeyID,
	})
	maps.DeleteFunc(data, func(_, value string) bool { return value == "" })
	return data
}

func labelsOf(storage *v1beta1.SecureStorage) map[string]string {
	return map[string]string{workload.LabelName: storage.Name, workload.LabelManagedBy: workload.ManagedBy}
}

// notOwned refuses to adopt an object that has the name of an exported one: it may be used for something else.
func (s *scope) notOwned(kind string, live client.Object) phases.Verdict {
	return s.stalledUntilPoll(v1beta1.ReasonNotOwned, fmt.Sprintf(
		"%s %s/%s exists and no controller owns it, so it is not changed; delete or rename it, or create a SecureStorage with another name", kind, live.GetNamespace(), live.GetName()))
}

// exportedVersions are the resource versions of the exported objects, empty for those that do not exist. A poll that
// finds nothing changed in Azure must not put off a reconcile that finds them changed.
type exportedVersions struct{ configMap, secret string }
