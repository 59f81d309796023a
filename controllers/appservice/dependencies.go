package appservice

import (
	"context"
	"slices"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=list;watch

// dependencies waits until all objects that the spec refers to exist. A change of their data does not replace the pods.
var dependencies = phases.Step[*scope]{
	Name:       "Dependencies",
	Configured: func(s *scope) bool { return len(referencesOf(s.app)) > 0 },
	Observe: func(ctx context.Context, s *scope) (phases.Observation, error) {
		finding, err := s.references.Find(ctx, s.app.Namespace, referencesOf(s.app))
		if s.references.Ignores(err) {
			return phases.Done("not readable for you; assumed to exist"), nil
		}
		if err != nil {
			return nil, err
		}
		return finding.Verdict(), nil
	},
}

// referencesOf lists the objects that the pods need and this controller does not create.
func referencesOf(app *v1beta1.AppService) []references.Reference {
	all := append(references.FromEnv(app.Spec.Env), references.FromPullSecrets(app.Spec.ImagePullSecrets)...)
	if hooks := app.Spec.Hooks; hooks != nil && hooks.PreDeploy != nil {
		all = append(all, references.FromEnv(hooks.PreDeploy.Env)...)
	}
	if name := app.Spec.ServiceAccountName; name != "" {
		all = append(all, references.Reference{Kind: references.ServiceAccount, Name: name})
	}
	return slices.DeleteFunc(all, func(r references.Reference) bool {
		isOwn := r.Kind == references.ConfigMap && r.Name == app.Name && len(app.Spec.Config) > 0
		return r.Optional || isOwn
	})
}

// watchedReferencesOf adds to these the certificate of the Ingress.
func watchedReferencesOf(app *v1beta1.AppService) []references.Reference {
	return append(referencesOf(app), references.FromIngress(app.Spec.Ingress)...)
}
