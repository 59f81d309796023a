package versions_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fixpoint-dev/fixpoint/internal/conversion"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// An object that is read in v1alpha1 and created from that is the same object in v1beta1.
func TestObjectsAreTheSameInBothVersions(t *testing.T) {
	for _, kind := range kinds(t) {
		for name, seed := range kind.Seeds {
			t.Run(kind.Name+" "+name, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				stored := f.create(f.with(beta, kind.Name, "first", seed["spec"]))
				inAlpha := f.read(alpha, kind.Name, "first")
				f.create(f.with(alpha, kind.Name, "second", inAlpha.Object["spec"]))
				f.Expect(f.read(beta, kind.Name, "second").Object["spec"]).To(Equal(stored.Object["spec"]))
				f.Expect(f.read(alpha, kind.Name, "second").Object["spec"]).To(Equal(inAlpha.Object["spec"]))
				f.Expect(f.read(beta, kind.Name, "second").GetAnnotations()).To(BeEmpty())
			})
		}
	}
}

var seed = flag.Uint64("versions.seed", uint64(time.Now().UnixNano()), "`seed` of the random objects")

// randomObjects is how many objects of each kind are created in each version.
const randomObjects = 25

// Random specs of the campaign are the same objects in both versions: what is read in one version and written back is
// not written, and what one version refuses, the other one refuses.
func TestRandomObjectsAreTheSameInBothVersions(t *testing.T) {
	t.Logf("-versions.seed=%d", *seed)
	for _, kind := range kinds(t) {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			generator, err := specs.NewGenerator(kind, rand.New(rand.NewPCG(*seed, 0))) //nolint:gosec // it must be reproducible
			f.Expect(err).NotTo(HaveOccurred())
			for created, refused := 0, 0; created < randomObjects; {
				name := fmt.Sprintf("object-%d", created)
				if !f.createInBoth(f.with(beta, kind.Name, name, generator.First())) {
					refused++
					f.Expect(refused).To(BeNumerically("<", 100*randomObjects), "random specs that both versions refused")
					continue
				}
				created++
				f.writtenBack(alpha, kind.Name, name)
				f.writtenBack(beta, kind.Name, name)
				f.writtenBack(alpha, kind.Name, name+"-"+alpha)
				f.writtenBack(beta, kind.Name, name+"-"+alpha)
			}
		})
	}
}

// createInBoth creates an object of v1beta1, and the same in v1alpha1. It returns false if both are refused.
func (f *fixture) createInBoth(object *unstructured.Unstructured) bool {
	f.T.Helper()
	kind, name := object.GetKind(), object.GetName()
	current, _ := f.in(beta, kind)
	created, refused := current.Create(f.Ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if refused == nil {
		object = f.with(beta, kind, name, created.Object["spec"]) // with the defaults of v1beta1: v1alpha1 has one other
	}
	converted := f.inAlpha(object)
	converted.SetName(name + "-" + alpha)
	old, _ := f.in(alpha, kind)
	_, err := old.Create(f.Ctx, converted, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if refused != nil {
		f.Expect(apierrors.IsInvalid(refused)).To(BeTrue(), "%v", refused)
		f.Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v; v1beta1 refuses it: %v", err, refused)
		return false
	}
	f.Expect(err).NotTo(HaveOccurred(), "v1beta1 accepts it")
	f.Expect(f.read(beta, kind, name+"-"+alpha).Object["spec"]).To(Equal(created.Object["spec"]))
	for _, name := range []string{name, name + "-" + alpha} {
		f.report(kind, name)
	}
	return true
}

// report writes a status of v1beta1 with fields that v1alpha1 calls by other names.
func (f *fixture) report(kind, name string) {
	f.T.Helper()
	status := f.object(beta, kind, name, "{}")
	delete(status.Object, "spec")
	fields := map[string]any{"observedGeneration": int64(1), "phase": "Pending"}
	if kind != "SecureStorage" {
		fields["drifts"] = []any{map[string]any{
			"time": "2026-11-22T12:00:00Z", "kind": "Deployment", "name": "from", "field": ".spec.replicas", "manager": "to", "desired": "2", "found": "3", "action": "Corrected",
		}}
	}
	if kind == "MCPServer" {
		fields["probedVersions"] = []any{"1.0", "askedVersions"}
	}
	status.Object["status"] = fields
	client, _ := f.in(beta, kind)
	_, err := client.ApplyStatus(f.Ctx, name, status, metav1.ApplyOptions{FieldManager: "manager", Force: true})
	f.Expect(err).NotTo(HaveOccurred())
}

// inAlpha converts an object of v1beta1.
func (f *fixture) inAlpha(object *unstructured.Unstructured) *unstructured.Unstructured {
	f.T.Helper()
	text, err := object.MarshalJSON()
	f.Expect(err).NotTo(HaveOccurred())
	text, err = conversion.Convert(text, group+"/"+alpha)
	f.Expect(err).NotTo(HaveOccurred())
	converted := &unstructured.Unstructured{}
	f.Expect(converted.UnmarshalJSON(text)).To(Succeed())
	return converted
}

// writtenBack reads an object in a version, and writes it and its status as they were read, which writes nothing.
func (f *fixture) writtenBack(version, kind, name string) {
	f.T.Helper()
	before := f.read(beta, kind, name)
	client, _ := f.in(version, kind)
	live := f.read(version, kind, name)
	_, err := client.Update(f.Ctx, live, metav1.UpdateOptions{FieldManager: "editor", FieldValidation: metav1.FieldValidationStrict})
	f.Expect(err).NotTo(HaveOccurred())
	_, err = client.UpdateStatus(f.Ctx, live, metav1.UpdateOptions{FieldManager: "editor"})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(f.read(beta, kind, name)).To(Equal(before), "after it was written back in %s", version)
}

func TestAlphaNamesItsReplacement(t *testing.T) {
	for kind, spec := range map[string]string{
		"AppService": "{image: a}", "MCPServer": "{image: a}",
		"SecureStorage": `{provider: {subscriptionID: 00000000-0000-4000-8000-00000000f1c5, resourceGroup: a, location: b}, key: {vault: {name: abc}, keyName: k}}`,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.create(f.object(alpha, kind, "a", spec))
			old, warned := f.in(alpha, kind)
			_, err := old.Get(f.Ctx, "a", metav1.GetOptions{})
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(warned.texts).To(ConsistOf("fixpoint.dev/v1alpha1 " + kind + " is deprecated; use fixpoint.dev/v1beta1 " + kind))
			current, warned := f.in(beta, kind)
			_, err = current.Get(f.Ctx, "a", metav1.GetOptions{})
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(warned.texts).To(BeEmpty())
		})
	}
}

// A field without a value gets the default of the version in which it is written, and keeps it in the other one: so a
// manifest that moves to v1beta1 replaces no pods.
func TestPodSecurityStandardHasADefaultForEachVersion(t *testing.T) {
	f := newFixture(t)
	is := func(name, want string) {
		t.Helper()
		for _, version := range []string{alpha, beta} {
			f.Expect(f.read(version, "AppService", name).Object["spec"]).To(HaveKeyWithValue("podSecurityStandard", want), "%s in %s", name, version)
		}
	}
	apply := func(manager, version, name, spec string) {
		t.Helper()
		f.mustApply(manager, f.object(version, "AppService", name, spec))
	}
	apply("gitops", alpha, "old", "{image: a}")
	is("old", "Baseline")
	apply("gitops", beta, "new", "{image: a}")
	is("new", "Restricted")

	// When the manifest moves to the other version, beside one that does not
	apply("other", alpha, "old", "{config: {A: '1'}}")
	apply("gitops", beta, "old", "{image: a}")
	is("old", "Baseline")
	apply("gitops", alpha, "new", "{image: a}")
	is("new", "Restricted")

	// And when a value is no longer applied
	apply("gitops", beta, "old", "{image: a, podSecurityStandard: Baseline}")
	apply("gitops", beta, "old", "{image: a}")
	is("old", "Restricted")
	apply("gitops", alpha, "new", "{image: a, podSecurityStandard: Restricted}")
	apply("gitops", alpha, "new", "{image: a}")
	is("new", "Baseline")
}

func TestThePhaseIsPendingBeforeAReconcile(t *testing.T) {
	f := newFixture(t)
	for _, version := range []string{alpha, beta} {
		f.create(f.object(version, "AppService", version, "{image: a}"))
		for _, read := range []string{alpha, beta} {
			phase, _, err := unstructured.NestedString(f.read(read, "AppService", version).Object, "status", "phase")
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(phase).To(Equal("Pending"), "created in %s, read in %s", version, read)
		}
	}
}

// written is a spec in forms that Go types would change.
const written = `{image: a, suspend: false, env: [], args: [], resources: {requests: {cpu: 1000m, memory: 1024Mi}, limits: {}},
	protocol: {interval: 60s, timeout: 5s, tls: false, disabled: false}, networkPolicy: {egress: {}}, annotationless: null}`

// What GitOps tools compare: the object reads as it was applied, and applying it again changes nothing.
func TestAlphaIsStoredAsWritten(t *testing.T) {
	f := newFixture(t)
	manifest := f.object(alpha, "MCPServer", "tools", written)
	spec, _ := manifest.Object["spec"].(map[string]any)
	delete(spec, "annotationless")
	applied := f.mustApply("gitops", manifest)
	for field, value := range spec {
		switch field {
		case "protocol", "networkPolicy":
		default:
			f.Expect(applied.Object["spec"]).To(HaveKeyWithValue(field, value))
		}
	}
	f.Expect(applied.Object["spec"]).To(HaveKeyWithValue("protocol", map[string]any{"interval": "60s", "timeout": "5s", "tls": false, "disabled": false}))
	f.Expect(f.read(beta, "MCPServer", "tools").Object["spec"]).To(HaveKeyWithValue("protocol",
		map[string]any{"interval": "60s", "timeout": "5s", "scheme": "HTTP", "probe": "Periodic"}))

	before := f.reconciled("tools")
	f.mustApply("gitops", manifest)
	f.Expect(f.read(beta, "MCPServer", "tools")).To(Equal(before))
}

func TestFieldManagersOfBothVersions(t *testing.T) {
	manifest := func(f *fixture, version, protocol string) *unstructured.Unstructured {
		return f.object(version, "MCPServer", "tools", "{image: a, protocol: {"+protocol+"}}")
	}
	conflict := func(f *fixture, err error, manager, field string) {
		f.T.Helper()
		f.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		f.Expect(err).To(MatchError(And(ContainSubstring(manager), ContainSubstring(field))))
	}
	for name, test := range map[string]func(f *fixture){
		"equal values are shared": func(f *fixture) {
			f.mustApply("gitops", manifest(f, alpha, "tls: true"))
			f.mustApply("platform", manifest(f, beta, "scheme: HTTPS"))
			f.mustApply("gitops", manifest(f, alpha, ""))
			f.Expect(f.read(beta, "MCPServer", "tools").Object["spec"]).To(HaveKeyWithValue("protocol", HaveKeyWithValue("scheme", "HTTPS")))
		},
		"different values conflict, by the name in the version of the other manager": func(f *fixture) {
			f.mustApply("gitops", manifest(f, alpha, "tls: true"))
			_, err := f.apply("platform", manifest(f, beta, "scheme: HTTP"), false)
			conflict(f, err, "gitops", ".spec.protocol.tls")
			f.mustApply("other", manifest(f, beta, "probe: Disabled"))
			_, err = f.apply("gitops", manifest(f, alpha, "tls: true, disabled: false"), false)
			conflict(f, err, "other", ".spec.protocol.probe")
		},
		"what is no longer applied is removed": func(f *fixture) {
			f.mustApply("gitops", manifest(f, alpha, "tls: true"))
			f.mustApply("gitops", manifest(f, alpha, ""))
			f.Expect(f.read(beta, "MCPServer", "tools").Object["spec"]).To(HaveKeyWithValue("protocol", Not(HaveKey("scheme"))))
		},
		"what is no longer applied is removed by a manifest of the other version": func(f *fixture) {
			f.mustApply("gitops", manifest(f, alpha, "tls: true, disabled: true"))
			applied := f.mustApply("gitops", manifest(f, beta, "probe: Disabled"))
			f.Expect(applied.Object["spec"]).To(HaveKeyWithValue("protocol", And(HaveKeyWithValue("probe", "Disabled"), Not(HaveKey("scheme")))))
			f.Expect(applied.GetManagedFields()).To(HaveLen(1))
			f.Expect(applied.GetManagedFields()[0].APIVersion).To(Equal(group + "/" + beta))
		},
		"a finalizer is removed by a manifest of the other version": func(f *fixture) {
			with := manifest(f, alpha, "tls: true")
			with.SetFinalizers([]string{"test.example/a"})
			f.mustApply("gitops", with)
			applied := f.mustApply("gitops", manifest(f, beta, "scheme: HTTPS"))
			f.Expect(applied.GetFinalizers()).To(BeEmpty())
		},
		"metadata is removed by a manifest of the other version": func(f *fixture) {
			with := manifest(f, alpha, "tls: true")
			with.SetLabels(map[string]string{"a": "b"})
			with.SetAnnotations(map[string]string{"a": "b"})
			f.mustApply("gitops", with)
			applied := f.mustApply("gitops", manifest(f, beta, "scheme: HTTPS"))
			f.Expect(applied.GetLabels()).To(BeEmpty())
			f.Expect(applied.GetAnnotations()).To(BeEmpty())
		},
		"an update in one version takes the field in the other": func(f *fixture) {
			f.mustApply("gitops", manifest(f, alpha, "tls: true, disabled: true"))
			client, _ := f.in(beta, "MCPServer")
			live := f.read(beta, "MCPServer", "tools")
			f.Expect(unstructured.SetNestedField(live.Object, "HTTP", "spec", "protocol", "scheme")).To(Succeed())
			updated, err := client.Update(f.Ctx, live, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
			f.Expect(err).NotTo(HaveOccurred())
			for _, entry := range updated.GetManagedFields() {
				if entry.Manager == "gitops" {
					f.Expect(entry.APIVersion).To(Equal(group + "/" + alpha))
					f.Expect(string(entry.FieldsV1.GetRawBytes())).To(And(ContainSubstring("f:disabled"), Not(ContainSubstring("f:tls"))))
				}
			}
		},
		"an update in one version that changes nothing takes nothing": func(f *fixture) {
			f.mustApply("gitops", manifest(f, alpha, "tls: true, disabled: true"))
			before := f.reconciled("tools")
			client, _ := f.in(beta, "MCPServer")
			updated, err := client.Update(f.Ctx, f.read(beta, "MCPServer", "tools"), metav1.UpdateOptions{FieldManager: "kubectl-edit"})
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(updated.GetResourceVersion()).To(Equal(before.GetResourceVersion()))
			f.Expect(updated.GetManagedFields()).To(Equal(before.GetManagedFields()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newFixture(t))
		})
	}
}

// A value that one version refuses is refused in the other one, so that no object is stored that v1beta1 refuses.
func TestBothVersionsRefuseTheSame(t *testing.T) {
	for name, c := range map[string]struct{ alpha, alphaSays, beta, betaSays string }{
		"TLS with stdio": {
			"{image: a, command: [a], transport: stdio, protocol: {tls: true}}", "protocol.tls is not supported with transport stdio",
			"{image: a, command: [a], transport: stdio, protocol: {scheme: HTTPS}}", "protocol.scheme HTTPS is not supported with transport stdio"},
		"CA without TLS": {
			"{image: a, protocol: {tls: false, caRef: {name: a}}}", "caRef requires tls: set tls to true",
			"{image: a, protocol: {scheme: HTTP, caRef: {name: a}}}", "caRef requires scheme HTTPS: set scheme to HTTPS"},
		"history": {
			"{image: a, driftHistoryLimit: 51}", "less than or equal to 50",
			"{image: a, driftHistoryLimit: 51}", "less than or equal to 50"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for version, spec := range map[string][2]string{alpha: {c.alpha, c.alphaSays}, beta: {c.beta, c.betaSays}} {
				client, _ := f.in(version, "MCPServer")
				_, err := client.Create(f.Ctx, f.object(version, "MCPServer", "tools", spec[0]), metav1.CreateOptions{})
				f.Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: %v", version, err)
				f.Expect(err).To(MatchError(ContainSubstring(spec[1])))
			}
		})
	}
}
