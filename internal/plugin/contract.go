package plugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func newContract(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "contract NAME",
		Short: "Show the tools, prompts and resource templates of an MCPServer, and what changed last.",
		Long: "Show the tools, prompts and resource templates of an MCPServer, and what changed last.\n\n" +
			"The first part of a digest covers the schema, and the second part the description, the title and the icons. " +
			"The status of the MCPServer has what all serving pods offered when they were last listed.",
		Example: "  kubectl fixpoint mcp contract tools\n  kubectl fixpoint mcp contract tools -o json",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: o.completeServers,
		RunE: func(command *cobra.Command, args []string) error {
			return o.onServer(command.Context(), args[0], func(_ context.Context, _ *clients, server *v1beta1.MCPServer) error {
				return o.printContract(server)
			})
		},
	}
	o.addOutput(command)
	return command
}

func (o *options) printContract(server *v1beta1.MCPServer) error {
	contract := server.Status.Contract
	if contract == nil {
		return fmt.Errorf("MCPServer %s/%s has no contract: %s", server.Namespace, server.Name, whyNoContract(server))
	}
	text, err := o.format(contract, func() string { return contractText(contract, o.now()) + pendingText(server) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(o.Out, text)
	return err
}

func whyNoContract(server *v1beta1.MCPServer) string {
	switch {
	case server.Spec.Contract != nil && server.Spec.Contract.Policy == v1beta1.ContractDisabled:
		return "spec.contract.policy is Disabled: set it to Observe"
	case server.Spec.Protocol.Probe == v1beta1.ProbeDisabled:
		return "spec.protocol.probe is Disabled: set it to Periodic"
	case server.Status.PendingContract != nil:
		return "kubectl fixpoint mcp approve " + server.Name + " approves " + printable(server.Status.PendingContract.Digest)
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
