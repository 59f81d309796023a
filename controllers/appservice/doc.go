// Package appservice reconciles AppServices: a web application as a Service, a Deployment and, if
// the spec configures them, a ConfigMap, a HorizontalPodAutoscaler, a PodDisruptionBudget and an
// Ingress. A Job of the spec can gate the rollout of the Deployment.
//
// [Phases] lists the phases in order. The file of the same name contains each phase: pure functions
// compute the desired child and whether it is ready. The user documentation is docs/appservice.md.
package appservice
