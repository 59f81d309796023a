package peers

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/fixpoint-dev/fixpoint/internal/peers/peerstest"
)

// The node of a replica may be gone. One lost packet must not look like that.
func TestConnectionsFailAfterTwentySecondsWithoutAcknowledgement(t *testing.T) {
	g := NewWithT(t)
	to := newReplica(t, peerstest.Keys(t, time.Now()), "a", func(http.ResponseWriter, *http.Request) {})
	conn, err := to.transport.DialTLSContext(t.Context(), "tcp", to.Self().String())
	g.Expect(err).NotTo(HaveOccurred())
	defer conn.Close()
	secure, _ := conn.(*tls.Conn)
	plain, _ := secure.NetConn().(*net.TCPConn)
	raw, err := plain.SyscallConn()
	g.Expect(err).NotTo(HaveOccurred())
	var milliseconds int
	g.Expect(raw.Control(func(fd uintptr) {
		milliseconds, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	})).To(Succeed())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(milliseconds).To(Equal(20_000))
}
