package telemetry

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/telemetry/answer"
)

func TestOutcomes(t *testing.T) {
	result, failure, toolError := answer.Answer{Found: true}, answer.Answer{Found: true, Failed: true, Code: -32602}, answer.Answer{Found: true, ToolError: true}
	for name, c := range map[string]struct {
		ending    ending
		outcome   string
		errorType string
	}{
		"result":                        {ending{isPost: true, isRequest: true, reads: true, status: 200, answer: result}, outcomeOK, ""},
		"notification":                  {ending{isPost: true, status: 202}, outcomeOK, ""},
		"tool error":                    {ending{isPost: true, isRequest: true, reads: true, status: 200, answer: toolError}, outcomeToolError, "tool_error"},
		"error":                         {ending{isPost: true, isRequest: true, reads: true, status: 200, answer: failure}, outcomeRPCError, "-32602"},
		"error with a status":           {ending{isPost: true, isRequest: true, reads: true, status: 400, answer: failure}, outcomeRPCError, "-32602"},
		"error with any code":           {ending{isPost: true, status: 200, answer: answer.Answer{Found: true, Failed: true, Code: 77}}, outcomeRPCError, other},
		"no token":                      {ending{refusal: "unauthorized", isPost: true, status: 401}, outcomeRefused, "unauthorized"},
		"limit":                         {ending{refusal: "TooManyRequests", isPost: true, isRequest: true, reads: true, status: 429, answer: failure}, outcomeRefused, "TooManyRequests"},
		"no place":                      {ending{refusal: "TooManySessions", isPost: true, status: 503}, outcomeRefused, "TooManySessions"},
		"replica that failed":           {ending{refusal: "ReplicaFailed", isPost: true, status: 502}, outcomeServerFailed, "ReplicaFailed"},
		"status of the server":          {ending{isPost: true, status: 404}, outcomeRefused, "404"},
		"no server":                     {ending{isPost: true, status: 502}, outcomeServerFailed, "502"},
		"client left":                   {ending{isPost: true, isRequest: true, left: true, status: 502}, outcomeCanceled, outcomeCanceled},
		"client left during a response": {ending{isPost: true, isRequest: true, left: true, aborted: true, reads: true, status: 200}, outcomeCanceled, outcomeCanceled},
		"client left after the result":  {ending{isPost: true, isRequest: true, left: true, reads: true, status: 200, answer: result}, outcomeOK, ""},
		"response broke off":            {ending{isPost: true, isRequest: true, aborted: true, reads: true, status: 200}, outcomeServerFailed, outcomeServerFailed},
		"stream without the response":   {ending{isPost: true, isRequest: true, reads: true, status: 200}, outcomeNoResponse, ""},
		"compressed response":           {ending{isPost: true, isRequest: true, status: 200}, outcomeOK, ""},
		"stream that its client closed": {ending{left: true, status: 200}, outcomeOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := c.ending.result()
			g.Expect(r.outcome).To(Equal(c.outcome))
			g.Expect(r.errorType()).To(Equal(c.errorType))
			g.Expect(r.status).To(Equal(c.ending.status))
		})
	}
}
