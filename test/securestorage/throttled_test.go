package securestorage_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// More SecureStorages than the request limits let through at once, against a fake cloud with the limits of
// Azure and compressed time. TestThousandObjectsUseTheWholeRequestLimit in controllers/securestorage tests a
// thousand with a fake clock, independently of the speed of this machine.
func TestManyAgainstAThrottlingCloud(t *testing.T) {
	const (
		objects  = 300
		compress = 10
	)
	// given
	knobs := fakecloud.Realistic().Compress(compress)
	knobs.GrantDelay = fakecloud.Between(0, 2*time.Second) // short beside the time that the throttle takes
	// The client counts a request before the cloud does, so those of all workers may come later than others that follow.
	lenient := knobs
	lenient.Reads.Capacity += workers
	lenient.Writes.Capacity += workers
	w := newFixture(t, lenient)
	for i := range objects {
		w.create(fmt.Sprintf("s%04d", i), func(s *v1beta1.SecureStorageSpec) { s.PollInterval.Duration = time.Hour })
	}
	w.cloud().ResetCounts()
	// when
	began := time.Now()
	w.startManagerWith(cloud.Limits{
		WritesPerSecond: knobs.Writes.PerSecond, WritesBurst: int(knobs.Writes.Capacity),
		ReadsPerSecond: knobs.Reads.PerSecond, ReadsBurst: int(knobs.Reads.Capacity),
	})
	w.Eventually(func() int {
		var list v1beta1.SecureStorageList
		w.Expect(api.List(w.Ctx, &list, client.InNamespace(w.Namespace))).To(Succeed())
		ready := 0
		for i := range list.Items {
			if isReady(&list.Items[i]) {
				ready++
			}
		}
		return ready
	}).WithPolling(time.Second).Should(Equal(objects))
	took := time.Since(began)
	// then nobody came too early
	total := w.cloud().Total("")
	allowed := max((float64(total.Reads)-knobs.Reads.Capacity)/knobs.Reads.PerSecond, (float64(total.Writes)-knobs.Writes.Capacity)/knobs.Writes.PerSecond)
	t.Logf("%d reads, %d writes, %d throttled, %d early; took %s, the throttle allows %.1f s", total.Reads, total.Writes, total.Throttled, total.EarlyRetries, took.Round(time.Millisecond), allowed)
	w.Expect(total.EarlyRetries).To(BeZero())
	w.Expect(total.Calls()).To(BeNumerically("<=", 25*objects))
	w.Expect(w.cloud().Created("/storageaccounts/")).To(Equal(objects))
}
