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

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

const (
	image      = "registry.test/tools:1"
	otherImage = "registry.test/tools:2"
)

// edit changes the spec of an MCPServer.
type edit func(spec *v1beta1.MCPServerSpec)

func replicas(n int32) edit { return func(s *v1beta1.MCPServerSpec) { s.Replicas = &n } }

func withImage(image string) edit { return func(s *v1beta1.MCPServerSpec) { s.Image = image } }

// unasked turns the probe of the protocol off.
func unasked(s *v1beta1.MCPServerSpec) { s.Protocol.Probe = v1beta1.ProbeDisabled }

// often asks as often as the schema allows.
func often(s *v1beta1.MCPServerSpec) {
	s.Protocol.Interval, s.Protocol.Timeout = metav1.Duration{Duration: 5 * time.Second}, metav1.Duration{Duration: 5 * time.Second}
}

// seldom asks once, as far as a test can see, and has the time that this takes.
func seldom(s *v1beta1.MCPServerSpec) {
	s.Protocol.Interval, s.Protocol.Timeout = metav1.Duration{Duration: time.Hour}, metav1.Duration{Duration: 30 * time.Second}
}

// fromSecrets takes all keys of Secrets into the environment.
func fromSecrets(names ...string) edit {
	return func(s *v1beta1.MCPServerSpec) {
		for _, name := range names {
			s.EnvFrom = append(s.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}})
		}
	}
}

func files(pairs ...string) edit {
	return func(s *v1beta1.MCPServerSpec) {
		s.Files = nil
		for i := 0; i < len(pairs); i += 2 {
			s.Files = append(s.Files, v1beta1.MCPServerFile{Path: pairs[i], Content: pairs[i+1]})
		}
	}
}

// create makes an MCPServer. Durations that nobody set are left out, as in a user's file.
func (w *fixture) create(name string, edits ...edit) {
	w.T.Helper()
	server := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	server.Spec.Image = image
	server.Spec.Protocol.Interval.Duration, server.Spec.Protocol.Timeout.Duration = 30*time.Second, 5*time.Second
	for _, e := range edits {
		e(&server.Spec)
	}
	w.Expect(api.Create(w.Ctx, server)).To(Succeed())
}

// createReady makes an MCPServer and waits until it is Ready.
func (w *fixture) createReady(name string, edits ...edit) *v1beta1.MCPServer {
	w.T.Helper()
	w.create(name, edits...)
	return w.ready(name)
}

// change edits the spec of an MCPServer, as its user does.
func (w *fixture) change(name string, edits ...edit) {
	w.T.Helper()
	harness.Update(w, "user", name, &v1beta1.MCPServer{}, func(m *v1beta1.MCPServer) {
		for _, e := range edits {
			e(&m.Spec)
		}
	})
}

func (w *fixture) changeReady(name string, edits ...edit) *v1beta1.MCPServer {
	w.T.Helper()
	w.change(name, edits...)
	return w.complete(name)
}

// ready waits until the MCPServer is Ready for the spec that it has.
func (w *fixture) ready(name string) *v1beta1.MCPServer {
	w.T.Helper()
	return harness.Eventually(w, name, &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(m.Status.ObservedGeneration).To(Equal(m.Generation))
		g.Expect(conditions(m)).To(HaveKeyWithValue("Ready", "True Ready"))
	})
}

// complete waits until it is Ready and its rollout is over.
func (w *fixture) complete(name string) *v1beta1.MCPServer {
	w.T.Helper()
	return harness.Eventually(w, name, &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(m.Status.ObservedGeneration).To(Equal(m.Generation))
		g.Expect(conditions(m)).To(And(HaveKeyWithValue("Ready", "True Ready"), HaveKeyWithValue("DeploymentReady", "True Ready")))
	})
}

// shows waits until a condition reads like "False NotOwned" and has a message that matches.
func (w *fixture) shows(name, conditionType, statusAndReason string, message types.GomegaMatcher) *v1beta1.MCPServer {
	w.T.Helper()
	return harness.Eventually(w, name, &v1beta1.MCPServer{}, func(g Gomega, m *v1beta1.MCPServer) {
		g.Expect(m.Status.ObservedGeneration).To(Equal(m.Generation))
		g.Expect(conditions(m)).To(HaveKeyWithValue(conditionType, statusAndReason))
		g.Expect(messageOf(m, conditionType)).To(message)
	})
}

func (w *fixture) createSecret(name string, data ...string) {
	w.T.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, StringData: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		secret.StringData[data[i]] = data[i+1]
	}
	w.Expect(api.Create(w.Ctx, secret)).To(Succeed())
}

func (w *fixture) rotate(name, key, value string) {
	w.T.Helper()
	harness.Update(w, "rotator", name, &corev1.Secret{}, func(s *corev1.Secret) { s.Data[key] = []byte(value) })
}

// rotateTogether gives several Secrets a new value at the same time. It returns how long that took at most, from the
// first request to the last response in the audit log.
func (w *fixture) rotateTogether(key, value string, names ...string) time.Duration {
	w.T.Helper()
	secrets := make([]*corev1.Secret, len(names))
	for i, name := range names {
		secrets[i] = harness.Read(w, name, &corev1.Secret{})
		secrets[i].Data[key] = []byte(value)
	}
	mark, errs := w.Mark(), make([]error, len(names))
	var rotations sync.WaitGroup
	for i, secret := range secrets {
		rotations.Go(func() { errs[i] = w.As("rotator").Update(w.Ctx, secret) })
	}
	rotations.Wait()
	w.Expect(errors.Join(errs...)).To(Succeed())

	all, err := shared.Audit().Since(mark)
	w.Expect(err).NotTo(HaveOccurred())
	updates := all.In(w.Namespace).Of("secrets").Verbs("update")
	w.Expect(updates).To(HaveLen(len(names)))
	first, last := updates[0].Received, updates[0].Answered
	for _, update := range updates {
		if update.Received.Before(first) {
			first = update.Received
		}
		if update.Answered.After(last) {
			last = update.Answered
		}
	}
	return last.Sub(first)
}

func (w *fixture) deployment(name string) *appsv1.Deployment {
	w.T.Helper()
	return harness.Read(w, name, &appsv1.Deployment{})
}

// replicaSets are those of an MCPServer, one for each version of its pods.
func (w *fixture) replicaSets(name string) []appsv1.ReplicaSet {
	w.T.Helper()
	var list appsv1.ReplicaSetList
	w.Expect(api.List(w.Ctx, &list, client.InNamespace(w.Namespace), client.MatchingLabels{"app.kubernetes.io/name": name})).To(Succeed())
	return list.Items
}

// podUIDs tells pods that stayed from pods that were replaced.
func (w *fixture) podUIDs(name string) []apitypes.UID {
	w.T.Helper()
	var list corev1.PodList
	w.Expect(api.List(w.Ctx, &list, client.InNamespace(w.Namespace), client.MatchingLabels{"app.kubernetes.io/name": name})).To(Succeed())
	var uids []apitypes.UID
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

func overrides(spec string) edit {
	return func(s *v1beta1.MCPServerSpec) {
		s.PodOverrides = &v1beta1.MCPServerPodOverrides{Spec: &runtime.RawExtension{Raw: []byte(spec)}}
	}
}

func isOfManager(r cluster.Request) bool { return r.User == harness.ManagerUser }
