package ssa

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Decision is throw-away.
type Decision struct {
	Request Request
	Action  Action
	Drifts  []Drift
	Left    bool

	e       evidence
	p       prepared
	verdict judgement
}

func (d Decision) Writes() bool { return d.Action != ActionNone && d.Action != ActionReport }

func (a *Applier) Decide(req Request) (Decision, error) {
	p, err := a.prepare(req)
	if err != nil {
		return Decision{}, err
	}
	if req.Live == nil {
		return Decision{Request: req, Action: ActionCreate, p: p}, nil
	}
	e := a.gather(p, req.Live)
	if isQuiet(e) {
		if !p.remembered {
			a.rememberFields(p, req.Live, p.fields)
		}
		return Decision{Request: req, Action: ActionNone}, nil
	}
	if req.Live.GetDeletionTimestamp() != nil {
		return Decision{}, terminating(p.id)
	}
	adopting, err := a.mayWrite(e, req)
	if err != nil {
		return Decision{}, err
	}
	verdict, err := judge(e, req.Drift)
	if err != nil {
		return Decision{}, err
	}
	if adopting {
		verdict = judgement{action: ActionAdopt, reclaim: emptyFieldSet()}
	}
	verdict.reclaim = reclaimable(req, verdict.reclaim)
	return Decision{Request: req, Action: verdict.action, Drifts: verdict.drifts, Left: verdict.action == ActionReport || len(verdict.leave) > 0, e: e, p: p, verdict: verdict}, nil
}

func (a *Applier) Execute(ctx context.Context, d Decision) (Result, error) {
	if !d.Writes() {
		return Result{Action: d.Action, Live: d.Request.Live, Drifts: d.Drifts, Left: d.Left}, nil
	}
	if d.Action == ActionCreate {
		return a.create(ctx, d.p)
	}
	return a.write(ctx, d.e, d.Request, d.verdict)
}

// CheckFieldPath is throw-away.
func CheckFieldPath(client.Object, string) error { return nil }
