package mcpserver

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

func named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// The reconcile that creates the key waits: what follows has no hash yet.
func TestKeyOfHashesIsWaitedFor(t *testing.T) {
	g := NewWithT(t)
	server := ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{})
	applier, err := ssa.New(ssa.Options{Client: server, FieldManager: "fixpoint-test"})
	g.Expect(err).NotTo(HaveOccurred())
	s := &scope{server: tools(), readers: readers{hashKey: &references.Key{Namespace: "system", Reader: server, Applier: applier}}}

	for range 2 { // another replica may have created it
		verdict, err := dependencies.Ensure(t.Context(), s)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(outcomeOf(verdict)).To(Equal(outcome{"wait", "Progressing", "waiting for Secret system/hash-key.fixpoint.dev"}))
		g.Expect(verdict.After()).To(Equal(hashKeyInterval))
	}
	g.Expect(s.hashKey.Read(t.Context())).NotTo(BeEmpty())
}

func TestReferencesOf(t *testing.T) {
	type reference = references.Reference
	cases := map[string]struct {
		change func(*spec)
		want   []reference
	}{
		"none": {func(*spec) {}, nil},
		"env": {func(s *spec) {
			s.Env = []corev1.EnvVar{
				{Name: "PLAIN", Value: "x"},
				{Name: "FIELD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
				{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("s"), Key: "k"}}},
				{Name: "B", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("c"), Key: "k", Optional: ptr.To(true)}}},
			}
		}, []reference{
			{Kind: references.Secret, Name: "s", Keys: []string{"k"}, Rolls: true},
			{Kind: references.ConfigMap, Name: "c", Keys: []string{"k"}, Optional: true, Rolls: true},
		}},
		"envFrom": {func(s *spec) {
			s.EnvFrom = []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("s"), Optional: ptr.To(false)}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("c"), Optional: ptr.To(true)}},
			}
		}, []reference{
			{Kind: references.Secret, Name: "s", Rolls: true},
			{Kind: references.ConfigMap, Name: "c", Optional: true, Rolls: true},
		}},
		"mounts": {func(s *spec) {
			s.Mounts = []v1beta1.MCPServerMount{
				{Name: "a", Secret: object("s", "k", "l")}, {Name: "b", ConfigMap: object("c")},
				{Name: "c", PersistentVolumeClaim: &v1beta1.MCPServerMountedClaim{ClaimName: "data"}},
				{Name: "d", EmptyDir: &v1beta1.MCPServerEmptyDir{}},
			}
			s.Mounts[1].ConfigMap.Optional = true
		}, []reference{
			{Kind: references.Secret, Name: "s", Keys: []string{"k", "l"}, Rolls: true},
			{Kind: references.ConfigMap, Name: "c", Optional: true, Rolls: true},
			{Kind: references.PersistentVolumeClaim, Name: "data"},
		}},
		// Objects that only the kubelet or the prober reads must not replace pods.
		"not used by pods": {func(s *spec) {
			s.ImagePullSecrets = []corev1.LocalObjectReference{named("pull")}
			s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Name: "robot"}
			s.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "probe"}
			s.Protocol.CARef = &v1beta1.MCPServerCARef{Kind: v1beta1.CAKindSecret, Name: "ca", Key: "root.pem"}
		}, []reference{
			{Kind: references.Secret, Name: "pull"},
			{Kind: references.ServiceAccount, Name: "robot"},
			{Kind: references.Secret, Name: "probe", Keys: []string{"token"}},
			{Kind: references.Secret, Name: "ca", Keys: []string{"root.pem"}},
		}},
		"defaults of the probe": {func(s *spec) {
			s.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "probe", Key: "bearer"}
			s.Protocol.CARef = &v1beta1.MCPServerCARef{Name: "ca"}
		}, []reference{
			{Kind: references.Secret, Name: "probe", Keys: []string{"bearer"}},
			{Kind: references.ConfigMap, Name: "ca", Keys: []string{"ca.crt"}},
		}},
		"probes disabled": {func(s *spec) {
			s.Protocol = v1beta1.MCPServerProtocol{Probe: v1beta1.ProbeDisabled, CredentialsSecretRef: &v1beta1.MCPServerCredentialsSecretRef{Name: "probe"}}
		}, nil},
		"ServiceAccount created": {func(s *spec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true} }, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(referencesOf(tools(c.change))).To(Equal(c.want))
		})
	}
}

func TestWatchedReferencesOfIncludeTheCertificate(t *testing.T) {
	server := tools(func(s *spec) {
		s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Name: "robot"}
		s.Ingress = &v1beta1.Ingress{Host: "tools.example.com", TLSSecretName: "tools-tls"}
	})
	NewWithT(t).Expect(watchedReferencesOf(server)).To(Equal([]references.Reference{
		{Kind: references.ServiceAccount, Name: "robot"},
		{Kind: references.Secret, Name: "tools-tls"},
	}))
	NewWithT(t).Expect(referencesOf(server)).To(HaveLen(1), "the Ingress does not wait for its certificate")
}
