package conversion

import (
	"maps"
	"slices"
	"strings"
)

// rename is a field that v1beta1 calls by another name.
type rename struct {
	// path is the field in v1alpha1; an element of a list ends in [].
	path string
	// name is its name in v1beta1, in the same object.
	name string
	// values are the values in v1beta1 by those in v1alpha1, as JSON. Without values, they are the same.
	values map[string]string
}

// renames are the differences between v1alpha1 and v1beta1. The paths are those of all kinds, since no two kinds have
// the same path with a different meaning. A field that only one version has cannot be converted without loss, so each
// field of one version has one in the other: TestEveryFieldHasACounterpart.
var renames = []rename{
	// AppService and MCPServer
	{path: "status.drifts[].from", name: "desired"},
	{path: "status.drifts[].to", name: "found"},
	// MCPServer
	{path: "spec.networkPolicy.egress.allowDNS", name: "dns", values: map[string]string{"true": `"Allowed"`, "false": `"Denied"`}},
	{path: "spec.protocol.disabled", name: "probe", values: map[string]string{"true": `"Disabled"`, "false": `"Periodic"`}},
	{path: "spec.protocol.tls", name: "scheme", values: map[string]string{"true": `"HTTPS"`, "false": `"HTTP"`}},
	{path: "status.askedVersions", name: "probedVersions"},
	// SecureStorage
	{path: "spec.key.keyName", name: "name"},
	{path: "spec.onAccountLoss", name: "accountLossPolicy"},
	{path: "spec.provider.credentialsRef", name: "credentialsSecretRef"},
}

// field is what a conversion does with a field.
type field struct {
	// rename is the name of the field in the other version, as JSON; empty if it is the same.
	rename string
	// values are the values in the other version, as JSON. Without values, they are the same.
	values map[string]string
	// unknown says that the version of the object does not have the field: converting it would give the object two
	// fields of one name.
	unknown bool
	// fields are the fields below this one, or below each of its items.
	fields map[string]*field
}

// tree returns the conversion between two versions, whose differences are the renames.
func tree(renames []rename) *field {
	root := &field{}
	for _, r := range renames {
		steps := strings.Split(r.path, ".")
		parent := root
		for _, step := range steps[:len(steps)-1] {
			parent = parent.below(strings.TrimSuffix(step, "[]"))
		}
		renamed := parent.below(steps[len(steps)-1])
		renamed.rename, renamed.values = `"`+r.name+`"`, r.values
		parent.below(r.name).unknown = true
	}
	return root
}

func (f *field) below(name string) *field {
	if f.fields == nil {
		f.fields = map[string]*field{}
	}
	if f.fields[name] == nil {
		f.fields[name] = &field{}
	}
	return f.fields[name]
}

// inverse returns the renames of the opposite direction.
func inverse(renames []rename) []rename {
	var inverted []rename
	for _, r := range renames {
		parent, name := "", r.path
		if i := strings.LastIndex(r.path, "."); i >= 0 {
			parent, name = r.path[:i+1], r.path[i+1:]
		}
		back := rename{path: parent + r.name, name: name}
		for from, to := range r.values {
			if back.values == nil {
				back.values = map[string]string{}
			}
			back.values[to] = from
		}
		inverted = append(inverted, back)
	}
	return inverted
}

// allowed lists the values that a conversion accepts, for an error.
func (f *field) allowed() string {
	return strings.Join(slices.Sorted(maps.Keys(f.values)), ", ")
}
