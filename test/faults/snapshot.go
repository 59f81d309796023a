package faults

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// Snapshot is the state of an environment without values that differ between runs, such as UIDs: the fields
// of each object, how often each object was created and deleted, and the resources in the cloud.
type Snapshot struct {
	// Objects holds the leaf fields by object and path.
	Objects map[string]map[string]string
	// Created and Deleted count by object.
	Created, Deleted map[string]int
}

var (
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	guid      = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
	hexID     = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	// keyTime is the name of a session key: the time of its creation.
	keyTime = regexp.MustCompile(`\b\d{8}T\d{6}Z\b`)
	// serviceKeys tells an account that was adopted from one that was created in its place after it was lost.
	serviceKeys = regexp.MustCompile(`, except its queues and tables, .* create a new SecureStorage`)
)

// Snapshot returns the current state.
func (env *Environment) Snapshot() Snapshot {
	s := Snapshot{Objects: map[string]map[string]string{}, Created: map[string]int{}, Deleted: map[string]int{}}
	n := env.normalizer()
	env.history.mu.Lock()
	for id, object := range env.history.live {
		s.Objects[id.String()] = n.object(object)
	}
	for id, times := range env.history.created {
		if id.Kind != endpointSlice { // only the simulated controllers create them
			s.Created[id.String()], s.Deleted[id.String()] = times, env.history.deleted[id]
		}
	}
	env.history.mu.Unlock()
	if env.Cloud != nil {
		n.cloud(env.Cloud, s)
	}
	return s
}

// normalizer replaces values that differ between runs by placeholders.
type normalizer struct{ replace *strings.Replacer }

func (env *Environment) normalizer() normalizer {
	pairs := []string{env.Namespace, "NAMESPACE"}
	pairs = append(pairs, env.accountKeys()...)
	env.history.mu.Lock()
	defer env.history.mu.Unlock()
	for uid, id := range env.history.names {
		pairs = append(pairs, cloud.AccountName(string(uid)), "ACCOUNT("+id.String()+")", string(uid), "UID("+id.String()+")")
	}
	return normalizer{strings.NewReplacer(pairs...)}
}

// accountKeys are pairs that replace the current keys of all accounts by their names. A key that is not current remains.
func (env *Environment) accountKeys() []string {
	if env.Cloud == nil {
		return nil
	}
	var pairs []string
	for _, account := range env.Cloud.State().Accounts {
		if keys, err := env.Cloud.AccountKeys(account.Name); err == nil {
			pairs = append(pairs, encoded(keys[0]), "CURRENT KEY 1", encoded(keys[1]), "CURRENT KEY 2", encoded(account.Name), "ENCODED ACCOUNT")
		}
	}
	return pairs
}

func (n normalizer) text(text string) string {
	text = n.replace.Replace(text)
	text = timestamp.ReplaceAllString(text, "TIME")
	text = keyTime.ReplaceAllString(text, "TIME")
	text = serviceKeys.ReplaceAllString(text, "")
	text = guid.ReplaceAllString(text, "GUID")
	return hexID.ReplaceAllString(text, "ID")
}

// object returns the leaf fields of an object by path.
func (n normalizer) object(object *unstructured.Unstructured) map[string]string {
	fields := object.DeepCopy().Object
	generation := object.GetGeneration()
	metadata, _ := fields["metadata"].(map[string]any)
	managers := managersOf(metadata)
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"} {
		delete(metadata, field)
	}
	metadata["managers"] = managers
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		for key := range annotations {
			switch {
			case strings.HasPrefix(key, "ssa.fixpoint.dev/"):
				annotations[key] = "RECORD" // it contains a hash of the owner's UID
			case key == revisionAnnotation:
				delete(annotations, key) // it counts the templates that the simulated controllers happened to observe
			}
		}
	}
	if spec, ok := fields["spec"].(map[string]any); ok && object.GetKind() == "Service" {
		delete(spec, "clusterIP")
		delete(spec, "clusterIPs")
	}
	if data, ok := fields["data"].(map[string]any); ok && fields["type"] == string(v1beta1.SecretTypeSessionKeys) {
		for name := range data {
			data[name] = fmt.Sprintf("one of %d random keys", len(data))
		}
	}
	normalizeObservedGenerations(fields, generation)
	return n.flat(fields)
}

// normalizeObservedGenerations replaces observed generations, which count edits, by "current" or "outdated".
func normalizeObservedGenerations(value any, generation int64) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if number, ok := inner.(int64); ok && key == "observedGeneration" {
				value[key] = "outdated"
				if number == generation {
					value[key] = "current"
				}
				continue
			}
			normalizeObservedGenerations(inner, generation)
		}
	case []any:
		for _, inner := range value {
			normalizeObservedGenerations(inner, generation)
		}
	}
}

// managersOf returns the managed fields by field manager.
func managersOf(metadata map[string]any) map[string]any {
	managers := map[string]any{}
	entries, _ := metadata["managedFields"].([]any)
	for _, entry := range entries {
		fields, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		key := fmt.Sprint(fields["manager"], " by ", fields["operation"], " ", fields["subresource"], " ", fields["apiVersion"])
		managers[key] = fields["fieldsV1"]
	}
	return managers
}

// flat returns the leaf fields by path.
func (n normalizer) flat(value any) map[string]string {
	leaves := map[string]string{}
	n.flatten("", value, leaves)
	return leaves
}

func (n normalizer) flatten(path string, value any, leaves map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			leaves[path] = "{}"
		}
		for key, inner := range value {
			n.flatten(path+"."+n.text(key), inner, leaves)
		}
	case []any:
		if len(value) == 0 {
			leaves[path] = "[]"
		}
		for i, inner := range value {
			n.flatten(fmt.Sprintf("%s[%s]", path, n.text(element(inner, i))), inner, leaves)
		}
	case string:
		leaves[path] = n.text(value)
	default:
		leaves[path] = fmt.Sprint(value)
	}
}

// element identifies a list element by its key fields, or by its index.
func element(value any, i int) string {
	fields, ok := value.(map[string]any)
	if ok {
		// Drifts are listed in the order in which they were found, which differs between runs.
		if field, ok := fields["field"].(string); ok {
			return fmt.Sprint(fields["kind"], "/", fields["name"], " ", field)
		}
		for _, key := range []string{"type", "name"} {
			if name, ok := fields[key].(string); ok {
				return name
			}
		}
	}
	return fmt.Sprint(i)
}

// cloud adds the resources in the cloud, and how often each was created and deleted.
func (n normalizer) cloud(server *fakecloud.Server, into Snapshot) {
	state := server.State()
	for _, account := range state.Accounts {
		into.Objects["cloud account "+n.text(account.Name)] = n.flat(map[string]any{
			"state": account.ProvisioningState, "key": account.Key, "data": account.Data, "sku": account.SKU,
			"location": account.Location, "kind": account.Kind, "tags": fmt.Sprint(account.Tags), "identity": account.Identity.PrincipalID != "",
		})
	}
	for _, grant := range state.Assignments {
		name := "cloud grant of " + grant.Role + " on " + n.text(grant.Scope) + " to " + n.text(grant.Account)
		into.Objects[name] = map[string]string{"orphan": fmt.Sprint(grant.Orphan)}
	}
	for _, vault := range state.Vaults {
		policies := make([]string, 0, len(vault.Policies))
		for _, policy := range vault.Policies {
			policies = append(policies, fmt.Sprint(slices.Sorted(maps.Keys(policy.Permissions))))
		}
		into.Objects["cloud vault "+vault.Name] = map[string]string{"policies": fmt.Sprint(len(vault.Policies), policies)}
	}
	for _, entry := range server.Ledger() {
		if entry.Who == fakecloud.WhoMeddler {
			continue
		}
		switch entry.Effect {
		case fakecloud.Created:
			into.Created["cloud "+n.text(entry.Resource)]++
		case fakecloud.Deleted:
			into.Deleted["cloud "+n.text(entry.Resource)]++
		}
	}
}

// Diff lists the differences from the snapshot of an undisturbed run.
func (s Snapshot) Diff(undisturbed Snapshot) []string {
	var differences []string
	for _, name := range sortedUnion(s.Objects, undisturbed.Objects) {
		have, is := s.Objects[name]
		want, should := undisturbed.Objects[name]
		switch {
		case !should:
			differences = append(differences, name+" exists, but not in the undisturbed run")
		case !is:
			differences = append(differences, name+" does not exist, but exists in the undisturbed run")
		default:
			for _, path := range sortedUnion(have, want) {
				if have[path] != want[path] {
					differences = append(differences, fmt.Sprintf("%s %s is %s, want %s as in the undisturbed run", name, path, valueOrNone(have, path), valueOrNone(want, path)))
				}
			}
		}
	}
	differences = append(differences, countDifferences("created", s.Created, undisturbed.Created)...)
	return append(differences, countDifferences("deleted", s.Deleted, undisturbed.Deleted)...)
}

func countDifferences(what string, have, want map[string]int) []string {
	var differences []string
	for _, name := range sortedUnion(have, want) {
		if have[name] != want[name] {
			differences = append(differences, fmt.Sprintf("%s was %s %d times, want %d times as in the undisturbed run", name, what, have[name], want[name]))
		}
	}
	return differences
}

// isCountDifference reports whether a difference concerns the number of creates or deletes.
func isCountDifference(difference string) bool {
	return strings.Contains(difference, " times as in the undisturbed run")
}

// unbalancedCounts lists objects that were created more than once, or not deleted as often as created, except for those
// that also remain in the undisturbed run.
func (s Snapshot) unbalancedCounts(undisturbed Snapshot) []string {
	var unbalanced []string
	for name, created := range s.Created {
		left := 0
		if _, remains := undisturbed.Objects[name]; remains {
			left = 1
		}
		if deleted := s.Deleted[name]; created > 1 || deleted+left != created {
			unbalanced = append(unbalanced, fmt.Sprintf("%s was created %d times and deleted %d times", name, created, deleted))
		}
	}
	return unbalanced
}

func sortedUnion[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

func valueOrNone(fields map[string]string, path string) string {
	if value, ok := fields[path]; ok {
		return value
	}
	return "absent"
}
