package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
)

// releaseManager is the field manager of release.
const releaseManager = "kubectl-fixpoint-release"

// releaseReason is for whoever finds the object after a release that was interrupted or refused. It cannot be undone: what
// spec.managementPolicy was before is not known when the command is repeated.
const releaseReason = "kubectl fixpoint release has set spec.suspend to true, spec.managementPolicy to Manage and spec.deletionPolicy to Retain: " +
	"repeat the command, or set the policies back, and then spec.suspend"

func newRelease(o *options) *cobra.Command {
	var yes bool
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "release securestorage/NAME [--yes]",
		Short: "Delete a SecureStorage and retain its storage account, so that another one can adopt it.",
		Long: "Delete a SecureStorage and retain its storage account with the data, the encryption and the grants. The manager removes only its owner tag, " +
			"so that another SecureStorage can adopt the account. Without --yes, it says what it would do, and writes nothing.\n\n" +
			"Remove the SecureStorage from a Helm release or a Git repository first: otherwise it is created again.",
		Example: "  kubectl fixpoint release securestorage/invoices --yes",
		Args:    cobra.RangeArgs(1, 2), ValidArgsFunction: o.completeObjects,
		RunE: func(command *cobra.Command, args []string) error {
			return o.onOne(command.Context(), args, func(ctx context.Context, c *clients, live object) error {
				storage, ok := live.Object.(*v1beta1.SecureStorage)
				if !ok {
					return fmt.Errorf("%s cannot be released: only a SecureStorage can", live)
				}
				return o.release(ctx, c, storage, yes, timeout)
			})
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "Delete the SecureStorage, and wait until it is deleted.")
	command.Flags().DurationVar(&timeout, "timeout", 4*time.Minute, "How long to wait for the deletion, with --yes.")
	return command
}

func (o *options) release(ctx context.Context, c *clients, storage *v1beta1.SecureStorage, yes bool, timeout time.Duration) error {
	name := storage.Namespace + "/" + storage.Name
	if !yes {
		_, err := fmt.Fprintf(o.Out, "SecureStorage %s would be deleted. Storage account %s would remain in Azure with its data, its encryption and its grants, without the owner tag. Add --yes to do so.\n", name, storage.Status.AccountName)
		return err
	}
	// A deletion with Observe keeps the tag. While the object is suspended, Manage writes nothing before the deletion.
	spec := fixpointac.SecureStorageSpec().
		WithSuspend(true).
		WithManagementPolicy(v1beta1.ManagementManage).
		WithDeletionPolicy(v1beta1.DeletionRetain)
	desired := fixpointac.SecureStorage(storage.Name, storage.Namespace).WithUID(storage.UID).
		WithAnnotations(reasonAnnotation(releaseReason)).WithSpec(spec)
	if err := c.Apply(ctx, desired, client.FieldOwner(releaseManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("setting spec.deletionPolicy of SecureStorage %s to Retain: %w", name, err)
	}
	if err := c.deleteReleased(ctx, storage); err != nil {
		return fmt.Errorf("%w; until it is deleted, it stays suspended: %s", err, releaseReason)
	}
	err := wait.PollUntilContextTimeout(ctx, time.Second, timeout, true, func(ctx context.Context) (bool, error) {
		live := &v1beta1.SecureStorage{}
		err := c.Get(ctx, client.ObjectKeyFromObject(storage), live)
		return apierrors.IsNotFound(err) || err == nil && live.UID != storage.UID, client.IgnoreNotFound(err)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("SecureStorage %s is not deleted after %s: run kubectl fixpoint why securestorage/%s -n %s", name, timeout, storage.Name, storage.Namespace)
	}
	if err != nil {
		return fmt.Errorf("waiting until SecureStorage %s is deleted: %w", name, err)
	}
	_, err = fmt.Fprintf(o.Out, "SecureStorage %s is deleted. Storage account %s remains in Azure with its data, its encryption and its grants. The Event Retained says if the owner tag could not be removed.\n", name, storage.Status.AccountName)
	return err
}

// deleteAttempts is how often a deletion begins again because the object has changed since it was read, such as its status.
const deleteAttempts = 5

// deleteReleased deletes a SecureStorage if its deletion retains the account, and removes the tag. Whoever sets a policy
// again, such as a GitOps controller, must not have the data deleted.
func (c *clients) deleteReleased(ctx context.Context, storage *v1beta1.SecureStorage) error {
	name := storage.Namespace + "/" + storage.Name
	for attempt := 1; ; attempt++ {
		live := &v1beta1.SecureStorage{}
		err := c.Get(ctx, client.ObjectKeyFromObject(storage), live)
		switch {
		case apierrors.IsNotFound(err), err == nil && live.UID != storage.UID:
			return nil
		case err != nil:
			return fmt.Errorf("reading SecureStorage %s: %w", name, err)
		case live.Spec.DeletionPolicy != v1beta1.DeletionRetain:
			return setAgain(name, "deletionPolicy", string(live.Spec.DeletionPolicy))
		case live.Spec.ManagementPolicy != v1beta1.ManagementManage:
			return setAgain(name, "managementPolicy", string(live.Spec.ManagementPolicy))
		}
		err = c.Delete(ctx, live, client.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion})
		switch {
		case apierrors.IsConflict(err) && attempt < deleteAttempts:
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("deleting SecureStorage %s: %w", name, err)
		default:
			return nil
		}
	}
}

func setAgain(name, field, value string) error {
	return fmt.Errorf("SecureStorage %s is not deleted, because spec.%s was set to %s again: "+
		"remove it from the Helm release or the Git repository that sets it, and repeat the command", name, field, value)
}
