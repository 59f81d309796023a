package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"

	"github.com/fixpoint-dev/fixpoint/internal/console"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// startConsole serves the console with the credential of the cluster's administrator, until the context ends. It listens
// on the port of kubectl fixpoint console, or on a free one if that is used.
func startConsole(ctx context.Context, c *cluster.Cluster, external *externalServices) (*console.Local, error) {
	token := filepath.Join(c.Dir(), "console-cloud-token")
	if err := os.WriteFile(token, []byte(fakecloud.Token("console")), 0o600); err != nil {
		return nil, fmt.Errorf("starting the console: %w", err)
	}
	options := console.Options{
		Config: c.Admin(), EventsLimit: console.DefaultEventsLimit, FakeCloud: external.endpoint.URL,
		Cloud: plugin.Cloud{Endpoint: external.endpoint.URL, TokenFile: token}, Log: logr.Discard(),
	}
	local, err := console.Listen(console.DefaultPort, options)
	if err != nil {
		if local, err = console.Listen(0, options); err != nil {
			return nil, fmt.Errorf("starting the console: %w", err)
		}
	}
	go func() { _ = local.Run(ctx) }() // it ends with this process
	return local, nil
}
