package mcpserver

import (
	"testing"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/conditionstest"
)

func TestConditionsContract(t *testing.T) {
	conditionstest.Contract{
		Own:      []string{"apis/v1beta1/mcpserver_conditions.go"},
		Packages: []string{"controllers/mcpserver", "internal/references", "internal/workload"},
		Phases:   conditionstest.Names(Phases()),
		Page:     "docs/mcpserver.md",
		Fields: map[string]any{
			"":        v1beta1.MCPServerSpec{},
			"status.": v1beta1.MCPServerStatus{},
		},
	}.Run(t)
}
