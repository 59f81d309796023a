package ssa

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type named struct {
	Name string `json:"name"`
}

// ownKind has what generated types do not have.
type ownKind struct {
	corev1.ConfigMap `json:",inline"`

	Untagged named
	Pair     [2]named `json:"pair"`
	Secret   string   `json:"-"`
	hidden   string
}

func TestCheckFieldPath(t *testing.T) {
	for name, test := range map[string]struct {
		object client.Object
		path   string
		err    string
	}{
		"a field":                            {&appsv1.Deployment{}, "spec.replicas", ""},
		"with a leading dot":                 {&appsv1.Deployment{}, ".spec.replicas", ""},
		"through a pointer":                  {&appsv1.Deployment{}, "spec.strategy.rollingUpdate.maxSurge", ""},
		"through slices":                     {&appsv1.Deployment{}, "spec.template.spec.containers.ports.name", ""},
		"of an inlined struct":               {&corev1.Pod{}, "spec.volumes.configMap", ""},
		"of a struct inlined in an inlined":  {&corev1.Pod{}, "spec.volumes.configMap.name", ""},
		"of the inlined type and metadata":   {&corev1.Pod{}, "metadata.name", ""},
		"an entry of a map":                  {&corev1.ConfigMap{}, "data.anything", ""},
		"below an entry of a map":            {&corev1.ConfigMap{}, "data.anything.more", `data.anything has no field "more"`},
		"alternatives":                       {&corev1.Pod{}, "spec.containers.env.value|valueFrom", ""},
		"a misspelled alternative":           {&corev1.Pod{}, "spec.containers.env.value|valueOf", `spec.containers.env has no field "valueOf"`},
		"a misspelled field":                 {&appsv1.Deployment{}, "spec.replica", `the field path "spec.replica" does not fit *v1.Deployment: spec has no field "replica"`},
		"a misspelled field at the top":      {&appsv1.Deployment{}, "specs.replicas", `it has no field "specs"`},
		"the name of the Go field":           {&appsv1.Deployment{}, "Spec.Replicas", `it has no field "Spec"`},
		"the index of an item":               {&appsv1.Deployment{}, "spec.template.spec.containers.0.name", `spec.template.spec.containers has no field "0"`},
		"below a value":                      {&appsv1.Deployment{}, "spec.replicas.more", `spec.replicas has no field "more"`},
		"within a type that marshals itself": {&corev1.Pod{}, "metadata.creationTimestamp.Time", `metadata.creationTimestamp has no field "Time"`},
		"nothing":                            {&corev1.Pod{}, "", `it has no field ""`},
		"an empty element":                   {&corev1.Pod{}, "spec..volumes", `spec has no field ""`},
		"an empty key of a map":              {&corev1.ConfigMap{}, "data.", `data has no field ""`},
		"a Go field of such a type":          {&appsv1.Deployment{}, "spec.strategy.rollingUpdate.maxSurge.IntVal", `maxSurge has no field "IntVal"`},
		"through an array":                   {&ownKind{}, "pair.name", ""},
		"a field without a tag":              {&ownKind{}, "Untagged.name", ""},
		"in a field without a tag":           {&ownKind{}, "name", `it has no field "name"`},
		"a field that has no JSON":           {&ownKind{}, "-", `it has no field "-"`},
		"a field that is not exported":       {&ownKind{hidden: "x"}, "hidden", `it has no field "hidden"`},
		"the name of the inlined struct":     {&corev1.Pod{}, "spec.volumes.volumeSource", `spec.volumes has no field "volumeSource"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckFieldPath(test.object, test.path)
			if test.err == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.err)))
		})
	}
}
