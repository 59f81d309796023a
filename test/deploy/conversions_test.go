package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/fixpoint-dev/fixpoint/test/deploy"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// patient retries as controllers do, for about ten minutes, which is longer than any test waits. A Cap would end the retries
// as soon as it is reached.
var patient = wait.Backoff{Steps: 40, Duration: 100 * time.Millisecond, Factor: 1.2, Jitter: 0.1}

// unavailable reports whether an error says that the server, and not the request, is at fault.
func unavailable(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 500
}

// TestConversionsWhileReplicasFail writes and reads in v1alpha1, while all replicas but one are rolled, killed and frozen.
func TestConversionsWhileReplicasFail(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.install("default")
	start := func(name string) *deploy.Manager {
		return w.startPod(w.withoutStreams(deploy.Pod{Program: w.program(), Namespace: system, Name: name}))
	}
	start("leader")
	others := []*deploy.Manager{start("one"), start("two")}
	f := w.fleet("shop")
	w.namespace(f.namespace)

	// Given clients of v1alpha1, of an API server that knows the webhook
	w.Eventually(func() error {
		_, err := f.in(alpha, "mcpservers").Apply(w.ctx, "first", mcpServer("first", 0), metav1.ApplyOptions{FieldManager: "load", DryRun: []string{metav1.DryRunAll}})
		return err
	}).Should(Succeed())
	const streams, perSecond = 6, 5
	var retries atomic.Int64
	var reason atomic.Value // of the last one that counts
	again := func(err error) bool {
		// Other errors, such as those of an etcd that is slow, say nothing about the replicas.
		if unavailable(err) && strings.Contains(err.Error(), "conversion webhook") {
			retries.Add(1)
			reason.Store(err.Error())
		}
		return unavailable(err)
	}
	var loads []*harness.Load
	for stream := range streams {
		client, name := f.in(alpha, "mcpservers"), fmt.Sprintf("server-%d", stream)
		loads = append(loads, harness.StartLoad(w.ctx, perSecond, func(i int) error {
			return retry.OnError(patient, again, func() error {
				object := mcpServer(name, i)
				applied, err := client.Apply(w.ctx, name, object, metav1.ApplyOptions{FieldManager: "load"})
				if err != nil {
					return err
				}
				if tls, _, _ := unstructured.NestedBool(applied.Object, "spec", "protocol", "tls"); tls != (i%2 == 0) {
					return fmt.Errorf("%s has tls %t after apply %d", name, tls, i)
				}
				return nil
			})
		}))
	}
	goOn := func() {
		t.Helper()
		for _, load := range loads {
			sent := load.Count()
			w.Eventually(load.Count).Should(BeNumerically(">", sent+2*perSecond))
		}
	}
	failed := retries.Load
	goOn()
	w.Expect(failed()).To(BeZero(), "requests that had to be sent again while all replicas run, the last one after %v", reason.Load())

	// When replicas are rolled, no request fails even once: they serve until no API server sends requests.
	for i := range others {
		next := start(fmt.Sprintf("rolled-%d", i))
		w.Expect(others[i].Stop()).To(Succeed())
		others[i] = next
	}
	goOn()
	t.Logf("%d requests were sent again after the rollout", failed())

	// When replicas are killed
	for i := range others {
		w.Expect(others[i].Signal(syscall.SIGKILL)).To(Succeed())
	}
	for i := range others {
		w.Eventually(others[i].Running).Should(BeFalse())
		w.Expect(others[i].Leave()).To(Succeed())
	}
	goOn()
	for i := range others {
		others[i] = start(fmt.Sprintf("killed-%d", i))
	}
	goOn()
	t.Logf("%d requests were sent again after the kills", failed())

	// When replicas are frozen until their readiness probes have failed, and go on later
	for i := range others {
		w.Expect(others[i].Signal(syscall.SIGSTOP)).To(Succeed())
		w.Eventually(others[i].Frozen).Should(BeTrue())
	}
	for range 3 { // as the readiness probe of the manifests
		for i := range others {
			probe, cancel := context.WithTimeout(w.ctx, 2*time.Second)
			w.Expect(others[i].Ready(probe)).NotTo(Succeed())
			cancel()
		}
	}
	for i := range others {
		w.Expect(others[i].Leave()).To(Succeed())
	}
	goOn()
	for i := range others {
		w.Expect(others[i].Signal(syscall.SIGCONT)).To(Succeed())
		w.Eventually(func() error { return others[i].Ready(w.ctx) }).Should(Succeed())
		w.Expect(others[i].Serve(w.ctx, w.cluster, system)).To(Succeed())
	}
	goOn()
	t.Logf("%d requests were sent again after the freezes", failed())

	// Then no request has failed in the end.
	for _, load := range loads {
		w.Expect(load.Stop()).To(BeEmpty())
	}
}

// mcpServer is one of v1alpha1 that no pods run for. It uses TLS if i is even.
func mcpServer(name string, i int) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"image": fmt.Sprintf("registry.test/tools:%d", i), "transport": "streamable-http", "suspend": true, "protocol": map[string]any{"tls": i%2 == 0},
	}}}
	object.SetAPIVersion("fixpoint.dev/" + alpha)
	object.SetKind("MCPServer")
	object.SetName(name)
	return object
}
