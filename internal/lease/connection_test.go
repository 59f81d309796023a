package lease

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// connected returns a guarded connection and its remote end.
func connected(t *testing.T, guard *Guard) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err = guard.Dial((&net.Dialer{}).DialContext)(context.Background(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return near, far
}

// stopped is a guard with a clock that the test advances.
func stopped() (guard *Guard, move func(time.Duration)) {
	at := instant{wall: time.Unix(1000, 0)}
	guard = New(duration, nil)
	guard.now = func() instant { return at }
	guard.renewed(at)
	return guard, func(by time.Duration) { at.running += by }
}

// A process may be stopped between the check of a request and the sending of its bytes.
func TestConnectionSendsNothingAfterTheProof(t *testing.T) {
	g := NewWithT(t)
	guard, move := stopped()
	near, far := connected(t, guard)
	_, err := near.Write([]byte("in time"))
	g.Expect(err).NotTo(HaveOccurred())

	move(duration)
	_, err = near.Write([]byte("late"))

	g.Expect(err).To(MatchError(&Error{Reason: Unproven, Sent: true}))
	received, err := io.ReadAll(far)
	g.Expect(string(received)).To(Equal("in time"))
	g.Expect(err).To(MatchError(syscall.ECONNRESET))
}

func TestExpiryResetsConnections(t *testing.T) {
	g := NewWithT(t)
	guard, move := stopped()
	near, far := connected(t, guard)

	move(duration)
	guard.expire()

	_, err := io.ReadAll(far)
	g.Expect(err).To(MatchError(syscall.ECONNRESET))
	_, err = near.Read(make([]byte, 1))
	g.Expect(err).To(MatchError(net.ErrClosed))
	g.Expect(near.Close()).To(MatchError(net.ErrClosed))
	g.Expect(guard.connections).To(BeEmpty(), "the user has closed it")
}

func TestRenewalKeepsConnections(t *testing.T) {
	g := NewWithT(t)
	guard, move := stopped()
	near, far := connected(t, guard)
	move(duration)
	guard.renewed(guard.now())

	guard.expire()
	_, err := near.Write([]byte("in time"))
	g.Expect(err).NotTo(HaveOccurred())

	received := make([]byte, len("in time"))
	_, err = io.ReadFull(far, received)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(received)).To(Equal("in time"))
}

// Otherwise the kernel would send the remaining bytes, also after the process exits.
func TestCloseResetsConnection(t *testing.T) {
	g := NewWithT(t)
	guard, _ := stopped()
	near, far := connected(t, guard)
	g.Expect(near.Close()).To(Succeed())
	_, err := io.ReadAll(far)
	g.Expect(err).To(MatchError(syscall.ECONNRESET))
}

func TestCloseResetsAllConnections(t *testing.T) {
	g := NewWithT(t)
	guard, _ := stopped()
	_, far := connected(t, guard)
	guard.Close()
	guard.Close()
	_, err := io.ReadAll(far)
	g.Expect(err).To(MatchError(syscall.ECONNRESET))
	g.Expect(reasonOf(guard.Check())).To(Equal(GivenUp))
}

func TestPendingWritesContinueAfterGiveUp(t *testing.T) {
	g := NewWithT(t)
	guard, _ := stopped()
	near, _ := connected(t, guard)
	guard.GiveUp()
	_, err := near.Write([]byte("the rest of a write"))
	g.Expect(err).NotTo(HaveOccurred())
}

func TestConnectionOpenedAfterTheLeaseIsLostSendsNothing(t *testing.T) {
	g := NewWithT(t)
	guard, _ := stopped()
	guard.lose()
	near, _ := connected(t, guard)
	_, err := near.Write([]byte("late"))
	g.Expect(err).To(MatchError(&Error{Reason: Lost, Sent: true}))
}

func TestConnectionThatIsNotTCPIsGuarded(t *testing.T) {
	g := NewWithT(t)
	guard, move := stopped()
	inner, far := net.Pipe()
	near, err := guard.Dial(func(context.Context, string, string) (net.Conn, error) { return inner, nil })(t.Context(), "unix", "server")
	g.Expect(err).NotTo(HaveOccurred())
	move(duration)
	_, err = near.Write([]byte("late"))
	g.Expect(err).To(MatchError(&Error{Reason: Unproven, Sent: true}))
	_, err = far.Read(make([]byte, 1))
	g.Expect(err).To(MatchError(io.EOF), "it is closed")
}

func TestConnectionThatCannotBeResetIsNotUsed(t *testing.T) {
	g := NewWithT(t)
	guard, _ := stopped()
	near, _ := connected(t, guard)
	g.Expect(near.Close()).To(Succeed())
	guarded, isGuarded := near.(*connection)
	g.Expect(isGuarded).To(BeTrue())
	_, err := guard.Dial(func(context.Context, string, string) (net.Conn, error) { return guarded.Conn, nil })(t.Context(), "tcp", "server.test:443")
	g.Expect(err).To(MatchError(net.ErrClosed))
	g.Expect(guard.connections).To(BeEmpty())
}

func TestDialError(t *testing.T) {
	g := NewWithT(t)
	guard, _ := stopped()
	_, err := guard.Dial(func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED })(t.Context(), "tcp", "server.test:443")
	g.Expect(err).To(MatchError(syscall.ECONNREFUSED))
}
