package ssa_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

type counter struct{ atomic.Int64 }

// claimed is a configuration, asked whether it claims a field.
type claimed struct{ document map[string]any }

func ownFields(c ssa.Configuration) (claimed, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return claimed{}, err
	}
	document := map[string]any{}
	return claimed{document: document}, json.Unmarshal(raw, &document)
}

// claims follows a path such as .spec.containers[name="web"].image through the configuration.
func (c claimed) claims(path string) bool {
	if strings.HasPrefix(path, ".metadata.ownerReferences") {
		return true // completed by the applier
	}
	var at any = c.document
	for rest := path; rest != ""; {
		var ok bool
		if at, rest, ok = follow(at, rest); !ok {
			return false
		}
	}
	return true
}

func follow(at any, path string) (any, string, bool) {
	if strings.HasPrefix(path, "[") {
		key, rest, _ := strings.Cut(path[1:], "]")
		list, _ := at.([]any)
		for _, item := range list {
			if matches(item, key) {
				return item, rest, true
			}
		}
		return nil, "", false
	}
	fields, _ := at.(map[string]any)
	// Keys of labels and data hold dots, so the longest key that fits is meant.
	best := ""
	for key := range fields {
		if strings.HasPrefix(path[1:], key) && len(key) > len(best) {
			best = key
		}
	}
	if best == "" {
		return nil, "", false
	}
	return fields[best], path[1+len(best):], true
}

func matches(item any, key string) bool {
	fields, _ := item.(map[string]any)
	for _, part := range strings.Split(key, ",") {
		name, v, _ := strings.Cut(part, "=")
		have, ok := fields[name]
		if ok && fmt.Sprintf("%v", have) != strings.Trim(v, `"`) {
			return false
		}
	}
	return true
}

func difference(a, b client.Object) string {
	before, _ := yaml.Marshal(a)
	after, _ := yaml.Marshal(b)
	return cmp.Diff(string(before), string(after))
}
