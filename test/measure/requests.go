package measure

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// RequestTable counts requests in two columns by what a function says of each, divided by the number of objects. Watches
// are left out.
func RequestTable(objects int, left, right cluster.Requests, by func(cluster.Request) string) string {
	counts := map[string][2]int{}
	for i, requests := range []cluster.Requests{left, right} {
		for _, r := range requests {
			if r.Verb == "watch" {
				continue
			}
			pair := counts[by(r)]
			pair[i]++
			counts[by(r)] = pair
		}
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		pair := counts[key]
		fmt.Fprintf(&b, "| %s | %.2f | %.2f |\n", key, float64(pair[0])/float64(objects), float64(pair[1])/float64(objects))
	}
	return b.String()
}

// ByTarget names a request by its verb and resource.
func ByTarget(r cluster.Request) string { return r.Verb + " " + target(r) }

// target is the resource of a request, or its path if it has none.
func target(r cluster.Request) string {
	if r.Resource == "" {
		path, _, _ := strings.Cut(r.URI, "?")
		return path
	}
	return strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
}
