package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Meddle does something by hand to a child of the key.
type Meddle func(ctx context.Context, c client.Client, key client.ObjectKey) error

// Drift is something done by hand to a child, and how one sees that it is reverted.
type Drift struct {
	Name string
	// List is of the child's kind.
	List   client.ObjectList
	Meddle Meddle
	// Repair reverts it; nil if a manager does.
	Repair Meddle
	// Repaired says whether the child is as it was; nil if it is once it is there again.
	Repaired func(client.Object) bool
}

// Repairs measures how long drifts stand.
type Repairs struct {
	// User meddles, and watches.
	User client.WithWatch
	// Key of the children.
	Key    client.ObjectKey
	Drifts []Drift
	// Rounds is how often each drift is measured.
	Rounds int
	// Timeout is how long a repair may take before the measurement fails.
	Timeout time.Duration
	// Ready waits until there is nothing to repair, and nothing of the last repair is left to do.
	Ready func(ctx context.Context) error
}

// mostApplies is the bar: how many raw applies a repair may take.
const mostApplies = 3.0

// Measure takes the time from the answer to the edit until a watch shows the repair, for each drift many
// times, and of one raw apply between them.
func (r Repairs) Measure(ctx context.Context) ([]Row, error) {
	var raw []float64
	took, err := r.times(ctx, func(ctx context.Context, value string) error {
		apply, err := r.rawApply(ctx, value)
		raw = append(raw, apply)
		return err
	})
	if err != nil {
		return nil, err
	}
	one := Median(raw)
	rows := []Row{{What: "one raw apply of a Deployment", Bar: "-", Measured: fmt.Sprintf("%.1f ms", one), OK: true}}
	for _, d := range r.Drifts {
		m := Median(took[d.Name])
		rows = append(rows, Row{
			What:     "drift repaired: " + d.Name,
			Bar:      fmt.Sprintf("median at most %.0f raw applies", mostApplies),
			Measured: fmt.Sprintf("%.1f (%.1f ms)", m/one, m),
			OK:       m <= mostApplies*one,
		})
	}
	return rows, nil
}

// Times are the milliseconds from the answer to the edit until a watch shows the repair, by drift.
func (r Repairs) Times(ctx context.Context) (map[string][]float64, error) {
	return r.times(ctx, func(context.Context, string) error { return nil })
}

func (r Repairs) times(ctx context.Context, between func(ctx context.Context, value string) error) (map[string][]float64, error) {
	took := map[string][]float64{}
	for round := range r.Rounds {
		for _, d := range r.Drifts {
			if err := r.Ready(ctx); err != nil {
				return nil, err
			}
			if err := between(ctx, fmt.Sprint(round, d.Name)); err != nil {
				return nil, err
			}
			repair, err := r.repair(ctx, d)
			if err != nil {
				return nil, fmt.Errorf("drift %q: %w", d.Name, err)
			}
			took[d.Name] = append(took[d.Name], repair)
		}
	}
	return took, nil
}

// rawApply times one apply that changes a Deployment, without the manager, in milliseconds.
func (r Repairs) rawApply(ctx context.Context, value string) (float64, error) {
	const name = "raw"
	labels := map[string]any{"app": name}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": name, "namespace": r.Key.Namespace, "annotations": map[string]any{"round": value}},
		"spec": map[string]any{
			"replicas": 0,
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": name, "image": "raw:1"}}},
			},
		},
	})
	if err != nil {
		return 0, err
	}
	target := &appsv1.Deployment{}
	target.Name, target.Namespace = name, r.Key.Namespace
	started := time.Now()
	err = r.User.Patch(ctx, target, client.RawPatch(types.ApplyPatchType, raw), client.FieldOwner(name), client.ForceOwnership)
	return Milliseconds(time.Since(started)), err
}

func (r Repairs) repair(ctx context.Context, d Drift) (float64, error) {
	w, err := r.User.Watch(ctx, d.List, client.InNamespace(r.Key.Namespace), client.MatchingFields{"metadata.name": r.Key.Name})
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	if err := d.Meddle(ctx, r.User, r.Key); err != nil {
		return 0, err
	}
	started := time.Now()
	if d.Repair != nil {
		if err := d.Repair(ctx, r.User, r.Key); err != nil {
			return 0, err
		}
	}
	repair := Repair{Drift: d}
	for {
		select {
		case event, open := <-w.ResultChan():
			if !open {
				return 0, errors.New("the watch ended")
			}
			if repair.Observe(event) {
				return Milliseconds(time.Since(started)), nil
			}
		case <-time.After(r.Timeout):
			return 0, fmt.Errorf("not repaired within %s", r.Timeout)
		}
	}
}

// Repair follows a drift in a watch that began before it.
type Repair struct {
	Drift
	// meddled says whether the watch has shown the drift.
	meddled bool
}

// Observe takes the next event about the object, and reports whether it shows the repair: what was edited is as it was,
// or what was deleted exists again.
func (r *Repair) Observe(event watch.Event) bool {
	live, ok := event.Object.(client.Object)
	if !ok {
		return false
	}
	asItWas := event.Type != watch.Deleted && (r.Repaired == nil || r.Repaired(live))
	if r.meddled && asItWas {
		return true
	}
	// An object that is deleted is as it was until then.
	r.meddled = r.meddled || !asItWas
	return false
}

// Seen asks a question about an object of one type; one of another type is not repaired.
func Seen[P client.Object](repaired func(P) bool) func(client.Object) bool {
	return func(o client.Object) bool {
		typed, ok := o.(P)
		return ok && repaired(typed)
	}
}

type object[T any] interface {
	*T
	client.Object
}

// Edit changes an object as kubectl edit does.
func Edit[T any, P object[T]](mutate func(P)) Meddle {
	return func(ctx context.Context, c client.Client, key client.ObjectKey) error {
		live := P(new(T))
		if err := c.Get(ctx, key, live); err != nil {
			return err
		}
		before, ok := live.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("copying a %T", live)
		}
		mutate(live)
		return c.Patch(ctx, live, client.MergeFrom(before), client.FieldOwner("kubectl-edit"))
	}
}

// Remove deletes an object.
func Remove[P object[T], T any]() Meddle {
	return func(ctx context.Context, c client.Client, key client.ObjectKey) error {
		live := P(new(T))
		live.SetName(key.Name)
		live.SetNamespace(key.Namespace)
		return c.Delete(ctx, live)
	}
}

// Scale gives a Deployment another number of pods, as kubectl scale does.
func Scale(replicas int32) Meddle {
	return func(ctx context.Context, c client.Client, key client.ObjectKey) error {
		target := &appsv1.Deployment{}
		target.Name, target.Namespace = key.Name, key.Namespace
		body := &autoscalingv1.Scale{}
		body.Name, body.Namespace, body.Spec.Replicas = key.Name, key.Namespace, replicas
		return c.SubResource("scale").Update(ctx, target, client.WithSubResourceBody(body), client.FieldOwner("kubectl-scale"))
	}
}
