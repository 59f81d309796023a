package plugin

import (
	"context"
	"net/http"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Planner plans objects as kubectl fixpoint plan does, through the client of a program.
type Planner struct{ planner *planner }

// PlannerOptions say through what a [Planner] reads. The zero value serves for objects without a cloud.
type PlannerOptions struct {
	// Namespace of the objects.
	Namespace string
	// CloudEndpoint and CloudTokenFile are the flags of plan.
	CloudEndpoint, CloudTokenFile string
	// HTTP reads the cloud. Optional.
	HTTP *http.Client
	// Clock is for deadlines. Optional.
	Clock clock.PassiveClock
}

// ObjectPlan is what the manager would do about an object.
type ObjectPlan = objectPlan

// FieldChange is one field that differs.
type FieldChange = fieldChange

// NewPlanner reads the settings of the manager.
func NewPlanner(ctx context.Context, api client.WithWatch, o PlannerOptions) (*Planner, error) {
	c := &clients{WithWatch: api, namespace: o.Namespace}
	p, err := c.newPlanner(ctx, planOptions{cloudEndpoint: o.CloudEndpoint, cloudTokenFile: o.CloudTokenFile})
	if err != nil {
		return nil, err
	}
	if o.HTTP != nil {
		p.settings.cloud.Transport = readOnly{o.HTTP}
	}
	if o.Clock != nil {
		p.planning.Clock, p.settings.cloud.Clock = o.Clock, o.Clock
	}
	return &Planner{p}, nil
}

// Plan plans an object as it is, or as it would be.
func (p *Planner) Plan(ctx context.Context, live client.Object) (ObjectPlan, error) {
	k, err := kindOf(kindName(live))
	if err != nil {
		return ObjectPlan{}, err
	}
	p.planner.reader.lists = nil
	return p.planner.plan(ctx, k.object(live))
}

// Notes are what the plans so far assume.
func (p *Planner) Notes() []string { return p.planner.notes }

// DiffFields compares two objects field by field, as plan does. Either may be nil.
func DiffFields(before, after client.Object) ([]FieldChange, error) { return diff(before, after) }
