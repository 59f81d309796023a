package main

import (
	"fmt"
	"io"
	"os"
)

// terminationBytes is the maximum length of a termination message in Kubernetes.
const terminationBytes = 4 << 10

// report writes the error to stderr and to the termination log.
func report(stderr io.Writer, terminationLog string, err error) {
	message := "mcp-bridge: " + err.Error()
	fmt.Fprintln(stderr, message)
	if terminationLog == "" {
		return
	}
	// Kubernetes creates the file; outside of a pod it does not exist and is not created.
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
