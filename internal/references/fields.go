package references

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// FromEnv lists the objects that environment variables refer to. It leaves out references without a name or key: the API
// server refuses the pod, and says which field is missing.
func FromEnv(env []corev1.EnvVar) []Reference {
	var all []Reference
	add := func(kind Kind, name, key string, optional *bool) {
		if name != "" && key != "" {
			all = append(all, Reference{Kind: kind, Name: name, Keys: []string{key}, Optional: ptr.Deref(optional, false), Rolls: true})
		}
	}
	for _, variable := range env {
		from := variable.ValueFrom
		switch {
		case from == nil:
		case from.SecretKeyRef != nil:
			add(Secret, from.SecretKeyRef.Name, from.SecretKeyRef.Key, from.SecretKeyRef.Optional)
		case from.ConfigMapKeyRef != nil:
			add(ConfigMap, from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Optional)
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
