package phases

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestVolatilePartsOfMessagesAreRemoved(t *testing.T) {
	cases := map[string]struct{ message, want string }{
		"a plain message":               {"the account sa1 has no key 2", "the account sa1 has no key 2"},
		"a request's identifier":        {"RequestId:7D444840-9dc0-11d1-b245-5ffdce74fad2 failed", "RequestId:… failed"},
		"a time":                        {"failed at 2030-01-02T15:04:05.123Z", "failed at …"},
		"a time with an offset":         {"failed at 2030-01-02 15:04:05 +01:00", "failed at … +01:00"},
		"a clock":                       {"Mon, 02 Jan 15:04:05 GMT", "Mon, 02 Jan … GMT"},
		"a measured duration":           {"gave up after 1m2.345s", "gave up after …"},
		"a configured duration":         {"gave up after 30s", "gave up after 30s"},
		"the local end of a connection": {"read tcp 10.0.0.1:40110->10.0.0.2:443: reset", "read tcp …10.0.0.2:443: reset"},
		"the same with IPv6":            {"read tcp [::1]:40110->[::1]:443: reset", "read tcp …[::1]:443: reset"},
		"an address in memory":          {"bad value 0xc000123456", "bad value …"},
		"lines":                         {"one\n  two\n", "one two"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(withoutVolatile(c.message)).To(Equal(c.want))
		})
	}
}

func TestReasonsAreCheckedAsTheAPIServerDoes(t *testing.T) {
	cases := map[string]bool{
		"Ready": true, "A": true, "Quota_2": true, "a,b:c": true,
		"": false, "2nd": false, "_x": false, "a:": false, "a,": false, "Storage.NotFound": false, "not found": false, "é": false,
		strings.Repeat("a", 1024): true, strings.Repeat("a", 1025): false,
	}
	for reason, want := range cases {
		NewWithT(t).Expect(isReason(reason)).To(Equal(want), "%q", reason)
	}
}

func TestVerdictsPrintThemselves(t *testing.T) {
	cases := map[string]Verdict{
		"done (Ready: applied)":          Done("applied"),
		"not configured":                 NotConfigured(),
		"wait (Pending: not attached)":   Wait("Pending", "not attached", 0),
		"stalled (Invalid: set a class)": Stalled("Invalid", "set a class"),
	}
	for want, verdict := range cases {
		NewWithT(t).Expect(verdict.String()).To(Equal(want))
	}
	NewWithT(t).Expect(NotConfigured().Reason()).To(Equal(ReasonReady))
}

func TestMessagesAreCutBetweenCharacters(t *testing.T) {
	for message, want := range map[string]string{
		"": "", "ab": "ab", "abcd": "abcd", "abcde": "abcd", "abä": "abä", "abcä": "abc", "ääää": "ää",
		"\x80\x80\x80\x80\x80": "", // no character begins here
	} {
		NewWithT(t).Expect(bound(message, 4)).To(Equal(want), "%q", message)
	}
}
