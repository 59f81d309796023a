package faults_test

import (
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/test/faults"
)

// The watch of EndpointSlices may be behind that of Services: then the simulated garbage collector observes an
// EndpointSlice after the deletion of its Service.
func TestEndpointSliceObservedAfterItsServiceIsCollected(t *testing.T) {
	t.Parallel()
	env, err := testCluster.NewEnvironment(t.Context(), faults.AppService)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Close(); err != nil {
			t.Error(err)
		}
	})
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "web", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Service", Name: "web", UID: "of-a-deleted-service", Controller: ptr.To(true),
		}}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
	if err := env.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	if !env.WaitUntil(2*time.Minute, func() bool {
		return env.Created("EndpointSlice", "web") == 1 && env.Get("EndpointSlice", "web") == nil
	}) {
		t.Errorf("the EndpointSlice was created %d times, and is now %v", env.Created("EndpointSlice", "web"), env.Get("EndpointSlice", "web"))
	}
}
