package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/contracts"
)

func newContract(o *options) *cobra.Command {
	var showDiff bool
	command := &cobra.Command{
		Use:   "contract NAME [--diff]",
		Short: "Show the tools, prompts and resource templates of an MCPServer, and what changed last.",
		Long: "Show the tools, prompts and resource templates of an MCPServer, and what changed last.\n\n" +
			"The first part of a digest covers the schema, and the second part the description, the title and the icons. " +
			"The status of the MCPServer has what all serving pods offered when they were last listed. " +
			"With -o, the output also has the schemas and descriptions, from the ConfigMap NAME" + v1beta1.ContractSuffix + ".\n\n" +
			"With --diff, the command compares the contract that waits for approval with the current one, or else the current one with the previous one.",
		Example: "  kubectl fixpoint mcp contract tools\n  kubectl fixpoint mcp contract tools -o yaml\n  kubectl fixpoint mcp contract tools --diff",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: o.completeServers,
		RunE: func(command *cobra.Command, args []string) error {
			return o.onServer(command.Context(), args[0], func(ctx context.Context, c *clients, server *v1beta1.MCPServer) error {
				if showDiff {
					return o.printContractDiff(ctx, c, server)
				}
				return o.printContract(ctx, c, server)
			})
		},
	}
	command.Flags().BoolVar(&showDiff, "diff", false, "Show how the schemas and descriptions differ: of the contract that waits for approval, or else of the last change.")
	o.addOutput(command)
	return command
}

// fullContract is the contract of the status, with the definitions of its items.
type fullContract struct {
	*v1beta1.MCPServerContractStatus `json:",inline"`

	Full *contracts.Stored `json:"full,omitempty"`
}

func (o *options) printContract(ctx context.Context, c client.Reader, server *v1beta1.MCPServer) error {
	contract := server.Status.Contract
	if contract == nil && (o.output == "" || server.Status.PendingContract == nil) {
		return fmt.Errorf("MCPServer %s/%s has no contract: %s", server.Namespace, server.Name, whyNoContract(server))
	}
	full := fullContract{MCPServerContractStatus: contract}
	if o.output != "" {
		stored, err := storedContracts(ctx, c, server)
		if err != nil {
			fmt.Fprintln(o.ErrOut, "Without schemas and descriptions: "+err.Error())
		} else {
			full.Full = &stored
		}
	}
	text, err := o.format(full, func() string { return contractText(contract, o.now()) + pendingText(server) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(o.Out, text)
	return err
}

// storedContracts reads the ConfigMap with the contracts, with the permissions of the user.
func storedContracts(ctx context.Context, c client.Reader, server *v1beta1.MCPServer) (contracts.Stored, error) {
	var live corev1.ConfigMap
	key := client.ObjectKey{Namespace: server.Namespace, Name: server.Name + v1beta1.ContractSuffix}
	if err := c.Get(ctx, key, &live); err != nil {
		return contracts.Stored{}, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	if !metav1.IsControlledBy(&live, server) {
		return contracts.Stored{}, fmt.Errorf("ConfigMap %s is not that of the MCPServer", key)
	}
	return contracts.Read(live.Data)
}

func (o *options) printContractDiff(ctx context.Context, c client.Reader, server *v1beta1.MCPServer) error {
	stored, err := storedContracts(ctx, c, server)
	if err != nil {
		return err
	}
	from, to := stored.Change()
	if pending := server.Status.PendingContract; pending != nil && (stored.Pending == nil || stored.Pending.Digest != pending.Digest) {
		return fmt.Errorf("the contract %s waits for approval, and its text is not stored yet: try again", printable(pending.Digest))
	}
	if to == nil || from == nil {
		_, err := fmt.Fprintln(o.Out, "No other contract is stored to compare with; -o yaml shows the one that is.")
		return err
	}
	diff := contractDiff{From: from.Digest, To: to.Digest, Incomplete: !from.Verified || !to.Verified, Items: contracts.Diff(from.ContractText, to.ContractText)}
	text, err := o.format(diff, func() string { return diffText(diff, server, stored.Pending != nil) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(o.Out, text)
	return err
}

// contractDiff is how two contracts differ.
type contractDiff struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Incomplete is true if a contract has items that are not stored, or was changed since.
	Incomplete bool                 `json:"incomplete,omitempty"`
	Items      []contracts.ItemDiff `json:"items"`
}

// diffText is for people.
func diffText(diff contractDiff, server *v1beta1.MCPServer, isPending bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", printable(diff.From), printable(diff.To))
	for _, item := range diff.Items {
		fmt.Fprintf(&b, "\n%s %s: %s\n", printable(string(item.Kind)), printable(item.Name), item.Change)
		for _, line := range item.Lines {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	if len(diff.Items) == 0 {
		b.WriteString("\nThe items that are stored are equal.\n")
	}
	if diff.Incomplete {
		b.WriteString("\nThe ConfigMap does not have all items with these digests: others may differ, too.\n")
	}
	if isPending {
		fmt.Fprintf(&b, "\nTo approve it, run %s.\n", approveCommand(server, diff.To))
	}
	return b.String()
}

func whyNoContract(server *v1beta1.MCPServer) string {
	switch {
	case server.Spec.Contract != nil && server.Spec.Contract.Policy == v1beta1.ContractDisabled:
		return "spec.contract.policy is Disabled: set it to Observe"
	case server.Spec.Protocol.Probe == v1beta1.ProbeDisabled:
		return "spec.protocol.probe is Disabled: set it to Periodic"
	case server.Status.PendingContract != nil:
		return "one waits for approval; to approve it, run " + approveCommand(server, server.Status.PendingContract.Digest)
	default:
		return "wait until the manager has read the lists of all serving pods, and they offer the same; the condition ProtocolReady says if they cannot be read"
	}
}

// contractText is for people.
func contractText(contract *v1beta1.MCPServerContractStatus, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Contract %s\n\n", printable(contract.Digest))
	if len(contract.Items) == 0 {
		b.WriteString("The server offers no tools, prompts and resource templates.\n")
	} else {
		rows := make([][]string, 0, len(contract.Items))
		for _, item := range contract.Items {
			rows = append(rows, []string{string(item.Kind), item.Name, item.Digest})
		}
		b.WriteString(table([]string{"KIND", "NAME", "DIGEST"}, rows))
	}
	if contract.Omitted > 0 {
		fmt.Fprintf(&b, "Not listed: %d more.\n", contract.Omitted)
	}
	if contract.LastChange == nil {
		b.WriteString("\nNo change is recorded.\n")
		return b.String()
	}
	fmt.Fprintf(&b, "\nLast change, %s ago:\n", ago(now, &contract.LastChange.Time))
	for _, line := range changeLines(contract.LastChange) {
		b.WriteString("  " + printable(line) + "\n")
	}
	return b.String()
}

// changeLines have one changed item each.
func changeLines(change *v1beta1.MCPServerContractChange) []string {
	var lines []string
	for _, part := range []struct {
		what  string
		names []string
	}{
		{"removed", change.Removed}, {"other schema", change.SchemaChanged}, {"other description", change.DescriptionChanged}, {"added", change.Added},
	} {
		for _, name := range part.names {
			lines = append(lines, part.what+": "+name)
		}
	}
	if len(lines) == 0 {
		return []string{"in parts that the status does not show"}
	}
	if change.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", change.Omitted))
	}
	return lines
}
