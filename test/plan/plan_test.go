package plan_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

func TestPlanEqualsWhatThenHappens(t *testing.T) {
	if _, given := os.LookupEnv("FIXPOINT_PLAN_EDITS"); !given {
		t.Skip("set FIXPOINT_PLAN_EDITS to a number of edits, such as 1000")
	}
	t.Logf("seed %d; replay with -plan.seed=%[1]d", *seed)
	for _, c := range []struct {
		kind string
		// share of the edits, in percent.
		share int
	}{{"AppService", 50}, {"MCPServer", 30}, {"SecureStorage", 20}} {
		t.Run(c.kind, func(t *testing.T) {
			w := newFixture(t, c.kind)
			w.gate.set(false, false)
			count, changed, began := edits(t, c.share), 0, time.Now()
			for i := range count {
				w.edit(i)
				changed += w.compareUntilQuiet()
			}
			t.Logf("%d edits, %d reconciles with changes as planned (%d changes of objects without a dry run), in %s", count, changed, w.estimated, time.Since(began).Round(time.Second))
			w.Expect(changed).To(BeNumerically(">=", count/3), "the edits must lead to changes")
		})
	}
}

// unreported is how long a test waits for a status that need not change: that of a child which is recreated before it
// was ready.
const unreported = 3 * time.Second

// compareUntilQuiet compares each reconcile with its plan until a plan has nothing to do, which must be true then too.
// It returns the number of reconciles with changes.
func (w *fixture) compareUntilQuiet() (reconciles int) {
	w.T.Helper()
	const most = 20
	for reconciles = range most {
		p := w.plan()
		changes := p.changes()
		if len(changes) == 0 {
			w.stayQuiet()
			return reconciles
		}
		before := w.children()
		reported := w.gate.set(true, true)
		select {
		case <-reported:
		case <-time.After(unreported):
			w.gate.set(false, false)
		}
		w.compare(changes, before, w.children())
	}
	w.Expect(reconciles).To(BeNumerically("<", most-1), "the plans never come to rest")
	return reconciles
}

// stayQuiet opens the gate until the manager has reconciled, and expects that nothing changes.
func (w *fixture) stayQuiet() {
	w.T.Helper()
	before, writes := w.children(), w.gate.cloudWrites.Load()
	w.gate.set(true, false)
	request := fmt.Sprint(time.Now().UnixNano())
	w.Eventually(func() error {
		live := w.live()
		annotations := live.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1alpha1.AnnotationReconcileRequest] = request
		live.SetAnnotations(annotations)
		return api.Update(w.Ctx, live)
	}).Should(Succeed())
	w.Eventually(func() string {
		handled, _, _ := unstructured.NestedString(w.live().Object, "status", "lastHandledReconcileAt")
		return handled
	}).WithPolling(5 * time.Millisecond).Should(Equal(request))
	w.gate.set(false, false)
	w.compare(nil, before, w.children())
	w.Expect(w.gate.cloudWrites.Load()).To(Equal(writes), "writes to the cloud")
}

// compare expects that exactly the planned changes were made, field by field.
func (w *fixture) compare(changes []plannedChange, before, after map[string]client.Object) {
	w.T.Helper()
	want, is, estimated := map[string]string{}, map[string]string{}, map[string][]string{}
	var wantSteps []string
	for _, change := range changes {
		switch change.Action {
		case "Ensure", "Undo":
			wantSteps = append(wantSteps, change.Object)
		case "Delete":
			want[change.Object] = "deleted"
		default:
			var fields []string
			for _, f := range change.Fields {
				fields = append(fields, lineOf(f.Field, f.From, f.To))
			}
			if change.Estimated {
				estimated[change.Object] = fields
			} else if len(fields) > 0 {
				want[change.Object] = strings.Join(fields, "\n")
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(union(before, after))) {
		switch one, other := before[key], after[key]; {
		case other == nil || one != nil && one.GetDeletionTimestamp() == nil && other.GetDeletionTimestamp() != nil:
			is[key] = "deleted"
		default:
			fields, err := plugin.Diff(one, other)
			w.Expect(err).NotTo(HaveOccurred())
			if len(fields) > 0 {
				is[key] = strings.Join(fields, "\n")
			}
		}
	}
	// The API server refuses some dry runs. Then the plan is known to miss fields that are removed.
	for object, fields := range estimated {
		w.Expect(strings.Split(is[object], "\n")).To(ContainElements(fields), object)
		delete(is, object)
		w.estimated++
	}
	w.Expect(is).To(Equal(want))
	// What follows a step depends on how it ends, so a plan ends with the first.
	if len(wantSteps) > 0 {
		w.Expect(w.steps()).To(ContainElement(wantSteps[0]))
	}
}

func union(a, b map[string]client.Object) map[string]bool {
	all := map[string]bool{}
	for key := range a {
		all[key] = true
	}
	for key := range b {
		all[key] = true
	}
	return all
}

// steps are what the manager has logged of the steps that it ran.
func (w *fixture) steps() []string {
	var steps []string
	for _, line := range w.manager.Log.Lines() {
		if _, rest, found := strings.Cut(line, `"Ensuring step"`); found {
			_, step, _ := strings.Cut(rest, `"step"="`)
			step, _, _ = strings.Cut(step, `"`)
			steps = append(steps, step)
		}
	}
	return steps
}

func (w *fixture) live() *unstructured.Unstructured {
	w.T.Helper()
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(w.kind))
	w.Expect(api.Get(w.Ctx, w.Key(name), live)).To(Succeed())
	return live
}

// edit makes one random edit with one write: the first creates the object.
func (w *fixture) edit(i int) {
	w.T.Helper()
	const specShare, deleteShare, readyShare = 50, 60, 85
	switch dice := w.random.IntN(100); {
	case i == 0:
		w.create()
	case dice < specShare:
		w.editSpec()
	case w.kind == "SecureStorage":
		w.editCloud()
	case dice < deleteShare:
		w.deleteChild()
	case dice < readyShare:
		w.setReadiness(w.random.IntN(4) > 0)
	default:
		w.drift()
	}
}

func (w *fixture) did(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

func (w *fixture) create() {
	w.T.Helper()
	w.Eventually(func() error {
		w.spec = w.generator.First()
		created := &unstructured.Unstructured{Object: map[string]any{"spec": w.spec}}
		created.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(w.kind))
		created.SetName(name)
		created.SetNamespace(w.Namespace)
		return api.Create(w.Ctx, created)
	}).WithPolling(time.Millisecond).Should(Succeed())
	w.did("create %v", w.spec)
}

// editSpec draws specs until the API server accepts one.
func (w *fixture) editSpec() {
	w.T.Helper()
	w.Eventually(func() error {
		live, next := w.live(), w.generator.Next(w.spec)
		live.Object["spec"] = next
		err := api.Update(w.Ctx, live)
		if err == nil {
			w.spec = next
		}
		return err
	}).WithPolling(time.Millisecond).Should(Succeed())
	w.did("spec %v", w.spec)
}

func (w *fixture) anyChild() client.Object {
	children := w.children()
	keys := slices.Sorted(maps.Keys(children))
	if len(keys) == 0 {
		return nil
	}
	return children[keys[w.random.IntN(len(keys))]]
}

func (w *fixture) deleteChild() {
	w.T.Helper()
	if child := w.anyChild(); child != nil {
		w.did("delete %T", child)
		w.Expect(api.Delete(w.Ctx, child)).To(Succeed())
	}
}

// setReadiness writes the status of the Deployment, as its controller does.
func (w *fixture) setReadiness(ready bool) {
	w.T.Helper()
	var d appsv1.Deployment
	if err := api.Get(w.Ctx, w.Key(name), &d); apierrors.IsNotFound(err) {
		return
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
	if ready {
		n := *d.Spec.Replicas
		d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = n, n, n, n
	}
	w.did("ready %v", ready)
	w.Expect(api.Status().Update(w.Ctx, &d)).To(Succeed())
}

// drift changes a child as another field manager.
func (w *fixture) drift() {
	w.T.Helper()
	child := w.anyChild()
	number := int32(w.random.IntN(3) + 1) //nolint:gosec // small
	switch live := child.(type) {
	case *corev1.ConfigMap:
		for key := range live.Data {
			live.Data[key] = fmt.Sprint("drifted ", number)
			break
		}
	case *corev1.Service:
		live.Spec.Ports[0].Port = 100 + number
	case *appsv1.Deployment:
		live.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("registry.test/drifted:", number)
	case *autoscalingv2.HorizontalPodAutoscaler:
		live.Spec.MaxReplicas += number
	case *policyv1.PodDisruptionBudget:
		live.Labels["app.kubernetes.io/managed-by"] = fmt.Sprint("drifted-", number)
	case *networkingv1.Ingress:
		live.Spec.Rules[0].Host = fmt.Sprintf("drifted-%d.example.com", number)
	case *networkingv1.NetworkPolicy:
		live.Spec.PodSelector.MatchLabels = map[string]string{"drifted": fmt.Sprint(number)}
	default:
		return
	}
	w.did("drift %T", child)
	w.Expect(w.As("kubectl-edit").Update(w.Ctx, child)).To(Succeed())
}

// editCloud changes the storage account outside of the manager.
func (w *fixture) editCloud() {
	w.T.Helper()
	account, _, _ := unstructured.NestedString(w.live().Object, "status", "accountName")
	if _, exists := w.server.Account(account); !exists {
		return
	}
	w.did("platform keys for %s", account)
	w.Expect(w.server.UsePlatformKeys(account)).To(Succeed())
	// The cloud does not notify of changes.
	w.Eventually(func() error {
		live := w.live()
		live.SetAnnotations(map[string]string{v1alpha1.AnnotationReconcileRequest: fmt.Sprint(time.Now().UnixNano())})
		return api.Update(w.Ctx, live)
	}).Should(Succeed())
}
