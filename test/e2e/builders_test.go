package e2e_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// pollInterval is the minimum of spec.pollInterval.
const pollInterval = 10 * time.Second

// app returns a web application with two pods.
func (env *environment) app(name string) *v1beta1.AppService {
	return &v1beta1.AppService{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.namespace, Name: name},
		Spec: v1beta1.AppServiceSpec{
			Image: webImage, Port: 8080, Replicas: ptr.To[int32](2),
			Config: map[string]string{"GREETING": "hello"},
			// A busy machine does not make it unready.
			Probes: &v1beta1.AppServiceProbes{Readiness: &v1beta1.AppServiceProbe{Path: "/", PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 10}},
		},
	}
}

// streamable returns an MCP server with streamable HTTP.
func (env *environment) streamable(name string, replicas int32) *v1beta1.MCPServer {
	server := env.mcp(name, replicas)
	server.Spec.Transport, server.Spec.Args = v1beta1.TransportStreamableHTTP, []string{"mcp-http"}
	return server
}

// stdio returns an MCP server on standard input and output. Its image does not contain the bridge.
func (env *environment) stdio(name string, replicas int32) *v1beta1.MCPServer {
	server := env.mcp(name, replicas)
	server.Spec.Transport, server.Spec.Image = v1beta1.TransportStdio, stdioImage
	server.Spec.Command = []string{"/subject", "stdio"}
	return server
}

func (env *environment) mcp(name string, replicas int32) *v1beta1.MCPServer {
	server := &v1beta1.MCPServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.namespace, Name: name},
		Spec:       v1beta1.MCPServerSpec{Image: subjectImage, Replicas: &replicas},
	}
	return server
}

// storage returns a SecureStorage in the demo resource group of the fake cloud.
func (env *environment) storage(name string) *v1beta1.SecureStorage {
	return &v1beta1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.namespace, Name: name},
		Spec: v1beta1.SecureStorageSpec{
			Provider: v1beta1.SecureStorageProvider{
				SubscriptionID: "00000000-0000-4000-8000-00000000f1c5", ResourceGroup: "fixpoint-demo", Location: "westeurope",
			},
			Key:            v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: "fixpoint-demo"}, Name: "storage"},
			DeletionPolicy: v1beta1.DeletionDelete,
			PollInterval:   metav1.Duration{Duration: pollInterval},
		},
	}
}

// fromSecret sets an environment variable from a key of a Secret.
func fromSecret(name string) []corev1.EnvVar {
	return []corev1.EnvVar{{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "value",
	}}}}
}
