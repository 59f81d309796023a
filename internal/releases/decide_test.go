package releases

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

func namespaces(names ...string) lease.Namespaces { return lease.Namespaces{Names: sets.New(names...)} }

func claims(names ...string) Record { return Record{Namespaces: strings.Join(names, " ")} }

var all = lease.Namespaces{All: true}

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		selected lease.Namespaces
		others   map[string]Record
		claimed  lease.Namespaces
		refused  refusals
	}{
		"alone":                           {namespaces("a", "b"), nil, namespaces("a", "b"), nil},
		"alone, all":                      {all, nil, all, nil},
		"nothing selected":                {namespaces(), map[string]Record{"x": {All: true}}, namespaces(), nil},
		"disjoint":                        {namespaces("a"), map[string]Record{"x": claims("b")}, namespaces("a"), nil},
		"overlap":                         {namespaces("a", "b"), map[string]Record{"x": claims("b", "c")}, namespaces("a"), refusals{"x": namespaces("b")}},
		"overlap with two":                {namespaces("a", "b", "c"), map[string]Record{"x": claims("b"), "y": claims("c")}, namespaces("a"), refusals{"x": namespaces("b"), "y": namespaces("c")}},
		"all beside all":                  {all, map[string]Record{"x": {All: true}}, namespaces(), refusals{"x": all}},
		"all beside a split one":          {all, map[string]Record{"x": claims("a")}, namespaces(), refusals{"x": all}},
		"all beside one without claims":   {all, map[string]Record{"x": {}}, all, nil},
		"split beside all":                {namespaces("a"), map[string]Record{"x": {All: true}}, namespaces(), refusals{"x": all}},
		"split beside all and a split":    {namespaces("a", "b"), map[string]Record{"x": {All: true}, "y": claims("a")}, namespaces(), refusals{"x": all, "y": namespaces("a")}},
		"split beside one without claims": {namespaces("a"), map[string]Record{"x": {}}, namespaces("a"), nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			claimed, refused := decide(c.selected, c.others)
			g.Expect(claimed.Equal(c.claimed)).To(BeTrue(), "%v", claimed)
			if c.refused == nil {
				c.refused = refusals{}
			}
			g.Expect(refused).To(Equal(c.refused))
		})
	}
}

func TestDecideKeepsItsInput(t *testing.T) {
	g := NewWithT(t)
	selected := namespaces("a", "b")
	decide(selected, map[string]Record{"x": claims("b")})
	g.Expect(selected).To(Equal(namespaces("a", "b")))
}

func TestRefusalsAreCountedAndExplained(t *testing.T) {
	many := namespaces("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
	cases := map[string]struct {
		selected lease.Namespaces
		refused  refusals
		count    int
		message  string
	}{
		"none": {namespaces("a"), refusals{}, 0, "All selected namespaces are claimed by this release"},
		"overlap": {namespaces("a", "b"), refusals{"x": namespaces("a")}, 1,
			"The release of Fixpoint in namespace x reconciles a, which this release selects too: remove the overlap from --namespaces or the labels of the namespaces. The claims of a release that was uninstalled expire after 5m0s"},
		"overlap with two": {namespaces("a", "b"), refusals{"y": namespaces("b"), "x": namespaces("a")}, 2,
			"The release of Fixpoint in namespace x reconciles a, which this release selects too: remove the overlap from --namespaces or the labels of the namespaces; " +
				"The release of Fixpoint in namespace y reconciles b, which this release selects too: remove the overlap from --namespaces or the labels of the namespaces. The claims of a release that was uninstalled expire after 5m0s"},
		"many": {many, refusals{"x": many}, 12,
			"The release of Fixpoint in namespace x reconciles a, b, c, d, e, f, g, h, i, j and 2 more, which this release selects too: remove the overlap from --namespaces or the labels of the namespaces. The claims of a release that was uninstalled expire after 5m0s"},
		"all beside split": {all, refusals{"x": all, "y": all}, 1,
			"This release selects all namespaces, but the release of Fixpoint in namespace x reconciles some of them: nothing is reconciled by this release; set its --namespaces or --namespace-selector, or uninstall one of the two; " +
				"This release selects all namespaces, but the release of Fixpoint in namespace y reconciles some of them: nothing is reconciled by this release; set its --namespaces or --namespace-selector, or uninstall one of the two. The claims of a release that was uninstalled expire after 5m0s"},
		"split beside all": {namespaces("a", "b"), refusals{"x": all}, 2,
			"The release of Fixpoint in namespace x selects all namespaces: nothing is reconciled by this release; set --namespaces or --namespace-selector of the other release, or uninstall one of the two. The claims of a release that was uninstalled expire after 5m0s"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(c.refused.count(c.selected)).To(Equal(c.count))
			g.Expect(c.refused.message(c.selected, 5*time.Minute)).To(Equal(c.message))
		})
	}
}

func TestRecordRoundTrip(t *testing.T) {
	for name, claimed := range map[string]lease.Namespaces{"all": all, "some": namespaces("b", "a"), "none": namespaces()} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			written := newRecord("pod-1", claimed, time.Unix(1000, 0), 5*time.Minute)
			text, err := written.annotation()
			g.Expect(err).NotTo(HaveOccurred())
			records, texts := recordsOf(map[string]string{annotationPrefix + "x": text, "other.test/key": "value"})
			g.Expect(records).To(Equal(map[string]Record{"x": written}))
			g.Expect(texts).To(Equal(map[string]string{"x": text}))
			g.Expect(records["x"].claimed().Equal(claimed)).To(BeTrue())
			g.Expect(records["x"].duration()).To(Equal(5 * time.Minute))
		})
	}
}

func TestRecordIsReadable(t *testing.T) {
	g := NewWithT(t)
	text, err := newRecord("pod-1", namespaces("b", "a"), time.Unix(1000, 0), 5*time.Minute).annotation()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(Equal(`{"leader":"pod-1","renewed":"1970-01-01T00:16:40Z","durationSeconds":300,"namespaces":"a b"}`))
}

func TestUnreadableRecordClaimsEverything(t *testing.T) {
	g := NewWithT(t)
	records, _ := recordsOf(map[string]string{annotationPrefix + "x": "{", annotationPrefix + "removed": ""})
	g.Expect(records).To(Equal(map[string]Record{"x": {All: true, DurationSeconds: 300}}))
}

func TestRecordsExpireWhenTheyStayUnchanged(t *testing.T) {
	g := NewWithT(t)
	start := time.Unix(1000, 0)
	seen := map[string]observation{}
	records := map[string]Record{"x": {DurationSeconds: 300}, "y": {DurationSeconds: 60}}
	look := func(after time.Duration, texts map[string]string) ([]string, time.Duration) {
		return observe(seen, records, texts, start.Add(after))
	}

	expired, next := look(0, map[string]string{"x": "1", "y": "1"})
	g.Expect(expired).To(BeEmpty(), "what another leader has observed does not count")
	g.Expect(next).To(Equal(time.Minute))

	expired, next = look(59*time.Second, map[string]string{"x": "1", "y": "2"})
	g.Expect(expired).To(BeEmpty())
	g.Expect(next).To(Equal(time.Minute), "y was renewed")

	expired, next = look(119*time.Second, map[string]string{"x": "1", "y": "2"})
	g.Expect(expired).To(Equal([]string{"y"}))
	g.Expect(next).To(Equal(181 * time.Second))

	expired, _ = look(300*time.Second, map[string]string{"x": "1", "y": "2"})
	g.Expect(expired).To(Equal([]string{"x", "y"}))

	delete(records, "x")
	expired, _ = look(301*time.Second, map[string]string{"y": "2"})
	g.Expect(expired).To(Equal([]string{"y"}))
	records["x"] = Record{DurationSeconds: 300}
	expired, _ = look(302*time.Second, map[string]string{"x": "1", "y": "2"})
	g.Expect(expired).To(Equal([]string{"y"}), "x was removed meanwhile")
}
