package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/contest"
	"github.com/fixpoint-dev/fixpoint/test/measure"
)

const (
	foreignImage = "elsewhere.example/x:1"
	nameLabel    = "app.kubernetes.io/name"
)

var imageDrift = measure.Drift{
	List:     &appsv1.DeploymentList{},
	Meddle:   measure.Edit(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = foreignImage }),
	Repaired: measure.Seen(func(d *appsv1.Deployment) bool { return d.Spec.Template.Spec.Containers[0].Image != foreignImage }),
}

// drifts follow each other.
var drifts = []measure.Drift{
	imageDrift,
	{
		List:     &corev1.ServiceList{},
		Meddle:   measure.Edit(func(s *corev1.Service) { s.Spec.Selector[nameLabel] = "elsewhere" }),
		Repaired: measure.Seen(func(s *corev1.Service) bool { return s.Spec.Selector[nameLabel] == s.Name }),
	},
	{List: &appsv1.DeploymentList{}, Meddle: measure.Remove[*appsv1.Deployment]()},
	{List: &corev1.ServiceList{}, Meddle: measure.Remove[*corev1.Service]()},
}

// edit changes the image of an AppService. It is repaired when the AppService is Ready with the new image.
func edit(i int) measure.Drift {
	image := fmt.Sprintf("registry.example/shop:%d", i+2)
	return measure.Drift{
		List:     &v1beta1.AppServiceList{},
		Meddle:   measure.Edit(func(app *v1beta1.AppService) { app.Spec.Image = image }),
		Repaired: measure.Seen(func(app *v1beta1.AppService) bool { return app.Spec.Image != image || contest.IsReady(app) }),
	}
}

// churnApps edits AppServices, and lets the children of others drift.
func (c *column) churnApps(ctx context.Context) error {
	t := &tracker{user: c.user, pending: map[string]*change{}}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if err := t.watch(watching); err != nil {
		return err
	}
	before, err := c.manager.ProcessorTime()
	if err != nil {
		return err
	}
	began := time.Now()
	var group sync.WaitGroup
	// Edits of even AppServices, and drifts of odd ones.
	group.Go(func() {
		t.every(ctx, c.edits, c.churn, func(i int) (measure.Drift, int) { return edit(i), 2 * i % (c.apps &^ 1) })
	})
	group.Go(func() {
		t.every(ctx, c.drifts, c.churn, func(i int) (measure.Drift, int) { return drifts[i%len(drifts)], (2*i + 1) % (c.apps &^ 1) })
	})
	group.Wait()
	took := time.Since(began).Seconds()
	after, err := c.manager.ProcessorTime()
	if err != nil {
		return err
	}
	if err := t.untilRepaired(ctx); err != nil {
		return err
	}
	var edits, repairs []float64
	for _, done := range t.done {
		if done.isEdit() {
			edits = append(edits, done.seconds())
		} else {
			repairs = append(repairs, done.seconds())
		}
	}
	c.values[rowChurnEditMedian], c.values[rowChurnEditTail] = measure.Quantile(edits, 0.5), measure.Quantile(edits, 0.99)
	c.values[rowChurnDriftMedian], c.values[rowChurnDriftTail] = measure.Quantile(repairs, 0.5), measure.Quantile(repairs, 0.99)
	c.values[rowChurnEdits], c.values[rowChurnDrifts] = float64(len(edits))/took, float64(len(repairs))/took
	c.values[rowChurnShare] = (after - before).Seconds() / took
	return nil
}

// change is an edit or a drift, and when it was answered and repaired.
type change struct {
	measure.Repair
	answered, repaired time.Time
}

func (c *change) isEdit() bool {
	_, ok := c.List.(*v1beta1.AppServiceList)
	return ok
}

// seconds is 0 for a repair that is seen before the answer.
func (c *change) seconds() float64 { return max(0, c.repaired.Sub(c.answered).Seconds()) }

// tracker follows changes until they are repaired.
type tracker struct {
	user client.WithWatch

	mu sync.Mutex
	// pending are the changes that are not repaired, by kind and name; done are the others.
	pending map[string]*change
	done    []*change
	failure error
}

// watch observes all changes from now on until ctx is done.
func (t *tracker) watch(ctx context.Context) error {
	for _, list := range []client.ObjectList{&v1beta1.AppServiceList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}} {
		// Without a resource version, a watch begins with all objects. The API server ends one that changes overtake then.
		if err := t.user.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil {
			return err
		}
		now := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
		w, err := t.user.Watch(ctx, list, client.InNamespace(namespace), now)
		if err != nil {
			return err
		}
		go func() {
			defer w.Stop()
			for event := range w.ResultChan() {
				t.observe(keyOf(list, event), event)
			}
			if ctx.Err() == nil {
				t.fail(fmt.Errorf("the watch of %T ended", list))
			}
		}()
	}
	return nil
}

func keyOf(list client.ObjectList, event watch.Event) string {
	object, ok := event.Object.(client.Object)
	if !ok {
		return ""
	}
	return key(list, object.GetName())
}

func key(list client.ObjectList, name string) string { return fmt.Sprintf("%T/%s", list, name) }

func (t *tracker) observe(key string, event watch.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.pending[key]
	if !ok || !c.repaired.IsZero() || !c.Observe(event) {
		return
	}
	c.repaired = time.Now()
	t.finish(key, c)
}

// finish takes a change from the pending ones once its answer has arrived and its repair was seen. The caller holds
// t.mu.
func (t *tracker) finish(key string, c *change) {
	if c.repaired.IsZero() || c.answered.IsZero() {
		return
	}
	delete(t.pending, key)
	t.done = append(t.done, c)
}

func (t *tracker) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = errors.Join(t.failure, err)
}

// every makes so many changes per second for a while. Changes of objects whose previous change is pending are left out.
func (t *tracker) every(ctx context.Context, perSecond float64, duration time.Duration, next func(i int) (measure.Drift, int)) {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	ticker := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer ticker.Stop()
	var group sync.WaitGroup
	defer group.Wait()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		drift, number := next(i)
		group.Go(func() { t.change(context.WithoutCancel(ctx), drift, contest.AppName(number)) })
	}
}

func (t *tracker) change(ctx context.Context, drift measure.Drift, name string) {
	key, c := key(drift.List, name), &change{Repair: measure.Repair{Drift: drift}}
	if !t.add(key, c) {
		return
	}
	err := drift.Meddle(ctx, t.user, client.ObjectKey{Namespace: namespace, Name: name})
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		delete(t.pending, key)
		// What was deleted by the previous drift of the object is not there to be changed yet.
		if !apierrors.IsNotFound(err) {
			t.failure = errors.Join(t.failure, err)
		}
		return
	}
	c.answered = time.Now()
	t.finish(key, c)
}

func (t *tracker) add(key string, c *change) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending[key] != nil {
		return false
	}
	t.pending[key] = c
	return true
}

// untilRepaired waits until no change is pending.
func (t *tracker) untilRepaired(ctx context.Context) error {
	const patience, interval = 2 * time.Minute, 100 * time.Millisecond
	deadline := time.Now().Add(patience)
	for {
		t.mu.Lock()
		left, failure := len(t.pending), t.failure
		t.mu.Unlock()
		if left == 0 || failure != nil {
			return failure
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d changes were not repaired within %s", left, patience)
		}
		if err := pause(ctx, interval); err != nil {
			return err
		}
	}
}
