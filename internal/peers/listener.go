package peers

import (
	"crypto/tls"
	stdlog "log" //nolint:depguard // net/http logs failed handshakes through it; see serverLog
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// Server returns the server of the peer listener.
func (p *Peers) Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       keepAlive,
		// More than that of listeners for clients, because replicas add headers.
		MaxHeaderBytes: 80 << 10,
		ErrorLog:       stdlog.New(serverLog{p.program.Log}, "", 0),
	}
}

// Listen wraps a listener in TLS, which only replicas of the server can connect to.
func (p *Peers) Listen(l net.Listener) net.Listener { return tls.NewListener(l, p.keys.tlsConfig()) }

// serverLog logs failed handshakes, which anybody can cause, as debug messages.
type serverLog struct{ log logr.Logger }

func (l serverLog) Write(line []byte) (int, error) {
	l.log.V(1).Info("Peer listener", "message", strings.TrimSpace(string(line)))
	return len(line), nil
}

// FromClients serves forwarded requests as if their clients were connected. The other replica has checked them.
func (p *Peers) FromClients(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, err := netip.ParseAddr(r.Header.Get(HeaderClient))
		if err != nil {
			p.program.Refuse(w, nil, notAnAddress())
			return
		}
		r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
		r.Header.Del(HeaderClient)
		next.ServeHTTP(w, r)
	})
}
