package plugin

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// newMCP groups the commands for MCPServers alone.
func newMCP(o *options) *cobra.Command {
	command := &cobra.Command{Use: "mcp", Short: "Commands for MCPServers: approve, connect, contract."}
	command.AddCommand(newApprove(o), newConnect(o), newContract(o))
	return command
}

func newConnect(o *options) *cobra.Command {
	var at localPort
	command := &cobra.Command{
		Use:   "connect NAME [--local-port PORT]",
		Short: "Show how to configure clients for an MCPServer, or open a local port to it.",
		Long: "Show how to configure the usual clients for an MCPServer: for its external URL, or for the one within the cluster if it has no other.\n\n" +
			"With --local-port, the command opens a port on 127.0.0.1 that leads to a ready pod of the server through the API server, with your permissions: " +
			"you need to list pods, and to get and create pods/portforward. When the pod is gone, it takes another one. " +
			"All programs of this machine can use the port while the command runs; web pages of other hosts cannot.",
		Example: "  kubectl fixpoint mcp connect tools\n" +
			"  kubectl fixpoint mcp connect tools --local-port 0\n" +
			"  kubectl fixpoint mcp connect tools --local-port 8080 --token-secret tools-token",
		Args: cobra.ExactArgs(1), ValidArgsFunction: o.completeServers,
		RunE: func(command *cobra.Command, args []string) error {
			at.open = command.Flags().Changed("local-port")
			if err := at.check(); err != nil {
				return err
			}
			return o.onServer(command.Context(), args[0], func(ctx context.Context, c *clients, server *v1beta1.MCPServer) error {
				return o.connectTo(ctx, c, server, at)
			})
		},
	}
	command.Flags().IntVar(&at.port, "local-port", 0, "Open this `PORT` on 127.0.0.1 until Ctrl-C; 0 selects a free one.")
	command.Flags().StringVar(&at.tokenSecret, "token-secret", "",
		"With --local-port: read a bearer token from the Secret `NAME[/KEY]` with your permissions, and send it with all requests. The default key is token.")
	o.addOutput(command)
	return command
}

// onServer runs a command for the MCPServer that the argument names, with or without its kind.
func (o *options) onServer(ctx context.Context, name string, do func(context.Context, *clients, *v1beta1.MCPServer) error) error {
	if !strings.Contains(name, "/") {
		name = "mcpserver/" + name
	}
	return o.onOne(ctx, []string{name}, func(ctx context.Context, c *clients, live object) error {
		server, ok := live.Object.(*v1beta1.MCPServer)
		if !ok {
			return fmt.Errorf("%s is no MCPServer: give the name of one", live)
		}
		return do(ctx, c, server)
	})
}

func (o *options) connectTo(ctx context.Context, c *clients, server *v1beta1.MCPServer, at localPort) error {
	if server.Status.Endpoint == "" {
		return fmt.Errorf("MCPServer %s/%s has no URL yet: wait until the manager has reconciled it", server.Namespace, server.Name)
	}
	if !at.open {
		return o.printConnection(connectionOf(server))
	}
	local, err := c.listen(ctx, server, at, func(message string) { fmt.Fprintln(o.ErrOut, message) })
	if err != nil {
		return err
	}
	how := connectionOf(server)
	how.setURL(local.url)
	how.Notes = notReady(server)
	if at.tokenSecret == "" {
		how.Notes = append(how.Notes, credentialsNote(server)...)
	}
	how.Notes = append(how.Notes, "Ctrl-C closes the port.")
	if err := o.printConnection(how); err != nil {
		_ = local.listener.Close()
		return err
	}
	return local.serve(ctx)
}

// connection is how clients reach an MCPServer.
type connection struct {
	URL string `json:"url"`
	// MCPServers and Servers are what clients have in their configuration, under these names.
	MCPServers map[string]clientEntry `json:"mcpServers"`
	Servers    map[string]clientEntry `json:"servers"`
	Curl       string                 `json:"curl"`
	Notes      []string               `json:"notes,omitempty"`

	name, transport, version string
}

type clientEntry struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

// connectionOf is how clients reach a server that has a URL.
func connectionOf(server *v1beta1.MCPServer) connection {
	how := connection{name: server.Name, transport: "http"}
	if server.Spec.Transport == v1beta1.TransportSSE {
		how.transport = "sse"
	}
	if server.Status.Server != nil {
		how.version = server.Status.Server.ProtocolVersion
	}
	how.Notes = append(notReady(server), credentialsNote(server)...)
	if server.Status.ExternalEndpoint != "" {
		how.setURL(server.Status.ExternalEndpoint)
		return how
	}
	how.setURL(server.Status.Endpoint)
	how.Notes = append(how.Notes, "The URL is that within the cluster. To connect from this machine, add --local-port 0.")
	return how
}

func (how *connection) setURL(url string) {
	how.URL = url
	entry := map[string]clientEntry{how.name: {how.transport, url}}
	how.MCPServers, how.Servers, how.Curl = entry, entry, how.curl()
}

func notReady(server *v1beta1.MCPServer) []string {
	if meta.IsStatusConditionTrue(server.Status.Conditions, v1beta1.ConditionReady) {
		return nil
	}
	return []string{fmt.Sprintf("The server is not Ready: run kubectl fixpoint why mcpserver/%s -n %s.", server.Name, server.Namespace)}
}

// credentialsNote says that clients need a token, if the manager knows.
func credentialsNote(server *v1beta1.MCPServer) []string {
	const header = "The server requires credentials: let the client sign in, or configure the header Authorization. "
	if ref := server.Spec.Protocol.CredentialsSecretRef; ref != nil {
		return []string{header + "To send the token of the probes through a local port, add --local-port 0 --token-secret " + ref.Name + "/" + credentialsKey(ref) + "."}
	}
	condition := meta.FindStatusCondition(server.Status.Conditions, v1beta1.ConditionProtocolReady)
	if condition != nil && condition.Reason == v1beta1.ReasonCredentialsRequired {
		return []string{header + "To send a token of a Secret through a local port, add --local-port 0 --token-secret NAME/KEY."}
	}
	return nil
}

// tokenKey is the default key of a token in a Secret.
const tokenKey = "token"

func credentialsKey(ref *v1beta1.MCPServerCredentialsSecretRef) string {
	if ref.Key == "" {
		return tokenKey
	}
	return ref.Key
}

// firstStateless is the first version of the specification without initialize. Versions are dates.
const firstStateless = "2026-07-28"

// Messages to which a server responds without others before.
const (
	initializeMessage = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"curl","version":"0"}}}`
	discoverMessage = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"` + firstStateless + `","io.modelcontextprotocol/clientCapabilities":{},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"curl","version":"0"}}}}`
)

// curl is a command that shows that the server responds.
func (how *connection) curl() string {
	url := "'" + strings.ReplaceAll(how.URL, "'", `'\''`) + "'"
	if how.transport == "sse" {
		return "curl -sSN " + url
	}
	post := "curl -sS " + url + " -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\\n"
	if how.version >= firstStateless {
		return post + "  -H 'Mcp-Protocol-Version: " + firstStateless + "' -H 'Mcp-Method: server/discover' \\\n  -d '" + discoverMessage + "'"
	}
	return post + "  -d '" + initializeMessage + "'"
}

func (o *options) printConnection(how connection) error {
	text, err := o.format(how, func() string { return connectionText(how) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(o.Out, text)
	return err
}

// connectionText is for people, who copy the parts.
func connectionText(how connection) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", how.URL)
	fmt.Fprintf(&b, "Claude Code (.mcp.json), Cursor (.cursor/mcp.json) and other clients with mcpServers:\n%s\n", indentedJSON(map[string]any{"mcpServers": how.MCPServers}))
	fmt.Fprintf(&b, "Visual Studio Code (.vscode/mcp.json):\n%s\n", indentedJSON(map[string]any{"servers": how.Servers}))
	fmt.Fprintf(&b, "curl:\n%s\n", how.Curl)
	for i, note := range how.Notes {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString(note + "\n")
	}
	return b.String()
}

// indentedJSON is text for a configuration file.
func indentedJSON(value any) string {
	var printer options
	printer.output = "json"
	text, err := printer.format(value, nil)
	if err != nil {
		panic(err) // strings in maps can be serialized
	}
	return text
}
