package e2e_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
)

// pollPeriod is as often as a storage account may be looked at.
const pollPeriod = 10 * time.Second

// app is a web application of two pods.
func (w *world) app(name string) *v1alpha1.AppService {
	return &v1alpha1.AppService{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1alpha1.AppServiceSpec{
			Image: webImage, Port: 8080, Replicas: ptr.To[int32](2),
			Config: map[string]string{"GREETING": "hello"},
			Probes: &v1alpha1.AppServiceProbes{Readiness: &v1alpha1.AppServiceProbe{Path: "/", PeriodSeconds: 1}},
		},
	}
}

// streamable is an MCP server that speaks streamable HTTP itself.
func (w *world) streamable(name string, replicas int32) *v1alpha1.MCPServer {
	server := w.mcp(name, replicas)
	server.Spec.Transport, server.Spec.Args = v1alpha1.TransportStreamableHTTP, []string{"mcp-http"}
	return server
}

// stdio is an MCP server that speaks on its standard input and output. Its image knows
// nothing of a bridge.
func (w *world) stdio(name string, replicas int32) *v1alpha1.MCPServer {
	server := w.mcp(name, replicas)
	server.Spec.Transport, server.Spec.Image = v1alpha1.TransportStdio, stdioImage
	server.Spec.Command = []string{"/subject", "stdio"}
	return server
}

func (w *world) mcp(name string, replicas int32) *v1alpha1.MCPServer {
	server := &v1alpha1.MCPServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.MCPServerSpec{Image: subjectImage, Replicas: &replicas},
	}
	return server
}

// storage is an account in the demo's resource group of the fake cloud.
func (w *world) storage(name string) *v1alpha1.SecureStorage {
	return &v1alpha1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1alpha1.SecureStorageSpec{
			Provider: v1alpha1.SecureStorageProvider{
				SubscriptionID: "00000000-0000-4000-8000-00000000f1c5", ResourceGroup: "fixpoint-demo", Location: "westeurope",
			},
			Key:            v1alpha1.SecureStorageKey{Vault: &v1alpha1.SecureStorageVault{Name: "fixpoint-demo"}, KeyName: "storage"},
			DeletionPolicy: v1alpha1.DeletionDelete,
			PollInterval:   metav1.Duration{Duration: pollPeriod},
		},
	}
}

// fromSecret takes the key secret of a Secret into the environment.
func fromSecret(name string) []corev1.EnvVar {
	return []corev1.EnvVar{{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "value",
	}}}}
}
