// Package appservice reconciles AppServices: a web application as a ConfigMap, a Service, a
// Deployment and, if asked for, an autoscaler, a disruption budget and an ingress.
//
// [Phases] is the order in which that happens; each phase has the file of its name. What a child
// should be and when it is ready are functions of values in that file. docs/appservice.md is the
// same for people.
package appservice
