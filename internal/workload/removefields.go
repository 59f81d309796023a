package workload

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Fields that the API server refuses beside desired ones: see [ssa.Request]. Another client that edits a child replaces
// one by the other, for example the value of an environment variable by a reference to a Secret. Without them such an
// edit could not be reverted, because an apply with the desired field leaves the other one.
var (
	DeploymentRemoveFields       = append(podRemoveFields("spec.template.spec."), "spec.strategy.type|rollingUpdate")
	DisruptionBudgetRemoveFields = []string{"spec.minAvailable|maxUnavailable"}
)

func podRemoveFields(pod string) []string {
	all := []string{oneOf[corev1.VolumeSource](pod + "volumes."), pod + "securityContext.seccompProfile.type|localhostProfile", pod + "securityContext.appArmorProfile.type|localhostProfile"}
	for _, container := range []string{pod + "initContainers.", pod + "containers."} {
		all = append(all,
			container+"env.value|valueFrom", oneOf[corev1.EnvVarSource](container+"env.valueFrom."),
			container+"securityContext.seccompProfile.type|localhostProfile", container+"securityContext.appArmorProfile.type|localhostProfile",
			oneOf[corev1.LifecycleHandler](container+"lifecycle.postStart."), oneOf[corev1.LifecycleHandler](container+"lifecycle.preStop."),
		)
		for _, probe := range []string{"livenessProbe.", "readinessProbe.", "startupProbe."} {
			all = append(all, oneOf[corev1.ProbeHandler](container+probe))
		}
	}
	return all
}

// oneOf is the entry of a struct that may have one of its fields.
func oneOf[T any](path string) string {
	var names []string
	for field := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return path + strings.Join(names, "|")
}
