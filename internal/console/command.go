package console

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/pkg/browser"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

// DefaultPort is the port of the console on the user's machine.
const DefaultPort = 3000

// Command is kubectl fixpoint console.
func Command(streams genericiooptions.IOStreams, load func() (*rest.Config, error)) *cobra.Command {
	var port, eventsLimit int
	var noOpen bool
	var cloud plugin.Cloud
	command := &cobra.Command{
		Use:   "console [--port 3000] [--no-open]",
		Short: "Serve the web console on localhost with your own permissions, and open it.",
		Long: "Serve the web console on localhost with your own permissions, and open it in a browser. Only the browser that opens the printed URL " +
			"can use it, and the URL works once.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := load()
			if err != nil {
				return err
			}
			local, err := Listen(port, Options{Config: config, EventsLimit: eventsLimit, Cloud: cloud})
			if err != nil {
				return err
			}
			fmt.Fprintf(streams.Out, "The console is at %s\nThe URL works once. Ctrl-C stops the console.\n", local.URL())
			if !noOpen {
				remove, err := local.openBrowser()
				defer remove()
				if err != nil {
					fmt.Fprintln(streams.ErrOut, "No browser could be opened: open the URL yourself.")
				}
			}
			return local.Run(command.Context())
		},
	}
	command.Flags().IntVar(&port, "port", DefaultPort, "Port on localhost; 0 selects a free one.")
	command.Flags().BoolVar(&noOpen, "no-open", false, "Do not open a browser.")
	command.Flags().IntVar(&eventsLimit, "events-limit", DefaultEventsLimit, "How many Events the console returns at most.")
	command.Flags().StringVar(&cloud.Endpoint, "cloud-endpoint", "", "For plans: URL of the Azure Resource Manager endpoint, if it is not that of public Azure.")
	command.Flags().StringVar(&cloud.TokenFile, "cloud-token-file", "", "For plans: `FILE` with a bearer token for --cloud-endpoint. By default, your Azure login is used.")
	return command
}

// Local is a console on the user's machine.
type Local struct {
	*Server
	listener net.Listener
	address  string
}

// Listen returns a console with the credential of the kubeconfig, which listens on a port of localhost.
func Listen(port int, o Options) (*Local, error) {
	if port < 0 || port > 65535 {
		return nil, fmt.Errorf("--port is %d: set a port from 0 to 65535", port)
	}
	if o.EventsLimit < 1 {
		return nil, fmt.Errorf("--events-limit is %d: set a positive number", o.EventsLimit)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listening on --port: %w; set a free port, or 0", err)
	}
	_, o.Port, err = net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	o.Config = rest.CopyConfig(o.Config)
	o.Mode, o.Hosts = ModeKubeconfig, []string{"localhost", "127.0.0.1", "::1"}
	server, err := New(o)
	// Not localhost: another user may listen on the same port of ::1, and would receive the code.
	return &Local{server, listener, "http://" + listener.Addr().String()}, err
}

// URL signs in the browser that opens it first.
func (l *Local) URL() string { return l.address + "/open?code=" + l.Code() }

// Run serves until the context ends.
func (l *Local) Run(ctx context.Context) error { return l.Serve(ctx, l.listener) }

// openBrowser opens the URL by a file that only the user can read: all users can read the arguments of a process.
func (l *Local) openBrowser() (remove func(), err error) {
	dir, err := os.MkdirTemp("", "fixpoint-console-")
	if err != nil {
		return func() {}, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	page := filepath.Join(dir, "open.html")
	content := `<!doctype html><title>Fixpoint</title><meta http-equiv="refresh" content="0; url=` + l.URL() + `">`
	if err := os.WriteFile(page, []byte(content), 0o600); err != nil {
		return remove, err
	}
	browser.Stdout, browser.Stderr = io.Discard, io.Discard
	return remove, browser.OpenFile(page)
}
