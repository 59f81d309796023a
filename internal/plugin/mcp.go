package plugin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// newMCP groups the commands for MCPServers alone.
func newMCP(o *options) *cobra.Command {
	command := &cobra.Command{Use: "mcp", Short: "Commands for MCPServers: connect, contract."}
	command.AddCommand(newConnect(o), newContract(o))
	return command
}

func newConnect(o *options) *cobra.Command {
	var at localPort
	command := &cobra.Command{
		Use:   "connect NAME [--local-port PORT]",
		Short: "Show how to configure clients for an MCPServer, or open a local port to it.",
		Long: "Show how to configure the usual clients for an MCPServer: for its external URL, or for the one within the cluster if it has no other.\n\n" +
			"Clients of a server with spec.authorization sign in by themselves; the command says at which issuers and for which scopes.\n\n" +
			"With --local-port, the command opens a port on 127.0.0.1 that leads to a ready pod of the server through the API server, with your permissions: " +
			"you need to list pods, and to get and create pods/portforward. When the pod is gone, it takes another one. " +
			"All programs of this machine can use the port while the command runs; web pages of other hosts cannot.",
		Example: "  kubectl fixpoint mcp connect tools\n" +
			"  kubectl fixpoint mcp connect tools --local-port 0\n" +
			"  kubectl fixpoint mcp connect tools --local-port 8080 --token-secret tools-token\n" +
			"  get-token | kubectl fixpoint mcp connect tools --local-port 8080 --token-file -",
		Args: cobra.ExactArgs(1), ValidArgsFunction: o.completeServers,
		RunE: func(command *cobra.Command, args []string) error {
			at.open, at.in = command.Flags().Changed("local-port"), o.In
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
	command.Flags().StringVar(&at.tokenFile, "token-file", "",
		"With --local-port: send the bearer token in this `FILE` with all requests, or the one on standard input if it is -. The file is read with each request, so that the token can be renewed.")
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
	if !at.sendsToken() {
		how.Notes = append(how.Notes, localCredentialsNote(server)...)
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
	// ClaudeDesktop are the entries of mcpServers for clients that only start programs.
	ClaudeDesktop map[string]programEntry `json:"claudeDesktop"`
	Curl          string                  `json:"curl"`
	// Authorization is what clients need to sign in; nil if they need not, or if that is not known.
	Authorization *signIn  `json:"authorization,omitempty"`
	Notes         []string `json:"notes,omitempty"`

	name, transport, version string
}

type clientEntry struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

// programEntry is a program that relays messages on its standard input and output to a URL.
type programEntry struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// relay runs mcp-remote, the usual program for that. It refuses http URLs of other hosts otherwise.
func relay(url, transport string) programEntry {
	entry := programEntry{"npx", []string{"-y", "mcp-remote", url}}
	if strings.HasPrefix(url, "http:") {
		entry.Args = append(entry.Args, "--allow-http")
	}
	if transport == "sse" {
		entry.Args = append(entry.Args, "--transport", "sse-only")
	}
	return entry
}

// signIn is how clients get a token.
type signIn struct {
	Issuers []string `json:"issuers"`
	// Resource is the URL that tokens must be for.
	Resource string `json:"resource"`
	// Scopes are those that all requests need, and ToolScopes further ones by the names of tools.
	Scopes     []string            `json:"scopes,omitempty"`
	ToolScopes map[string][]string `json:"toolScopes,omitempty"`
}

// signInOf is nil if the server does not check tokens by spec.authorization.
func signInOf(server *v1beta1.MCPServer) *signIn {
	authorization := server.Spec.Authorization
	if authorization == nil {
		return nil
	}
	how := &signIn{Resource: publicURL(server), Scopes: authorization.Scopes}
	for _, issuer := range authorization.Issuers {
		how.Issuers = append(how.Issuers, issuer.Issuer)
	}
	for _, tool := range authorization.Tools {
		if how.ToolScopes == nil {
			how.ToolScopes = map[string][]string{}
		}
		how.ToolScopes[tool.Name] = append(how.ToolScopes[tool.Name], tool.Scopes...)
	}
	return how
}

// publicURL is the URL that clients use: with spec.authorization, tokens are for exactly this one.
func publicURL(server *v1beta1.MCPServer) string {
	if authorization := server.Spec.Authorization; authorization != nil && authorization.Resource != "" {
		return authorization.Resource
	}
	return cmp.Or(server.Status.ExternalEndpoint, server.Status.Endpoint)
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
	how.Authorization = signInOf(server)
	how.setURL(publicURL(server))
	how.Notes = append(notReady(server), credentialsNote(server)...)
	if how.URL == server.Status.Endpoint {
		how.Notes = append(how.Notes, "The URL is that within the cluster. To connect from this machine, add --local-port 0.")
	}
	return how
}

func (how *connection) setURL(url string) {
	how.URL = url
	entry := map[string]clientEntry{how.name: {how.transport, url}}
	how.MCPServers, how.Servers, how.Curl = entry, entry, how.curl()
	how.ClaudeDesktop = map[string]programEntry{how.name: relay(url, how.transport)}
}

func notReady(server *v1beta1.MCPServer) []string {
	if meta.IsStatusConditionTrue(server.Status.Conditions, v1beta1.ConditionReady) {
		return nil
	}
	return []string{fmt.Sprintf("The server is not Ready: run kubectl fixpoint why mcpserver/%s -n %s.", server.Name, server.Namespace)}
}

// credentialsNote says that clients need a token, if the manager knows.
func credentialsNote(server *v1beta1.MCPServer) []string {
	if how := signInOf(server); how != nil {
		return how.notes()
	}
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

// notes say what a client does to sign in. It needs the issuers and the scopes only if it does not find them by itself.
func (s *signIn) notes() []string {
	notes := []string{"The server requires a token. Clients find out how, and let you sign in at " + strings.Join(s.Issuers, ", ") + "."}
	if len(s.Scopes) > 0 {
		notes = append(notes, "Scopes: "+strings.Join(s.Scopes, " ")+".")
	}
	for _, tool := range slices.Sorted(maps.Keys(s.ToolScopes)) {
		notes = append(notes, "Scopes for the tool "+tool+": "+strings.Join(s.ToolScopes[tool], " ")+".")
	}
	return append(notes,
		"Use exactly the URL above, because tokens are for it.",
		"If the issuer registers no clients by itself, register one there, and set its client ID in the client.")
}

// localCredentialsNote says how a token gets through a local port, which is not the URL that tokens are for.
func localCredentialsNote(server *v1beta1.MCPServer) []string {
	how := signInOf(server)
	if how == nil {
		return credentialsNote(server)
	}
	return []string{"The server requires a token for " + how.Resource + ", so clients cannot sign in through the local port: add --token-file FILE with such a token, or --token-secret NAME/KEY."}
}

// tokenKey is the default key of a token in a Secret.
const tokenKey = "token"

func credentialsKey(ref *v1beta1.MCPServerCredentialsSecretRef) string {
	return cmp.Or(ref.Key, tokenKey)
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

func quotedForShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// curl is a command that shows that the server responds.
func (how *connection) curl() string {
	url := quotedForShell(how.URL)
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
	fmt.Fprintf(&b, "Claude Code:\nclaude mcp add --transport %s %s %s\n\n", how.transport, how.name, quotedForShell(how.URL))
	fmt.Fprintf(&b, "Claude Code (.mcp.json), Cursor (.cursor/mcp.json) and other clients with mcpServers:\n%s\n", indentedJSON(map[string]any{"mcpServers": how.MCPServers}))
	fmt.Fprintf(&b, "Visual Studio Code (.vscode/mcp.json):\n%s\n", indentedJSON(map[string]any{"servers": how.Servers}))
	fmt.Fprintf(&b, "Claude Desktop (claude_desktop_config.json, with Node.js; or a custom connector if the URL is on the internet):\n%s\n",
		indentedJSON(map[string]any{"mcpServers": how.ClaudeDesktop}))
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
