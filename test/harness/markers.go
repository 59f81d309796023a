package harness

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// rbacMarker begins a comment from which controller-gen generates a rule of the role.
const rbacMarker = "// +kubebuilder:rbac:"

// Markers are the rules that the RBAC markers of one controller's package grant. The role that is
// generated for the manager holds those of all controllers together, in which a marker that one
// controller lacks is hidden by that of another.
func Markers(controller string) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	files, err := filepath.Glob(filepath.Join(Root, "controllers", controller, "*.go"))
	if err != nil || len(files) == 0 {
		panic(fmt.Sprintf("the controller %q has no files: %v", controller, err))
	}
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			panic(fmt.Sprintf("reading the RBAC markers: %v", err))
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if marker, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), rbacMarker); ok {
				rules = append(rules, parseMarker(marker))
			}
		}
		_ = file.Close()
	}
	return rules
}

func parseMarker(marker string) rbacv1.PolicyRule {
	var rule rbacv1.PolicyRule
	for argument := range strings.SplitSeq(marker, ",") {
		name, value, _ := strings.Cut(argument, "=")
		values := strings.Split(strings.Trim(value, `"`), ";")
		switch name {
		case "groups":
			rule.APIGroups = values
		case "resources":
			rule.Resources = values
		case "resourceNames":
			rule.ResourceNames = values
		case "verbs":
			rule.Verbs = values
		default:
			panic(fmt.Sprintf("the RBAC marker %q has an argument %q that is not known: add it here", marker, name))
		}
	}
	return rule
}
