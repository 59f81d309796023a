package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func newPlan(o *options) *cobra.Command {
	var p planOptions
	command := &cobra.Command{
		Use:   "plan [KIND/NAME | -f FILE | --all]",
		Short: "Show what the manager would do now, or if FILE were applied. Nothing is written.",
		Long: "Show what the manager would do in its next reconcile: now, or if FILE were applied. It sends dry runs with your permissions and writes nothing. " +
			"What you may not read, it assumes to be unchanged, and says so.\n\n" +
			"The exit code is 0 if there is nothing to do, 2 if there is something to do, and 1 if it cannot be known.",
		Example: "  kubectl fixpoint plan appservice/web\n" +
			"  kubectl fixpoint plan -f web.yaml\n" +
			"  kubectl fixpoint plan --all -A   # before a new version of the manager",
		Args: cobra.MaximumNArgs(2), ValidArgsFunction: o.completeObjects,
		RunE: func(command *cobra.Command, args []string) error {
			t, c, err := o.start(args)
			if err != nil {
				return err
			}
			if err := p.check(t, args); err != nil {
				return err
			}
			return o.plan(command.Context(), c, t, p)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&p.file, "filename", "f", "", "`FILE` with the objects as they would be applied; - is the standard input.")
	flags.BoolVar(&p.serverSide, "server-side", false, "Plan for kubectl apply --server-side of FILE.")
	flags.BoolVar(&p.all, "all", false, "Plan for all objects of the namespace, or with -A of all namespaces.")
	p.addCloudFlags(command)
	o.addAllNamespaces(command)
	o.addOutput(command)
	return command
}

type planOptions struct {
	file                          string
	serverSide, all               bool
	cloudEndpoint, cloudTokenFile string
}

func (p planOptions) check(t target, args []string) error {
	given := 0
	for _, is := range []bool{t.name != "", p.file != "", p.all} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return errors.New("give one of KIND/NAME, -f FILE and --all")
	case p.file != "" && len(args) > 0:
		return fmt.Errorf("unexpected argument %q beside -f", args[0])
	case p.serverSide && p.file == "":
		return errors.New("--server-side requires -f FILE")
	}
	return p.checkCloud()
}

func (p *planOptions) addCloudFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&p.cloudEndpoint, "cloud-endpoint", "", "URL of the Azure Resource Manager endpoint, if it is not that of public Azure.")
	flags.StringVar(&p.cloudTokenFile, "cloud-token-file", "", "`FILE` with a bearer token for --cloud-endpoint. By default, your Azure login is used.")
}

func (p *planOptions) checkCloud() error {
	if p.cloudTokenFile != "" && p.cloudEndpoint == "" {
		return errors.New("--cloud-token-file requires --cloud-endpoint")
	}
	return nil
}

func (o *options) plan(ctx context.Context, c *clients, t target, p planOptions) error {
	objects, notes, err := o.plannedObjects(ctx, c, t, p)
	if err != nil {
		return err
	}
	planner, err := c.newPlanner(ctx, p)
	if err != nil {
		return err
	}
	result := planResult{Plans: []objectPlan{}, Notes: notes}
	for _, live := range objects {
		planned, err := planner.plan(ctx, live)
		if err != nil {
			return fmt.Errorf("planning %s: %w", live, err)
		}
		result.Planned++
		if !p.all || planned.hasChanges() || planned.isUnknown() {
			result.Plans = append(result.Plans, planned)
		}
	}
	result.Notes = append(result.Notes, planner.notes...)
	err = o.show(ctx, func(context.Context) (string, error) {
		return o.format(result, func() string { return planText(result) })
	})
	if err != nil {
		return err
	}
	return result.exit()
}

// plannedObjects are those that the arguments name, or as they would be with the file.
func (o *options) plannedObjects(ctx context.Context, c *clients, t target, p planOptions) (objects []object, notes []string, err error) {
	if p.file != "" {
		return o.objectsOf(ctx, c, p)
	}
	return c.objects(ctx, t)
}

// planResult is what plan prints.
type planResult struct {
	// Planned is for how many objects there is a plan, and Plans are those to show.
	Planned int          `json:"planned"`
	Plans   []objectPlan `json:"plans"`
	Notes   []string     `json:"notes,omitempty"`
}

type objectPlan struct {
	Object string         `json:"object"`
	Phases []plannedPhase `json:"phases"`
	// Suspended and Deleting say why the phases do not run as usual.
	Suspended bool `json:"suspended,omitempty"`
	Deleting  bool `json:"deleting,omitempty"`
}

type plannedPhase struct {
	Phase   string          `json:"phase"`
	Verdict string          `json:"verdict"`
	Message string          `json:"message,omitempty"`
	Changes []plannedChange `json:"changes,omitempty"`
	// Unknown is why the plan does not know what the phase would do.
	Unknown string `json:"unknown,omitempty"`
}

type plannedChange struct {
	Action ssa.Action    `json:"action"`
	Object string        `json:"object"`
	Fields []fieldChange `json:"fields,omitempty"`
	// Drifts are what the change reverts, or leaves if the action is Report.
	Drifts []string `json:"drifts,omitempty"`
	// Estimated is true if no dry run is possible: what the API server sets itself is not known.
	Estimated bool `json:"estimated,omitempty"`
}

func (p objectPlan) hasChanges() bool {
	return slices.ContainsFunc(p.Phases, func(ph plannedPhase) bool {
		return slices.ContainsFunc(ph.Changes, func(c plannedChange) bool { return c.Action != ssa.ActionReport })
	})
}

func (p objectPlan) isUnknown() bool {
	return slices.ContainsFunc(p.Phases, func(ph plannedPhase) bool { return ph.Unknown != "" })
}

func (r planResult) exit() error {
	if slices.ContainsFunc(r.Plans, objectPlan.hasChanges) {
		return &exitError{code: exitChanges}
	}
	if slices.ContainsFunc(r.Plans, objectPlan.isUnknown) {
		return &exitError{code: exitFailure}
	}
	return nil
}

// execution is a change as the API server answered its dry run.
type execution struct {
	action        ssa.Action
	before, after client.Object
	// estimated: see afterTwoWrites.
	estimated bool
}

// recorder records what an applier that sends dry runs is answered.
type recorder struct {
	phases.Applier
	api          client.Client
	fieldManager string
	executed     []execution
	// desired are the configurations of all dry runs, by kind, including those that failed.
	desired map[string]ssa.Configuration
	// goesOn: the plan goes on after what the API server refuses, and as if the controllers of Kubernetes had observed
	// what was applied. refused are the errors by kind.
	goesOn  bool
	refused map[string]error
}

// Execute implements [phases.Applier].
func (r *recorder) Execute(ctx context.Context, decision ssa.Decision) (ssa.Result, error) {
	r.keep(decision.Request.Desired)
	done := execution{action: decision.Action, before: decision.Request.Live}
	result := ssa.Result{Action: decision.Action, Drifts: decision.Drifts, Left: decision.Left}
	var err error
	if result.Live, done.estimated, err = r.afterTwoWrites(ctx, decision); err == nil && result.Live == nil {
		result, err = r.Applier.Execute(ctx, decision)
	}
	if err != nil && r.goesOn && decision.Request.Live != nil {
		r.refused[kindName(decision.Request.Live)] = err
		return ssa.Result{Action: decision.Action, Live: decision.Request.Live}, nil
	}
	if err != nil || result.Action == ssa.ActionNone {
		return result, err
	}
	done.action, done.after = result.Action, result.Live
	r.executed = append(r.executed, done)
	if r.goesOn {
		settle(result.Live)
	}
	return result, nil
}

func (r *recorder) keep(desired ssa.Configuration) {
	if r.desired == nil {
		r.desired = map[string]ssa.Configuration{}
	}
	if kind := desired.GetKind(); kind != nil {
		r.desired[*kind] = desired
	}
}

// settle makes the status say that the controllers of Kubernetes have observed the object.
func settle(live client.Object) {
	switch live := live.(type) {
	case *appsv1.Deployment:
		live.Status.ObservedGeneration = live.Generation
	case *policyv1.PodDisruptionBudget:
		live.Status.ObservedGeneration = live.Generation
	}
}

// describePlan joins the plan of an engine with what its dry runs were answered. Both are in the order in which the
// manager acts, steps aside.
func describePlan(o object, plan phases.Plan, executed []execution) (objectPlan, error) {
	described := objectPlan{
		Object: o.String(), Deleting: o.GetDeletionTimestamp() != nil, Suspended: o.suspended && o.GetDeletionTimestamp() == nil,
	}
	for _, phase := range plan.Phases {
		p := plannedPhase{Phase: phase.Name, Verdict: verdictNotReached}
		if phase.Verdict != nil {
			p.Verdict, p.Message = verdictName(phase.Verdict), phase.Verdict.Message()
		}
		if phase.Err != nil {
			p.Unknown = phase.Err.Error()
		}
		for _, change := range phase.Changes {
			c := plannedChange{Action: change.Action, Object: strings.Replace(change.Object, " ", "/", 1)}
			if isStep := change.Action == phases.ActionEnsure || change.Action == phases.ActionUndo; isStep {
				c.Object = change.Object
			}
			for _, drift := range change.Drifts {
				c.Drifts = append(c.Drifts, drift.String())
			}
			if done := takeExecution(&executed, change); done != nil {
				var err error
				c.Estimated = done.estimated
				if c.Fields, err = diff(orNil(done.before), orNil(done.after)); err != nil {
					return described, err
				}
			}
			p.Changes = append(p.Changes, c)
		}
		described.Phases = append(described.Phases, p)
	}
	return described, nil
}

// takeExecution finds the answer to the dry run of a change.
func takeExecution(executed *[]execution, change phases.Change) *execution {
	for i, done := range *executed {
		if done.after != nil && done.action == change.Action && kindName(done.after)+" "+done.after.GetName() == change.Object {
			*executed = slices.Delete(slices.Clone(*executed), i, i+1)
			return &done
		}
	}
	return nil
}

// orNil turns a nil pointer in an interface into nil.
func orNil(o client.Object) client.Object {
	if o == nil || o.GetUID() == "" && o.GetName() == "" {
		return nil
	}
	return o
}

func verdictName(v phases.Verdict) string {
	switch {
	case v.IsDone() && v == phases.NotConfigured():
		return verdictNotConfigured
	case v.IsDone():
		return verdictDone
	case v.IsStalled():
		return verdictStalled
	default:
		return verdictWaits
	}
}

func planText(r planResult) string {
	var b strings.Builder
	counts := map[ssa.Action]int{}
	for _, plan := range r.Plans {
		b.WriteString(objectPlanText(plan, counts))
		b.WriteString("\n")
	}
	if r.Planned > 1 {
		fmt.Fprintf(&b, "%d objects planned, %d of them with something to do or unknown.\n", r.Planned, len(r.Plans))
	}
	fmt.Fprintf(&b, "Plan: %d to create, %d to update, %d to correct, %d to adopt, %d to delete, %d steps.\n",
		counts[ssa.ActionCreate], counts[ssa.ActionUpdate], counts[ssa.ActionCorrect], counts[ssa.ActionAdopt], counts[ssa.ActionDelete],
		counts[phases.ActionEnsure]+counts[phases.ActionUndo])
	for _, note := range r.Notes {
		b.WriteString("Note: " + printable(note) + ".\n")
	}
	return b.String()
}

func objectPlanText(plan objectPlan, counts map[ssa.Action]int) string {
	var b strings.Builder
	b.WriteString(plan.Object)
	switch {
	case plan.Deleting:
		b.WriteString(" is being deleted")
	case plan.Suspended:
		b.WriteString(" is suspended: nothing is done until it is resumed")
	}
	b.WriteString("\n")
	width := 0
	for _, phase := range plan.Phases {
		width = max(width, len(phase.Phase))
	}
	for _, phase := range plan.Phases {
		line := phase.Verdict
		if phase.Message != "" && phase.Verdict != verdictDone {
			line += ": " + phase.Message
		}
		fmt.Fprintf(&b, "  %-*s  %s\n", width, phase.Phase, printable(line))
		if phase.Unknown != "" {
			b.WriteString("    ? not known: " + printable(phase.Unknown) + "\n")
		}
		for _, change := range phase.Changes {
			counts[change.Action]++
			fmt.Fprintf(&b, "    %s %s\n", strings.ToLower(string(change.Action)), printable(change.Object))
			for _, drift := range change.Drifts {
				b.WriteString("      because " + printable(drift) + "\n")
			}
			for _, field := range change.Fields {
				b.WriteString("      " + printable(field.String()) + "\n")
			}
			if change.Estimated {
				b.WriteString("      (without a dry run, because you may not update the object; what the API server sets itself is not known)\n")
			}
		}
	}
	return b.String()
}
