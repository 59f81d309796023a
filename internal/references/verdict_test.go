package references_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

func TestVerdict(t *testing.T) {
	g := NewWithT(t)
	g.Expect(references.Finding{}.Verdict().String()).To(Equal("done (Ready: all referenced objects exist)"))
	missing := references.Finding{Missing: []string{"Secret a", "key k of Secret b"}, MayBeOptional: true}.Verdict()
	g.Expect(missing.String()).To(Equal("wait (DependencyMissing: missing: Secret a, key k of Secret b; create the missing objects and keys, or mark the references optional)"))
	g.Expect(missing.After()).To(Equal(time.Minute), "not all of them are watched")
}

// A ServiceAccount, a claim, an image pull secret or a Secret of the probes has no field that makes it optional.
func TestOnlyWhatCanBeOptionalIsToBeMarkedSo(t *testing.T) {
	const create, optional = "create the missing objects and keys", ", or mark the references optional"
	of := func(kind references.Kind, rolls bool) references.Reference {
		return references.Reference{Kind: kind, Name: "x", Rolls: rolls}
	}
	for name, c := range map[string]struct {
		references []references.Reference
		want       string
	}{
		"a variable":           {[]references.Reference{of(references.Secret, true)}, create + optional},
		"a ServiceAccount":     {[]references.Reference{of(references.ServiceAccount, false)}, create},
		"an image pull secret": {[]references.Reference{of(references.Secret, false)}, create},
		"both":                 {[]references.Reference{of(references.ServiceAccount, false), of(references.Secret, true)}, create + optional},
		"a variable first":     {[]references.Reference{of(references.Secret, true), of(references.ServiceAccount, false)}, create + optional},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			finding, err := newCluster().reader.Find(context.Background(), namespace, c.references)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(finding.Verdict().Message()).To(HaveSuffix("; " + c.want))
		})
	}
}

func TestCertificate(t *testing.T) {
	const applied = "done (Ready: Ingress applied)"
	withTLS := &v1beta1.Ingress{Host: "shop.example.com", TLSSecretName: "shop-tls"}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "shop-tls", errors.New("no role"))
	cases := map[string]struct {
		ingress *v1beta1.Ingress
		objects []client.Object
		broken  error
		plans   bool
		want    string
	}{
		"plain HTTP":         {ingress: &v1beta1.Ingress{Host: "shop.example.com"}, want: applied},
		"certificate exists": {ingress: withTLS, objects: []client.Object{secret("shop-tls")}, want: applied},
		"certificate is missing": {ingress: withTLS, objects: []client.Object{secret("other")},
			want: "wait (DependencyMissing: Ingress applied, but Secret shop-tls (spec.ingress.tlsSecretName) does not exist; create it, or have cert-manager create it)"},
		"cannot be read":            {ingress: withTLS, broken: errors.New("no answer"), want: "wait (Failed: getting Secret shop-tls: no answer)"},
		"may not be read":           {ingress: withTLS, broken: forbidden, want: "wait (Failed: getting Secret shop-tls: " + forbidden.Error() + ")"},
		"may not be read in a plan": {ingress: withTLS, broken: forbidden, plans: true, want: applied},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := newCluster(c.objects...)
			cluster.broken = c.broken
			var unreadable []error
			if c.plans {
				cluster.reader.Unreadable = func(err error) { unreadable = append(unreadable, err) }
			}

			verdict := cluster.reader.Certificate(context.Background(), namespace, c.ingress, phases.Done("Ingress applied"))

			g.Expect(verdict.String()).To(Equal(c.want))
			g.Expect(cluster.reads).To(BeZero(), "private keys are not read")
			if c.plans {
				g.Expect(unreadable).To(HaveExactElements(MatchError(c.broken)))
			}
		})
	}
}

func TestPlanReportsOnlyWhatItMayNotRead(t *testing.T) {
	g := NewWithT(t)
	cluster := newCluster()
	cluster.broken = errors.New("no answer")
	cluster.reader.Unreadable = func(err error) { t.Errorf("reported: %v", err) }

	verdict := cluster.reader.Certificate(t.Context(), namespace, &v1beta1.Ingress{TLSSecretName: "shop-tls"}, phases.Done("Ingress applied"))

	g.Expect(verdict.String()).To(Equal("wait (Failed: getting Secret shop-tls: no answer)"))
}

// indexer keeps the function of the last index.
type indexer struct{ function client.IndexerFunc }

func (i *indexer) IndexField(_ context.Context, _ client.Object, _ string, function client.IndexerFunc) error {
	i.function = function
	return nil
}

func TestIndex(t *testing.T) {
	g := NewWithT(t)
	var used indexer
	g.Expect(references.Index(context.Background(), &used, &corev1.Pod{}, func(pod *corev1.Pod) []references.Reference {
		return []references.Reference{{Kind: references.Secret, Name: pod.Name}, {Kind: references.ServiceAccount, Name: "robot"}}
	})).To(Succeed())

	pod := &corev1.Pod{}
	pod.Name = "tokens"
	g.Expect(used.function(pod)).To(Equal([]string{"Secret/tokens", "ServiceAccount/robot"}))
	g.Expect(used.function(&corev1.Secret{})).To(BeEmpty())
}
