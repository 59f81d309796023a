package phases

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestSteady(t *testing.T) {
	cases := map[string]struct{ message, want string }{
		"a plain message":           {"the account sa1 has no key 2", "the account sa1 has no key 2"},
		"a request's identifier":    {"RequestId:7D444840-9dc0-11d1-b245-5ffdce74fad2 failed", "RequestId:… failed"},
		"a time":                    {"failed at 2030-01-02T15:04:05.123Z", "failed at …"},
		"a time with an offset":     {"failed at 2030-01-02 15:04:05 +01:00", "failed at … +01:00"},
		"a clock":                   {"Mon, 02 Jan 15:04:05 GMT", "Mon, 02 Jan … GMT"},
		"a measured duration":       {"gave up after 1m2.345s", "gave up after …"},
		"a duration that is a rule": {"gave up after 30s", "gave up after 30s"},
		"the near end of a socket":  {"read tcp 10.0.0.1:40110->10.0.0.2:443: reset", "read tcp …10.0.0.2:443: reset"},
		"the same with IPv6":        {"read tcp [::1]:40110->[::1]:443: reset", "read tcp …[::1]:443: reset"},
		"an address in memory":      {"bad value 0xc000123456", "bad value …"},
		"lines":                     {"one\n  two\n", "one two"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(steady(c.message)).To(Equal(c.want))
		})
	}
}

func TestIsReason(t *testing.T) {
	cases := map[string]bool{
		"Ready": true, "A": true, "Quota_2": true, "a,b:c": true,
		"": false, "2nd": false, "_x": false, "a:": false, "a,": false, "Storage.NotFound": false, "not found": false, "é": false,
		strings.Repeat("a", 1024): true, strings.Repeat("a", 1025): false,
	}
	for reason, want := range cases {
		NewWithT(t).Expect(isReason(reason)).To(Equal(want), "%q", reason)
	}
}

func TestVerdictString(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Done("there").String()).To(Equal("done (Ready: there)"))
	g.Expect(Missing("Absent", "make it").String()).To(Equal("missing (Absent: make it)"))
	g.Expect(Stalled("Bad", "mend it").String()).To(Equal("stalled (Bad: mend it)"))
	g.Expect(Verdict{}.String()).To(Equal("not reached"))
}
