package controllers

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// tokenOf is an unsigned token with these claims.
func tokenOf(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(claims)) + "." + encode([]byte("signature"))
}

func TestServiceAccountOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	NewWithT(t).Expect(os.WriteFile(file, []byte(tokenOf(`{"sub":"system:serviceaccount:system:manager"}`)+"\n"), 0o600)).To(Succeed())
	manager := types.NamespacedName{Namespace: "system", Name: "manager"}
	cases := map[string]struct {
		cfg  rest.Config
		want types.NamespacedName
	}{
		"in a pod":                        {rest.Config{BearerTokenFile: file}, manager},
		"a token":                         {rest.Config{BearerToken: tokenOf(`{"sub":"system:serviceaccount:system:manager"}`)}, manager},
		"the token of a person":           {rest.Config{BearerToken: tokenOf(`{"sub":"jane"}`)}, types.NamespacedName{}},
		"an opaque token":                 {rest.Config{BearerToken: "s3cret"}, types.NamespacedName{}},
		"a token without claims":          {rest.Config{BearerToken: tokenOf(`[]`)}, types.NamespacedName{}},
		"a certificate":                   {rest.Config{}, types.NamespacedName{}},
		"a missing file":                  {rest.Config{BearerTokenFile: file + ".gone"}, types.NamespacedName{}},
		"a token, and a missing file":     {rest.Config{BearerToken: tokenOf(`{"sub":"system:serviceaccount:system:manager"}`), BearerTokenFile: file + ".gone"}, manager},
		"a token with a malformed expiry": {rest.Config{BearerToken: tokenOf(`{"sub":"system:serviceaccount:system:manager","exp":"never"}`)}, types.NamespacedName{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(serviceAccountOf(&c.cfg)).To(Equal(c.want))
		})
	}
}
