package cloud

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// armError is the body of an error response. See
// https://github.com/cloud-and-ai-microsoft/resource-provider-contract/blob/master/v1.0/common-api-details.md#error-response-content.
type armError struct {
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

// errorMessage returns the message of an error response, or "".
func errorMessage(response *http.Response) string {
	if response == nil {
		return ""
	}
	var body armError
	raw, _ := runtime.Payload(response)
	_ = json.Unmarshal(raw, &body) // what cannot be read has no message
	return body.Error.Message
}

// noise matches the parts of a message that change with each request: request IDs and times, each with a
// label.
var noise = regexp.MustCompile(`(?i)[\s,;(]*\b(?:` +
	`(?:trace|correlation|activity|operation|tracking|(?:client[ -]?)?request)[ -]?id[\s:='"]*[0-9a-f]{4,}[0-9a-f-]*` +
	`|time(?:stamp)?[\s:='"]*\d{4}-\d\d-\d\d[T ][0-9:.]+(?: ?Z|[+-]\d\d:?\d\d)?` +
	`)['")]*`)

func withoutRequestIDs(message string) string {
	return strings.TrimRight(noise.ReplaceAllString(message, ""), " \t\r\n,;")
}
