package main

import (
	"context"
	"fmt"
	"os"
)

// writeToken writes the token of a replica of the manager to a file, before the manager starts.
func writeToken(context.Context) error {
	if err := os.WriteFile(os.Getenv("TOKEN_FILE"), []byte(os.Getenv("TOKEN")), 0o644); err != nil {
		return fmt.Errorf("writing the token: %w", err)
	}
	return nil
}
