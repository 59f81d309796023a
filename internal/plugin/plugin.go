package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// exitError ends the program with a code of its own. The message is empty if everything has been printed.
type exitError struct {
	code    int
	message string
}

func (e *exitError) Error() string { return e.message }

// Exit codes, beside 0.
const (
	exitFailure = 1
	// exitChanges is the code of plan if there is something to do.
	exitChanges = 2
)

// Command makes a command that is not of this package. Its config is what the kubeconfig and the flags of all commands give.
type Command func(streams genericiooptions.IOStreams, config func() (*rest.Config, error)) *cobra.Command

// Run runs the plugin and returns the exit code.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams, more ...Command) int {
	root := New(streams, more...)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code := exitFailure
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	if err.Error() != "" {
		printError(streams.ErrOut, err.Error())
	}
	return code
}

// printError keeps the lines of a message.
func printError(out io.Writer, message string) {
	lines := strings.Split(message, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	fmt.Fprintln(out, "error: "+strings.Join(lines, "\n"))
}

// options are what all commands share.
type options struct {
	genericiooptions.IOStreams
	kubeconfig    clientcmd.ClientConfig
	allNamespaces bool
	output        string
	now           func() time.Time
}

// New returns the root command.
func New(streams genericiooptions.IOStreams, more ...Command) *cobra.Command {
	o := &options{IOStreams: streams, now: time.Now}
	root := &cobra.Command{
		Use:   "kubectl-fixpoint",
		Short: "Show and operate AppServices, MCPServers and SecureStorages.",
		Long: "Show and operate AppServices, MCPServers and SecureStorages.\n\n" +
			"The plugin uses your kubeconfig and your permissions. It needs no permissions beyond those of the objects that it shows.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fixpoint"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	o.kubeconfig = kubeconfig(root.PersistentFlags())
	root.AddCommand(
		newStatus(o), newTree(o), newWhy(o), newPlan(o), newDrift(o), newBlame(o),
		newSuspend(o), newResume(o), newReconcile(o), newAdopt(o), newRelease(o), newImport(o), newMCP(o), newApprove(o), newReport(o), newVersion(o),
	)
	for _, command := range more {
		root.AddCommand(command(streams, o.restConfig))
	}
	completeFlags(root, o)
	return root
}

// addAllNamespaces adds the flag -A.
func (o *options) addAllNamespaces(command *cobra.Command) {
	command.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Use all namespaces.")
}

// addOutput adds the flag -o.
func (o *options) addOutput(command *cobra.Command) {
	command.Flags().StringVarP(&o.output, "output", "o", "", "Output format: json or yaml. The default is for people.")
}

// checkOutput refuses unknown formats before anything is read.
func (o *options) checkOutput() error {
	switch o.output {
	case "", "json", "yaml":
		return nil
	default:
		return fmt.Errorf("--output is %q: set json or yaml, or leave it out", o.output)
	}
}

// notesText is what is not shown; empty if nothing is missing.
func notesText(notes []string) string {
	var b strings.Builder
	for _, note := range notes {
		b.WriteString("\nNot shown: " + printable(note) + ".\n")
	}
	return b.String()
}

// formatList is format for rows. JSON and YAML of rows have no place for notes, which go to the standard error.
func (o *options) formatList(rows any, notes string, text func() string) (string, error) {
	if o.output != "" {
		fmt.Fprint(o.ErrOut, notes)
	}
	return o.format(rows, func() string { return text() + notes })
}

// formatOne is format for one of several values, each of which is a document of its own.
func (o *options) formatOne(value any, text func() string) (string, error) {
	formatted, err := o.format(value, text)
	return o.separator() + formatted, err
}

// separator is what begins each of several documents.
func (o *options) separator() string {
	if o.output == "yaml" {
		return "---\n"
	}
	return ""
}

// format is the value as JSON or YAML, or the text for people.
func (o *options) format(value any, text func() string) (string, error) {
	switch o.output {
	case "":
		return text(), nil
	case "yaml":
		raw, err := yaml.Marshal(value)
		if err != nil {
			return "", fmt.Errorf("serializing the output: %w", err)
		}
		return string(raw), nil
	default:
		var b strings.Builder
		encoder := json.NewEncoder(&b)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(value); err != nil {
			return "", fmt.Errorf("serializing the output: %w", err)
		}
		return b.String(), nil
	}
}
