package mcpserver

import (
	"testing"

	"github.com/fixpoint-dev/fixpoint/apis/v1alpha1"
	"github.com/fixpoint-dev/fixpoint/internal/conditionstest"
)

func TestConditionsContract(t *testing.T) {
	conditionstest.Contract{
		Own:      "apis/v1alpha1/mcpserver_conditions.go",
		Packages: []string{"controllers/mcpserver", "internal/workload"},
		Phases:   conditionstest.Names(Phases()),
		Page:     "docs/mcpserver.md",
		Fields: map[string]any{
			"":        v1alpha1.MCPServerSpec{},
			"status.": v1alpha1.MCPServerStatus{},
		},
	}.Run(t)
}
