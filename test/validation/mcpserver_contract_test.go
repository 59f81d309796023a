package validation

import (
	"fmt"
	"strings"
)

// The limits of the contract of a server. The controller keeps the status within them.
func init() {
	limitOf("contract.policy", "enum", "Other", `Unsupported value: "Other": supported values: "Observe", "Pin", "Disabled"`)
	mcpServerLimits["spec.contract.digest maxLength"] = limitRefusal{
		spec: mcpServer(fmt.Sprintf(`contract: {policy: Pin, digest: %s}`, strings.Repeat("a", 33))),
		says: `spec.contract.digest: Too long: may not be more than 32 bytes`}
	mcpServerLimits["status.pendingContract.digest required"] = limitRefusal{
		status: `pendingContract: {}`, says: `status.pendingContract.digest: Required value`}
	mcpServerLimits["status.pendingContract.digest maxLength"] = limitRefusal{
		status: fmt.Sprintf(`pendingContract: {digest: %s}`, strings.Repeat("a", 65)), says: `status.pendingContract.digest: Too long: may not be more than 64 bytes`}
	mcpServerLimits["status.pendingContract.change.time required"] = limitRefusal{
		status: `pendingContract: {digest: a, change: {}}`, says: `status.pendingContract.change.time: Required value`}

	const change = `time: "2026-01-02T00:00:00Z"`
	for name, limit := range map[string]struct{ contract, says string }{
		"digest required":          {`{}`, `digest: Required value`},
		"digest maxLength":         {fmt.Sprintf(`{digest: %s}`, strings.Repeat("a", 65)), `digest: Too long: may not be more than 64 bytes`},
		"items maxItems":           {fmt.Sprintf(`{digest: a, items: [%s]}`, repeated(257, `{kind: tool, name: a%d, digest: b}`)), `items: Too many: 257: must have at most 256 items`},
		"items[].kind required":    {`{digest: a, items: [{name: a, digest: b}]}`, `items[0].kind: Required value`},
		"items[].kind enum":        {`{digest: a, items: [{kind: Other, name: a, digest: b}]}`, `items[0].kind: Unsupported value: "Other": supported values: "tool", "prompt", "resourceTemplate"`},
		"items[].name required":    {`{digest: a, items: [{kind: tool, digest: b}]}`, `items[0].name: Required value`},
		"items[].name maxLength":   {fmt.Sprintf(`{digest: a, items: [{kind: tool, digest: b, name: %s}]}`, strings.Repeat("a", 129)), `items[0].name: Too long: may not be more than 128 bytes`},
		"items[].digest required":  {`{digest: a, items: [{kind: tool, name: a}]}`, `items[0].digest: Required value`},
		"items[].digest maxLength": {fmt.Sprintf(`{digest: a, items: [{kind: tool, name: a, digest: %s}]}`, strings.Repeat("a", 33)), `items[0].digest: Too long: may not be more than 32 bytes`},
		"lastChange.time required": {`{digest: a, lastChange: {}}`, `lastChange.time: Required value`},
	} {
		mcpServerLimits["status.contract."+name] = limitRefusal{status: "contract: " + limit.contract, says: "status.contract." + limit.says}
	}
	for _, list := range []string{"added", "removed", "schemaChanged", "descriptionChanged"} {
		for contract, changed := range map[string]string{"contract": "lastChange", "pendingContract": "change"} {
			path := "status." + contract + "." + changed + "." + list
			mcpServerLimits[path+" maxItems"] = limitRefusal{
				status: fmt.Sprintf(`%s: {digest: a, %s: {%s, %s: [%s]}}`, contract, changed, change, list, repeated(33, "tool/a%d")),
				says:   path + `: Too many: 33: must have at most 32 items`}
			mcpServerLimits[path+"[] maxLength"] = limitRefusal{
				status: fmt.Sprintf(`%s: {digest: a, %s: {%s, %s: [%s]}}`, contract, changed, change, list, strings.Repeat("a", 161)),
				says:   path + `[0]: Too long: may not be more than 160 bytes`}
		}
	}
}
