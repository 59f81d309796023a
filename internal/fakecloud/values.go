package fakecloud

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func empty(s *string) bool { return s == nil || *s == "" }

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func cloneMap[V any](m map[string]V) map[string]V {
	cloned := map[string]V{}
	maps.Copy(cloned, m)
	return cloned
}

func equalSettings(a, b map[string]json.RawMessage) bool {
	return maps.EqualFunc(a, b, func(x, y json.RawMessage) bool { return bytes.Equal(compact(x), compact(y)) })
}

func compact(raw json.RawMessage) []byte {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return raw
	}
	return out.Bytes()
}

func orEmpty(tags map[string]string) map[string]string {
	if tags == nil {
		return map[string]string{}
	}
	return tags
}

// normalLocation turns "West Europe" into westeurope.
func normalLocation(location string) string {
	return strings.ToLower(strings.ReplaceAll(location, " ", ""))
}

func plainTags(tags map[string]*string) map[string]string {
	plain := map[string]string{}
	for key, value := range tags {
		plain[key] = ""
		if value != nil {
			plain[key] = *value
		}
	}
	return plain
}

// validTags rejects invalid tags; the names of storage account tags have a lower limit.
func validTags(tags map[string]*string, longest int) *Error {
	if len(tags) > 50 {
		return badRequest("TagCountExceeded", "The number of tags '%d' is more than the maximum number of tags '50' allowed on a resource.", len(tags))
	}
	seen := map[string]bool{}
	for _, key := range sortedKeys(tags) {
		switch {
		case strings.TrimSpace(key) == "":
			return badRequest("InvalidTagName", "The tag name must be non-null, non-empty and not whitespace only.")
		case len(key) > longest:
			return badRequest("InvalidTagNameLength", "The tag name '%s' is too long. The maximum length of tag names is '%d' characters.", key, longest)
		case strings.ContainsAny(key, `<>%&\?/`):
			return badRequest("InvalidTagNameCharacters", `The tag names '%s' have reserved characters '<,>,%%,&,\,?,/' or control characters.`, key)
		case tags[key] != nil && len(*tags[key]) > 256:
			return badRequest("InvalidTagValueLength", "Tag value too large. Following tag value '%s' exceeded the maximum length. Maximum allowed length for tag value - '256' characters.", key)
		case seen[strings.ToLower(key)]:
			return badRequest("AmbiguousTags", "Tag names are compared without regard to case, and '%s' is there twice.", key)
		}
		seen[strings.ToLower(key)] = true
	}
	return nil
}

// seconds rounds up to the whole seconds of Retry-After.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Millisecond-1)/time.Millisecond)), 10)
}
