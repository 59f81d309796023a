package appservice

import (
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// FieldManager is the field manager of all applies. It must never change: fields that were applied
// under the old name would stay in the managed fields of the old name.
const FieldManager = "fixpoint-appservice"

// Finalizer keeps an AppService until its children are deleted.
const Finalizer = "fixpoint.dev/teardown"

// configHashAnnotation is on the pod template, so that a change of spec.config rolls the pods.
const configHashAnnotation = "fixpoint.dev/config-hash"

// preDeployLabel is on the Job of spec.hooks.preDeploy and on its pods, with the name of the AppService. It must not
// change between releases: Jobs are found by it.
const preDeployLabel = "fixpoint.dev/pre-deploy"

// Names in the pod template.
const (
	containerName = "app"
	portName      = "http"
	configVolume  = "config"
)

// labelsOf returns the labels of every child.
func labelsOf(app *v1beta1.AppService) map[string]string {
	return map[string]string{workload.LabelName: app.Name, workload.LabelManagedBy: workload.ManagedBy}
}

// selectorOf returns the pod selector. The selector of a Deployment is immutable, so this must not
// change between releases.
func selectorOf(app *v1beta1.AppService) map[string]string {
	return map[string]string{workload.LabelName: app.Name}
}
