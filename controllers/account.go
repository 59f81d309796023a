package controllers

import (
	"os"
	"strings"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/rest"
)

// serviceAccountOf returns the ServiceAccount that a config authenticates as, by the subject of its token. It
// is empty if the config has another credential. The API server verifies the token; here it only tells the
// manager who it is.
func serviceAccountOf(cfg *rest.Config) types.NamespacedName {
	token := cfg.BearerToken
	if text, err := os.ReadFile(cfg.BearerTokenFile); err == nil {
		token = strings.TrimSpace(string(text))
	}
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err != nil {
		return types.NamespacedName{}
	}
	namespace, name, _ := serviceaccount.SplitUsername(claims.Subject) // empty for other subjects
	return types.NamespacedName{Namespace: namespace, Name: name}
}
