// Package ssa brings Kubernetes objects to a desired state by typed Server-Side Apply. It sends
// nothing if nothing would change, and it knows which field manager changed what.
//
//	applier, err := ssa.New(ssa.Options{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), FieldManager: "shop-operator"})
//	...
//	result, err := applier.Apply(ctx, ssa.Request{
//		Desired: appsv1ac.Deployment("web", "shop").WithSpec(...),
//		Live:    deployment, // from the cache, nil if it does not exist
//		Owner:   metav1.NewControllerRef(shop, shopKind),
//	})
//
// [Applier.Apply] is a loop of [Applier.Decide], a function of the configuration, the live object and the policies,
// and [Applier.Execute], which sends. An engine calls the two itself. [Applier.DryRun] sends dry runs instead.
//
// # Quiet
//
// An apply is suppressed if and only if the API server would leave the object unchanged, but for the
// order and times of managedFields. The check compares no values, because defaults, quantities (1000m
// and 1) and webhooks make what is stored differ from what was applied. It compares the hash of the
// configuration with the one recorded in the annotation [RecordAnnotationPrefix] plus the field
// manager, and the applier's entry in metadata.managedFields with the one that this configuration
// gives: a field leaves the entry when another manager changes or removes it, and in no other way.
//
// What the entry should be is in the API server's last answer, or follows from the kind's schema. A kind without one
// (see [Options.TypeConverters]) may cost one apply that changes nothing after a restart. The record also holds the
// applied fields, and the owner's UID. It counts only where managedFields says that the applier wrote it.
//
// # Ownership and drift
//
// With [Request.Owner], the object is written with force, its owner reference is added, and an object of another
// controller is never written. Without, the object is shared: a field that another manager holds with another value
// is a conflict. UIDs decide. An apply to an existing object carries its UID, one that creates a resourceVersion that
// no object has, and a patch of managed fields or a delete the resourceVersion. So a stale cache leads to an error for
// which [IsStale] is true, and never to a write to another object.
//
// A [Drift] is a managed field that another manager has changed or removed. The configuration may have changed at the
// same time. The record and wiped managed fields are restored under either drift policy.
//
// The API server removes a field that the last configuration had and this one does not, if no other manager holds it.
// To make that so, the applier takes over what earlier writers hold by Update ([Options.FormerManagers], and objects
// that it adopts), dropped fields that others have changed, and structs that others hold and that lose their last field.
//
// # Your own kinds
//
// Every type that embeds the two apply configurations of metadata is a [Configuration]; generated
// ones do, and so can yours:
//
//	type WidgetApplyConfiguration struct {
//		metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
//		*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`
//		Spec *WidgetSpec `json:"spec,omitempty"`
//	}
//
//	func (WidgetApplyConfiguration) IsApplyConfiguration() {}
//
// For a status alone, [StatusOf] needs no type at all. An unstructured object is no Configuration: a missing name and
// an empty one are the same to it, and answers are decoded into the Go type that the scheme has for the kind.
//
// The package ssatest is an in-memory API server for tests of code that uses this package.
package ssa
