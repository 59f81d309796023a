package toolname

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"get", "get", true}, {"get", "get_all", false}, {"get", "Get", false}, {"get", "", false},
		{"*", "get", true}, {"*", "", true}, {"**", "get", true},
		{"get_*", "get_all", true}, {"get_*", "get_", true}, {"get_*", "get", false}, {"get_*", "forget_all", false},
		{"*_all", "get_all", true}, {"*_all", "get_all_x", false},
		{"get_*_all", "get_x_all", true}, {"get_*_all", "get_all", false}, {"get_*_all", "get__all", true},
		{"a*b*c", "abc", true}, {"a*b*c", "axxbyyc", true}, {"a*b*c", "acb", false}, {"a*b*c", "ac", false},
		{"*a*a*", "aa", true}, {"*a*a*", "a", false}, {"aa*aa", "aaa", false},
		{"a.c", "abc", false}, {"a/*", "a/b/c", true},
	} {
		NewWithT(t).Expect(Matches(c.pattern, c.name)).To(Equal(c.want), "%s of %s", c.name, c.pattern)
	}
}
