package ssa

import (
	"errors"
	"math"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// settings is the configuration of a kind without schema. The server records its owner references as items, and without
// the schema they are deduced to be one value.
func settings(value string) *ownConfiguration {
	c := &ownConfiguration{Data: map[string]string{"a": value}}
	c.WithKind(settingsKind.Kind).WithAPIVersion(settingsKind.GroupVersion().String())
	_, _, _ = identityOf(c) // creates the metadata
	c.WithName("s").WithNamespace("n")
	return c
}

// appliedSettings are Settings that an applier has applied.
func appliedSettings(t *testing.T) (*countingServer, *Applier, *corev1.ConfigMap) {
	t.Helper()
	server := newCustomServer()
	applier := newBenchApplier(t, server)
	created, err := applier.Apply(t.Context(), Request{Desired: settings("1"), Owner: ownedBy("o")})
	if err != nil || created.Action != ActionCreate {
		t.Fatal(created.Action, err)
	}
	live, _ := created.Live.(*corev1.ConfigMap)
	server.requests = 0
	return server, applier, live
}

func TestKindWithoutASchemaIsQuietOnceItWasAnswered(t *testing.T) {
	g := NewWithT(t)
	server, applier, live := appliedSettings(t)
	request := Request{Desired: settings("1"), Owner: ownedBy("o"), Live: live}
	g.Expect(applier.Apply(t.Context(), request)).To(Equal(Result{Action: ActionNone, Live: live}))
	g.Expect(server.requests).To(BeZero())

	restarted := newBenchApplier(t, server)
	for range 2 {
		result, err := restarted.Apply(t.Context(), request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result).To(Equal(Result{Action: ActionNone, Live: live}), "the apply changed nothing")
		g.Expect(server.requests).To(Equal(1))
	}
}

func TestDryRunOfAKindWithoutASchemaSaysThatNothingChanges(t *testing.T) {
	g := NewWithT(t)
	server, _, live := appliedSettings(t)
	result, err := newBenchApplier(t, server).DryRun().Apply(t.Context(), Request{Desired: settings("1"), Owner: ownedBy("o"), Live: live})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Action).To(Equal(ActionNone))
}

// The answer shows the same managed fields as the cache, which lags.
func TestKindWithoutASchemaIsCorrectedDespiteAStaleCache(t *testing.T) {
	g := NewWithT(t)
	server, _, live := appliedSettings(t)
	changed := live.DeepCopy()
	changed.Data["a"] = "9"
	g.Expect(server.Update(t.Context(), changed, client.FieldOwner("robot"))).To(Succeed())

	result, err := newBenchApplier(t, server).Apply(t.Context(), Request{Desired: settings("1"), Owner: ownedBy("o"), Live: live})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Action).To(Equal(ActionCorrect))
	g.Expect(result.Live).To(HaveField("Data", map[string]string{"a": "1"}))
}

func TestDriftOfAKindWithoutASchemaCannotBeReported(t *testing.T) {
	g := NewWithT(t)
	server, _, live := appliedSettings(t)
	request := Request{Desired: settings("1"), Owner: ownedBy("o"), Live: live, Drift: ReportDrift}

	_, err := newBenchApplier(t, server).Decide(request)

	typed := &Error{}
	g.Expect(errors.As(err, &typed)).To(BeTrue())
	g.Expect(typed.Reason).To(Equal(ReasonInvalid))
	g.Expect(typed).To(MatchError("Settings n/s: drift cannot be reported without the schema of Settings: give it in Options.TypeConverters, or correct drift"))

	live.ManagedFields = nil
	wiped, err := newBenchApplier(t, server).Decide(request)
	g.Expect(err).NotTo(HaveOccurred(), "wiped managed fields are restored, and not reported")
	g.Expect(wiped.Action).To(Equal(ActionCorrect))
	g.Expect(wiped.Drifts).To(ConsistOf(HaveField("Path", ".metadata.managedFields")))
}

func TestTypeConvertersOfTheOptionsKnowTheSchema(t *testing.T) {
	g := NewWithT(t)
	server, _, live := appliedSettings(t)
	var given *runtime.Scheme
	applier, err := New(Options{Client: server, FieldManager: benchManager, TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{
		func(scheme *runtime.Scheme) managedfields.TypeConverter {
			given = scheme
			return ssatest.CustomKinds(scheme)
		},
	}})
	g.Expect(err).NotTo(HaveOccurred())

	d, err := applier.Decide(Request{Desired: settings("1"), Owner: ownedBy("o"), Live: live})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Action).To(Equal(ActionNone))
	g.Expect(given).To(BeIdenticalTo(server.Scheme()))
}

func TestStatusWithoutASchemaIsQuietOnceItWasAnswered(t *testing.T) {
	g, server := NewWithT(t), newCustomServer()
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "w"}}
	g.Expect(server.Create(t.Context(), live)).To(Succeed())
	desired := StatusOf(live, widgetKind, map[string]any{"conditions": []map[string]string{{"type": "Ready", "status": "True"}}})
	applier := newBenchApplier(t, server)
	applied, err := applier.ApplyStatus(t.Context(), desired, live)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(applied.Action).To(Equal(ActionUpdate))
	live, _ = applied.Live.(*appsv1.Deployment)
	live.Labels = map[string]string{"a": "b"}
	g.Expect(server.Update(t.Context(), live)).To(Succeed())
	server.requests = 0

	g.Expect(applier.ApplyStatus(t.Context(), desired, live)).To(Equal(Result{Action: ActionNone, Live: live}))
	g.Expect(server.requests).To(BeZero(), "another version with the same status")

	restarted := newBenchApplier(t, server)
	for range 2 {
		g.Expect(restarted.ApplyStatus(t.Context(), desired, live)).To(Equal(Result{Action: ActionNone, Live: live}), "the apply changed nothing")
		g.Expect(server.requests).To(Equal(1))
	}
}

// refusing knows no kind.
type refusing struct{ managedfields.TypeConverter }

func (refusing) ObjectToTyped(runtime.Object, ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return nil, errors.New("no such kind")
}

// inconsistent gives a type that its schema does not have.
type inconsistent struct{ managedfields.TypeConverter }

func (inconsistent) ObjectToTyped(runtime.Object, ...typed.ValidationOptions) (*typed.TypedValue, error) {
	missing := smdschema.TypeRef{NamedType: new("missing")}
	//nolint:staticcheck // AsTyped would find that the type is missing
	return typed.AsTypedUnvalidated(value.NewValueInterface(map[string]any{"a": 1}), &smdschema.Schema{}, missing), nil
}

// infinite gives a list with a number that JSON does not have.
type infinite struct{ managedfields.TypeConverter }

func (infinite) ObjectToTyped(runtime.Object, ...typed.ValidationOptions) (*typed.TypedValue, error) {
	scalar := smdschema.Untyped
	list := smdschema.TypeRef{Inlined: smdschema.Atom{List: &smdschema.List{ElementRelationship: smdschema.Associative, ElementType: smdschema.TypeRef{Inlined: smdschema.Atom{Scalar: &scalar}}}}}
	return typed.AsTyped(value.NewValueInterface([]any{math.Inf(1)}), &smdschema.Schema{}, list)
}

func schemasOf(converter managedfields.TypeConverter) schemas {
	return schemas{func() managedfields.TypeConverter { return converter }}
}

func TestConfigurationWithoutAFieldSetIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		schemas schemas
		err     string
	}{
		"no schema fits":       {schemasOf(refusing{}), "applying ConfigMap n/c: typing the configuration: no such kind"},
		"a value without JSON": {schemasOf(infinite{}), "applying ConfigMap n/c: serializing the field set: "},
		"an incomplete schema": {schemasOf(inconsistent{}), "applying ConfigMap n/c: computing the field set: "},
	} {
		t.Run(name, func(t *testing.T) {
			applier := newBenchApplier(t, newServer())
			applier.schemas = test.schemas
			_, err := applier.Decide(Request{Desired: data("a", "1"), Owner: ownedBy("o")})
			NewWithT(t).Expect(err).To(MatchError(HavePrefix(test.err)))
		})
	}
}

func TestFieldsThatCannotBeAttributedAreAnError(t *testing.T) {
	g := NewWithT(t)
	applier, live, owner := appliedThenEdited(t, decideTest{wiped: true})
	request := Request{Desired: data("a", "1"), Live: live, Owner: owner}
	target, err := applier.prepare(request.Desired, owner, "")
	g.Expect(err).NotTo(HaveOccurred())
	d, err := decide(evidenceOf(target, live), request)
	g.Expect(err).NotTo(HaveOccurred())

	applier.schemas = schemasOf(refusing{})

	g.Expect(applier.planManagedFields(&d)).To(MatchError("attributing the fields of ConfigMap n/c: typing the configuration: no such kind"))
}

func TestKindThatTheSchemeDoesNotKnowIsAnError(t *testing.T) {
	id := identity{gvk: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, key: client.ObjectKey{Namespace: "n", Name: "d"}}
	for name, act := range map[string]func(*Applier) error{
		"apply": func(a *Applier) error {
			_, err := a.Apply(t.Context(), Request{Desired: realistic().WithName("d").WithNamespace("n"), Owner: ownedBy("o")})
			return err
		},
		"read": func(a *Applier) error {
			_, err := a.readUncached(t.Context(), id)
			return err
		},
		"delete": func(a *Applier) error { return a.deleteExactly(t.Context(), id, &appsv1.Deployment{}, background) },
	} {
		t.Run(name, func(t *testing.T) {
			err := act(newBenchApplier(t, newServerOf(runtime.NewScheme())))
			NewWithT(t).Expect(err).To(MatchError("applying Deployment n/d: the client's scheme has no Go type of an object for apps/v1, Kind=Deployment: call the package's AddToScheme"))
		})
	}
}

// A server with a schema records fewer fields than are deduced without one: not .data, but what is in it.
func TestChangeOfAKindWithoutASchemaIsNoDrift(t *testing.T) {
	g := NewWithT(t)
	server, _, live := appliedSettings(t)
	recorded := live.ManagedFields[0].FieldsV1.GetRawString()
	live.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(strings.Replace(recorded, `"f:data":{".":{},`, `"f:data":{`, 1))
	g.Expect(live.ManagedFields[0].FieldsV1.GetRawString()).NotTo(Equal(recorded))

	d, err := newBenchApplier(t, server).Decide(Request{Desired: settings("2"), Owner: ownedBy("o"), Live: live})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(d.Action).To(Equal(ActionUpdate))
	g.Expect(d.Drifts).To(BeEmpty())
}
