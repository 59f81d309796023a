package v1beta1

// ContractSuffix follows the name of an MCPServer in the name of the ConfigMap
// with its contracts in full.
const ContractSuffix = "-contract"

// The keys of the ConfigMap with contracts are one of these, followed by the
// digest of the contract. The values are JSON: see docs/mcpserver.md.
const (
	// ContractKeyCurrent is the contract of status.contract.
	ContractKeyCurrent = "current."
	// ContractKeyPrevious is the one before it.
	ContractKeyPrevious = "previous."
	// ContractKeyPending is that of status.pendingContract.
	ContractKeyPending = "pending."
)
