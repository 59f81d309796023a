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

// The kinds of these tests: a Machine is built of Disks and Nics. They have what an owner and its
// children have in common and nothing else.

var machineGroup = schema.GroupVersion{Group: "lab.example.com", Version: "v1"}

func machineScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(machineGroup, &Machine{}, &MachineList{}, &Disk{}, &DiskList{}, &Nic{}, &NicList{}, &Listless{})
	metav1.AddToGroupVersion(scheme, machineGroup)
	return scheme
}

// Machine is the kind that the engine reconciles.
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the class of the device of each phase; a phase that is not in it is not configured. Of a
	// set of devices it lists the names.
	Spec    map[string]string `json:"spec,omitempty"`
	Suspend bool              `json:"suspend,omitempty"`
	Status  MachineStatus     `json:"status,omitempty"`
}

// MachineList makes Machine a kind that a manager serves.
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}

func (l *MachineList) DeepCopyObject() runtime.Object {
	out := &MachineList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}

// MachineStatus is what the engine writes.
type MachineStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Drifts             []string           `json:"drifts,omitempty"`
}

func (m *Machine) DeepCopyObject() runtime.Object { return m.DeepCopy() }

func (m *Machine) DeepCopy() *Machine {
	out := &Machine{TypeMeta: m.TypeMeta, Spec: maps.Clone(m.Spec), Suspend: m.Suspend, Status: m.Status}
	m.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = slices.Clone(m.Status.Conditions)
	out.Status.Drifts = slices.Clone(m.Status.Drifts)
	return out
}

// Device is what Disks and Nics have in common.
type Device struct {
	Spec map[string]string `json:"spec,omitempty"`
	// Attached is set by the cluster, some time after the device was written.
	Attached bool `json:"attached,omitempty"`
}

// device is a Disk or a Nic.
type device interface {
	client.Object
	device() *Device
}

type Disk struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Device            `json:",inline"`
}

func (d *Disk) device() *Device                { return &d.Device }
func (d *Disk) DeepCopyObject() runtime.Object { return d.DeepCopy() }

func (d *Disk) DeepCopy() *Disk {
	out := &Disk{TypeMeta: d.TypeMeta, Device: Device{Spec: maps.Clone(d.Spec), Attached: d.Attached}}
	d.DeepCopyInto(&out.ObjectMeta)
	return out
}

type DiskList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Disk `json:"items"`
}

func (l *DiskList) DeepCopyObject() runtime.Object {
	out := &DiskList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}

type Nic struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Device            `json:",inline"`
}

func (n *Nic) device() *Device                { return &n.Device }
func (n *Nic) DeepCopyObject() runtime.Object { return n.DeepCopy() }

func (n *Nic) DeepCopy() *Nic {
	out := &Nic{TypeMeta: n.TypeMeta, Device: Device{Spec: maps.Clone(n.Spec), Attached: n.Attached}}
	n.DeepCopyInto(&out.ObjectMeta)
	return out
}

type NicList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Nic `json:"items"`
}

func (l *NicList) DeepCopyObject() runtime.Object {
	out := &NicList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}

// Listless is a kind that is in the scheme without its list.
type Listless struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

func (l *Listless) DeepCopyObject() runtime.Object {
	out := &Listless{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ObjectMeta)
	return out
}

// Unregistered is a kind that is not in the scheme.
type Unregistered struct{ Listless }

// deviceConfiguration is the apply configuration of a Disk or a Nic.
type deviceConfiguration struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`

	Spec map[string]string `json:"spec,omitempty"`
}

func disk(name string) *deviceConfiguration { return newDevice("Disk", name) }
func nic(name string) *deviceConfiguration  { return newDevice("Nic", name) }

func newDevice(kind, name string) *deviceConfiguration {
	c := &deviceConfiguration{ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName(name).WithNamespace(machineNamespace)}
	c.WithKind(kind).WithAPIVersion(machineGroup.String())
	return c
}

func (c *deviceConfiguration) with(key, value string) *deviceConfiguration {
	if c.Spec == nil {
		c.Spec = map[string]string{}
	}
	c.Spec[key] = value
	return c
}

func (c *deviceConfiguration) IsApplyConfiguration()  {}
func (c *deviceConfiguration) GetKind() *string       { return c.Kind }
func (c *deviceConfiguration) GetAPIVersion() *string { return c.APIVersion }
func (c *deviceConfiguration) GetName() *string       { return c.ObjectMetaApplyConfiguration.GetName() }
func (c *deviceConfiguration) GetNamespace() *string {
	return c.ObjectMetaApplyConfiguration.GetNamespace()
}

// machineConfiguration is the apply configuration of a Machine's status.
type machineConfiguration struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`

	Status *machineStatusConfiguration `json:"status,omitempty"`
}

type machineStatusConfiguration struct {
	ObservedGeneration *int64                                  `json:"observedGeneration,omitempty"`
	Conditions         []*metav1ac.ConditionApplyConfiguration `json:"conditions,omitempty"`
	Drifts             []string                                `json:"drifts,omitempty"`
}

func machineStatus(name string, summary phases.Summary) *machineConfiguration {
	c := &machineConfiguration{ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName(name).WithNamespace(machineNamespace)}
	c.WithKind("Machine").WithAPIVersion(machineGroup.String())
	c.Status = &machineStatusConfiguration{
		ObservedGeneration: &summary.ObservedGeneration,
		Conditions:         phases.ConditionConfigurations(summary.Conditions),
	}
	for _, drift := range summary.Drifts {
		c.Status.Drifts = append(c.Status.Drifts, drift.String())
	}
	return c
}

func (c *machineConfiguration) IsApplyConfiguration()  {}
func (c *machineConfiguration) GetKind() *string       { return c.Kind }
func (c *machineConfiguration) GetAPIVersion() *string { return c.APIVersion }
func (c *machineConfiguration) GetName() *string {
	return c.ObjectMetaApplyConfiguration.GetName()
}
func (c *machineConfiguration) GetNamespace() *string {
	return c.ObjectMetaApplyConfiguration.GetNamespace()
}

const (
	machineNamespace = "lab"
	machineName      = "vm1"
	machineFinalizer = "lab.example.com/teardown"
)
