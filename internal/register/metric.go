// Package register registers metrics in a registry that several managers of a process share.
package register

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric registers a metric, or returns the existing one if it is registered already. The owner is named in errors.
func Metric[C prometheus.Collector](registerer prometheus.Registerer, owner string, metric C) (C, error) {
	err := registerer.Register(metric)
	already, _ := errors.AsType[prometheus.AlreadyRegisteredError](err)
	if existing, ok := already.ExistingCollector.(C); ok {
		return existing, nil
	}
	if err != nil {
		return metric, fmt.Errorf("registering the metrics of %s: %w", owner, err)
	}
	return metric, nil
}
