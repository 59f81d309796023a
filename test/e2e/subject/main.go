// Command subject is the program in the pods of the end-to-end tests: a web application, MCP servers of each transport,
// and a client.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

var roles = map[string]func(context.Context) error{
	"pause":    pause,
	"web":      serveWeb,
	"mcp-http": serveStreamable,
	"mcp-sse":  serveSSE,
	"stdio":    serveStdio,
	"client":   serveClient,
	"token":    writeToken,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	role, err := chosen()
	if err == nil {
		err = role(ctx)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "subject: "+err.Error())
		os.Exit(1)
	}
}

// packages has the roles of the transports that a package for npx takes as its argument.
var packages = map[string]string{"streamableHttp": "mcp-http", "sse": "mcp-sse"}

// chosen returns the role from the command line. Called as npx, the program acts as a server in a Node image: as one
// for stdio, unless the last argument is another transport.
func chosen() (func(context.Context) error, error) {
	if len(os.Args) < 2 {
		return nil, errors.New("name a role")
	}
	name := os.Args[1]
	if filepath.Base(os.Args[0]) == "npx" {
		name = cmp.Or(packages[os.Args[len(os.Args)-1]], "stdio")
	}
	role, known := roles[name]
	if !known {
		return nil, fmt.Errorf("unknown role %q", name)
	}
	return role, nil
}

// pause keeps a pod's namespaces.
func pause(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// port returns the port in the environment, or the default.
func port(usual string) string {
	if p := os.Getenv("PORT"); p != "" {
		return ":" + p
	}
	return ":" + usual
}

// serve serves until ctx is done, continues for a while because endpoints are removed with a delay, and then completes the
// requests in progress.
func serve(ctx context.Context, address string, handler http.Handler, goOn time.Duration) error {
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-failed:
		return err
	case <-time.After(goOn):
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return server.Shutdown(ending)
}
