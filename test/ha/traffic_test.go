package ha_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

const (
	// pace is the pause between two edits. A leader has always something to write.
	pace     = 150 * time.Millisecond
	mostApps = 12
	storages = 3
	// requestTime is how long the user of an API server that does not answer waits.
	requestTime = 2 * time.Second
)

// traffic creates and edits resources until it is stopped.
type traffic struct {
	fleet  *fleet
	chance *rand.Rand
	cancel context.CancelFunc
	ended  chan struct{}
	// apps are those whose creation the API server confirmed.
	apps  []string
	count int
}

func startTraffic(f *fleet, seed uint64) *traffic {
	f.t.Helper()
	f.t.Logf("seed of the edits: %d", seed)
	ctx, cancel := context.WithCancel(f.ctx)
	tr := &traffic{fleet: f, chance: rand.New(rand.NewPCG(seed, seed)), cancel: cancel, ended: make(chan struct{})}
	for i := range storages {
		f.Expect(api.Create(ctx, tr.storage(i))).To(Succeed())
	}
	go tr.run(ctx)
	f.t.Cleanup(tr.stop)
	return tr
}

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

// step makes one edit. What the API server does not answer is not tried again: what became of it shows
// in the end.
func (tr *traffic) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	const ofCreation, ofStorage = 10, 3
	switch {
	case len(tr.apps) < mostApps && tr.count%ofCreation == 1:
		app := tr.app(tr.count)
		if api.Create(ctx, app) == nil {
			tr.apps = append(tr.apps, app.Name)
		}
	case tr.count%ofStorage == 0:
		tr.edit(ctx, tr.storage(tr.chance.IntN(storages)), fmt.Sprintf(`{"spec":{"tags":{"edit":"%d"}}}`, tr.count))
	case len(tr.apps) > 0:
		name := tr.apps[tr.chance.IntN(len(tr.apps))]
		app := &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Namespace: tr.fleet.namespace, Name: name}}
		tr.edit(ctx, app, fmt.Sprintf(`{"spec":{"replicas":%d,"config":{"EDIT":"%d"}}}`, 2+tr.chance.IntN(2), tr.count))
	}
}

func (tr *traffic) edit(ctx context.Context, object client.Object, patch string) {
	_ = api.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func (tr *traffic) app(number int) *v1beta1.AppService {
	return &v1beta1.AppService{
		ObjectMeta: metav1.ObjectMeta{Namespace: tr.fleet.namespace, Name: "app-" + strconv.Itoa(number)},
		Spec: v1beta1.AppServiceSpec{
			Image: "registry.test/shop:1", Replicas: ptr.To[int32](2), Config: map[string]string{"EDIT": "0"},
			// A Deployment that is edited all the time should not be rolled out all the time too.
			ProgressDeadlineSeconds: 600,
		},
	}
}

func (tr *traffic) storage(number int) *v1beta1.SecureStorage {
	demo := tr.fleet.demo
	return &v1beta1.SecureStorage{
		ObjectMeta: metav1.ObjectMeta{Namespace: tr.fleet.namespace, Name: "storage-" + strconv.Itoa(number)},
		Spec: v1beta1.SecureStorageSpec{
			Provider:       v1beta1.SecureStorageProvider{SubscriptionID: demo.Subscription, ResourceGroup: demo.Group, Location: demo.Location},
			Key:            v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: demo.Vault}, Name: demo.Key},
			DeletionPolicy: v1beta1.DeletionDelete,
			PollInterval:   metav1.Duration{Duration: 10 * time.Second},
			Tags:           map[string]string{"edit": "0"},
		},
	}
}

// eventuallyRight waits until every resource is in the state that its spec declares, and there is
// nothing more: no second account, no leftover child.
func (tr *traffic) eventuallyRight() {
	f := tr.fleet
	f.t.Helper()
	f.Eventually(func(g Gomega) {
		var apps v1beta1.AppServiceList
		g.Expect(api.List(f.ctx, &apps, client.InNamespace(f.namespace))).To(Succeed())
		names := map[string]bool{}
		for i := range apps.Items {
			names[apps.Items[i].Name] = true
			f.appIsRight(g, &apps.Items[i])
		}
		for _, name := range tr.apps {
			g.Expect(names).To(HaveKey(name), "it was created")
		}
		var storages v1beta1.SecureStorageList
		g.Expect(api.List(f.ctx, &storages, client.InNamespace(f.namespace))).To(Succeed())
		g.Expect(storages.Items).To(HaveLen(len(accountsMade(f.cloud))))
		for i := range storages.Items {
			f.storageIsRight(g, &storages.Items[i])
		}
	}).Should(Succeed())
	for account, times := range accountsMade(f.cloud) {
		f.Expect(times).To(Equal(1), "%s was created more than once", account)
	}
	f.Expect(f.cloud.Orphans()).To(BeEmpty())
}

func (f *fleet) appIsRight(g Gomega, app *v1beta1.AppService) {
	g.Expect(app.Status.ObservedGeneration).To(Equal(app.Generation), app.Name)
	g.Expect(meta.IsStatusConditionTrue(app.Status.Conditions, "Ready")).To(BeTrue(), "%s: %+v", app.Name, app.Status.Conditions)
	g.Expect(meta.FindStatusCondition(app.Status.Conditions, "Stalled")).To(BeNil(), app.Name)
	deployment, config := &appsv1.Deployment{}, &corev1.ConfigMapList{}
	g.Expect(api.Get(f.ctx, client.ObjectKeyFromObject(app), deployment)).To(Succeed())
	g.Expect(deployment.Spec.Replicas).To(Equal(app.Spec.Replicas), app.Name)
	g.Expect(deployment.Status.ReadyReplicas).To(Equal(*app.Spec.Replicas), app.Name)
	g.Expect(api.List(f.ctx, config, client.InNamespace(f.namespace))).To(Succeed())
	var own []map[string]string
	for i := range config.Items {
		if metav1.IsControlledBy(&config.Items[i], app) {
			own = append(own, config.Items[i].Data)
		}
	}
	g.Expect(own).To(Equal([]map[string]string{app.Spec.Config}), app.Name)
}

func (f *fleet) storageIsRight(g Gomega, storage *v1beta1.SecureStorage) {
	g.Expect(storage.Status.ObservedGeneration).To(Equal(storage.Generation), storage.Name)
	g.Expect(meta.IsStatusConditionTrue(storage.Status.Conditions, "Ready")).To(BeTrue(), "%s: %+v", storage.Name, storage.Status.Conditions)
	for _, account := range f.cloud.State().Accounts {
		if account.Name == storage.Status.AccountName {
			g.Expect(account.Tags).To(HaveKeyWithValue("edit", storage.Spec.Tags["edit"]), storage.Name)
			return
		}
	}
	g.Expect(storage.Status.AccountName).To(BeEmpty(), "the account of %s is not in the cloud", storage.Name)
}

func containsAll(line string, texts ...string) bool {
	for _, text := range texts {
		if !strings.Contains(line, text) {
			return false
		}
	}
	return true
}

// timings are how long takeovers took, by fault.
type timings struct {
	mu   sync.Mutex
	took map[string][]time.Duration
}

func (m *timings) add(fault string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.took == nil {
		m.took = map[string][]time.Duration{}
	}
	m.took[fault] = append(m.took[fault], took)
}

func newSeed(t *testing.T) uint64 {
	t.Helper()
	return uint64(time.Now().UnixNano())
}
