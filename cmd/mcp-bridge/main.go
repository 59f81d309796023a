// Command mcp-bridge serves a stdio MCP server over streamable HTTP. It is one
// static binary: an init container copies it to a shared volume (mcp-bridge
// install), and the container of the server runs it (mcp-bridge serve). In front
// of an MCP server that serves HTTP itself, it checks access tokens, applies
// limits, records requests and forwards sessions to their replicas (mcp-bridge proxy).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/fixpoint-dev/fixpoint/internal/authorization"
	"github.com/fixpoint-dev/fixpoint/internal/bridge"
)

// Exit codes. Those for invalid commands are the same as in a shell.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNoHandshake = 3
	exitCannotRun   = 126
	exitNotFound    = 127
	usage           = `usage:
  mcp-bridge serve [flags] -- command [args...]   serve the command over HTTP
  mcp-bridge proxy [flags]                        check access tokens, apply limits, record requests and route sessions in front of an HTTP server
  mcp-bridge install PATH [CERTIFICATES]          copy this program to PATH, and the CA certificates to CERTIFICATES
  mcp-bridge serve -h, mcp-bridge proxy -h        list the flags
`
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	switch args[0] {
	case "serve":
		return runServe(args[1:], stdout, stderr)
	case "proxy":
		return runProxy(args[1:], stdout, stderr)
	case "install":
		return runInstall(args[1:], stderr)
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
		return 0
	default:
		fmt.Fprintf(stderr, "mcp-bridge: unknown command %q\n%s", args[0], usage)
		return exitUsage
	}
}

func runInstall(args []string, stderr io.Writer) int {
	if len(args) != 1 && len(args) != 2 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	err := install(args[0])
	if err == nil && len(args) == 2 {
		err = installFile(caCertificates, args[1], 0o644)
	}
	if err != nil {
		fmt.Fprintf(stderr, "mcp-bridge: installing: %v\n", err)
		return exitFailed
	}
	return 0
}

func runServe(args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		report(stderr, cfg.terminationLog, err)
		return exitUsage
	}
	ctx, force, stop := signals()
	defer stop()
	if err := serve(ctx, force, cfg, stdout, stderr); err != nil {
		report(stderr, cfg.terminationLog, err)
		return exitCode(err)
	}
	return 0
}

func serve(ctx, force context.Context, cfg config, stdout, stderr io.Writer) error {
	log := newLogger(stderr, cfg.verbosity)
	if err := bridge.AdoptOrphans(); err != nil {
		log.Info("Orphaned processes are not reaped", "error", err.Error())
	}
	cfg.options.Log = log
	cfg.options.ReapAll = true
	cfg.options.MemoryBytes = limitMemory(os.Getenv, cgroup)
	front, err := newProtection(stdout, log, &cfg.protection, cfg.options.MaxMessageBytes)
	if err != nil {
		return err
	}
	defer closeRecorder(front.recorder, log)
	cfg.options.DrainTimeout = cfg.protection.telemetry.drainTimeout(cfg.options.DrainTimeout)
	cfg.options.Protect, cfg.options.Collectors = front.protect, front.metrics.Collectors()
	if front.authorizer != nil {
		cfg.options.Caller = authorization.Caller
		go front.authorizer.Prefetch(ctx)
	}
	listeners, err := cfg.listen()
	if err != nil {
		return err
	}
	b, err := bridge.New(cfg.options)
	if err != nil {
		return err
	}
	return b.Serve(ctx, force, listeners)
}

func exitCode(err error) int {
	var command *bridge.CommandError
	var handshake *bridge.HandshakeError
	switch {
	case errors.As(err, &command) && command.Missing:
		return exitNotFound
	case errors.As(err, &command):
		return exitCannotRun
	case errors.As(err, &handshake):
		return exitNoHandshake
	default:
		return exitFailed
	}
}
