package callpolicy

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
		NewWithT(t).Expect(matches(c.pattern, c.name)).To(Equal(c.want), "%s of %s", c.name, c.pattern)
	}
}

func TestSelection(t *testing.T) {
	for name, c := range map[string]struct {
		allow, deny []string
		want        []string
	}{
		"none":                {nil, nil, []string{"get", "get_all", "delete"}},
		"allow":               {[]string{"get*"}, nil, []string{"get", "get_all"}},
		"deny":                {nil, []string{"delete"}, []string{"get", "get_all"}},
		"deny takes priority": {[]string{"get", "get_all"}, []string{"*_all"}, []string{"get"}},
		"nothing left":        {[]string{"get"}, []string{"*"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var has []string
			for _, tool := range []string{"get", "get_all", "delete"} {
				if (selection{c.allow, c.deny}).has(tool) {
					has = append(has, tool)
				}
			}
			NewWithT(t).Expect(has).To(Equal(c.want))
		})
	}
}
