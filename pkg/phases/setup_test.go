package phases_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	crrecorder "sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fixpoint-dev/fixpoint/internal/managertest"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

// managed is a manager with an API server in memory, some parts of which a test replaces.
type managed struct {
	*managertest.Manager
	*WithT

	mapper    meta.RESTMapper
	indexer   client.FieldIndexer
	config    *rest.Config
	transport http.RoundTripper
	// recorders are the names under which Events were asked to be recorded.
	recorders []string
	// reconciles counts those that the wrapped engine began.
	reconciles atomic.Int32
	options    phases.SetupOptions
}

func (m *managed) GetRESTMapper() meta.RESTMapper       { return m.mapper }
func (m *managed) GetFieldIndexer() client.FieldIndexer { return m.indexer }
func (m *managed) GetConfig() *rest.Config              { return m.config }
func (m *managed) GetHTTPClient() *http.Client          { return &http.Client{Transport: m.transport} }
func (m *managed) GetEventRecorder(name string) crrecorder.EventRecorder {
	m.recorders = append(m.recorders, name)
	return m.Manager.GetEventRecorder(name)
}

// inManager runs a test in a bubble, so that all reconciles of an event have ended after [synctest.Wait].
func inManager(t *testing.T, test func(*managed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &managed{WithT: NewWithT(t), Manager: managertest.New(t, machineScheme(), ssatest.Options{})}
		m.mapper, m.indexer, m.config = m.Manager.GetRESTMapper(), m.Manager.GetFieldIndexer(), m.Manager.GetConfig()
		m.options.Wrap = func(engine reconcile.Reconciler) reconcile.Reconciler {
			return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
				m.reconciles.Add(1)
				return engine.Reconcile(ctx, request)
			})
		}
		test(m)
	})
}

// engineOf is an engine over the server of the manager.
func (m *managed) engineOf(list ...phase) *phases.Engine[*Machine, *scope] {
	dependencies, err := phases.FromManager(m, ssa.Options{Client: m.GetClient(), FieldManager: "machines"})
	m.Expect(err).NotTo(HaveOccurred())
	engine, err := phases.New(newHarness(newFakeCluster(), list...).definition, dependencies)
	m.Expect(err).NotTo(HaveOccurred())
	return engine
}

// run sets an engine up and starts the manager until the test ends.
func (m *managed) run(list ...phase) (stop func()) {
	m.Expect(m.engineOf(list...).SetupWithManager(m, m.options)).To(Succeed())
	stop = m.Run()
	synctest.Wait()
	return stop
}

// create stores a Machine and sends it to the watches.
func (m *managed) create(name string, spec map[string]string) *Machine {
	machine := &Machine{ObjectMeta: metav1.ObjectMeta{Namespace: machineNamespace, Name: name}, Spec: spec}
	m.Expect(m.Server.Create(context.Background(), machine)).To(Succeed())
	m.Send(machine)
	synctest.Wait()
	return machine
}

// after is the number of reconciles that begin within a time after an event.
func (m *managed) after(wait time.Duration, event func()) int {
	before := m.reconciles.Load()
	event()
	if wait > 0 {
		<-time.After(wait)
	}
	synctest.Wait()
	return int(m.reconciles.Load() - before)
}

func (m *managed) disk(name string) *Disk {
	disk := &Disk{}
	m.Expect(m.Server.Get(context.Background(), client.ObjectKey{Namespace: machineNamespace, Name: name}, disk)).To(Succeed())
	return disk
}

// changed is the object as a later event shows it.
func changed[O client.Object](object O, change func(O)) O {
	after, _ := object.DeepCopyObject().(O)
	after.SetResourceVersion(object.GetResourceVersion() + "0")
	change(after)
	return after
}

func TestManagerReconcilesMachineAndItsChildren(t *testing.T) {
	inManager(t, func(m *managed) {
		defer m.run(diskOf("Boot"))()

		m.create(machineName, map[string]string{"Boot": "fast"})

		boot := m.disk("boot")
		m.Expect(boot.Spec).To(Equal(map[string]string{"class": "fast"}))
		m.Expect(m.recorders).To(ConsistOf("machines"), "Events name the field manager")
		attached := changed(boot, func(disk *Disk) { disk.Attached = true })
		m.Expect(m.after(0, func() { m.SendUpdate(boot, attached) })).To(Equal(1), "the child is watched")
		m.Expect(m.after(0, func() { m.SendDelete(attached) })).To(Equal(1))
	})
}

func TestPlanOfAnEngineFromAManagerWritesNothing(t *testing.T) {
	inManager(t, func(m *managed) {
		engine := m.engineOf(diskOf("Boot"))
		m.Expect(engine.Index(m.GetFieldIndexer())).To(Succeed())
		machine := m.create(machineName, map[string]string{"Boot": "fast"})
		m.Server.Writes()

		plan, err := engine.Plan(context.Background(), machine)

		m.Expect(err).NotTo(HaveOccurred())
		m.Expect(plan.Changes()).To(ConsistOf(HaveField("Object", "Disk boot")))
		m.Expect(m.Server.Writes()).To(BeEmpty())
	})
}

func TestFromManagerKeepsGivenClientAndReader(t *testing.T) {
	inManager(t, func(m *managed) {
		given, uncached := m.GetClient(), m.Server.Cache()

		dependencies, err := phases.FromManager(m, ssa.Options{Client: given, Reader: uncached, FieldManager: "machines"})
		m.Expect(err).NotTo(HaveOccurred())
		m.Expect(dependencies.Reader).To(BeIdenticalTo(given))
		m.Expect(dependencies.Uncached).To(BeIdenticalTo(uncached))
		m.Expect(dependencies.Scheme).To(BeIdenticalTo(m.GetScheme()))
		m.Expect(dependencies.Recorder).NotTo(BeNil(), "Events are recorded")

		dependencies, err = phases.FromManager(m, ssa.Options{Client: given, FieldManager: "machines"})
		m.Expect(err).NotTo(HaveOccurred())
		m.Expect(dependencies.Uncached).To(BeIdenticalTo(m.GetAPIReader()))
	})
}

func TestFromManagerFails(t *testing.T) {
	inManager(t, func(m *managed) {
		_, err := phases.FromManager(m, ssa.Options{Client: m.GetClient()})
		m.Expect(err).To(MatchError(HavePrefix("building the applier: ")), "without a field manager")

		m.config = nil
		_, err = phases.FromManager(m, ssa.Options{FieldManager: "machines"})
		m.Expect(err).To(MatchError(HavePrefix("building a client that reads its own writes: ")))
	})
}

// answers is an API server that answers every request with one object.
type answers string

func (a answers) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: request, Body: io.NopCloser(strings.NewReader(string(a))),
		Header: http.Header{"Content-Type": {"application/json"}}}, nil
}

func TestDefaultClientReadsItsOwnWrites(t *testing.T) {
	inManager(t, func(m *managed) {
		// Given a Disk in the cache, and a write that makes it another version
		boot := &Disk{ObjectMeta: metav1.ObjectMeta{Namespace: machineNamespace, Name: "boot"}}
		m.Expect(m.Server.Create(context.Background(), boot)).To(Succeed())
		m.transport = answers(`{"apiVersion":"lab.example.com/v1","kind":"Disk","metadata":{"namespace":"lab","name":"boot","resourceVersion":"900"}}`)
		dependencies, err := phases.FromManager(m, ssa.Options{FieldManager: "machines"})
		m.Expect(err).NotTo(HaveOccurred())
		reader, ok := dependencies.Reader.(client.Client)
		m.Expect(ok).To(BeTrue())
		before := boot.DeepCopy()
		m.Expect(reader.Update(context.Background(), boot)).To(Succeed())

		// When it is read before the watch delivers the write
		read := make(chan error, 1)
		go func() { read <- reader.Get(context.Background(), client.ObjectKeyFromObject(boot), &Disk{}) }()
		synctest.Wait()

		// Then the read waits for it
		m.Expect(read).To(BeEmpty())
		m.SendUpdate(before, boot)
		m.Expect(<-read).To(Succeed())
	})
}

func TestOneObjectAfterAnotherByDefault(t *testing.T) {
	for name, c := range map[string]struct{ configured, want int }{
		"by default": {0, 1},
		"two":        {2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inManager(t, func(m *managed) {
				release := make(chan struct{})
				var running atomic.Int32
				m.options.MaxConcurrentReconciles = c.configured
				defer m.run(step{Name: "Slow", Observe: func(context.Context, *scope) (phases.Observation, error) {
					running.Add(1)
					<-release
					return phases.Done(""), nil
				}})()

				for _, name := range []string{"vm1", "vm2", "vm3"} {
					m.create(name, nil)
				}

				m.Expect(int(running.Load())).To(Equal(c.want))
				close(release)
			})
		})
	}
}

func TestFailedReconcileIsRetriedWithBackoff(t *testing.T) {
	for name, c := range map[string]struct {
		options phases.SetupOptions
		// within a minute, of which the first retries are after these times.
		first  time.Duration
		within int
	}{
		"by default":  {first: phases.DefaultRetryMinDelay, within: 9},
		"as set":      {options: phases.SetupOptions{RetryMinDelay: 10 * time.Second, RetryMaxDelay: 20 * time.Second}, first: 10 * time.Second, within: 4},
		"minimum set": {options: phases.SetupOptions{RetryMinDelay: 10 * time.Second}, first: 10 * time.Second, within: 3},
	} {
		t.Run(name, func(t *testing.T) {
			inManager(t, func(m *managed) {
				m.options.RetryMinDelay, m.options.RetryMaxDelay = c.options.RetryMinDelay, c.options.RetryMaxDelay
				defer m.run(fails("Broken", errors.New("no contact")))()
				m.Expect(m.after(0, func() { m.create(machineName, nil) })).To(Equal(1))

				m.Expect(m.after(c.first-1, func() {})).To(BeZero())
				m.Expect(m.after(1, func() {})).To(Equal(1))
				m.Expect(m.after(time.Minute+time.Second-c.first, func() {}) + 2).To(Equal(c.within))
				m.Expect(m.after(5*time.Minute, func() {})).To(BeNumerically(">", 0), "it goes on")
				m.after(time.Hour, func() {})
				m.Expect(m.after(time.Hour, func() {})).To(Equal(int(time.Hour / cmp.Or(c.options.RetryMaxDelay, phases.DefaultRetryMaxDelay))))
			})
		})
	}
}

func TestUpdatesOfTheObjectItself(t *testing.T) {
	status := func(machine *Machine) { machine.Status.ObservedGeneration = 7 }
	spec := func(machine *Machine) { machine.Generation = 7 }
	for name, c := range map[string]struct {
		updates            predicate.Predicate
		change             func(*Machine)
		atOnce, inInterval int
	}{
		"its spec":   {change: spec, atOnce: 1},
		"its status": {change: status, inInterval: 1},
		"its status, where updates are held back":           {updates: predicate.GenerationChangedPredicate{}, change: status},
		"its spec, where those of the status are held back": {updates: predicate.GenerationChangedPredicate{}, change: spec, atOnce: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inManager(t, func(m *managed) {
				m.options.Updates = c.updates
				defer m.run(observes("Address", phases.Done("")))()
				machine := m.create(machineName, nil)

				m.Expect(m.after(0, func() { m.SendUpdate(machine, changed(machine, c.change)) })).To(Equal(c.atOnce))
				m.Expect(m.after(phases.ProgressInterval, func() {})).To(Equal(c.inInterval))
			})
		})
	}
}

func TestSourcesAreWatchedBesideChildren(t *testing.T) {
	inManager(t, func(m *managed) {
		events := make(chan event.GenericEvent)
		m.options.Sources = []source.Source{source.Channel(events, &handler.EnqueueRequestForObject{})}
		defer m.run(observes("Address", phases.Done("")))()
		machine := m.create(machineName, nil)

		m.Expect(m.after(0, func() { events <- event.GenericEvent{Object: machine} })).To(Equal(1))
	})
}

func TestEngineIsTheReconcilerThatNothingWraps(t *testing.T) {
	inManager(t, func(m *managed) {
		m.options.Wrap = nil
		defer m.run(diskOf("Boot"))()

		m.create(machineName, map[string]string{"Boot": "fast"})

		m.disk("boot")
	})
}

func TestWatchOfAChildCanBeTakenOver(t *testing.T) {
	inManager(t, func(m *managed) {
		var offered []client.Object
		m.options.WatchChild = func(_ controller.Controller, watch phases.ChildWatch) (bool, error) {
			offered = append(offered, watch.Object)
			_, isDisk := watch.Object.(*Disk)
			return isDisk, nil
		}

		defer m.run(diskOf("Boot"), nicOf("Uplink"))()

		m.Expect(offered).To(ConsistOf(BeAssignableToTypeOf(&Disk{}), BeAssignableToTypeOf(&Nic{})))
		m.Expect(m.IsWatched(&Disk{})).To(BeFalse())
		m.Expect(m.IsWatched(&Nic{})).To(BeTrue())
	})
}

// brokenMapper does not know Disks, or fails to find out.
type brokenMapper struct {
	meta.RESTMapper
	err error
}

func (b brokenMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if kind.Kind == "Disk" {
		return nil, b.err
	}
	return b.RESTMapper.RESTMapping(kind, versions...)
}

func TestChildOfAKindThatIsNotServedIsNotWatched(t *testing.T) {
	inManager(t, func(m *managed) {
		m.mapper = brokenMapper{m.mapper, &meta.NoKindMatchError{GroupKind: machineGroup.WithKind("Disk").GroupKind()}}

		defer m.run(diskOf("Boot"), nicOf("Uplink"))()

		m.Expect(m.IsWatched(&Disk{})).To(BeFalse())
		m.Expect(m.IsWatched(&Nic{})).To(BeTrue())
	})
}

// indexes notes what is indexed, and fails.
type indexes struct {
	client.FieldIndexer
	indexed []client.Object
	err     error
}

func (i *indexes) IndexField(ctx context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	i.indexed = append(i.indexed, object)
	if i.err != nil {
		return i.err
	}
	return i.FieldIndexer.IndexField(ctx, object, field, extract)
}

// clusterScopedDisks is a cluster whose Disks have no namespace.
type clusterScopedDisks struct{ meta.RESTMapper }

func (c clusterScopedDisks) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := c.RESTMapper.RESTMapping(kind, versions...)
	if err == nil && kind.Kind == "Disk" {
		mapping.Scope = meta.RESTScopeRoot
	}
	return mapping, err
}

func TestSetupFails(t *testing.T) {
	noContact := errors.New("no contact")
	for name, c := range map[string]struct {
		with func(*managed)
		want string
	}{
		"no reconciler": {func(m *managed) { m.options.Wrap = func(reconcile.Reconciler) reconcile.Reconciler { return nil } },
			"building the controller machine: must provide a non-nil Reconciler"},
		"kinds are not known": {func(m *managed) { m.mapper = brokenMapper{m.mapper, noContact} },
			"building the controller machine: watching Disk: no contact"},
		"no index": {func(m *managed) { m.indexer = &indexes{err: noContact} },
			"building the controller machine: watching Disk: no contact"},
		"a cluster-scoped child of a namespaced object": {func(m *managed) { m.mapper = clusterScopedDisks{m.mapper} },
			"building the controller machine: watching Disk: it is cluster-scoped, and Machine is namespaced: a cluster-scoped child needs a cluster-scoped owner"},
		"a watch that is taken over": {func(m *managed) {
			m.options.WatchChild = func(controller.Controller, phases.ChildWatch) (bool, error) { return false, noContact }
		}, "building the controller machine: watching Disk: no contact"},
	} {
		t.Run(name, func(t *testing.T) {
			inManager(t, func(m *managed) {
				c.with(m)

				err := m.engineOf(diskOf("Boot")).SetupWithManager(m, m.options)

				m.Expect(err).To(MatchError(ContainSubstring(c.want)))
			})
		})
	}
}

func TestEnginesOfOneManagerShareIndexes(t *testing.T) {
	inManager(t, func(m *managed) {
		m.indexer = &indexes{err: errors.New("indexer conflict: map[field:x:{}]")}

		m.Expect(m.engineOf(diskOf("Boot")).SetupWithManager(m, m.options)).To(Succeed())
	})
}

func TestIndexesForAnEngineThatOnlyPlans(t *testing.T) {
	inManager(t, func(m *managed) {
		engine := m.engineOf(observes("Address", phases.Done("")), diskOf("Boot"), nicOf("Uplink"))
		added := &indexes{FieldIndexer: m.indexer}

		m.Expect(engine.Index(added)).To(Succeed())

		m.Expect(added.indexed).To(ConsistOf(BeAssignableToTypeOf(&Disk{}), BeAssignableToTypeOf(&Nic{})))
		m.Expect(engine.Index(&indexes{err: errors.New("no contact")})).To(MatchError(ContainSubstring("indexing Disk: no contact")))
	})
}
