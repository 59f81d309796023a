package releases

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

// refusals are the namespaces that a release selects and others have claimed, by the other release. A cluster-wide
// release is refused as a whole: then the set contains all namespaces.
type refusals map[string]lease.Namespaces

// decide returns what a release claims of the namespaces that it selects, beside the valid claims of others, and what
// it is refused.
//
// The release keeps no right from an earlier claim: if it was not able to renew a claim, another release may rightly
// have it, and if it was, no other release has it.
func decide(selected lease.Namespaces, others map[string]Record) (lease.Namespaces, refusals) {
	claimed, refused := selected, refusals{}
	if !selected.All {
		claimed.Names = selected.Names.Clone()
	}
	for _, release := range slices.Sorted(maps.Keys(others)) {
		other := others[release].claimed()
		switch {
		case other.Empty() || selected.Empty():
		case selected.All || other.All:
			refused[release] = lease.Namespaces{All: true}
			claimed = lease.Namespaces{}
		default:
			if common := selected.Names.Intersection(other.Names); common.Len() > 0 {
				refused[release] = lease.Namespaces{Names: common}
				claimed.Names = claimed.Names.Difference(common)
			}
		}
	}
	return claimed, refused
}

// count is how many of the selected namespaces are refused; 1 if all are selected.
func (r refusals) count(selected lease.Namespaces) int {
	refused := sets.New[string]()
	for _, namespaces := range r {
		if !namespaces.All {
			refused = refused.Union(namespaces.Names)
			continue
		}
		if selected.All {
			return 1
		}
		return selected.Names.Len()
	}
	return refused.Len()
}

// listed is how many names a message lists.
const listed = 10

// message says what is refused, by whom, and what to do.
func (r refusals) message(selected lease.Namespaces, duration time.Duration) string {
	if len(r) == 0 {
		return "All selected namespaces are claimed by this release"
	}
	var parts []string
	for _, release := range slices.Sorted(maps.Keys(r)) {
		parts = append(parts, refusal(release, selected, r[release]))
	}
	return fmt.Sprintf("%s. The claims of a release that was uninstalled expire after %s", strings.Join(parts, "; "), duration)
}

func refusal(release string, selected, refused lease.Namespaces) string {
	by := "the release of Fixpoint in namespace " + release
	switch {
	case selected.All:
		return fmt.Sprintf("This release selects all namespaces, but %s reconciles some of them: nothing is reconciled by this release; set its --namespaces or --namespace-selector, or uninstall one of the two", by)
	case refused.All:
		return fmt.Sprintf("%s selects all namespaces: nothing is reconciled by this release; set --namespaces or --namespace-selector of the other release, or uninstall one of the two", capitalized(by))
	default:
		return fmt.Sprintf("%s reconciles %s, which this release selects too: remove the overlap from --namespaces or the labels of the namespaces", capitalized(by), enumerate(sets.List(refused.Names)))
	}
}

func capitalized(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// enumerate lists the first names.
func enumerate(names []string) string {
	text := strings.Join(names[:min(listed, len(names))], ", ")
	if more := len(names) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
