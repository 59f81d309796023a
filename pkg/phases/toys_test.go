package phases_test

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// The toy kinds: a Toy is built of Gears and Wheels. They are what a kind and its children are
// made of, and nothing else, so that a test shows the engine and not some workload.

var toyGroup = schema.GroupVersion{Group: "toys.example.com", Version: "v1"}

func toyScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(toyGroup, &Toy{}, &Gear{}, &GearList{}, &Wheel{}, &WheelList{}, &Loner{})
	return scheme
}

// Toy is the kind that the engine reconciles.
type Toy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec holds what each part should be; a part that is not in it is not wanted.
	Spec    map[string]string `json:"spec,omitempty"`
	Suspend bool              `json:"suspend,omitempty"`
	Status  ToyStatus         `json:"status,omitempty"`
}

// ToyStatus is what the engine writes.
type ToyStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Drifts             []string           `json:"drifts,omitempty"`
}

func (t *Toy) DeepCopyObject() runtime.Object { return t.DeepCopy() }

func (t *Toy) DeepCopy() *Toy {
	out := &Toy{TypeMeta: t.TypeMeta, Spec: maps.Clone(t.Spec), Suspend: t.Suspend, Status: t.Status}
	t.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = slices.Clone(t.Status.Conditions)
	out.Status.Drifts = slices.Clone(t.Status.Drifts)
	return out
}

// Part is what Gears and Wheels have in common.
type Part struct {
	Spec map[string]string `json:"spec,omitempty"`
	// Turns is set by the world, some time after the part was made.
	Turns bool `json:"turns,omitempty"`
}

// child is a Gear or a Wheel.
type child interface {
	client.Object
	part() *Part
}

type Gear struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Part
}

func (g *Gear) part() *Part                    { return &g.Part }
func (g *Gear) DeepCopyObject() runtime.Object { return g.DeepCopy() }

func (g *Gear) DeepCopy() *Gear {
	out := &Gear{TypeMeta: g.TypeMeta, Part: Part{Spec: maps.Clone(g.Spec), Turns: g.Turns}}
	g.DeepCopyInto(&out.ObjectMeta)
	return out
}

type GearList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gear `json:"items"`
}

func (l *GearList) DeepCopyObject() runtime.Object {
	out := &GearList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}

type Wheel struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Part
}

func (w *Wheel) part() *Part                    { return &w.Part }
func (w *Wheel) DeepCopyObject() runtime.Object { return w.DeepCopy() }

func (w *Wheel) DeepCopy() *Wheel {
	out := &Wheel{TypeMeta: w.TypeMeta, Part: Part{Spec: maps.Clone(w.Spec), Turns: w.Turns}}
	w.DeepCopyInto(&out.ObjectMeta)
	return out
}

type WheelList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Wheel `json:"items"`
}

func (l *WheelList) DeepCopyObject() runtime.Object {
	out := &WheelList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}

// Loner is a kind that is in the scheme without its list.
type Loner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

func (l *Loner) DeepCopyObject() runtime.Object {
	out := &Loner{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ObjectMeta)
	return out
}

// Stranger is a kind that is not in the scheme.
type Stranger struct{ Loner }

// partConfiguration is the apply configuration of a Gear or a Wheel.
type partConfiguration struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`

	Spec map[string]string `json:"spec,omitempty"`
}

func gear(name string) *partConfiguration  { return newPart("Gear", name) }
func wheel(name string) *partConfiguration { return newPart("Wheel", name) }

func newPart(kind, name string) *partConfiguration {
	c := &partConfiguration{ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName(name).WithNamespace(toyNamespace)}
	c.WithKind(kind).WithAPIVersion(toyGroup.String())
	return c
}

func (c *partConfiguration) with(key, value string) *partConfiguration {
	if c.Spec == nil {
		c.Spec = map[string]string{}
	}
	c.Spec[key] = value
	return c
}

func (c *partConfiguration) IsApplyConfiguration()  {}
func (c *partConfiguration) GetKind() *string       { return c.Kind }
func (c *partConfiguration) GetAPIVersion() *string { return c.APIVersion }
func (c *partConfiguration) GetName() *string       { return c.ObjectMetaApplyConfiguration.GetName() }
func (c *partConfiguration) GetNamespace() *string {
	return c.ObjectMetaApplyConfiguration.GetNamespace()
}

// toyConfiguration is the apply configuration of a Toy's status.
type toyConfiguration struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`

	Status *toyStatusConfiguration `json:"status,omitempty"`
}

type toyStatusConfiguration struct {
	ObservedGeneration *int64                                  `json:"observedGeneration,omitempty"`
	Conditions         []*metav1ac.ConditionApplyConfiguration `json:"conditions,omitempty"`
	Drifts             []string                                `json:"drifts,omitempty"`
}

func toyStatus(name string, summary phases.Summary) *toyConfiguration {
	c := &toyConfiguration{ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName(name).WithNamespace(toyNamespace)}
	c.WithKind("Toy").WithAPIVersion(toyGroup.String())
	c.Status = &toyStatusConfiguration{
		ObservedGeneration: &summary.ObservedGeneration,
		Conditions:         phases.ConditionConfigurations(summary.Conditions),
	}
	for _, drift := range summary.Drifts {
		c.Status.Drifts = append(c.Status.Drifts, drift.String())
	}
	return c
}

func (c *toyConfiguration) IsApplyConfiguration()  {}
func (c *toyConfiguration) GetKind() *string       { return c.Kind }
func (c *toyConfiguration) GetAPIVersion() *string { return c.APIVersion }
func (c *toyConfiguration) GetName() *string       { return c.ObjectMetaApplyConfiguration.GetName() }
func (c *toyConfiguration) GetNamespace() *string {
	return c.ObjectMetaApplyConfiguration.GetNamespace()
}

const (
	toyNamespace = "shop"
	toyName      = "train"
	toyFinalizer = "toys.example.com/teardown"
)
