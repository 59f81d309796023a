package appservice

import (
	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// FieldManager is the name under which everything is applied. It is stable for ever: whoever
// changes it loses the fields that were applied under the old one.
const FieldManager = "fixpoint-appservice"

// Finalizer keeps an AppService until its children are gone.
const Finalizer = "fixpoint.dev/teardown"

// configHashAnnotation is on the pods' template, so that a change of the configuration rolls them.
const configHashAnnotation = "fixpoint.dev/config-hash"

// Names within the pods.
const (
	containerName = "app"
	portName      = "http"
	configVolume  = "config"
)

// labelsOf are the labels of every child.
func labelsOf(app *v1alpha1.AppService) map[string]string {
	return map[string]string{workload.LabelName: app.Name, workload.LabelManagedBy: workload.ManagedBy}
}

// selectorOf finds the pods. A Deployment's selector never changes, so neither may this.
func selectorOf(app *v1alpha1.AppService) map[string]string {
	return map[string]string{workload.LabelName: app.Name}
}
