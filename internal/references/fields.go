package references

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// FromEnv lists the objects that environment variables refer to.
func FromEnv(env []corev1.EnvVar) []Reference {
	var all []Reference
	for _, variable := range env {
		from := variable.ValueFrom
		switch {
		case from == nil:
		case from.SecretKeyRef != nil:
			ref := from.SecretKeyRef
			all = append(all, Reference{Kind: Secret, Name: ref.Name, Keys: []string{ref.Key}, Optional: ptr.Deref(ref.Optional, false), Rolls: true})
		case from.ConfigMapKeyRef != nil:
			ref := from.ConfigMapKeyRef
			all = append(all, Reference{Kind: ConfigMap, Name: ref.Name, Keys: []string{ref.Key}, Optional: ptr.Deref(ref.Optional, false), Rolls: true})
		}
	}
	return all
}

// FromPullSecrets lists the Secrets to pull images with. The kubelet ignores those without a name.
func FromPullSecrets(secrets []corev1.LocalObjectReference) []Reference {
	var all []Reference
	for _, secret := range secrets {
		if secret.Name != "" {
			all = append(all, Reference{Kind: Secret, Name: secret.Name})
		}
	}
	return all
}

// FromIngress lists the Secret with the certificate of an Ingress, which may be nil.
func FromIngress(in *v1beta1.Ingress) []Reference {
	if in == nil || in.TLSSecretName == "" {
		return nil
	}
	return []Reference{{Kind: Secret, Name: in.TLSSecretName}}
}
