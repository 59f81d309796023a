package main

import (
	"fmt"
	"io"
	"os"
)

// terminationBytes is what Kubernetes shows of a termination message.
const terminationBytes = 4 << 10

// report says why the bridge ends, also where Kubernetes looks for it.
func report(stderr io.Writer, terminationLog string, err error) {
	message := "mcp-bridge: " + err.Error()
	fmt.Fprintln(stderr, message)
	if terminationLog == "" {
		return
	}
	// Kubernetes makes the file; outside of a pod there is none to be made.
	file, openErr := os.OpenFile(terminationLog, os.O_WRONLY|os.O_TRUNC, 0)
	if openErr != nil {
		return
	}
	defer file.Close()
	if len(message) > terminationBytes {
		message = message[:terminationBytes]
	}
	if _, writeErr := io.WriteString(file, message); writeErr != nil {
		fmt.Fprintf(stderr, "mcp-bridge: writing %s: %v\n", terminationLog, writeErr)
	}
}
