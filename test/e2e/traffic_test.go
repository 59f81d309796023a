package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

const (
	// pace is the pause between two edits: a leader has always something to write.
	pace     = 200 * time.Millisecond
	mostApps = 5
	storages = 2
	// requestTime is how long the user of an API server that does not answer waits.
	requestTime = 2 * time.Second
)

// traffic creates, edits and deletes resources until it is stopped.
type traffic struct {
	world  *world
	chance *rand.Rand
	cancel context.CancelFunc
	ended  chan struct{}
	// apps are those whose creation the API server confirmed; deleted those whose
	// deletion it did.
	apps, deleted []string
	count         int
}

func (w *world) startTraffic(seed uint64) *traffic {
	w.t.Helper()
	w.t.Logf("seed of the edits: %d", seed)
	ctx, cancel := context.WithCancel(w.ctx)
	tr := &traffic{world: w, chance: rand.New(rand.NewPCG(seed, seed)), cancel: cancel, ended: make(chan struct{})}
	for i := range storages {
		storage := w.storage(storageName(i))
		w.Expect(api.Create(ctx, storage)).To(Succeed())
	}
	server := w.stdio("server", 1)
	w.Expect(api.Create(ctx, server)).To(Succeed())
	for i := range storages {
		ready(w, w.storage(storageName(i)))
	}
	ready(w, server)
	go tr.run(ctx)
	w.t.Cleanup(tr.stop)
	return tr
}

func storageName(i int) string { return fmt.Sprintf("storage-%d", i) }

func (tr *traffic) stop() {
	tr.cancel()
	<-tr.ended
}

func (tr *traffic) run(ctx context.Context) {
	defer close(tr.ended)
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			tr.count++
			tr.step(ctx)
		}
	}
}

// step makes one edit. What the API server does not answer is not tried again: what
// became of it shows in the end.
func (tr *traffic) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	const ofLife, ofStorage, ofServer = 40, 3, 5
	switch {
	case tr.count%ofLife == 1:
		tr.live(ctx)
	case tr.count%ofStorage == 0:
		tr.edit(ctx, tr.world.storage(storageName(tr.chance.IntN(storages))), `{"spec":{"tags":{"edit":"%d"}}}`, tr.count)
	case tr.count%ofServer == 0:
		tr.edit(ctx, tr.world.stdio("server", 1), `{"spec":{"progressDeadlineSeconds":%d}}`, 600+tr.count)
	case len(tr.apps) > 0:
		app := tr.world.app(tr.apps[tr.chance.IntN(len(tr.apps))])
		// Nothing that rolls pods: on one small node that would be the whole load.
		tr.edit(ctx, app, `{"spec":{"progressDeadlineSeconds":%d,"disruptionBudget":{"maxUnavailable":%d}}}`, 600+tr.count, 1+tr.chance.IntN(2))
	}
}

// live creates an application and, if there are enough, deletes the oldest.
func (tr *traffic) live(ctx context.Context) {
	app := tr.world.app(fmt.Sprintf("app-%d", tr.count))
	app.Spec.DisruptionBudget = &v1alpha1.AppServiceDisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
	if api.Create(ctx, app) == nil {
		tr.apps = append(tr.apps, app.Name)
	}
	if len(tr.apps) > mostApps {
		oldest := tr.apps[0]
		tr.apps = tr.apps[1:]
		// Where no answer comes it may be gone or not; what is there in the end has to be right.
		if api.Delete(ctx, tr.world.app(oldest)) == nil {
			tr.deleted = append(tr.deleted, oldest)
		}
	}
}

func (tr *traffic) edit(ctx context.Context, object client.Object, format string, args ...any) {
	_ = api.Patch(ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...)))
}

// eventuallyRight waits until every resource is in the state that its spec declares,
// and nothing else is there.
func (tr *traffic) eventuallyRight() {
	w := tr.world
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		found := map[string]bool{}
		for _, list := range kindLists() {
			g.Expect(api.List(w.ctx, list, client.InNamespace(w.namespace))).To(Succeed())
			for _, object := range objectsIn(list) {
				found[object.GetName()] = true
				g.Expect(isReady(object)).To(Succeed())
				if app, ok := object.(*v1alpha1.AppService); ok {
					w.appIsRight(g, app)
				}
			}
		}
		for _, name := range tr.apps {
			g.Expect(found).To(HaveKey(name), "it was created")
		}
		for _, name := range tr.deleted {
			g.Expect(found).NotTo(HaveKey(name), "it was deleted")
		}
		w.cloudIsRight(g)
	}).Should(Succeed())
}

func (w *world) appIsRight(g Gomega, app *v1alpha1.AppService) {
	var deployment appsv1.Deployment
	g.Expect(api.Get(w.ctx, w.key(app.Name), &deployment)).To(Succeed())
	g.Expect(deployment.Spec.ProgressDeadlineSeconds).To(HaveValue(Equal(app.Spec.ProgressDeadlineSeconds)))
	var budget policyv1.PodDisruptionBudget
	g.Expect(api.Get(w.ctx, w.key(app.Name), &budget)).To(Succeed())
	g.Expect(budget.Spec.MaxUnavailable).To(Equal(app.Spec.DisruptionBudget.MaxUnavailable))
}

// cloudIsRight says that each account was made once, and has the tags of its spec.
func (w *world) cloudIsRight(g Gomega) {
	content, err := w.cloudGet("/_admin/ledger")
	g.Expect(err).NotTo(HaveOccurred())
	var entries []fakecloud.Entry
	g.Expect(json.Unmarshal(content, &entries)).To(Succeed())
	for i := range storages {
		storage := w.storage(storageName(i))
		g.Expect(api.Get(w.ctx, client.ObjectKeyFromObject(storage), storage)).To(Succeed())
		created := 0
		for _, e := range entries {
			if e.Effect == fakecloud.Created && containsFold(e.Resource, storage.Status.AccountID) {
				created++
			}
		}
		g.Expect(created).To(Equal(1), storage.Status.AccountID)
	}
}
