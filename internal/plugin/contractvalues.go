package plugin

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/contracts"
)

// ContractItem is a tool, a prompt or a resource template.
type ContractItem struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Digest string `json:"digest,omitempty"`
	// Lines are the definition as YAML; none if it is not stored.
	Lines []string `json:"lines,omitempty"`
}

// ContractValues are what contract shows of an MCPServer.
type ContractValues struct {
	// Digest is that of the current contract; empty without one.
	Digest string         `json:"digest,omitempty"`
	Items  []ContractItem `json:"items"`
	// Omitted is the number of items that Items does not contain.
	Omitted    int32                            `json:"omitted,omitempty"`
	LastChange *v1beta1.MCPServerContractChange `json:"lastChange,omitempty"`
	// Pending is the digest of the contract that waits for approval, Changes how it differs, and Approve the command
	// that approves it.
	Pending string   `json:"pending,omitempty"`
	Changes []string `json:"changes,omitempty"`
	Approve string   `json:"approve,omitempty"`
	// From and To are the digests of the contracts that Diff compares; empty if there is only one.
	From string               `json:"from,omitempty"`
	To   string               `json:"to,omitempty"`
	Diff []contracts.ItemDiff `json:"diff,omitempty"`
	// Note says why something is missing.
	Note string `json:"note,omitempty"`
}

// Contract reads the contract of an MCPServer. Without permission to read the ConfigMap, it has no definitions.
func (c *Client) Contract(ctx context.Context, resource, namespace, name string) (*ContractValues, error) {
	_, o, err := c.get(ctx, resource, namespace, name)
	if err != nil {
		return nil, err
	}
	server, ok := o.Object.(*v1beta1.MCPServer)
	if !ok {
		return nil, apierrors.NewNotFound(v1beta1.SchemeGroupVersion.WithResource(resource).GroupResource(), name)
	}
	values := contractValues(server)
	stored, err := storedContracts(ctx, c.clients, server)
	switch {
	case err == nil:
		values.add(stored)
	case server.Status.Contract != nil || server.Status.PendingContract != nil:
		values.Note = "Schemas and descriptions are not shown: " + err.Error()
	}
	return values, nil
}

// contractValues are those of the status.
func contractValues(server *v1beta1.MCPServer) *ContractValues {
	values := &ContractValues{Items: []ContractItem{}}
	if contract := server.Status.Contract; contract != nil {
		values.Digest, values.Omitted, values.LastChange = contract.Digest, contract.Omitted, contract.LastChange
		for _, item := range contract.Items {
			values.Items = append(values.Items, ContractItem{Kind: string(item.Kind), Name: item.Name, Digest: item.Digest})
		}
	} else {
		values.Note = "There is no contract: " + whyNoContract(server) + "."
	}
	if pending := server.Status.PendingContract; pending != nil {
		values.Pending = pending.Digest
		values.Approve = approveCommand(server, pending.Digest)
		if pending.Change != nil {
			values.Changes = changeLines(pending.Change)
		}
		if server.Spec.Contract != nil && server.Spec.Contract.Digest != "" {
			values.Approve = "set spec.contract.digest to " + pending.Digest
		}
	}
	return values
}

// add adds the definitions, and how contracts differ. What is stored may be older than the status.
func (v *ContractValues) add(stored contracts.Stored) {
	if current := stored.Current; current != nil && current.Digest == v.Digest {
		next := 0
		for i := range v.Items {
			// Both are in the same order, and the items that are not stored are the last ones, or too long.
			if next < len(current.Items) && string(current.Items[next].Kind) == v.Items[i].Kind && current.Items[next].Name == v.Items[i].Name {
				v.Items[i].Lines = contracts.Lines(current.Items[next].Definition)
				next++
			}
		}
		if !current.Verified {
			v.Note = "The ConfigMap does not have all items with the digest of the contract."
		}
	}
	if from, to := stored.Change(); from != nil && to != nil {
		v.From, v.To, v.Diff = from.Digest, to.Digest, contracts.Diff(from.ContractText, to.ContractText)
		if !from.Verified || !to.Verified {
			v.Note = "The ConfigMap does not have all items of the contracts that are compared: others may differ, too."
		}
	}
}
