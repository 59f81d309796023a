package split_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/internal/releases"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/deploy"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const leaseResource = "leases.coordination.k8s.io"

// shard is the label by which releases select namespaces.
const shard = "shard"

// fixture is what one test has to itself. The tests run one after the other, because a cluster has one set of
// releases.
type fixture struct {
	Gomega
	t        *testing.T
	ctx      context.Context
	api      client.WithWatch
	name     string
	began    cluster.Mark
	releases []*release
}

func newFixture(t *testing.T, name string) *fixture {
	t.Helper()
	f := &fixture{t: t, ctx: context.Background(), api: suite.API, name: name}
	f.Gomega = NewWithT(harness.Reporter{T: t, Report: f.report})
	mark, err := suite.Cluster.Audit().Mark()
	f.Expect(err).NotTo(HaveOccurred())
	f.began = mark
	t.Cleanup(func() { // after the releases were stopped
		claims := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: releases.LeaseNamespace, Name: releases.LeaseName}}
		f.Expect(client.IgnoreNotFound(f.api.Delete(f.ctx, claims))).To(Succeed())
	})
	return f
}

// release is a release of Fixpoint: replicas with the same arguments.
type release struct {
	fixture *fixture
	// name is the namespace of its Lease.
	name     string
	args     []string
	election []string
	started  int
	replicas []*replica
}

type replica struct {
	user, log, health, metrics string
	process                    *cluster.Process
}

// release starts a release with replicas.
func (f *fixture) release(name string, replicas int, args ...string) *release {
	f.t.Helper()
	// On a busy machine, a shorter deadline ends leaders that no test has killed.
	election := []string{"--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=8s"}
	if replicas == 1 { // nobody takes over from it
		election = deploy.PatientElection
	}
	r := &release{fixture: f, name: f.name + "-" + name, args: args, election: election}
	f.createNamespace(r.name, "")
	f.releases = append(f.releases, r)
	for range replicas {
		r.add()
	}
	return r
}

// add starts one more replica.
func (r *release) add() {
	f := r.fixture
	f.t.Helper()
	r.started++
	each := &replica{user: fmt.Sprintf("%s-%d", r.name, r.started), health: harness.FreeAddress(f.t), metrics: harness.FreeAddress(f.t)}
	folder := f.t.TempDir()
	each.log = filepath.Join(folder, "log")
	kubeconfig, err := suite.Cluster.Kubeconfig(each.user, harness.ManagerGroup)
	f.Expect(err).NotTo(HaveOccurred())
	args := slices.Concat([]string{
		"--kubeconfig=" + kubeconfig, "--controllers=appservice", "--pod-namespace=" + r.name,
		"--leader-elect", "--leader-election-namespace=" + r.name,
		"--leader-elect-retry-period=250ms",
		"--health-probe-bind-address=" + each.health, "--metrics-bind-address=" + each.metrics, "--metrics-secure=false",
	}, r.election, r.args)
	each.process, err = cluster.StartProcess(each.user, each.log, []string{"HOME=" + folder, "TMPDIR=" + folder, "PATH=/usr/bin:/bin"}, managerProgram, args...)
	f.Expect(err).NotTo(HaveOccurred())
	f.t.Cleanup(func() { _ = each.process.Stop(0) })
	r.replicas = append(r.replicas, each)
}

// killLeader kills the replica that wrote its Lease last, and starts another one in its place.
func (r *release) killLeader() {
	f := r.fixture
	f.t.Helper()
	writes := f.requests().In(r.name).Of(leaseResource).Writes()
	for i := len(writes) - 1; i >= 0; i-- {
		at := slices.IndexFunc(r.replicas, func(each *replica) bool { return each.user == writes[i].User && each.process.Running() })
		if at < 0 {
			continue
		}
		leader := r.replicas[at]
		f.Expect(syscall.Kill(leader.process.PID(), syscall.SIGKILL)).To(Succeed())
		f.Eventually(leader.process.Ended()).Should(BeClosed())
		r.replace(leader)
		return
	}
}

// replace starts another replica in the place of one that has ended.
func (r *release) replace(ended *replica) {
	r.fixture.t.Helper()
	r.replicas = slices.DeleteFunc(r.replicas, func(each *replica) bool { return each == ended })
	r.add()
}

// replaceEnded starts a new replica for each that has ended, as a kubelet does: on a busy machine, a leader can lose its
// Lease and exits then. The only replica of a release is patient, and must not end.
func (f *fixture) replaceEnded() {
	f.t.Helper()
	for _, r := range f.releases {
		if len(r.replicas) == 1 {
			continue
		}
		for _, each := range slices.Clone(r.replicas) {
			if !each.process.Running() {
				r.replace(each)
			}
		}
	}
}

// stop ends all replicas gracefully.
func (r *release) stop() {
	r.fixture.t.Helper()
	for _, each := range r.replicas {
		r.fixture.Expect(each.process.Stop(timeout)).To(Succeed())
	}
	r.replicas = nil
}

// owns reports whether a user is a replica of this release.
func (r *release) owns(user string) bool { return strings.HasPrefix(user, r.name+"-") }

// condition is the one on the release's own Lease.
func (r *release) condition() (metav1.Condition, error) {
	own := &coordinationv1.Lease{}
	if err := r.fixture.api.Get(r.fixture.ctx, client.ObjectKey{Namespace: r.name, Name: controllers.LeaderElectionID}, own); err != nil {
		return metav1.Condition{}, err
	}
	var conditions []metav1.Condition
	if err := json.Unmarshal([]byte(cmp.Or(own.Annotations[releases.ConditionsAnnotation], "[]")), &conditions); err != nil {
		return metav1.Condition{}, err
	}
	return *cmp.Or(meta.FindStatusCondition(conditions, releases.ConditionClaimed), &metav1.Condition{}), nil
}

// eventuallyClaims waits until the release has all namespaces that it selects.
func (r *release) eventuallyClaims() {
	r.fixture.t.Helper()
	r.fixture.Eventually(r.condition).Should(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", releases.ReasonClaimed)), r.name)
}

// eventuallyRefused waits until the release says why it is refused.
func (r *release) eventuallyRefused(message string) {
	r.fixture.t.Helper()
	r.fixture.Eventually(r.condition).Should(And(
		HaveField("Status", metav1.ConditionFalse), HaveField("Reason", releases.ReasonClaimedByOtherRelease), HaveField("Message", ContainSubstring(message))), r.name)
}

// metric is the sum of the values of a metric of all replicas.
func (r *release) metric(name string) (float64, error) {
	sum := 0.0
	for _, each := range r.replicas {
		response, err := http.Get("http://" + each.metrics + "/metrics")
		if err != nil {
			return 0, err
		}
		body, err := io.ReadAll(response.Body)
		if err := cmp.Or(err, response.Body.Close()); err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(body)) {
			series, text, found := strings.Cut(strings.TrimSpace(line), " ")
			if base, _, _ := strings.Cut(series, "{"); !found || base != name {
				continue
			}
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return 0, err
			}
			sum += value
		}
	}
	return sum, nil
}

// eventuallyRefusedNamespaces waits until the metric says how many namespaces the release is refused.
func (r *release) eventuallyRefusedNamespaces(count float64) {
	r.fixture.t.Helper()
	r.fixture.Eventually(func() (float64, error) { return r.metric("fixpoint_releases_refused_namespaces") }).Should(Equal(count), r.name)
}

func (f *fixture) createNamespace(name, shardOf string) {
	f.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if shardOf != "" {
		namespace.Labels = map[string]string{shard: shardOf}
	}
	f.Expect(f.api.Create(f.ctx, namespace)).To(Succeed())
}

// namespace creates a namespace with objects.
func (f *fixture) namespace(name, shardOf string, objects int) string {
	f.t.Helper()
	name = f.name + "-" + name
	f.createNamespace(name, shardOf)
	for i := range objects {
		f.Expect(f.api.Create(f.ctx, app(name, i))).To(Succeed())
	}
	return name
}

func app(namespace string, number int) *v1beta1.AppService {
	return &v1beta1.AppService{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app-" + strconv.Itoa(number)},
		Spec:       v1beta1.AppServiceSpec{Image: "registry.test/shop:1", Replicas: ptr.To[int32](2), Config: map[string]string{"EDIT": "0"}},
	}
}

// edit changes the config of an object.
func (f *fixture) edit(namespace string, number, edit int) {
	f.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"config":{"EDIT":"%d"}}}`, edit)
	f.Expect(f.api.Patch(f.ctx, app(namespace, number), client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// move sets the shard of a namespace.
func (f *fixture) move(namespace, shardOf string) {
	f.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"%s":"%s"}}}`, shard, shardOf)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	f.Expect(f.api.Patch(f.ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// eventuallyReconciled waits until all objects of the namespaces are observed as they are, with the config that they
// declare.
func (f *fixture) eventuallyReconciled(namespaces ...string) {
	f.t.Helper()
	for _, namespace := range namespaces {
		f.Eventually(func(g Gomega) {
			f.replaceEnded()
			var apps v1beta1.AppServiceList
			g.Expect(f.api.List(f.ctx, &apps, client.InNamespace(namespace))).To(Succeed())
			var configs corev1.ConfigMapList
			g.Expect(f.api.List(f.ctx, &configs, client.InNamespace(namespace))).To(Succeed())
			for i := range apps.Items {
				app := &apps.Items[i]
				g.Expect(app.Status.ObservedGeneration).To(Equal(app.Generation), "%s/%s", namespace, app.Name)
				g.Expect(configs.Items).To(ContainElement(Satisfy(func(config corev1.ConfigMap) bool {
					return metav1.IsControlledBy(&config, app) && config.Data["EDIT"] == app.Spec.Config["EDIT"]
				})), "%s/%s", namespace, app.Name)
			}
		}).Should(Succeed())
	}
}

// requests are those of the replicas, since the test began.
func (f *fixture) requests() cluster.Requests {
	f.t.Helper()
	all, err := suite.Cluster.Audit().Since(f.began)
	f.Expect(err).NotTo(HaveOccurred())
	return all.Where(func(r cluster.Request) bool { return f.releaseOf(r.User) != nil })
}

func (f *fixture) releaseOf(user string) *release {
	for _, each := range f.releases {
		if each.owns(user) {
			return each
		}
	}
	return nil
}

// term is a time in which one release alone wrote in a namespace.
type term struct {
	release    *release
	from, to   time.Time
	writes     int
	overlapped []cluster.Request
}

// terms are those of a namespace, in their order, with the writes that arrived before those of the previous release
// had been answered.
func (f *fixture) terms(namespace string) []term {
	f.t.Helper()
	writes := f.requests().In(namespace).Writes().Except(leaseResource)
	slices.SortStableFunc(writes, func(a, b cluster.Request) int { return a.Received.Compare(b.Received) })
	var terms []term
	var answered time.Time
	for _, write := range writes {
		by := f.releaseOf(write.User)
		if len(terms) == 0 || terms[len(terms)-1].release != by {
			terms = append(terms, term{release: by, from: write.Received})
			if write.Received.Before(answered) {
				terms[len(terms)-1].overlapped = append(terms[len(terms)-1].overlapped, write)
			}
		}
		last := &terms[len(terms)-1]
		last.writes++
		last.to = write.Answered
		if write.Answered.After(answered) {
			answered = write.Answered
		}
	}
	return terms
}

// writtenBy are the releases that have written in a namespace, one after the other.
func (f *fixture) writtenBy(namespace string) []string {
	f.t.Helper()
	var names []string
	for _, each := range f.terms(namespace) {
		f.Expect(each.overlapped).To(BeEmpty(), "two releases wrote in %s at the same time", namespace)
		names = append(names, each.release.name)
	}
	return names
}

// report is the ends of the logs, and the claims.
func (f *fixture) report() string {
	var b strings.Builder
	claims := &coordinationv1.Lease{}
	if err := f.api.Get(f.ctx, client.ObjectKey{Namespace: releases.LeaseNamespace, Name: releases.LeaseName}, claims); err == nil {
		fmt.Fprintf(&b, "--- claims\n%v\n", claims.Annotations)
	}
	const lines = 15
	for _, each := range f.releases {
		for _, replica := range each.replicas {
			content, err := os.ReadFile(replica.log)
			all := strings.Split(strings.TrimSpace(string(content)), "\n")
			fmt.Fprintf(&b, "--- %s (running %t) %v\n%s\n", replica.user, replica.process.Running(), err, strings.Join(all[max(0, len(all)-lines):], "\n"))
		}
	}
	return b.String()
}
