package appservice

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// config is the ConfigMap with spec.config. When spec.config is removed, the ConfigMap is kept until
// no pod uses it.
var config = phases.Child[*scope, *corev1ac.ConfigMapApplyConfiguration, *corev1.ConfigMap]{
	Name:    "Config",
	Desired: func(s *scope) (*corev1ac.ConfigMapApplyConfiguration, error) { return desiredConfig(s.app), nil },
	Prune:   phases.PruneLast,
}

func desiredConfig(app *v1beta1.AppService) *corev1ac.ConfigMapApplyConfiguration {
	if len(app.Spec.Config) == 0 {
		return nil
	}
	return corev1ac.ConfigMap(app.Name, app.Namespace).
		WithLabels(labelsOf(app)).
		WithData(app.Spec.Config)
}

// configHash changes if and only if spec.config changes.
func configHash(app *v1beta1.AppService) string {
	// Maps are marshaled in key order, and marshaling strings cannot fail.
	raw, _ := json.Marshal(app.Spec.Config)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
