package callrecord

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAddressesOfClients(t *testing.T) {
	for remote, want := range map[string]string{"192.0.2.1:80": "192.0.2.1", "[fd00::1]:80": "fd00::1", "@": "@"} {
		NewWithT(t).Expect(ClientAddress(&http.Request{RemoteAddr: remote})).To(Equal(want))
	}
}
