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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

const (
	// editInterval is short enough that a leader always has something to write.
	editInterval = 200 * time.Millisecond
	maxApps      = 5
	storageCount = 2
	// requestTime limits requests to an unresponsive API server.
	requestTime = 2 * time.Second
)

// churn creates, edits and deletes objects until it is stopped.
type churn struct {
	env    *environment
	random *rand.Rand
	cancel context.CancelFunc
	ended  chan struct{}
	// apps are those whose creation the API server confirmed; deleted are those whose deletion it confirmed.
	apps, deleted []string
	count         int
}

func (env *environment) startChurn(seed uint64) *churn {
	env.t.Helper()
	env.t.Logf("seed of the edits: %d", seed)
	ctx, cancel := context.WithCancel(env.ctx)
	c := &churn{env: env, random: rand.New(rand.NewPCG(seed, seed)), cancel: cancel, ended: make(chan struct{})}
	for i := range storageCount {
		storage := env.storage(storageName(i))
		env.Expect(api.Create(ctx, storage)).To(Succeed())
	}
	server := env.stdio("server", 1)
	env.Expect(api.Create(ctx, server)).To(Succeed())
	for i := range storageCount {
		ready(env, env.storage(storageName(i)))
	}
	ready(env, server)
	go c.run(ctx)
	env.t.Cleanup(c.stop)
	return c
}

func storageName(i int) string { return fmt.Sprintf("storage-%d", i) }

func (c *churn) stop() {
	c.cancel()
	<-c.ended
}

func (c *churn) run(ctx context.Context) {
	defer close(c.ended)
	ticker := time.NewTicker(editInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.count++
			c.step(ctx)
		}
	}
}

// step performs one edit. It does not retry requests without a response; waitConverged checks the final state.
func (c *churn) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	const ofLife, ofStorage, ofServer = 40, 3, 5
	switch {
	case c.count%ofLife == 1:
		c.createAndDelete(ctx)
	case c.count%ofStorage == 0:
		c.edit(ctx, c.env.storage(storageName(c.random.IntN(storageCount))), `{"spec":{"tags":{"edit":"%d"}}}`, c.count)
	case c.count%ofServer == 0:
		c.edit(ctx, c.env.stdio("server", 1), `{"spec":{"progressDeadlineSeconds":%d}}`, 600+c.count)
	case len(c.apps) > 0:
		app := c.env.app(c.apps[c.random.IntN(len(c.apps))])
		// No edit rolls pods, because that would overload a small node.
		c.edit(ctx, app, `{"spec":{"progressDeadlineSeconds":%d,"disruptionBudget":{"maxUnavailable":%d}}}`, 600+c.count, 1+c.random.IntN(2))
	}
}

// createAndDelete creates an application and deletes the oldest one above maxApps.
func (c *churn) createAndDelete(ctx context.Context) {
	app := c.env.app(fmt.Sprintf("app-%d", c.count))
	app.Spec.DisruptionBudget = &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
	if api.Create(ctx, app) == nil {
		c.apps = append(c.apps, app.Name)
	}
	if len(c.apps) > maxApps {
		oldest := c.apps[0]
		c.apps = c.apps[1:]
		// Without a response, the object may exist or not.
		if api.Delete(ctx, c.env.app(oldest)) == nil {
			c.deleted = append(c.deleted, oldest)
		}
	}
}

func (c *churn) edit(ctx context.Context, object client.Object, format string, args ...any) {
	_ = api.Patch(ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...)))
}

// waitConverged waits until every object is in its declared state and every deleted object is gone.
func (c *churn) waitConverged() {
	env := c.env
	env.t.Helper()
	env.Eventually(func(g Gomega) {
		found := map[string]bool{}
		for _, list := range kindLists() {
			g.Expect(api.List(env.ctx, list, client.InNamespace(env.namespace))).To(Succeed())
			for _, object := range objectsIn(list) {
				found[object.GetName()] = true
				g.Expect(isReady(object)).To(Succeed())
				if app, ok := object.(*v1beta1.AppService); ok {
					env.verifyApp(g, app)
				}
			}
		}
		for _, name := range c.apps {
			g.Expect(found).To(HaveKey(name), "its creation was confirmed")
		}
		for _, name := range c.deleted {
			g.Expect(found).NotTo(HaveKey(name), "its deletion was confirmed")
		}
		env.verifyCloud(g)
	}).Should(Succeed())
}

func (env *environment) verifyApp(g Gomega, app *v1beta1.AppService) {
	var deployment appsv1.Deployment
	g.Expect(api.Get(env.ctx, env.key(app.Name), &deployment)).To(Succeed())
	g.Expect(deployment.Spec.ProgressDeadlineSeconds).To(HaveValue(Equal(app.Spec.ProgressDeadlineSeconds)))
	var budget policyv1.PodDisruptionBudget
	g.Expect(api.Get(env.ctx, env.key(app.Name), &budget)).To(Succeed())
	g.Expect(budget.Spec.MaxUnavailable).To(Equal(app.Spec.DisruptionBudget.MaxUnavailable))
}

// verifyCloud checks that each account was created once.
func (env *environment) verifyCloud(g Gomega) {
	content, err := env.cloudGet("/_admin/ledger")
	g.Expect(err).NotTo(HaveOccurred())
	var entries []fakecloud.Entry
	g.Expect(json.Unmarshal(content, &entries)).To(Succeed())
	for i := range storageCount {
		storage := env.storage(storageName(i))
		g.Expect(api.Get(env.ctx, client.ObjectKeyFromObject(storage), storage)).To(Succeed())
		created := 0
		for _, e := range entries {
			if e.Effect == fakecloud.Created && containsFold(e.Resource, storage.Status.AccountID) {
				created++
			}
		}
		g.Expect(created).To(Equal(1), storage.Status.AccountID)
	}
}
