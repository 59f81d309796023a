package mcpserver

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// dependencies waits until all objects that the spec refers to exist, and hashes the data that pods use
// from them.
var dependencies = phases.Step[*scope]{
	Name:    "Dependencies",
	Observe: observeDependencies,
	Ensure: func(ctx context.Context, s *scope) (phases.Verdict, error) {
		if err := s.hashKey.Create(ctx); err != nil {
			return nil, err
		}
		return phases.Wait(v1beta1.ReasonProgressing, "waiting for "+s.hashKey.String(), hashKeyInterval), nil
	},
}

// hashKeyInterval is how soon the phase continues with a key that was just created.
const hashKeyInterval = 50 * time.Millisecond

func observeDependencies(ctx context.Context, s *scope) (phases.Observation, error) {
	finding, err := s.references.Find(ctx, s.server.Namespace, referencesOf(s.server))
	if err != nil {
		return s.assumeUnchanged(ctx, err)
	}
	hasKey, err := declareHash(ctx, s, finding)
	if err != nil {
		return s.assumeUnchanged(ctx, err)
	}
	if verdict := finding.Verdict(); hasKey || !verdict.IsDone() {
		return verdict, nil
	}
	return phases.Missing(v1beta1.ReasonProgressing, "create "+s.hashKey.String()), nil
}

// declareHash hands the hash of the data that pods use to the phases that follow. It reports whether the key
// of the hash exists, if the hash needs it.
func declareHash(ctx context.Context, s *scope, finding references.Finding) (hasKey bool, err error) {
	s.dependencies = finding.Hash
	if s.hashKey == nil || !finding.Secret {
		return true, nil
	}
	object := client.ObjectKeyFromObject(s.server)
	var live appsv1.Deployment
	if err := s.reader.Get(ctx, object, &live); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting Deployment %s: %w", object, err)
	}
	declared := live.Spec.Template.Annotations[dependenciesHashAnnotation]
	var key []byte
	if references.NeedsKey(finding, declared) {
		if key, err = s.hashKey.Read(ctx); err != nil {
			return false, err
		}
		if key == nil {
			s.dependencies = ""
			return false, nil
		}
	}
	s.dependencies = references.Declare(finding, object, declared, key)
	return true, nil
}

// KeepDependenciesHash gives a template without annotations the one that this controller reads.
func KeepDependenciesHash(template *corev1.PodTemplateSpec, annotations map[string]string) {
	if declared, ok := annotations[dependenciesHashAnnotation]; ok {
		template.Annotations = map[string]string{dependenciesHashAnnotation: declared}
	}
}

// referencesOf lists the objects that the spec refers to, that this controller does not create, and that pods and probes
// need.
func referencesOf(server *v1beta1.MCPServer) []references.Reference {
	spec := server.Spec
	all := references.FromEnv(spec.Env)
	for _, source := range spec.EnvFrom {
		all = append(all, fromEnvFrom(source)...)
	}
	for _, mount := range spec.Mounts {
		all = append(all, fromMount(mount)...)
	}
	all = append(all, references.FromPullSecrets(spec.ImagePullSecrets)...)
	if account := spec.ServiceAccount; account != nil && !account.Create && account.Name != "" {
		all = append(all, references.Reference{Kind: references.ServiceAccount, Name: account.Name})
	}
	all = append(all, fromAuthorization(spec.Authorization)...)
	all = append(all, fromTelemetry(server)...)
	return append(all, fromProtocol(spec.Protocol)...)
}

// watchedReferencesOf adds to these the certificate of the Ingress, and the Secret with the session keys: another one of its
// name has to be deleted before.
func watchedReferencesOf(server *v1beta1.MCPServer) []references.Reference {
	all := append(referencesOf(server), references.FromIngress(server.Spec.Ingress)...)
	if forwardsSessions(server) {
		all = append(all, references.Reference{Kind: references.Secret, Name: sessionKeysName(server)})
	}
	return all
}

func fromEnvFrom(source corev1.EnvFromSource) []references.Reference {
	var all []references.Reference
	if ref := source.SecretRef; ref != nil {
		all = append(all, references.Reference{Kind: references.Secret, Name: ref.Name, Optional: isTrue(ref.Optional), Rolls: true})
	}
	if ref := source.ConfigMapRef; ref != nil {
		all = append(all, references.Reference{Kind: references.ConfigMap, Name: ref.Name, Optional: isTrue(ref.Optional), Rolls: true})
	}
	return all
}

func fromMount(mount v1beta1.MCPServerMount) []references.Reference {
	switch {
	case mount.Secret != nil:
		return []references.Reference{mounted(references.Secret, *mount.Secret)}
	case mount.ConfigMap != nil:
		return []references.Reference{mounted(references.ConfigMap, *mount.ConfigMap)}
	case mount.PersistentVolumeClaim != nil:
		return []references.Reference{{Kind: references.PersistentVolumeClaim, Name: mount.PersistentVolumeClaim.ClaimName}}
	default:
		return nil
	}
}

func mounted(kind references.Kind, object v1beta1.MCPServerMountedObject) references.Reference {
	reference := references.Reference{Kind: kind, Name: object.Name, Optional: object.Optional, Rolls: true}
	for _, item := range object.Items {
		reference.Keys = append(reference.Keys, item.Key)
	}
	return reference
}

func fromProtocol(protocol v1beta1.MCPServerProtocol) []references.Reference {
	if protocol.Probe == v1beta1.ProbeDisabled {
		return nil
	}
	var all []references.Reference
	if ref := protocol.CredentialsSecretRef; ref != nil {
		all = append(all, references.Reference{Kind: references.Secret, Name: ref.Name, Keys: []string{credentialsKey(ref)}})
	}
	if ref := protocol.CARef; ref != nil {
		all = append(all, references.Reference{Kind: references.Kind(caKind(ref)), Name: ref.Name, Keys: []string{caKey(ref)}})
	}
	return all
}

func isTrue(b *bool) bool { return b != nil && *b }
