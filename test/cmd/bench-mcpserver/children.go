package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
)

// model is the name of the MCPServer whose children the bare client copies. It stands nowhere else
// in them, so that it can be replaced as text.
const model = "model-of-all"

// children are the Service and the Deployment that the manager applies for an MCPServer.
func (a *arena) children(ctx context.Context) ([]string, error) {
	namespace, err := a.newNamespace(ctx, "model-")
	if err != nil {
		return nil, err
	}
	server := newServer(namespace, model)
	if err := a.user.Create(ctx, server); err != nil {
		return nil, err
	}
	if err := a.untilReady(ctx, server); err != nil {
		return nil, err
	}
	key := client.ObjectKeyFromObject(server)
	var service corev1.Service
	var deployment appsv1.Deployment
	if err := a.user.Get(ctx, key, &service); err != nil {
		return nil, err
	}
	if err := a.user.Get(ctx, key, &deployment); err != nil {
		return nil, err
	}
	first, err := corev1ac.ExtractService(&service, mcpserver.FieldManager)
	if err != nil {
		return nil, err
	}
	second, err := appsv1ac.ExtractDeployment(&deployment, mcpserver.FieldManager)
	if err != nil {
		return nil, err
	}
	return texts(namespace, withoutOwner{first, first.ObjectMetaApplyConfiguration}, withoutOwner{second, second.ObjectMetaApplyConfiguration})
}

// withoutOwner is a configuration whose owner is to be left out.
type withoutOwner struct {
	configuration any
	metadata      *metav1ac.ObjectMetaApplyConfiguration
}

func texts(namespace string, children ...withoutOwner) ([]string, error) {
	var all []string
	for _, child := range children {
		child.metadata.OwnerReferences = nil
		raw, err := json.Marshal(child.configuration)
		if err != nil {
			return nil, err
		}
		all = append(all, strings.ReplaceAll(string(raw), fmt.Sprintf("%q", namespace), `"NAMESPACE"`))
	}
	return all, nil
}
