// Command provider serves the identity provider of the tests, and prints its issuer.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/fixpoint-dev/fixpoint/test/identity/provider"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		issuer := "http://" + strings.Replace(listener.Addr().String(), "127.0.0.1", "localhost", 1)
		fmt.Fprintln(os.Stderr, "Issuer "+issuer)
		server := &http.Server{Handler: provider.New(issuer, "secret"), ReadHeaderTimeout: time.Minute}
		err = server.Serve(listener)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
