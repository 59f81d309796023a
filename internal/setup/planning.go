package setup

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// Planning is what an engine that only plans reads and sends dry runs through, with the permissions of a user.
type Planning struct {
	// API sends dry runs.
	API client.Client
	// Reader reads. It must support [ssa.ControllerIndex].
	Reader client.Reader
	// Executes replaces the applier that sends the dry runs, to see what they answer. Optional.
	Executes func(phases.Applier) phases.Applier
	// Unreadable is called with the error of each read that the user is not permitted, where the plan then
	// assumes that nothing has changed. Optional: such errors are errors of the plan.
	Unreadable func(error)
	// Clock is for deadlines. Optional.
	Clock clock.PassiveClock
}

// Dependencies are those of an engine that cannot write.
func (p Planning) Dependencies(fieldManager string, converters ...func(*runtime.Scheme) managedfields.TypeConverter) (phases.Dependencies, error) {
	applier, err := ssa.New(ssa.Options{Client: p.API, Reader: p.Reader, FieldManager: fieldManager, TypeConverters: withKubernetes(converters)})
	if err != nil {
		return phases.Dependencies{}, fmt.Errorf("building the applier of plans: %w", err)
	}
	var planner phases.Applier = applier.DryRun()
	if p.Executes != nil {
		planner = p.Executes(planner)
	}
	return phases.Dependencies{
		Reader: p.Reader, Uncached: p.Reader, Applier: applier.DryRun(), Planner: planner, Scheme: p.API.Scheme(), Clock: Options{Clock: p.Clock}.ClockOrReal(),
	}, nil
}
