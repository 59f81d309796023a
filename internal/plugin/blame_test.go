package plugin

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestBlameHidesTheValuesOfASecret(t *testing.T) {
	g := NewWithT(t)
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": "db", "annotations": map[string]any{
			corev1.LastAppliedConfigAnnotation: `{"kind":"Secret","stringData":{"password":"hunter2"}}`,
		}},
		"data": map[string]any{"password": "aHVudGVyMg=="}, "stringData": map[string]any{"password": "hunter2"},
	}}
	text := blameText(secret, now)
	g.Expect(text).NotTo(Or(ContainSubstring("hunter2"), ContainSubstring("aHVudGVyMg")))
	g.Expect(text).To(And(ContainSubstring(corev1.LastAppliedConfigAnnotation), ContainSubstring(`password: "(redacted)"`), ContainSubstring(`name: "db"`)))
}
