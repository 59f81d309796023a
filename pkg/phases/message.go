package phases

import (
	"regexp"
	"strings"
)

// volatile is what makes one failure read differently from try to try.
var volatile = []*regexp.Regexp{
	// Identifiers of requests, in the form of a UUID.
	regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`),
	// Times: RFC 3339, and the clock in all the other forms.
	regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?`),
	regexp.MustCompile(`\b\d{2}:\d{2}:\d{2}(\.\d+)?\b`),
	// Measured durations: those with a fraction. "30s" is more often a setting.
	regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+\.\d+(s|ms|µs|us|ns)\b`),
	// The near end of a connection: its port is another one each time.
	regexp.MustCompile(`[0-9a-fA-F:.\[\]]+:\d+->`),
	// Addresses in memory.
	regexp.MustCompile(`\b0x[0-9a-f]{6,}\b`),
}

// withoutVolatile removes from the message of an untyped error what changes from try to try. Such a
// message would make every try a write of the status, and every write a new try.
func withoutVolatile(message string) string {
	for _, pattern := range volatile {
		message = pattern.ReplaceAllString(message, "…")
	}
	return strings.Join(strings.Fields(message), " ")
}

// bound cuts a message to at most limit bytes, and leaves out half a character at the end.
func bound(message string, limit int) string {
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit], "")
}

// isReason says whether the API server accepts it as the reason of a condition.
func isReason(reason string) bool {
	const longest = 1024
	if reason == "" || len(reason) > longest || !isLetter(reason[0]) {
		return false
	}
	for i := range len(reason) {
		c := reason[i]
		inside := i < len(reason)-1 && (c == ',' || c == ':')
		if !isLetter(c) && (c < '0' || c > '9') && c != '_' && !inside {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}
