package ssa

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestIdentityOf(t *testing.T) {
	var nilPointer *corev1ac.ConfigMapApplyConfiguration
	for name, test := range map[string]struct {
		configuration Configuration
		identity      string
		err           string
	}{
		"namespaced":       {configuration: data(), identity: "ConfigMap n/c"},
		"of the cluster":   {configuration: corev1ac.Namespace("x"), identity: "Namespace x"},
		"nil":              {err: "is nil"},
		"a nil pointer":    {configuration: nilPointer, err: "is nil"},
		"not a pointer":    {configuration: withoutMetadata{}, err: "is nil"},
		"no kind":          {configuration: data().WithKind(""), err: "has no kind or apiVersion"},
		"no apiVersion":    {configuration: data().WithAPIVersion(""), err: "has no kind or apiVersion"},
		"no metadata":      {configuration: &withoutMetadata{}, err: "*ssa.withoutMetadata does not embed *metav1ac.ObjectMetaApplyConfiguration"},
		"other metadata":   {configuration: &withOtherMetadata{}, err: "*ssa.withOtherMetadata does not embed *metav1ac.ObjectMetaApplyConfiguration"},
		"no constructor":   {configuration: &corev1ac.ConfigMapApplyConfiguration{}, err: "has no kind or apiVersion"},
		"no name":          {configuration: corev1ac.ConfigMap("", "n"), err: "has no metadata.name"},
		"a bad apiVersion": {configuration: data().WithAPIVersion("a/b/c"), err: "parsing the apiVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			id, _, err := identityOf(test.configuration)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(id.String()).To(Equal(test.identity))
		})
	}
}

type withoutMetadata struct{ Configuration }

type withOtherMetadata struct {
	Configuration

	ObjectMetaApplyConfiguration string
}

func TestSetController(t *testing.T) {
	owner := *ownedBy("me")
	g := NewWithT(t)
	meta := data().WithOwnerReferences(
		metav1ac.OwnerReference().WithUID("me").WithName("stale"),
		metav1ac.OwnerReference().WithUID("friend"),
		metav1ac.OwnerReference(), // without a UID
	).ObjectMetaApplyConfiguration

	for range 2 { // a configuration may be applied twice
		g.Expect(setController(meta, owner)).To(Succeed())
		g.Expect(meta.OwnerReferences).To(HaveLen(3))
		g.Expect(meta.OwnerReferences[2]).To(Equal(*metav1ac.OwnerReference().
			WithAPIVersion("v1").WithKind("ConfigMap").WithName("owner").WithUID("me").WithController(true).WithBlockOwnerDeletion(true)))
	}
	owner.BlockOwnerDeletion = nil
	g.Expect(setController(meta, owner)).To(Succeed())
	g.Expect(meta.OwnerReferences[2].BlockOwnerDeletion).To(BeNil())

	meta.OwnerReferences[0].WithController(true)
	g.Expect(setController(meta, owner)).NotTo(Succeed())
}

func TestBodyLeavesTheConfigurationAlone(t *testing.T) {
	g := NewWithT(t)
	c := data("a", "1").WithAnnotations(map[string]string{"x": "y", RecordAnnotationPrefix + benchManager: "copied"})
	before, err := json.Marshal(c)
	g.Expect(err).NotTo(HaveOccurred())
	target, err := newBenchApplier(t, newServer()).prepare(c, nil, "")
	g.Expect(err).NotTo(HaveOccurred())

	body := target.body("r")

	g.Expect(body.MarshalJSON()).To(MatchJSON(`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"1"},"metadata":{"name":"c","namespace":"n","annotations":{"x":"y","ssa.fixpoint.dev/fixpoint-bench":"r"}}}`))
	g.Expect(json.Marshal(c)).To(Equal(before))
}

// TestStatusOf: a status without generated apply configurations is applied like any other.
func TestStatusOf(t *testing.T) {
	g := NewWithT(t)
	server := newServer()
	live := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d"}}
	g.Expect(server.Create(context.Background(), live)).To(Succeed())
	type status struct {
		Replicas int32  `json:"replicas,omitempty"`
		URL      string `json:"url,omitempty"`
	}
	applier, desired := newBenchApplier(t, server), StatusOf(live, appsv1.SchemeGroupVersion.WithKind("Deployment"), status{Replicas: 2})
	g.Expect(json.Marshal(desired)).To(MatchJSON(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"n"},"status":{"replicas":2}}`))

	applied, err := applier.ApplyStatus(context.Background(), desired, live)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(applied.Action).To(Equal(ActionUpdate))
	g.Expect(applied.Live).To(HaveField("Status.Replicas", int32(2)))

	for _, applier := range []*Applier{applier, newBenchApplier(t, server)} {
		again, err := applier.ApplyStatus(context.Background(), desired, applied.Live)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(again.Action).To(Equal(ActionNone))
	}
}

// ownConfiguration is what the package documentation shows for kinds without generated configurations.
type ownConfiguration struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`
	Data                                   map[string]string `json:"data,omitempty"`
}

func (ownConfiguration) IsApplyConfiguration() {}

func TestAConfigurationNeedsNoGenerator(t *testing.T) {
	g := NewWithT(t)
	own := &ownConfiguration{Data: map[string]string{"a": "1"}}
	applier := newBenchApplier(t, newServer())
	_, err := applier.Apply(context.Background(), Request{Desired: own})
	g.Expect(err).To(MatchError(ContainSubstring("has no kind or apiVersion")), "its metadata is nil")

	own.WithKind("ConfigMap").WithAPIVersion("v1")
	own.WithName("c").WithNamespace("n")
	created, err := applier.Apply(context.Background(), Request{Desired: own, Owner: ownedBy("o")})
	g.Expect(err).NotTo(HaveOccurred())
	same, err := applier.Apply(context.Background(), Request{Desired: own, Owner: ownedBy("o"), Live: created.Live})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(same.Action).To(Equal(ActionNone))
	g.Expect(created.Live).To(HaveField("Data", own.Data))
}

// TestFieldsOfIsWhatTheServerRecords: the schema alone says, byte for byte, what the API server's own
// field manager records for an apply.
func TestFieldsOfIsWhatTheServerRecords(t *testing.T) {
	const cases = 300
	for seed := range uint64(cases) {
		g := NewWithT(t)
		server := newServer()
		applier := newBenchApplier(t, server)
		desired := randomDeployment(rand.New(rand.NewPCG(seed, 0)))
		target, err := applier.prepare(desired, ownedBy("o"), "")
		g.Expect(err).NotTo(HaveOccurred())

		result, err := applier.Apply(context.Background(), Request{Desired: desired, Owner: ownedBy("o")})

		g.Expect(err).NotTo(HaveOccurred())
		entry := appliedEntry(result.Live, benchManager, "")
		g.Expect(target.fields).To(Equal(entry.FieldsV1.GetRawString()), "seed %d", seed)
	}
}

// randomDeployment leaves out parts of a realistic one, and adds what has keys with defaults,
// atomic parts and empty structs.
func randomDeployment(r *rand.Rand) *appsv1ac.DeploymentApplyConfiguration {
	chance := func() bool { return r.IntN(2) == 0 }
	d := realistic()
	pod := d.Spec.Template.Spec
	web := &pod.Containers[0]
	if chance() {
		d.Labels = nil
	}
	if chance() {
		web.Env = web.Env[:r.IntN(len(web.Env))]
	}
	if chance() {
		web.WithPorts(corev1ac.ContainerPort().WithContainerPort(53).WithProtocol(corev1.ProtocolUDP), corev1ac.ContainerPort().WithContainerPort(53).WithProtocol(corev1.ProtocolTCP))
	}
	if chance() {
		web.Resources.WithRequests(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m")})
		web.Resources.WithLimits(corev1.ResourceList{})
	}
	if chance() {
		web.WithSecurityContext(corev1ac.SecurityContext())
	}
	if chance() {
		pod.WithAffinity(corev1ac.Affinity()).WithNodeSelector(map[string]string{"a": "b"})
	}
	if chance() {
		pod.WithTolerations(corev1ac.Toleration().WithKey("x").WithOperator(corev1.TolerationOpExists))
	}
	if chance() {
		d.WithFinalizers("test.example/x").WithAnnotations(map[string]string{"a/b": "", "c": fmt.Sprint(r.IntN(9))})
	}
	if chance() {
		d.Spec.Strategy.WithRollingUpdate(appsv1ac.RollingUpdateDeployment().WithMaxSurge(intstr.FromString("25%")))
	}
	return d
}

// TestQuietAfterARestart: a new process caches what it finds unchanged, so that the schema is asked once
// and not for each check.
func TestQuietAfterARestart(t *testing.T) {
	g := NewWithT(t)
	server, owner := newServer(), ownedBy("o")
	created, err := newBenchApplier(t, server).Apply(context.Background(), Request{Desired: realistic(), Owner: owner})
	g.Expect(err).NotTo(HaveOccurred())
	restarted := newBenchApplier(t, server)

	for _, cached := range []bool{false, true} {
		d, err := restarted.Decide(Request{Desired: realistic(), Owner: owner, Live: created.Live})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(d.evidence.target.tree == nil).To(Equal(cached), "the answer suffices")
		result, err := restarted.Apply(context.Background(), Request{Desired: realistic(), Owner: owner, Live: created.Live})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result).To(Equal(Result{Action: ActionNone, Live: created.Live}))
	}
	g.Expect(server.requests).To(Equal(1))
}

func TestNewNamesTheOptionThatIsMissing(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		err     string
	}{
		"no client":            {Options{FieldManager: "x"}, "ssa.Options.Client is nil"},
		"no field manager":     {Options{Client: newServer()}, `ssa.Options.FieldManager "" cannot be the name of an annotation`},
		"one that is too long": {Options{Client: newServer(), FieldManager: strings.Repeat("m", 54)}, "with at most 53 letters"},
		"a qualified name":     {Options{Client: newServer(), FieldManager: "example.com/shop"}, `ssa.Options.FieldManager "example.com/shop" cannot be the name of an annotation`},
		"a name with a space":  {Options{Client: newServer(), FieldManager: "shop operator"}, `ssa.Options.FieldManager "shop operator" cannot be the name of an annotation`},
		"the longest":          {Options{Client: newServer(), FieldManager: strings.Repeat("m", 53)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(test.options)
			if test.err == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.err)))
		})
	}
}

func TestMalformedRequests(t *testing.T) {
	for name, test := range map[string]struct {
		request Request
		err     string
	}{
		"an owner that was never read": {Request{Desired: data(), Owner: ownedBy("")}, "the owner has no UID"},
		"no JSON":                      {Request{Desired: StatusOf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}, corev1.SchemeGroupVersion.WithKind("ConfigMap"), func() {})}, "serializing the apply configuration of ConfigMap n/c: json: "},
		"no JSON object":               {Request{Desired: listed()}, "decoding an apply configuration: "},
		"a status":                     {Request{Desired: appsv1ac.Deployment("d", "n").WithStatus(appsv1ac.DeploymentStatus().WithReplicas(1))}, "apply it with ApplyStatus"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := newServer()
			_, err := newBenchApplier(t, server).Apply(context.Background(), test.request)
			g.Expect(err).To(MatchError(ContainSubstring(test.err)))
			g.Expect(server.requests).To(BeZero())
		})
	}
}

func TestStatusOfAClusterScopedObjectHasNoNamespace(t *testing.T) {
	status := StatusOf(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, corev1.SchemeGroupVersion.WithKind("Namespace"), 1)
	NewWithT(t).Expect(json.Marshal(status)).To(MatchJSON(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"},"status":1}`))
}

// listConfiguration has the JSON of a list.
type listConfiguration struct{ ownConfiguration }

func (listConfiguration) MarshalJSON() ([]byte, error) { return []byte("[]"), nil }

func listed() *listConfiguration { return &listConfiguration{*settings("1")} }

func TestConfigurationThatIsNoObjectIsAnErrorDespiteAnAnswer(t *testing.T) {
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"}}
	for subresource, act := range map[string]func(*Applier) error{
		"": func(a *Applier) error {
			_, err := a.Decide(Request{Desired: listed(), Live: live})
			return err
		},
		statusSubresource: func(a *Applier) error {
			_, err := a.ApplyStatus(t.Context(), listed(), live)
			return err
		},
	} {
		t.Run(subresource, func(t *testing.T) {
			g, applier := NewWithT(t), newBenchApplier(t, newCustomServer())
			known := target{id: identity{gvk: settingsKind, key: client.ObjectKeyFromObject(live)}, subresource: subresource}
			applier.answers.add(known.answerKey(), answer{config: digestOf([]byte("[]"))})
			g.Expect(act(applier)).To(MatchError(ContainSubstring("decoding an apply configuration: ")))
		})
	}
}

func TestAnswersOfEachObjectAndItsStatusAreKept(t *testing.T) {
	g, applier := NewWithT(t), newBenchApplier(t, newServer())
	prepared := func(visit func(target)) {
		for _, subresource := range []string{"", statusSubresource} {
			for _, name := range []string{"c", "d"} {
				target, err := applier.prepare(data("a", "1").WithName(name), nil, subresource)
				g.Expect(err).NotTo(HaveOccurred())
				visit(target)
			}
		}
	}
	prepared(func(t target) { applier.remember(t, &corev1.ConfigMap{}) })
	prepared(func(t target) { g.Expect(t.tree).To(BeNil(), "the answer suffices") })
}

func TestEntryIsRecordedForItsVersionAndFields(t *testing.T) {
	expected := target{id: identity{gvk: corev1.SchemeGroupVersion.WithKind("ConfigMap")}}
	expected.expect(item)
	for name, test := range map[string]struct {
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		"the same":                      {managed("me", byApply, "", item), true},
		"other fields":                  {managed("me", byApply, "", `{}`), false},
		"another version of the object": {atVersion("v2", managed("me", byApply, "", item)), false},
	} {
		NewWithT(t).Expect(expected.isRecordedIn(&test.entry)).To(Equal(test.want), name)
	}
	NewWithT(t).Expect(expected.isRecordedIn(nil)).To(BeFalse())
}
