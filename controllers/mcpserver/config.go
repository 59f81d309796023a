package mcpserver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// config is the ConfigMap with spec.files. It is deleted once no pod uses it.
var config = phases.Child[*scope, *corev1ac.ConfigMapApplyConfiguration, *corev1.ConfigMap]{
	Name:    "Config",
	Desired: desired(desiredConfig),
	Prune:   phases.PruneLast,
}

func desiredConfig(server *v1beta1.MCPServer) *corev1ac.ConfigMapApplyConfiguration {
	if len(server.Spec.Files) == 0 {
		return nil
	}
	data := map[string]string{}
	for _, file := range server.Spec.Files {
		data[fileKey(file)] = file.Content
	}
	return corev1ac.ConfigMap(server.Name, server.Namespace).WithLabels(labelsOf(server)).WithData(data)
}

// fileKey is the key of a file in the ConfigMap: a hash, because a path is not a valid key and the key
// must not depend on the order of the files.
func fileKey(file v1beta1.MCPServerFile) string {
	sum := sha256.Sum256([]byte(file.Path))
	return fmt.Sprintf("file-%x", sum[:8])
}

// filesInOrder returns the files sorted by path, because their order in the spec has no meaning.
func filesInOrder(server *v1beta1.MCPServer) []v1beta1.MCPServerFile {
	return slices.SortedFunc(slices.Values(server.Spec.Files), func(a, b v1beta1.MCPServerFile) int { return strings.Compare(a.Path, b.Path) })
}

// filesHash changes only with spec.files.
func filesHash(server *v1beta1.MCPServer) string {
	raw, _ := json.Marshal(filesInOrder(server)) // strings cannot fail
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
