package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/config/crd"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// crds lists the CustomResourceDefinitions. Users who may not read those of the cluster get those of this version.
func (s *Server) crds(w http.ResponseWriter, r *http.Request, c *caller) error {
	items := []any{}
	for _, kind := range plugin.Kinds() {
		live, err := c.api.Resource(crdResource).Get(r.Context(), kind.Resource.Resource+"."+kind.Resource.Group, metav1.GetOptions{})
		if apierrors.IsForbidden(err) {
			return writeBuiltIn(w)
		}
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		live.SetManagedFields(nil)
		items = append(items, live.Object)
	}
	writeJSON(w, http.StatusOK, map[string]any{"items": items})
	return nil
}

// writeBuiltIn answers with the CustomResourceDefinitions of this version.
func writeBuiltIn(w http.ResponseWriter) error {
	files, err := fs.Glob(crd.Bases, "bases/*.yaml")
	if err != nil {
		return err
	}
	items := []any{}
	for _, file := range files {
		raw, err := fs.ReadFile(crd.Bases, file)
		if err != nil {
			return err
		}
		var definition map[string]any
		if err := yaml.Unmarshal(raw, &definition); err != nil {
			return fmt.Errorf("parsing %s: %w", file, err)
		}
		items = append(items, definition)
	}
	writeJSON(w, http.StatusOK, map[string]any{"items": items})
	return nil
}

// cloudState is what the fake cloud holds, as its admin API serializes it.
type cloudState struct {
	Accounts    []any            `json:"accounts"`
	Vaults      []map[string]any `json:"vaults"`
	Assignments []any            `json:"assignments"`
	Operations  []any            `json:"operations"`
}

// ledgerEntry is a write request to the fake cloud.
type ledgerEntry struct {
	Time     time.Time `json:"time"`
	Method   string    `json:"method"`
	Resource string    `json:"resource"`
	Status   int       `json:"status"`
	Who      string    `json:"who"`
	Effect   string    `json:"effect"`
	Code     string    `json:"code"`
	Detail   string    `json:"detail"`
}

// cloud shows the fake cloud.
func (s *Server) cloud(w http.ResponseWriter, r *http.Request, c *caller) error {
	if s.options.FakeCloud == "" {
		return notFound("the cloud of the manager is not the fake one")
	}
	if err := s.confirm(r.Context(), c.user); err != nil {
		return err
	}
	var state cloudState
	if err := s.readCloud(r.Context(), "state", &state); err != nil {
		return err
	}
	var entries []ledgerEntry
	if err := s.readCloud(r.Context(), "ledger", &entries); err != nil {
		return err
	}
	keys := []any{}
	for _, vault := range state.Vaults {
		held, _ := vault["keys"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(held)) {
			if key, ok := held[name].(map[string]any); ok {
				key["vault"], key["name"] = vault["name"], name
				keys = append(keys, key)
			}
		}
	}
	ledger := make([]map[string]any, 0, len(entries))
	for _, e := range slices.Backward(entries) {
		ledger = append(ledger, map[string]any{
			"time": e.Time, "method": e.Method, "path": e.Resource, "status": e.Status, "by": e.Who, "effect": e.Effect, "code": e.Code, "detail": e.Detail,
		})
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"accounts": listOf(state.Accounts), "vaults": listOf(state.Vaults), "keys": keys, "grants": listOf(state.Assignments),
		"operations": listOf(state.Operations), "ledger": ledger,
	})
	return nil
}

// listOf is never null in JSON.
func listOf[T any](list []T) []T { return append([]T{}, list...) }

func (s *Server) readCloud(ctx context.Context, what string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(s.options.FakeCloud, "/")+"/_admin/"+what, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("reading the fake cloud: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("reading the fake cloud: it answers with status %d", response.StatusCode)
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the fake cloud: %w", err)
	}
	return nil
}
