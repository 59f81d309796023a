package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// settings are the parsed flags.
type settings struct {
	options fakecloud.Options
	listen  string
	preset  string
	demo    bool
	clients map[string]string

	tls      bool
	certFile string
	keyFile  string
	caFile   string
	hosts    []string
}

// pairs collects NAME=VALUE flags.
type pairs map[string]string

func (p pairs) String() string { return "" }

func (p pairs) Set(text string) error {
	name, value, found := strings.Cut(text, "=")
	if !found || name == "" {
		return errors.New("use NAME=VALUE")
	}
	p[name] = value
	return nil
}

// parse parses the flags. Its errors name the flag and the remedy.
func parse(args []string, usage io.Writer) (*settings, error) {
	s := &settings{options: fakecloud.Options{Clock: &fakecloud.ShiftedClock{}}}
	tokens, clients := pairs{}, pairs{}
	hosts := ""
	flags := flag.NewFlagSet("fake-cloud", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.listen, "listen", "127.0.0.1:7443", "Address to listen on. Requests are not authorized, so use a loopback address.")
	flags.StringVar(&s.preset, "knobs", "realistic/100", "Delays and limits: instant, realistic, or realistic/N with delays divided by N.")
	flags.Int64Var(&s.options.Seed, "seed", 1, "Seed of all random decisions.")
	flags.StringVar(&s.options.StateFile, "state", "", "`File` that keeps the state across restarts. By default, the state is lost.")
	flags.BoolVar(&s.demo, "demo", false, "Create a subscription, a resource group, and a key vault with purge protection and a key.")
	flags.Var(tokens, "token", "Bearer token and name of a caller, as `TOKEN=NAME`; may be repeated. By default, fakecloud:NAME is the token of NAME.")
	flags.Var(clients, "client", "Client ID and secret of an application, as `ID=SECRET`; may be repeated.")
	flags.BoolVar(&s.tls, "tls", false, "Serve HTTPS, with a generated certificate unless --tls-cert is set.")
	flags.StringVar(&s.certFile, "tls-cert", "", "Certificate `file`; implies --tls.")
	flags.StringVar(&s.keyFile, "tls-key", "", "Key `file` of the certificate.")
	flags.StringVar(&s.caFile, "tls-ca-out", filepath.Join(os.TempDir(), "fake-cloud-ca.pem"), "`File` to write the CA of the generated certificate to.")
	flags.StringVar(&hosts, "tls-hosts", "", "Additional host names and addresses of the generated certificate, separated by commas.")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(usage)
			flags.Usage()
			return nil, err
		}
		return nil, fmt.Errorf("%w: see --help", err)
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0))
	}
	if len(tokens) > 0 {
		s.options.Tokens = tokens
	}
	if hosts != "" {
		s.hosts = strings.Split(hosts, ",")
	}
	s.clients = clients
	return s, s.check()
}

func (s *settings) check() error {
	knobs, err := fakecloud.Preset(s.preset)
	if err != nil {
		return fmt.Errorf("--knobs: %w", err)
	}
	s.options.Knobs = knobs
	if (s.certFile == "") != (s.keyFile == "") {
		return errors.New("--tls-cert and --tls-key must be set together")
	}
	s.tls = s.tls || s.certFile != ""
	if _, _, err := net.SplitHostPort(s.listen); err != nil {
		return fmt.Errorf("--listen: %w; use an address and a port, such as 127.0.0.1:7443", err)
	}
	return nil
}
