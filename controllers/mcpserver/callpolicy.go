package mcpserver

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

// hasPolicy reports whether what clients may send is limited, or which tools they can use.
func hasPolicy(server *v1beta1.MCPServer) bool { return len(policyArguments(server)) > 0 }

// policyArguments are the arguments of the proxy and the bridge for spec.limits and the tools of spec.contract.
func policyArguments(server *v1beta1.MCPServer) []string {
	var arguments []string
	number := func(flag string, value int32) {
		if value > 0 {
			arguments = append(arguments, flag, strconv.Itoa(int(value)))
		}
	}
	if limits := server.Spec.Limits; limits != nil {
		number("--requests-per-minute", limits.RequestsPerMinute)
		for _, tool := range slices.Sorted(maps.Keys(limits.CallsPerMinute)) {
			arguments = append(arguments, "--calls-per-minute", tool+" "+strconv.Itoa(int(limits.CallsPerMinute[tool])))
		}
		number("--max-concurrent-calls", limits.MaxConcurrentCalls)
		number("--max-body-bytes", limits.MaxBodyBytes)
		if limits.CallTimeoutSeconds > 0 {
			arguments = append(arguments, "--call-timeout", (time.Duration(limits.CallTimeoutSeconds) * time.Second).String())
		}
	}
	if contract := server.Spec.Contract; contract != nil {
		names := func(flag string, tools []string) {
			if len(tools) > 0 {
				arguments = append(arguments, flag, strings.Join(slices.Sorted(slices.Values(tools)), ","))
			}
		}
		names("--allow-tool", contract.Allow)
		names("--deny-tool", contract.Deny)
	}
	return arguments
}
