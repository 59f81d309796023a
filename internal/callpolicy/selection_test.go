package callpolicy

import (
	"testing"

	. "github.com/onsi/gomega"
)

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
