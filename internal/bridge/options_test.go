package bridge

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/peers"
)

// They are those of docs/mcp-bridge.md.
func TestDefaultsOfTheDocumentation(t *testing.T) {
	g := NewWithT(t)
	d := DefaultOptions()
	g.Expect([]int{d.MaxSessions, d.MaxRequests, d.MaxMessageBytes, d.StderrLinesPerSecond}).To(Equal([]int{100, 64, 4194304, 50}))
	g.Expect(smallMessage).To(Equal(16384), "what is read without a place")
	for flag, c := range map[string]struct {
		got  time.Duration
		want string
	}{
		"idle-timeout": {d.IdleTimeout, "30m0s"}, "start-timeout": {d.StartTimeout, "1m0s"}, "io-timeout": {d.IOTimeout, "30s"},
		"keep-alive": {d.KeepAlive, "15s"}, "stop-grace": {d.StopGrace, "2s"}, "drain-timeout": {d.DrainTimeout, "25s"},
		"drain-idle-timeout": {d.DrainIdleTimeout, "5s"},
	} {
		g.Expect(c.got.String()).To(Equal(c.want), flag)
	}
}

// Each limit is given by a field of the options; 0 is the default.
func TestLimitsOfOptions(t *testing.T) {
	d := DefaultOptions()
	d.MaxSessionsPerCaller = 90
	for _, name := range []string{
		"MaxSessions", "MaxRequests", "MaxMessageBytes", "MemoryBytes", "StderrLinesPerSecond", "IdleTimeout", "StartTimeout",
		"IOTimeout", "KeepAlive", "StopGrace", "DrainTimeout", "DrainIdleTimeout", "MaxSessionsPerCaller",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := Options{Command: []string{"x"}}
			field := reflect.ValueOf(&o).Elem().FieldByName(name)

			g.Expect(o.complete()).To(Succeed())
			g.Expect(field.Int()).To(And(BeNumerically(">", 0), Equal(reflect.ValueOf(d).FieldByName(name).Int())))

			const given = int64(6 * time.Second) // as a number, it is valid for the others, too
			field.SetInt(given)
			g.Expect(o.complete()).To(Succeed())
			g.Expect(field.Int()).To(Equal(given), "a limit that is given stays")

			field.SetInt(-1)
			g.Expect(o.complete()).To(MatchError(name + " must not be negative"))
		})
	}
}

func TestInvalidOptions(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Options)
		problem string // empty if they are valid
	}{
		"a command alone":             {func(*Options) {}, ""},
		"no command":                  {func(o *Options) { o.Command = nil }, "no command: pass it after --"},
		"an empty command":            {func(o *Options) { o.Command = []string{""} }, "no command"},
		"a path":                      {func(o *Options) { o.Path = "/a/b" }, ""},
		"a path without a slash":      {func(o *Options) { o.Path = "mcp" }, `Path "mcp" must start with /`},
		"a path with a wildcard":      {func(o *Options) { o.Path = "/{a" }, "must not contain"},
		"a path that ends a wildcard": {func(o *Options) { o.Path = "/a}" }, "must not contain"},
		"a path with a space":         {func(o *Options) { o.Path = "/a b" }, "must not contain"},
		"a path with a query":         {func(o *Options) { o.Path = "/a?b" }, "must not contain"},
		"a path with a fragment":      {func(o *Options) { o.Path = "/a#b" }, "must not contain"},
		"a drain of twice the grace":  {func(o *Options) { o.StopGrace = 12500 * time.Millisecond }, "-drain-timeout leaves 25s to drain, which must be more than twice -stop-grace (12.5s)"},
		"a drain of more than it":     {func(o *Options) { o.StopGrace = 12499 * time.Millisecond }, ""},
		"a drain of less than it":     {func(o *Options) { o.DrainTimeout = 3 * time.Second }, "use a longer -drain-timeout or a shorter -stop-grace"},
		"a grace without an end":      {func(o *Options) { o.StopGrace = 1<<63 - 1 }, "-stop-grace"},
		"a user of the system":        {func(o *Options) { o.FirstSessionUser = 5 }, "the users up to 101 more must be below 2^31"},
		"later users of the system":   {func(o *Options) { o.FirstSessionUser, o.MaxSessions = 59500, 1000 }, "the users up to 1001 more must be below 2^31, and not be from 60000"},
		"replicas without keys":       {func(o *Options) { o.Peers = &peers.Options{} }, "set -session-keys"},
		"replicas whose keys are gone": {func(o *Options) {
			o.Peers = &peers.Options{KeyDirectory: "/no/such/directory", Server: "a", Address: netip.MustParseAddrPort("127.0.0.1:1")}
		}, "/no/such/directory"},
		"a host that is none":    {func(o *Options) { o.AllowedHosts = []string{"a/b"} }, "AllowedHosts"},
		"an origin that is none": {func(o *Options) { o.AllowedOrigins = []string{"a"} }, "AllowedOrigins"},
		"several problems are all named": {func(o *Options) {
			o.Command, o.KeepAlive, o.Peers = nil, -time.Second, &peers.Options{Server: "a", Address: netip.MustParseAddrPort("127.0.0.1:1")}
		}, "no command: pass it after --\nthe directory of session keys is missing: set -session-keys\nKeepAlive must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := Options{Command: []string{"x"}}
			c.change(&o)
			b, err := New(o)
			if c.problem == "" {
				g.Expect(err).NotTo(HaveOccurred())
				b.Close()
				return
			}
			g.Expect(err).To(MatchError(And(HavePrefix("configuring the bridge: "), ContainSubstring(c.problem))))
			g.Expect(b).To(BeNil())
		})
	}
}

func TestTimesThatAreNoOptions(t *testing.T) {
	g := NewWithT(t)
	b, err := New(Options{Command: []string{"x"}, IOTimeout: 7 * time.Second})
	g.Expect(err).NotTo(HaveOccurred())
	defer b.Close()
	g.Expect(b.times).To(Equal(times{
		bodyGrace: 5 * time.Second, discover: 3 * time.Second, lastRequest: 3 * time.Second, shutdown: time.Second, place: 7 * time.Second,
	}))
}
