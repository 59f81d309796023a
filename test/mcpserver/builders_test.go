package mcpserver_test

import (
	"errors"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

const (
	image      = "registry.test/tools:1"
	otherImage = "registry.test/tools:2"
)

// edit changes the spec of an MCPServer.
type edit func(spec *v1alpha1.MCPServerSpec)

func replicas(n int32) edit { return func(s *v1alpha1.MCPServerSpec) { s.Replicas = &n } }

func withImage(image string) edit { return func(s *v1alpha1.MCPServerSpec) { s.Image = image } }

// unasked turns the probe of the protocol off.
func unasked(s *v1alpha1.MCPServerSpec) { s.Protocol.Disabled = true }

// often asks as often as the schema allows.
func often(s *v1alpha1.MCPServerSpec) {
	s.Protocol.Interval, s.Protocol.Timeout = metav1.Duration{Duration: 5 * time.Second}, metav1.Duration{Duration: time.Second}
}

// seldom asks once, as far as a test can see, and has the patience that this takes.
func seldom(s *v1alpha1.MCPServerSpec) {
	s.Protocol.Interval, s.Protocol.Timeout = metav1.Duration{Duration: time.Hour}, metav1.Duration{Duration: 30 * time.Second}
}

// fromSecrets takes all keys of Secrets into the environment.
func fromSecrets(names ...string) edit {
	return func(s *v1alpha1.MCPServerSpec) {
		for _, name := range names {
			s.EnvFrom = append(s.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}})
		}
	}
}

func files(pairs ...string) edit {
	return func(s *v1alpha1.MCPServerSpec) {
		s.Files = nil
		for i := 0; i < len(pairs); i += 2 {
			s.Files = append(s.Files, v1alpha1.MCPServerFile{Path: pairs[i], Content: pairs[i+1]})
		}
	}
}

// create makes an MCPServer. Durations that nobody set are left out, as in a user's file.
func (w *world) create(name string, edits ...edit) {
	w.t.Helper()
	server := &v1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	server.Spec.Image = image
	server.Spec.Protocol.Interval.Duration, server.Spec.Protocol.Timeout.Duration = 30*time.Second, 5*time.Second
	for _, e := range edits {
		e(&server.Spec)
	}
	w.Expect(api.Create(w.ctx, server)).To(Succeed())
}

// createReady makes an MCPServer and waits until it is Ready.
func (w *world) createReady(name string, edits ...edit) *v1alpha1.MCPServer {
	w.t.Helper()
	w.create(name, edits...)
	return w.ready(name)
}

// change edits the spec of an MCPServer, as its user does.
func (w *world) change(name string, edits ...edit) {
	w.t.Helper()
	update(w, "user", name, &v1alpha1.MCPServer{}, func(m *v1alpha1.MCPServer) {
		for _, e := range edits {
			e(&m.Spec)
		}
	})
}

func (w *world) changeReady(name string, edits ...edit) *v1alpha1.MCPServer {
	w.t.Helper()
	w.change(name, edits...)
	return w.complete(name)
}

// ready waits until the MCPServer is Ready for the spec that it has.
func (w *world) ready(name string) *v1alpha1.MCPServer {
	w.t.Helper()
	return eventually(w, name, &v1alpha1.MCPServer{}, func(g Gomega, m *v1alpha1.MCPServer) {
		g.Expect(m.Status.ObservedGeneration).To(Equal(m.Generation))
		g.Expect(conditions(m)).To(HaveKeyWithValue("Ready", "True Ready"))
	})
}

// complete waits until it is Ready and its rollout is over.
func (w *world) complete(name string) *v1alpha1.MCPServer {
	w.t.Helper()
	return eventually(w, name, &v1alpha1.MCPServer{}, func(g Gomega, m *v1alpha1.MCPServer) {
		g.Expect(m.Status.ObservedGeneration).To(Equal(m.Generation))
		g.Expect(conditions(m)).To(And(HaveKeyWithValue("Ready", "True Ready"), HaveKeyWithValue("DeploymentReady", "True Ready")))
	})
}

// shows waits until a condition reads like "False NotOwned" and has a message that matches.
func (w *world) shows(name, conditionType, statusAndReason string, message types.GomegaMatcher) *v1alpha1.MCPServer {
	w.t.Helper()
	return eventually(w, name, &v1alpha1.MCPServer{}, func(g Gomega, m *v1alpha1.MCPServer) {
		g.Expect(m.Status.ObservedGeneration).To(Equal(m.Generation))
		g.Expect(conditions(m)).To(HaveKeyWithValue(conditionType, statusAndReason))
		g.Expect(messageOf(m, conditionType)).To(message)
	})
}

// conditions are the status and the reason of each.
func conditions(m *v1alpha1.MCPServer) map[string]string {
	all := map[string]string{}
	for _, c := range m.Status.Conditions {
		all[c.Type] = string(c.Status) + " " + c.Reason
	}
	return all
}

func messageOf(m *v1alpha1.MCPServer, conditionType string) string {
	for _, c := range m.Status.Conditions {
		if c.Type == conditionType {
			return c.Message
		}
	}
	return ""
}

// as is a client that writes under a field manager of that name, as kubectl and its like do.
func as(manager string) client.Client { return client.WithFieldOwner(api, manager) }

// update reads an object, changes it and writes it back under a field manager, until nobody has
// written in between.
func update[T client.Object](w *world, manager, name string, object T, change func(T)) T {
	w.t.Helper()
	var updated T
	w.Eventually(func() error {
		updated = clone(object)
		if err := api.Get(w.ctx, w.key(name), updated); err != nil {
			return err
		}
		change(updated)
		return as(manager).Update(w.ctx, updated)
	}).Should(Succeed())
	return updated
}

func (w *world) createSecret(name string, data ...string) {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, StringData: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		secret.StringData[data[i]] = data[i+1]
	}
	w.Expect(api.Create(w.ctx, secret)).To(Succeed())
}

func (w *world) rotate(name, key, value string) {
	w.t.Helper()
	update(w, "rotator", name, &corev1.Secret{}, func(s *corev1.Secret) { s.Data[key] = []byte(value) })
}

// rotateTogether gives several Secrets a new value in one moment.
func (w *world) rotateTogether(key, value string, names ...string) {
	w.t.Helper()
	errs := make([]error, len(names))
	var rotations sync.WaitGroup
	for i, name := range names {
		secret := read(w, name, &corev1.Secret{})
		secret.Data[key] = []byte(value)
		rotations.Go(func() { errs[i] = as("rotator").Update(w.ctx, secret) })
	}
	rotations.Wait()
	w.Expect(errors.Join(errs...)).To(Succeed())
}

func (w *world) deployment(name string) *appsv1.Deployment {
	w.t.Helper()
	return read(w, name, &appsv1.Deployment{})
}

// replicaSets are those of an MCPServer, one for each version of its pods.
func (w *world) replicaSets(name string) []appsv1.ReplicaSet {
	w.t.Helper()
	var list appsv1.ReplicaSetList
	w.Expect(api.List(w.ctx, &list, client.InNamespace(w.namespace), client.MatchingLabels{"app.kubernetes.io/name": name})).To(Succeed())
	return list.Items
}

// podUIDs tells pods that stayed from pods that were replaced.
func (w *world) podUIDs(name string) []apitypes.UID {
	w.t.Helper()
	var list corev1.PodList
	w.Expect(api.List(w.ctx, &list, client.InNamespace(w.namespace), client.MatchingLabels{"app.kubernetes.io/name": name})).To(Succeed())
	var uids []apitypes.UID
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

// looks returns when the manager has looked at the Deployment of an MCPServer and found nothing to
// do, so many times from now on.
func (w *world) looks(name string, times int) {
	w.t.Helper()
	m := w.managers[len(w.managers)-1]
	look := func() int { return m.looks("Deployment", name) }
	before := look()
	w.Eventually(look).Should(BeNumerically(">=", before+times), "looks at %s", name)
}

func overrides(spec string) edit {
	return func(s *v1alpha1.MCPServerSpec) {
		s.PodOverrides = &v1alpha1.MCPServerPodOverrides{Spec: &runtime.RawExtension{Raw: []byte(spec)}}
	}
}

func isOfManager(r cluster.Request) bool { return r.User == managerUser }
