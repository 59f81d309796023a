package releases

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fixpoint-dev/fixpoint/internal/lease"
)

// annotationPrefix is followed by the name of a release: the namespace of its Lease for leader election.
const annotationPrefix = "release.fixpoint.dev/"

// Record is what a release has written into its annotation.
type Record struct {
	// Leader is the identity of the replica that wrote it.
	Leader string `json:"leader"`
	// Renewed is when it was written, for people: other releases do not compare their clocks with it.
	Renewed time.Time `json:"renewed"`
	// DurationSeconds is how long the claims are valid.
	DurationSeconds int64 `json:"durationSeconds"`
	// All claims every namespace.
	All bool `json:"all,omitempty"`
	// Namespaces are the claimed namespaces, sorted and separated by spaces.
	Namespaces string `json:"namespaces,omitempty"`
}

func newRecord(leader string, claimed lease.Namespaces, renewed time.Time, duration time.Duration) Record {
	return Record{
		Leader: leader, Renewed: renewed.UTC().Truncate(time.Millisecond), DurationSeconds: int64(duration / time.Second),
		All: claimed.All, Namespaces: strings.Join(sets.List(claimed.Names), " "),
	}
}

func (r Record) claimed() lease.Namespaces {
	return lease.Namespaces{All: r.All, Names: sets.New(strings.Fields(r.Namespaces)...)}
}

func (r Record) duration() time.Duration { return time.Duration(r.DurationSeconds) * time.Second }

func (r Record) annotation() (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encoding the claims: %w", err)
	}
	return string(text), nil
}

// recordsOf are the records in the annotations of the Lease, by release, and the annotations that they were parsed
// from. A record that cannot be parsed claims everything, because what it claims is not known.
func recordsOf(annotations map[string]string) (map[string]Record, map[string]string) {
	records, texts := map[string]Record{}, map[string]string{}
	for key, text := range annotations {
		release, found := strings.CutPrefix(key, annotationPrefix)
		if !found || text == "" {
			continue
		}
		var record Record
		if err := json.Unmarshal([]byte(text), &record); err != nil {
			record = Record{All: true}
		}
		if record.DurationSeconds <= 0 {
			record.DurationSeconds = int64(DefaultDuration / time.Second)
		}
		records[release], texts[release] = record, text
	}
	return records, texts
}

// ClaimantOf returns the release that has claimed a namespace in the annotations of the Lease, which may have expired;
// empty if none has. Of several, it is the one that renewed its claims last.
func ClaimantOf(annotations map[string]string, namespace string) string {
	records, _ := recordsOf(annotations)
	claimant := ""
	for _, release := range slices.Sorted(maps.Keys(records)) {
		if claimed := records[release].claimed(); !claimed.All && !claimed.Names.Has(namespace) {
			continue
		}
		if claimant == "" || records[release].Renewed.After(records[claimant].Renewed) {
			claimant = release
		}
	}
	return claimant
}

// observation is since when another release's annotation has been observed to be the same.
type observation struct {
	text  string
	since time.Time
}

// observe updates the observations, and returns the records that have expired, and when the next one expires.
func observe(seen map[string]observation, records map[string]Record, texts map[string]string, now time.Time) (expired []string, next time.Duration) {
	maps.DeleteFunc(seen, func(release string, _ observation) bool { _, exists := records[release]; return !exists })
	for _, release := range slices.Sorted(maps.Keys(records)) {
		last, known := seen[release]
		if !known || last.text != texts[release] {
			last = observation{text: texts[release], since: now}
			seen[release] = last
		}
		remaining := records[release].duration() - now.Sub(last.since)
		if remaining <= 0 {
			expired = append(expired, release)
			continue
		}
		if next == 0 || remaining < next {
			next = remaining
		}
	}
	return expired, next
}
