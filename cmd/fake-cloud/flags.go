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

// settings are what the command line says.
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
		return errors.New("write NAME=VALUE")
	}
	p[name] = value
	return nil
}

// parse reads the command line. An error says which flag is wrong and what would be right.
func parse(args []string, usage io.Writer) (*settings, error) {
	s := &settings{options: fakecloud.Options{Clock: &fakecloud.ShiftedClock{}}}
	tokens, clients := pairs{}, pairs{}
	hosts := ""
	flags := flag.NewFlagSet("fake-cloud", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.listen, "listen", "127.0.0.1:7443", "Address to listen on. Everybody who reaches it may do everything, so think before you open it.")
	flags.StringVar(&s.preset, "knobs", "realistic/100", "Manners: instant, realistic, or realistic/N with delays compressed N times.")
	flags.Int64Var(&s.options.Seed, "seed", 1, "Number that decides all that is left to chance.")
	flags.StringVar(&s.options.StateFile, "state", "", "`File` that keeps the state over a restart; without it a restart forgets everything.")
	flags.BoolVar(&s.demo, "demo", false, "Make a subscription, a resource group, and a vault with purge protection and a key.")
	flags.Var(tokens, "token", "`TOKEN=NAME` of a caller; may be repeated. Without any, fakecloud:NAME is the token of NAME.")
	flags.Var(clients, "client", "`ID=SECRET` of an application that may log in; may be repeated.")
	flags.BoolVar(&s.tls, "tls", false, "Serve HTTPS, with a certificate made for it unless one is given.")
	flags.StringVar(&s.certFile, "tls-cert", "", "Certificate `file`; implies --tls.")
	flags.StringVar(&s.keyFile, "tls-key", "", "Key `file` of the certificate.")
	flags.StringVar(&s.caFile, "tls-ca-out", filepath.Join(os.TempDir(), "fake-cloud-ca.pem"), "`File` to write the authority of a certificate made here to, for clients to trust.")
	flags.StringVar(&hosts, "tls-hosts", "", "More host names and addresses for a certificate made here, separated by commas.")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(usage)
			flags.Usage()
			return nil, err
		}
		return nil, fmt.Errorf("%w: see --help", err)
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: every setting is a flag, see --help", flags.Arg(0))
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
		return errors.New("--tls-cert and --tls-key go together")
	}
	s.tls = s.tls || s.certFile != ""
	if _, _, err := net.SplitHostPort(s.listen); err != nil {
		return fmt.Errorf("--listen: %w; write an address and a port, as in 127.0.0.1:7443", err)
	}
	return nil
}
