package plugin

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// approveManager is the field manager of approve. It differs from those of other commands, because an apply removes what
// the same manager applied before and leaves out.
const approveManager = "kubectl-fixpoint-approve"

func newApprove(o *options) *cobra.Command {
	var digest string
	command := &cobra.Command{
		Use:   "approve mcp/NAME [--digest DIGEST]",
		Short: "Approve the contract that pods of an MCPServer offer, so that they take traffic.",
		Long: "Approve the contract of status.pendingContract, with spec.contract.policy Pin: sets the annotation " + v1beta1.AnnotationApprovedContract + " to its digest, " +
			"and prints how the contract differs from the previous one. Read the descriptions and schemas before, with kubectl fixpoint mcp contract NAME --diff, because agents act on them.\n\n" +
			"If spec.contract.digest is set, it decides: change it instead.",
		Example: "  kubectl fixpoint approve mcp/tools\n  kubectl fixpoint approve mcp/tools --digest 3f786850e387550fdab836ed7e6dc881",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: o.completeServers,
		RunE: func(command *cobra.Command, args []string) error {
			return o.onServer(command.Context(), args[0], func(ctx context.Context, c *clients, server *v1beta1.MCPServer) error {
				return o.approve(ctx, c, server, digest)
			})
		},
	}
	command.Flags().StringVar(&digest, "digest", "", "Approve the contract with this `DIGEST`, such as that of another cluster. The default is status.pendingContract.digest.")
	return command
}

func (o *options) approve(ctx context.Context, c *clients, server *v1beta1.MCPServer, digest string) error {
	digest, err := digestToApprove(server, digest)
	if err != nil {
		return err
	}
	k, err := kindOf("mcpserver")
	if err != nil {
		return err
	}
	if err := c.apply(ctx, k.object(server), approveManager, change{nil, map[string]string{v1beta1.AnnotationApprovedContract: digest}}); err != nil {
		return err
	}
	_, err = fmt.Fprint(o.Out, approvalText(server, digest))
	return err
}

var isDigest = regexp.MustCompile("^[0-9a-f]{32}$").MatchString

// digestToApprove is the given digest, or the one that waits for approval.
func digestToApprove(server *v1beta1.MCPServer, given string) (string, error) {
	name := fmt.Sprintf("MCPServer %s/%s", server.Namespace, server.Name)
	pending := server.Status.PendingContract
	switch {
	case server.Spec.Contract == nil || server.Spec.Contract.Policy != v1beta1.ContractPin:
		return "", fmt.Errorf("%s takes traffic with any contract: set spec.contract.policy to Pin", name)
	case given == "" && pending == nil:
		return "", fmt.Errorf("no contract of %s waits for approval; kubectl fixpoint mcp contract %s -n %s shows the current one", name, server.Name, server.Namespace)
	case given == "":
		given = pending.Digest
	}
	switch {
	case !isDigest(given):
		return "", fmt.Errorf("%q is no digest of a contract, which has 32 hexadecimal digits", given)
	case server.Spec.Contract.Digest != "":
		return "", fmt.Errorf("%s has spec.contract.digest, which decides: set it to %s", name, given)
	}
	return given, nil
}

// approvalText says what has been approved.
func approvalText(server *v1beta1.MCPServer, digest string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The contract %s of MCPServer %s/%s is approved.\n", digest, server.Namespace, server.Name)
	if pending := server.Status.PendingContract; pending != nil && pending.Digest == digest {
		writeChange(&b, pending.Change)
	}
	return b.String()
}

// approveCommand approves the contract with this digest, even if another one waits when it runs.
func approveCommand(server *v1beta1.MCPServer, digest string) string {
	return fmt.Sprintf("kubectl fixpoint approve mcp/%s -n %s --digest %s", server.Name, server.Namespace, printable(digest))
}

// pendingText is about a contract that waits for approval; empty if there is none.
func pendingText(server *v1beta1.MCPServer) string {
	pending := server.Status.PendingContract
	if pending == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nWaiting for approval: %s\n", printable(pending.Digest))
	writeChange(&b, pending.Change)
	fmt.Fprintf(&b, "To read what differs, run kubectl fixpoint mcp contract %s -n %s --diff. To approve it, run %s.\n",
		server.Name, server.Namespace, approveCommand(server, pending.Digest))
	return b.String()
}

func writeChange(b *strings.Builder, change *v1beta1.MCPServerContractChange) {
	if change == nil {
		return
	}
	for _, line := range changeLines(change) {
		b.WriteString("  " + printable(line) + "\n")
	}
}
