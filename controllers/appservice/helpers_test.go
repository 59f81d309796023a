package appservice

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// webApp is an AppService as the API server stores it, with the defaults of the schema.
func webApp(changes ...func(*v1beta1.AppServiceSpec)) *v1beta1.AppService {
	app := &v1beta1.AppService{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "uid-1", Generation: 3},
		Spec: v1beta1.AppServiceSpec{
			Image:                   "ghcr.io/acme/shop:1.4.2",
			Port:                    8080,
			Strategy:                v1beta1.StrategyRollingUpdate,
			ProgressDeadlineSeconds: 600,
			AdoptionPolicy:          v1beta1.AdoptionNever,
			DriftPolicy:             v1beta1.DriftCorrect,
			PodSecurityStandard:     v1beta1.PodSecurityBaseline,
		},
	}
	for _, change := range changes {
		change(&app.Spec)
	}
	return app
}

func withConfig(config map[string]string) func(*v1beta1.AppServiceSpec) {
	return func(spec *v1beta1.AppServiceSpec) { spec.Config = config }
}

// asJSON returns the apply configuration without the owner reference and the record annotation.
func asJSON(t *testing.T, configuration any) string {
	t.Helper()
	raw, err := json.Marshal(configuration)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(raw)
}
