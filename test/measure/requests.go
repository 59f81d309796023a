package measure

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// RequestTable counts requests by verb and resource in two columns, divided by the number of objects. Watches are left
// out.
func RequestTable(objects int, left, right cluster.Requests) string {
	counts := map[string][2]int{}
	for i, requests := range []cluster.Requests{left, right} {
		for _, r := range requests {
			if r.Verb == "watch" {
				continue
			}
			key := r.Verb + " " + target(r)
			pair := counts[key]
			pair[i]++
			counts[key] = pair
		}
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		pair := counts[key]
		fmt.Fprintf(&b, "| %s | %.2f | %.2f |\n", key, float64(pair[0])/float64(objects), float64(pair[1])/float64(objects))
	}
	return b.String()
}

// target is the resource of a request, or its path if it has none.
func target(r cluster.Request) string {
	if r.Resource == "" {
		path, _, _ := strings.Cut(r.URI, "?")
		return path
	}
	return strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
}
