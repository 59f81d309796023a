package phases

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAnswerCountsMoreThanTheCache(t *testing.T) {
	config := func(uid types.UID, deleted *metav1.Time, finalizers ...string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: uid, DeletionTimestamp: deleted, Finalizers: finalizers}}
	}
	now := metav1.Now()
	live, applied, recreated := config("1", nil), config("1", nil), config("2", nil)
	deleted, terminating := config("1", &now), config("1", &now, "example.com/hold")
	cases := map[string]struct {
		shown client.Object
		// answered is what the API server has answered, if anything.
		answered *answer
		want     client.Object
	}{
		"nothing was answered":                           {shown: live, want: live},
		"it was applied":                                 {shown: live, answered: &answer{object: applied, applied: true}, want: applied},
		"it was deleted":                                 {shown: live, answered: &answer{object: deleted}, want: deleted},
		"it was deleted, and shown to wait":              {shown: terminating, answered: &answer{object: deleted}, want: terminating},
		"it is gone":                                     {shown: live, answered: &answer{}},
		"it is gone, and shown to wait":                  {shown: terminating, answered: &answer{}},
		"it was recreated, and the former shown to wait": {shown: terminating, answered: &answer{object: recreated, applied: true}, want: recreated},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &Cluster{}
			if c.answered != nil {
				cluster.learn(idOf(c.shown), *c.answered)
			}

			newest := cluster.newest(c.shown)

			NewWithT(t).Expect(newest == c.want).To(BeTrue(), "%v", newest)
		})
	}
}
