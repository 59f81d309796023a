package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
)

// signals returns contexts that are cancelled by the first and by the second
// SIGTERM or SIGINT.
func signals() (first, second context.Context, stop func()) {
	first, cancelFirst := context.WithCancel(context.Background())
	second, cancelSecond := context.WithCancel(context.Background())
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for range caught {
			if first.Err() == nil {
				cancelFirst()
				continue
			}
			cancelSecond()
		}
	}()
	return first, second, func() {
		signal.Stop(caught)
		close(caught)
		cancelFirst()
		cancelSecond()
	}
}

// newLogger logs JSON lines.
func newLogger(w io.Writer, verbosity int) logr.Logger {
	return logr.FromSlogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.Level(-verbosity)}))
}
