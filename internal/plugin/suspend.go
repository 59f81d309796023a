package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// Field managers of the commands that write. Those of reconcile differ from those of suspend and resume: an apply
// removes what the same manager applied before and leaves out.
const (
	suspendManager   = "kubectl-fixpoint"
	reconcileManager = "kubectl-fixpoint-reconcile"
)

// change is what a command writes to an object of any kind.
type change struct {
	suspend     *bool
	annotations map[string]string
}

// configuration is the change as a typed apply configuration. Its UID keeps it from creating an object.
func (ch change) configuration(o object) runtime.ApplyConfiguration {
	name, namespace, uid := o.GetName(), o.GetNamespace(), o.GetUID()
	switch o.kind.name {
	case "AppService":
		c := fixpointac.AppService(name, namespace).WithUID(uid).WithAnnotations(ch.annotations)
		if ch.suspend != nil {
			c.WithSpec(fixpointac.AppServiceSpec().WithSuspend(*ch.suspend))
		}
		return c
	case "MCPServer":
		c := fixpointac.MCPServer(name, namespace).WithUID(uid).WithAnnotations(ch.annotations)
		if ch.suspend != nil {
			c.WithSpec(fixpointac.MCPServerSpec().WithSuspend(*ch.suspend))
		}
		return c
	default:
		c := fixpointac.SecureStorage(name, namespace).WithUID(uid).WithAnnotations(ch.annotations)
		if ch.suspend != nil {
			c.WithSpec(fixpointac.SecureStorageSpec().WithSuspend(*ch.suspend))
		}
		return c
	}
}

// apply applies a change.
func (c *clients) apply(ctx context.Context, o object, manager string, ch change) error {
	err := c.Apply(ctx, ch.configuration(o), client.FieldOwner(manager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("changing %s: %w", o, err)
	}
	return nil
}

// in is the same for a namespace.
func (c *clients) in(namespace string) *clients {
	there := *c
	there.namespace = namespace
	return &there
}

func reasonAnnotation(reason string) map[string]string {
	if reason == "" {
		return nil
	}
	return map[string]string{v1beta1.AnnotationReason: reason}
}

func newSuspend(o *options) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use:   "suspend KIND/NAME [--reason TEXT]",
		Short: "Suspend the reconciliation of an object: sets spec.suspend.",
		Args:  cobra.RangeArgs(1, 2), ValidArgsFunction: o.completeObjects,
		RunE: func(command *cobra.Command, args []string) error {
			return o.onOne(command.Context(), args, func(ctx context.Context, c *clients, live object) error {
				yes := true
				if err := c.apply(ctx, live, suspendManager, change{&yes, reasonAnnotation(reason)}); err != nil {
					return err
				}
				_, err := fmt.Fprintf(o.Out, "%s is suspended. To resume it, run kubectl fixpoint resume %s.\n", live, live.argument())
				return err
			})
		},
	}
	addReason(command, &reason)
	return command
}

func newResume(o *options) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use:   "resume KIND/NAME [--reason TEXT]",
		Short: "Resume the reconciliation of an object: resets spec.suspend.",
		Args:  cobra.RangeArgs(1, 2), ValidArgsFunction: o.completeObjects,
		RunE: func(command *cobra.Command, args []string) error {
			return o.onOne(command.Context(), args, func(ctx context.Context, c *clients, live object) error {
				if err := c.resume(ctx, live, reason); err != nil {
					return err
				}
				_, err := fmt.Fprintf(o.Out, "%s is resumed.\n", live)
				return err
			})
		},
	}
	addReason(command, &reason)
	return command
}

// resume gives up what suspend has set, so that no field manager remains, and overrides what another has set.
func (c *clients) resume(ctx context.Context, o object, reason string) error {
	if err := c.apply(ctx, o, suspendManager, change{nil, reasonAnnotation(reason)}); err != nil {
		return err
	}
	after, err := c.in(o.GetNamespace()).get(ctx, o.kind, o.GetName())
	if err != nil || !after.suspended {
		return err
	}
	no := false
	return c.apply(ctx, o, suspendManager, change{&no, reasonAnnotation(reason)})
}

func addReason(command *cobra.Command, reason *string) {
	command.Flags().StringVar(reason, "reason", "", "Why, for other users of the object; recorded in the annotation "+v1beta1.AnnotationReason+".")
}

// onOne runs a command for the object that the arguments name.
func (o *options) onOne(ctx context.Context, args []string, do func(context.Context, *clients, object) error) error {
	t, c, err := o.start(args)
	if err != nil {
		return err
	}
	k, name, err := t.one()
	if err != nil {
		return err
	}
	live, err := c.get(ctx, k, name)
	if err != nil {
		return err
	}
	return do(ctx, c, live)
}

func newReconcile(o *options) *cobra.Command {
	var reason string
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "reconcile KIND/NAME [--reason TEXT]",
		Short: "Reconcile an object now, and wait for the result.",
		Long: "Reconcile an object now: sets the annotation " + v1beta1.AnnotationReconcileRequest + ", and waits until the manager has handled it " +
			"and the object is Ready or stalled. The exit code is 1 if it is not Ready then.",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: o.completeObjects,
		RunE: func(command *cobra.Command, args []string) error {
			return o.onOne(command.Context(), args, func(ctx context.Context, c *clients, live object) error {
				return o.reconcile(ctx, c, live, reason, timeout)
			})
		},
	}
	addReason(command, &reason)
	command.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "How long to wait for the result.")
	return command
}

func (o *options) reconcile(ctx context.Context, c *clients, live object, reason string, timeout time.Duration) error {
	if live.suspended {
		return fmt.Errorf("%s is suspended, so it is not reconciled: run kubectl fixpoint resume %s", live, live.argument())
	}
	request := o.now().UTC().Format(time.RFC3339Nano)
	annotations := map[string]string{v1beta1.AnnotationReconcileRequest: request}
	if reason != "" {
		annotations[v1beta1.AnnotationReason] = reason
	}
	if err := c.apply(ctx, live, reconcileManager, change{nil, annotations}); err != nil {
		return err
	}
	requested, err := c.in(live.GetNamespace()).get(ctx, live.kind, live.GetName())
	if err != nil {
		return err
	}
	settled, err := c.waitFor(ctx, timeout, requested, object.isReconciled)
	if err != nil {
		return err
	}
	if settled.isReady() && settled.hasHandledRequest() {
		_, err := fmt.Fprintf(o.Out, "%s is reconciled and Ready.\n", settled)
		return err
	}
	if !settled.hasHandledRequest() {
		fmt.Fprintf(o.Out, "The manager has not handled the request within %s.\n", timeout)
	}
	found, err := c.evidence(ctx, settled)
	if err != nil {
		return err
	}
	if !settled.hasHandledRequest() {
		found.managers = c.availableManagers(ctx)
	}
	fmt.Fprint(o.Out, wrap(whyText(found, o.now())))
	return &exitError{code: exitFailure}
}

// hasHandledRequest says whether the manager has handled the last request. It may be one of another user, who has replaced
// an earlier one: the manager then handles that one alone.
func (o object) hasHandledRequest() bool {
	request := workload.HandledReconcile(o)
	return request != "" && o.handledReconcileAt == request
}

// isReconciled says whether the last request has a result.
func (o object) isReconciled() bool {
	hasResult := o.isReady() || o.condition(v1beta1.ConditionStalled) != nil || o.suspended
	return o.hasHandledRequest() && o.isCurrent() && hasResult
}

// waitFor watches an object until the check succeeds or the time is over, and returns it as it was last. It fails if the
// object is deleted, also if another one has its name by then, and if it is interrupted. A watch may begin with an earlier
// version, from a cache, which does not count.
func (c *clients) waitFor(ctx context.Context, timeout time.Duration, o object, check func(object) bool) (object, error) {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	uid, last, done, gone := o.GetUID(), o, false, false
	err := c.in(o.GetNamespace()).watch(waiting, o.kind.list(), func(event watch.EventType, live client.Object) {
		if done || gone || isOlder(live, o) {
			return
		}
		if gone = event == watch.Deleted || live.GetUID() != uid; !gone {
			last = o.kind.object(live)
			done = check(last)
		}
		if done || gone {
			cancel()
		}
	}, target{name: o.GetName()}.named()...)
	switch {
	case gone:
		return last, fmt.Errorf("%s is deleted", o)
	case ctx.Err() != nil:
		return last, ctx.Err()
	case waiting.Err() != nil: // the check has succeeded, or the time is over
		return last, nil
	}
	return last, err
}

func isOlder(a, b client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}
