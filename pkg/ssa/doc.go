// Package ssa brings Kubernetes objects to a desired state by typed Server-Side Apply: exactly,
// quietly, and honest about who owns what.
//
// An operator hands over what an object should be, as a client-go apply configuration, and what
// its cache shows:
//
//	applier, err := ssa.New(ssa.Options{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), FieldManager: "shop-operator"})
//	...
//	result, err := applier.Apply(ctx, ssa.Request{
//		Desired: appsv1ac.Deployment("web", "shop").WithSpec(...),
//		Live:    deployment, // from the cache, nil if it is not there
//		Owner:   &owner,     // ssa.ControllerReference(shop, gvk)
//	})
//
// and gets back what was done ([Result.Action]), the object as it is now, and which fields others
// had changed ([Result.Drifts]). In a steady state the action is [ActionNone] and no request was
// made. [Applier.ApplyStatus], [Applier.EnsureFinalizer], [Applier.RemoveFinalizer],
// [Applier.Delete] and [Applier.Prune] do the rest of what an operator writes.
//
// # Quiet
//
// An apply that would change nothing is not sent. Whether it would is not found by comparing
// values: defaults, quantities that are written otherwise (1000m and 1) and webhooks that rewrite
// a field make what is stored differ from what was applied, for good. It is found in the API
// server's own books. For each applier the server keeps, in metadata.managedFields, the set of the
// fields that it applied; a field leaves the set when somebody else gives it another value, or
// removes it, and in no other way. So the object is as we applied it if and only if
//
//   - the configuration that we want is the one that was applied last, and
//   - our entry in managedFields is still the one that this configuration gave us.
//
// Neither depends on values that the server or a webhook has made of ours, on the status, or on
// what others do to their own fields. The first is a comparison of hashes, see below. The second is
// one of bytes: what the entry should be is what the server answered to the last apply, or, after a
// restart, what the kind's schema says of the configuration, which for kinds whose schema is known
// is the same. (For others, give [Options.TypeConverters]; without one, a restart may cost one
// apply that changes nothing.) Both take microseconds, nearly all of it spent on serialising the
// configuration.
//
// There is one exception to "if and only if". The server gives an entry a new time when an apply
// holds a value that it stores otherwise (1000m, a fieldRef without apiVersion), even if nothing
// comes of it. Where another manager's entry is younger, ours moves behind it in the list, and
// since the server compares the list in order it then writes the object, in which nothing has
// changed but the order and the times of managedFields. Such an apply is not sent.
//
// Status has no such trick, since it changes too often to keep a record in the object.
// [Applier.ApplyStatus] compares the entry in the same way and then the values, which is exact for
// custom resources: nothing in them is normalised.
//
// # The record
//
// What was applied last travels with the object, in an annotation named [RecordAnnotationPrefix]
// followed by the field manager:
//
//	ssa.fixpoint.dev/shop-operator: v1/<hash of the configuration>/<UID of the owner>/<its field set, compressed>
//
// So any process can judge the object, the first time it sees it and without a request: the hash
// tells a change of our own mind from somebody else's, the UID proves whose the object is if its
// owner reference is taken away, and the field set says what we held before others took it.
//
// The annotation is itself an applied field. If it is edited or removed, managedFields says so and
// it is put back; a copy of it on another object is not backed by managedFields there and proves
// nothing.
//
// # Ownership
//
// With [Request.Owner], the object is one that the owner controls: the owner reference is added, and
// it is written with force, because what we declare is ours to say. Without, the object is shared:
// it is written without force, nothing is taken back, and a field that another manager holds with
// another value is an [Error] with [ReasonConflict] that names both.
//
// UIDs decide, never names. An apply to an object that exists carries its UID, so that an object
// deleted meanwhile is not resurrected by accident. One that creates carries a resourceVersion that
// no object has, so that an object which the cache does not show yet is not overwritten. Where the
// cache was wrong, the object is read past it ([Options.Reader]) and judged anew; nothing is
// decided on what has turned out to be old. Deletes carry UID and resourceVersion.
//
// # Adoption
//
// What becomes of an object that exists under the name:
//
//   - one that another controller owns is never touched: [ReasonOwnedByAnother];
//   - one that nobody controls is left alone ([ReasonNotOwned]), unless [Request.Adoption] is
//     [AdoptIfUnowned]. Then what we want of it becomes ours alone, and the rest stays with who
//     wrote it;
//   - one that we had, and whose owner reference somebody removed, is still ours.
//
// # Drift
//
// A [Drift] is a field of ours that another manager has changed or removed: its path, who did it,
// our value and the one found. It is told apart from a change of our own configuration by
// ownership alone, so no memory is needed and both may happen at once. Under [CorrectDrift] the
// fields are put back with one apply. Under [ReportDrift] nothing that has drifted is written, the
// drift is reported for as long as it stands, and a change of the configuration is applied around
// it.
// [Applier.Drifts] only looks, at an object that is not to be applied just now.
//
// Two things are put right under either policy, because without them nobody could tell what
// drifts: the record, and managed fields that were wiped.
//
// # Letting go
//
// A field that is in the last configuration and not in this one is removed by the API server, if no
// other manager holds it. Three cases need more than that:
//
//   - [Request.HandOver]: the field is to keep its value until somebody else takes it over, as the
//     replicas of a Deployment that gets an autoscaler. Left to the server, it would fall to its
//     default. A second field manager (our name and "-handover") holds it until then.
//   - [Request.Displaces]: the field stands in the way of what is wanted and is not ours, as the
//     defaulted rollingUpdate of a Deployment that is to be recreated. It is removed with the same
//     write.
//   - A field that others have changed, and that we drop before the drift was put back, goes as
//     well, or nobody would ever remove it.
//
// # Migration
//
// An object that was once written by Update, by an earlier version of the operator or by kubectl
// create, has its fields held by those writers, and what two hold stays when one drops it. So
// before the first apply, what the field manager's own name and [Options.FormerManagers] hold by
// Update passes to our apply; of an object that others wrote, what we want does, along with what
// else the writer holds inside of list items and structs that we have a part in, which often is
// nothing but defaults. No field is lost by that, and none is stuck when we drop it later. It is
// the one write that is no apply: a JSON patch of metadata.managedFields, bound to the version that
// was judged.
//
// # Errors
//
// What the API server refuses comes back as an [*Error]: a [Reason] fit for a condition, a message
// that names field, manager or plugin and what to do, whether waiting helps (Transient) and whether
// trying again does not (Permanent). Messages hold no counters, times or generated names, so that a
// condition made of one does not change from try to try.
//
// # Planning
//
// [Applier.DryRun] gives an applier that judges in the same way, sends what it sends as a dry run
// and remembers nothing: its results are those of the applies that would follow, the API server's
// refusals included. Only what [Request.Displaces] names cannot be moved out of the way by a dry
// run; then the result is that of the judgement alone.
package ssa
