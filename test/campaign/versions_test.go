package campaign

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/conversion"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// alphaShare is the part of the trials, one in so many, that are also sent in v1alpha1.
const alphaShare = 6

// standardPath is the one field whose default differs between the versions: Baseline in v1alpha1. See docs/adr/0042.
var standardPath = specs.Path{"spec", "podSecurityStandard"}

// TestBothVersionsAcceptTheSame sends specs in both versions. v1alpha1 must accept those that v1beta1 accepts, and make
// the same of them, and refuse those that v1beta1 refuses.
func TestBothVersionsAcceptTheSame(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.Name, func(t *testing.T) {
			g := NewWithT(t)
			current, err := newDryRun(metav1.NamespaceDefault)
			g.Expect(err).NotTo(HaveOccurred())
			old, err := newDryRun(metav1.NamespaceDefault)
			g.Expect(err).NotTo(HaveOccurred())
			old.version = v1alpha1.SchemeGroupVersion
			random := newRandom(t, 200+uint64(len(kind.Name)))
			trials := shareOf(t, slices.DeleteFunc(singleTrials(kind, scale(t), random), func(tr trial) bool {
				return tr.method == byUpdate || random.IntN(alphaShare) >= scale(t)
			}))

			began := time.Now()
			c := &tally{counts: map[string]int{}}
			forEach(trials, func(tr trial) { c.compare(t.Context(), current, old, tr) })
			t.Logf("%s: %d specs in both versions in %.1fs: %v", kind.Name, len(trials), time.Since(began).Seconds(), c.counts)
			for _, fault := range c.failures[:min(len(c.failures), maxFailures)] {
				t.Error(fault)
			}
			g.Expect(c.counts["accepted"]).To(BeNumerically(">", 0))
			g.Expect(c.counts["refused"]).To(BeNumerically(">", 0))
		})
	}
}

// compare sends one trial in both versions.
func (c *tally) compare(ctx context.Context, current, old *dryRun, t trial) {
	object := build(t.kind.Name, "campaign", t.tree())
	converted, unconvertible := convert(object, old.version.String())
	stored, refused := current.send(ctx, t.method, t.kind.Name, object, metav1.FieldValidationStrict)
	var inAlpha *unstructured.Unstructured
	err := unconvertible
	if err == nil {
		inAlpha, err = old.send(ctx, t.method, t.kind.Name, converted, metav1.FieldValidationStrict)
	}
	switch {
	case err != nil && refused != nil:
		if unconvertible == nil && !isRefusal(err) {
			c.fail("%s: v1alpha1 fails without a refusal: %v", t, err)
		}
		c.count("refused")
	case err != nil:
		c.fail("%s: only v1alpha1 refuses it: %v", t, err)
	case refused != nil:
		c.fail("%s: only v1beta1 refuses it: %v", t, refused)
	default:
		c.count("accepted")
		if kept, _ := specs.Get(object.Object, standardPath); kept == nil && t.kind.Name == "AppService" {
			specs.Set(stored.Object, standardPath, string(v1beta1.PodSecurityBaseline))
		}
		back, err := convert(inAlpha, v1beta1.SchemeGroupVersion.String())
		if err != nil || !equality.Semantic.DeepEqual(back.Object["spec"], stored.Object["spec"]) {
			c.fail("%s: v1alpha1 makes\n%v\nof it, and v1beta1\n%v\n(%v)", t, back, stored, err)
		}
	}
}

// convert converts an object to another version.
func convert(object *unstructured.Unstructured, to string) (*unstructured.Unstructured, error) {
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding an object: %w", err)
	}
	if text, err = conversion.Convert(text, to); err != nil {
		return nil, err
	}
	tree, err := specs.Parse(string(text))
	return &unstructured.Unstructured{Object: tree}, err
}
