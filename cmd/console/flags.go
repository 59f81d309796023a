package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/fixpoint-dev/fixpoint/internal/console"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

// settings are the parsed flags.
type settings struct {
	options           console.Options
	listen            string
	certFile, keyFile string
	plainHTTP         bool
	verbose           bool
}

// parse parses the flags. Its errors name the flag and the remedy.
func parse(args []string, usage io.Writer) (*settings, error) {
	// The process runs in a pod, so a login of its own in Azure would not be that of a user.
	s := &settings{options: console.Options{Cloud: plugin.Cloud{NoLogin: true}}}
	var hosts, mode, server, authority string
	flags := flag.NewFlagSet("console", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.listen, "listen", ":8443", "Address to listen on.")
	flags.StringVar(&hosts, "hosts", "", "Host names by which browsers reach the console, separated by commas; required. Requests to other names are refused.")
	flags.StringVar(&s.certFile, "tls-cert", "", "Certificate `file`, which is read again when it changes.")
	flags.StringVar(&s.keyFile, "tls-key", "", "Key `file` of the certificate.")
	flags.BoolVar(&s.plainHTTP, "behind-tls-proxy", false, "Serve plain HTTP, because a proxy in front of the console serves HTTPS.")
	flags.StringVar(&mode, "auth", string(console.ModeToken), "Whose credential requests carry: token (users sign in with a bearer token), or proxy (an authenticating proxy adds one to each request).")
	flags.StringVar(&s.options.TokenHeader, "token-header", "", "Header with the token that the proxy adds, such as X-Forwarded-Access-Token. The default is Authorization.")
	flags.StringVar(&server, "server", "", "URL of the API server. The default is that of the cluster in which the console runs.")
	flags.StringVar(&authority, "certificate-authority", "", "`File` with the CA certificate of the API server.")
	flags.IntVar(&s.options.EventsLimit, "events-limit", console.DefaultEventsLimit, "How many Events the console returns at most.")
	flags.StringVar(&s.options.FakeCloud, "fake-cloud", "", "URL of the fake cloud to show, for tests. Its admin API is not protected, so every user of the console sees it.")
	flags.BoolVar(&s.verbose, "verbose", false, "Log each request: method, path, status and duration.")
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
	s.options.Mode = console.Mode(mode)
	for host := range strings.SplitSeq(hosts, ",") {
		if host = strings.ToLower(strings.TrimSpace(host)); host != "" {
			s.options.Hosts = append(s.options.Hosts, host)
		}
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, s.useServer(server, authority)
}

func (s *settings) check() error {
	_, port, err := net.SplitHostPort(s.listen)
	switch {
	case err != nil:
		return fmt.Errorf("--listen: %w; use an address and a port, such as :8443", err)
	case len(s.options.Hosts) == 0:
		return errors.New("--hosts is empty: set the host names by which browsers reach the console")
	case s.options.Mode != console.ModeToken && s.options.Mode != console.ModeProxy:
		return fmt.Errorf("--auth is %q: set token or proxy", s.options.Mode)
	case s.options.TokenHeader != "" && s.options.Mode != console.ModeProxy:
		return errors.New("--token-header requires --auth=proxy")
	case s.options.EventsLimit < 1:
		return fmt.Errorf("--events-limit is %d: set a positive number", s.options.EventsLimit)
	}
	for _, host := range s.options.Hosts {
		if strings.ContainsAny(host, ":/*") && net.ParseIP(host) == nil {
			return fmt.Errorf("--hosts has %q: set host names without scheme, port and wildcard", host)
		}
	}
	s.options.Port, s.options.TLS = port, true // browsers use HTTPS, with a proxy too
	return s.checkTLS()
}

func (s *settings) checkTLS() error {
	switch {
	case (s.certFile == "") != (s.keyFile == ""):
		return errors.New("--tls-cert and --tls-key must be set together")
	case s.certFile == "" && !s.plainHTTP:
		return errors.New("--tls-cert is empty: set it and --tls-key, or set --behind-tls-proxy if a proxy serves HTTPS")
	case s.certFile != "" && s.plainHTTP:
		return errors.New("--behind-tls-proxy excludes --tls-cert")
	}
	return nil
}

// useServer finds the API server. Neither a token nor a certificate of the pod is used.
func (s *settings) useServer(server, authority string) error {
	if server == "" {
		host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if host == "" || port == "" {
			return errors.New("--server is empty, and the console does not run in a cluster: set the URL of the API server")
		}
		server = "https://" + net.JoinHostPort(host, port)
	}
	if parsed, err := url.Parse(server); err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return fmt.Errorf("--server is %q: set an https URL", server)
	}
	s.options.Config = &rest.Config{Host: server}
	if authority != "" {
		if _, err := os.Stat(authority); err != nil {
			return fmt.Errorf("--certificate-authority: %w", err)
		}
		s.options.Config.CAFile = authority
	}
	return nil
}
