package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
		"ServiceAccount without a name":    {func(s *spec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{} }, nil},
		"ServiceAccount created and named": {func(s *spec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true, Name: "robot"} }, nil},
		"ServiceAccount created":           {func(s *spec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true} }, nil},
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

// secretEnv reads a variable from a Secret, and configEnv one from a ConfigMap.
func secretEnv(s *spec) {
	s.Env = append(s.Env, corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("s"), Key: "k"}}})
}

func configEnv(s *spec) {
	s.Env = append(s.Env, corev1.EnvVar{Name: "B", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("c"), Key: "k"}}})
}

// without is a client that fails to get an object, and else has objects.
func without(name string, err error, objects ...client.Object) client.WithWatch {
	return interceptor.NewClient(newClient(objects...), interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if key.Name == name {
				return err
			}
			return inner.Get(ctx, key, into, options...)
		}})
}

func TestObserveDependencies(t *testing.T) {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}
	}
	secret := &corev1.Secret{ObjectMeta: meta("acme", "s"), Data: map[string][]byte{"k": []byte("v")}}
	configMap := &corev1.ConfigMap{ObjectMeta: meta("acme", "c"), Data: map[string]string{"k": "v"}}
	hashKey := &corev1.Secret{ObjectMeta: meta("system", "hash-key.fixpoint.dev"), Data: map[string][]byte{"key": bytes.Repeat([]byte("a"), 32)}}
	declares := func(hash string) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: meta("acme", "tools")}
		d.Spec.Template.Annotations = map[string]string{dependenciesHashAnnotation: hash}
		return d
	}
	all := newClient(secret, configMap)
	found, err := (&references.Reader{Metadata: all, Data: all}).Find(t.Context(), "acme", referencesOf(tools(secretEnv)))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	plain := found.Hash
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New("no role"))
	const create = "create Secret system/hash-key.fixpoint.dev"
	for name, c := range map[string]struct {
		change  func(*spec)
		cluster client.Client
		keyless bool
		plans   bool
		reason  string
		message string
		// hash is the declared one, or plain or keyed, whose lengths differ.
		hash string
		err  string
	}{
		"none":                                {change: func(*spec) {}, cluster: newClient(), reason: "Ready"},
		"a missing Secret":                    {change: secretEnv, cluster: newClient(), reason: "DependencyMissing"},
		"a missing Secret, with the key":      {change: secretEnv, cluster: newClient(hashKey), reason: "DependencyMissing", hash: "keyed"},
		"only a ConfigMap":                    {change: configEnv, cluster: without("tools", errors.New("not read"), configMap), reason: "Ready", hash: "plain"},
		"a manager without a namespace":       {change: secretEnv, cluster: newClient(secret), keyless: true, reason: "Ready", hash: plain},
		"no key yet":                          {change: secretEnv, cluster: newClient(secret), reason: "Progressing", message: create},
		"a key":                               {change: secretEnv, cluster: newClient(secret, hashKey), reason: "Ready", hash: "keyed"},
		"a hash that was declared before":     {change: secretEnv, cluster: without("hash-key.fixpoint.dev", errors.New("not read"), secret, declares(plain)), reason: "Ready", hash: plain},
		"no Secret":                           {change: secretEnv, cluster: without("s", errors.New("no answer")), err: "no answer"},
		"no Deployment":                       {change: secretEnv, cluster: without("tools", errors.New("no answer"), secret), err: "getting Deployment acme/tools: no answer"},
		"no hash key":                         {change: secretEnv, cluster: without("hash-key.fixpoint.dev", errors.New("no answer"), secret), err: "reading Secret system/hash-key.fixpoint.dev: no answer"},
		"a plan":                              {change: secretEnv, cluster: newClient(secret, hashKey), plans: true, reason: "Ready", hash: "keyed"},
		"a plan that may not read the Secret": {change: secretEnv, cluster: without("s", forbidden, declares("before")), plans: true, reason: "Ready", message: "not readable for you; assumed to be unchanged", hash: "before"},
		"a plan that may not read the key":    {change: secretEnv, cluster: without("hash-key.fixpoint.dev", forbidden, secret, declares("before")), plans: true, reason: "Ready", message: "not readable for you; assumed to be unchanged", hash: "before"},
		"a plan of a new MCPServer":           {change: secretEnv, cluster: without("s", forbidden), plans: true, reason: "Ready"},
		"a reconcile that may not read it":    {change: secretEnv, cluster: without("s", forbidden), err: "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{server: tools(c.change), reader: c.cluster, dependencies: "stale", readers: readers{
				references: &references.Reader{Metadata: c.cluster, Data: c.cluster}, hashKey: &references.Key{Namespace: "system", Reader: c.cluster}}}
			if c.keyless {
				s.hashKey = nil
			}
			if c.plans {
				s.references.Unreadable = func(error) {}
			}
			observed, err := observeDependencies(t.Context(), s)
			if c.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(observed.Reason()).To(Equal(c.reason))
			g.Expect(observed.Message()).To(ContainSubstring(c.message))
			switch c.hash {
			case "keyed":
				g.Expect(s.dependencies).To(HaveLen(2 * len(plain)))
			case "plain":
				g.Expect(s.dependencies).To(HaveLen(len(plain)))
			default:
				g.Expect(s.dependencies).To(Equal(c.hash))
			}
		})
	}
}

func TestPlanThatCannotReadTheDeploymentIsAnError(t *testing.T) {
	s := &scope{server: tools(), reader: without("tools", errors.New("no answer")), readers: readers{references: &references.Reader{Unreadable: func(error) {}}}}
	_, err := s.assumeUnchanged(t.Context(), apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New("no role")))
	NewWithT(t).Expect(err).To(MatchError("getting Deployment acme/tools: no answer"))
}

func TestKeyOfHashesThatCannotBeCreatedIsAnError(t *testing.T) {
	g := NewWithT(t)
	server := ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{Intercept: func(ssatest.Call) error { return errors.New("denied") }})
	applier, err := ssa.New(ssa.Options{Client: server, FieldManager: "fixpoint-test"})
	g.Expect(err).NotTo(HaveOccurred())
	s := &scope{server: tools(), readers: readers{hashKey: &references.Key{Namespace: "system", Reader: server, Applier: applier}}}
	_, err = dependencies.Ensure(t.Context(), s)
	g.Expect(err).To(MatchError(ContainSubstring("creating Secret system/hash-key.fixpoint.dev: ")))
}

func TestCacheKeepsTheHashOfDependencies(t *testing.T) {
	g := NewWithT(t)
	var with, without corev1.PodTemplateSpec
	KeepDependenciesHash(&with, map[string]string{"fixpoint.dev/dependencies-hash": "h", "other": "x"})
	KeepDependenciesHash(&without, map[string]string{"other": "x"})
	g.Expect(with.Annotations).To(Equal(map[string]string{"fixpoint.dev/dependencies-hash": "h"}))
	g.Expect(without.Annotations).To(BeNil())
}
