package bridge

import (
	"mime"
	"net/http"
	"strings"
)

func acceptable(r *http.Request) *failure {
	if mediaType(r.Header.Get("Content-Type")) != jsonType {
		return &failure{
			Status: http.StatusUnsupportedMediaType, Code: codeInvalidRequest,
			Message: "Content-Type must be " + jsonType,
		}
	}
	if jsonOK, eventsOK := accepts(r); !jsonOK || !eventsOK {
		return notAcceptable("Accept must contain both " + jsonType + " and " + eventType)
	}
	return nil
}

// accepts reports which of the two response types a client accepts.
func accepts(r *http.Request) (jsonOK, eventsOK bool) {
	for _, part := range strings.Split(strings.Join(r.Header.Values("Accept"), ","), ",") {
		switch mediaType(part) {
		case "*/*":
			return true, true
		case jsonType, "application/*":
			jsonOK = true
		case eventType, "text/*":
			eventsOK = true
		}
	}
	return jsonOK, eventsOK
}

func mediaType(value string) string {
	t, _, err := mime.ParseMediaType(value)
	if err != nil {
		return ""
	}
	return t
}

func notAcceptable(message string) *failure {
	return &failure{Status: http.StatusNotAcceptable, Code: codeInvalidRequest, Message: message}
}

func methodNotAllowed(message string) *failure {
	return &failure{Status: http.StatusMethodNotAllowed, Code: codeInvalidRequest, Message: message}
}

func tooManyRequests() *failure {
	return &failure{
		Status: http.StatusTooManyRequests, Code: codeRefused, Reason: reasonTooManyRequests,
		Message: "too many requests are in flight", RetryAfter: 1,
	}
}
