package bridge

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
)

// The MCP specification requires 403 for other origins, against DNS rebinding: a page at a host name whose
// address the attacker changes to that of the bridge.
func TestHostsAndOrigins(t *testing.T) {
	listed := Options{
		AllowedHosts:   []string{"tools.acme.svc", "Tools.Example.com."},
		AllowedOrigins: []string{"https://app.example.com", "http://localhost:6274", "vscode-webview://1b2c"},
	}
	all := Options{AllowedHosts: []string{Any}, AllowedOrigins: []string{Any}}
	anyHost := Options{AllowedHosts: []string{Any}}
	cases := map[string]struct {
		options      Options
		host, origin string
		refused      string
	}{
		"rebound name":                   {Options{}, "evil.example:8080", "http://evil.example:8080", `host "evil.example" is not allowed`},
		"rebound name without an origin": {Options{}, "evil.example", "", `host "evil.example" is not allowed`},
		"any host but rebound origin":    {anyHost, "evil.example", "http://evil.example", `origin "http://evil.example" is not allowed`},
		"listed origin, rebound host":    {listed, "evil.example", "https://app.example.com", `host "evil.example"`},
		"name with an allowed prefix":    {listed, "tools.acme.svc.evil.example", "", "not allowed"},
		"name with an allowed suffix":    {listed, "evil-tools.acme.svc", "", "not allowed"},
		"no host":                        {listed, "", "", "not allowed"},
		"listed host":                    {listed, "tools.acme.svc:8080", "", ""},
		"listed host, absolute":          {listed, "TOOLS.acme.svc.:8080", "", ""},
		"listed host, normalized":        {listed, "tools.example.com", "", ""},
		"listed host, empty port":        {listed, "tools.acme.svc:", "", ""},
		"listed host, the last port":     {listed, "tools.acme.svc:65535", "", ""},
		"listed host, no such port":      {listed, "tools.acme.svc:65536", "", "not allowed"},
		"every host":                     {all, "evil.example", "", ""},
		"localhost":                      {Options{}, "localhost:8080", "", ""},
		"name below localhost":           {Options{}, "x.localhost", "", "not allowed"},
		"IPv4 address":                   {Options{}, "10.1.2.3:8080", "", ""},
		"IPv6 address":                   {Options{}, "[fd00::1]:8080", "", ""},
		"IPv6 address without a port":    {Options{}, "[fd00::1]", "", ""},
		"other origin":                   {listed, "tools.acme.svc", "https://evil.example", `origin "https://evil.example" is not allowed: add it to spec.bridge.allowedOrigins`},
		"listed origin":                  {listed, "tools.acme.svc", "https://app.example.com", ""},
		"listed origin with its port":    {listed, "tools.acme.svc", "https://app.example.com:443", ""},
		"listed origin, other port":      {listed, "tools.acme.svc", "https://app.example.com:8443", "not allowed"},
		"listed origin, other scheme":    {listed, "tools.acme.svc", "http://app.example.com", "not allowed"},
		"listed origin of an editor":     {listed, "localhost:8080", "vscode-webview://1b2c", ""},
		"every origin":                   {all, "evil.example", "https://evil.example", ""},
		"opaque origin":                  {listed, "tools.acme.svc", "null", `origin "null" is not allowed`},
		"origin with a path":             {listed, "tools.acme.svc", "https://app.example.com/x", "not allowed"},
		"origin with a user":             {listed, "tools.acme.svc", "https://app.example.com@evil.example", "not allowed"},
		"origin with a query":            {listed, "tools.acme.svc", "https://app.example.com?x", "not allowed"},
		"origin with an empty query":     {listed, "tools.acme.svc", "https://app.example.com?", "not allowed"},
		"origin with a fragment":         {listed, "tools.acme.svc", "https://app.example.com#x", "not allowed"},
		"page of the listed host":        {listed, "tools.example.com", "https://tools.example.com", ""},
		"page of another port":           {listed, "tools.example.com", "https://tools.example.com:8443", "not allowed"},
		"page of localhost":              {listed, "localhost:8080", "http://localhost:8080", ""},
		"page of an address":             {listed, "10.1.2.3:8080", "http://10.1.2.3:8080", ""},
		"page of an IPv6 address":        {listed, "[fd00::1]:8080", "http://[fd00::1]:8080", ""},
		"page of a longer IPv6 address":  {listed, "[fd00::1]:8080", "http://[fd00::1:8080]", "not allowed"},
		"page without its default port":  {listed, "10.1.2.3:80", "http://10.1.2.3", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l, err := newAllowList(c.options.AllowedHosts, c.options.AllowedOrigins)
			g.Expect(err).NotTo(HaveOccurred())
			r := &http.Request{Host: c.host, Header: http.Header{}}
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}

			f := l.check(r)

			if c.refused == "" {
				g.Expect(f).To(BeNil())
				return
			}
			g.Expect(f).To(MatchError(ContainSubstring(c.refused)))
			g.Expect([]int{f.Status, f.Code}).To(Equal([]int{http.StatusForbidden, codeRefused}))
			g.Expect(f.Reason).To(Equal(reasonForbidden))
		})
	}
}

func TestInvalidAllowLists(t *testing.T) {
	for _, host := range []string{"", ".", "https://a.example", "a.example:80", "*.example", "a/b", "a@b"} {
		_, err := newAllowList([]string{host}, nil)
		NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("is not a host name"), ContainSubstring("or * for all"))), host)
	}
	for _, origin := range []string{"", "a.example", "https://", "https://a.example/", "https://a@b.example", "null", "://x", "//a.example"} {
		_, err := newAllowList(nil, []string{origin})
		NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("is not an origin"), ContainSubstring("or * for all"))), origin)
	}
}

func TestAllowsHosts(t *testing.T) {
	g := NewWithT(t)
	allows, err := AllowsHosts([]string{"Tools.example.com"})
	g.Expect(err).NotTo(HaveOccurred())
	for hostport, want := range map[string]bool{
		"tools.example.com": true, "tools.example.com:8443": true, "10.1.2.3:80": true, "localhost": true, "evil.example": false, "": false,
	} {
		g.Expect(allows(hostport)).To(Equal(want), hostport)
	}
	_, err = AllowsHosts([]string{"https://tools.example.com"})
	g.Expect(err).To(MatchError(ContainSubstring("is not a host name")))
}

func TestForbiddenHostsAndOriginsGetNoResponseOfTheServer(t *testing.T) {
	w := newTestBridge(t, tinyServer(), func(o *Options) { o.AllowedHosts = []string{"tools.example.com"} })
	id := w.session()
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		for _, header := range [][]string{{"Host", "evil.example"}, {"Origin", "https://evil.example"}} {
			body := ""
			if method == http.MethodPost {
				body = initMessage
			}
			resp := w.open(method, body, append(header, headerSession, id)...)
			resp.Body.Close()
			w.Expect(resp.StatusCode).To(Equal(http.StatusForbidden), "%s with %v", method, header)
		}
	}
	w.Expect(w.metric("sessions_started_total")).To(Equal(1.0))
	w.Expect(w.metric("messages_total", toServer)).To(Equal(1.0))
	w.Expect(w.post(ping, headerSession, id, "Host", "tools.example.com").Status).To(Equal(http.StatusOK))
}
