package harness

import (
	"fmt"
	"os"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// Rules are the rules of a role in config/rbac.
func Rules(file string) []rbacv1.PolicyRule {
	text, err := os.ReadFile(filepath.Join(Root, "config", "rbac", file))
	if err != nil {
		panic(fmt.Sprintf("reading a role: %v", err))
	}
	var role rbacv1.Role
	if err := yaml.UnmarshalStrict(text, &role); err != nil {
		panic(fmt.Sprintf("reading the role %s: %v", file, err))
	}
	return role.Rules
}
