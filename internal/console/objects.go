package console

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

// named is the object that a path names.
type named struct{ resource, namespace, name string }

func namedBy(r *http.Request) named {
	return named{r.PathValue("resource"), r.PathValue("namespace"), r.PathValue("name")}
}

func (s *Server) details(w http.ResponseWriter, r *http.Request, c *caller) error {
	n := namedBy(r)
	details, err := c.values.Details(r.Context(), n.resource, n.namespace, n.name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, details)
	return nil
}

func (s *Server) blame(w http.ResponseWriter, r *http.Request, c *caller) error {
	n := namedBy(r)
	lines, err := c.values.Blame(r.Context(), n.resource, n.namespace, n.name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"lines": lines})
	return nil
}

// contract is what an MCPServer offers.
func (s *Server) contract(w http.ResponseWriter, r *http.Request, c *caller) error {
	n := namedBy(r)
	contract, err := c.values.Contract(r.Context(), n.resource, n.namespace, n.name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, contract)
	return nil
}

// act suspends, resumes or reconciles an object.
func (s *Server) act(w http.ResponseWriter, r *http.Request, c *caller) error {
	n, verb := namedBy(r), r.PathValue("verb")
	var body struct{ Reason string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil && !errors.Is(err, io.EOF) {
		return badRequest("the body is not JSON: leave it out, or set reason")
	}
	var live *unstructured.Unstructured
	var err error
	switch verb {
	case "suspend", "resume":
		live, err = c.values.Suspend(r.Context(), n.resource, n.namespace, n.name, verb == "suspend", body.Reason)
	case "reconcile":
		live, err = c.values.Reconcile(r.Context(), n.resource, n.namespace, n.name, body.Reason)
	default:
		return notFound("%q is not what can be done: use one of suspend, resume, reconcile", verb)
	}
	if err != nil {
		return err
	}
	return writeObject(w, http.StatusOK, live)
}

func writeObject(w http.ResponseWriter, code int, live *unstructured.Unstructured) error {
	live.SetManagedFields(nil)
	writeJSON(w, code, live.Object)
	return nil
}

// isDryRun reads the parameter dryRun.
func isDryRun(r *http.Request) (bool, error) {
	switch value := r.URL.Query().Get("dryRun"); value {
	case "":
		return false, nil
	case metav1.DryRunAll:
		return true, nil
	default:
		return false, badRequest("dryRun is %q: set All, or leave it out", value)
	}
}

// document is the object in the body, YAML or JSON, which has to be the one that the path names.
func (n named) document(r *http.Request) (*unstructured.Unstructured, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	document, err := plugin.ParseDocument(raw)
	if err != nil {
		return nil, badRequest("the body is neither YAML nor JSON of an object: %s", err)
	}
	kind := slices.IndexFunc(plugin.Kinds(), func(k plugin.Kind) bool { return k.Resource.Resource == n.resource })
	switch {
	case kind < 0:
		return nil, notFound("the console has no resource %s", n.resource)
	case document.GetKind() != plugin.Kinds()[kind].Name:
		return nil, badRequest("kind is %q: set %s", document.GetKind(), plugin.Kinds()[kind].Name)
	case document.GetAPIVersion() != plugin.Kinds()[kind].Resource.GroupVersion().String():
		return nil, badRequest("apiVersion is %q: set %s", document.GetAPIVersion(), plugin.Kinds()[kind].Resource.GroupVersion())
	case document.GetName() != n.name:
		return nil, badRequest("metadata.name is %q: it cannot be changed from %s", document.GetName(), n.name)
	case document.GetNamespace() != "" && document.GetNamespace() != n.namespace:
		return nil, badRequest("metadata.namespace is %q: it cannot be changed from %s", document.GetNamespace(), n.namespace)
	}
	document.SetNamespace(n.namespace)
	return document, nil
}

// edit applies the spec of the body.
func (s *Server) edit(w http.ResponseWriter, r *http.Request, c *caller) error {
	dryRun, err := isDryRun(r)
	if err != nil {
		return err
	}
	n := namedBy(r)
	document, err := n.document(r)
	if err != nil {
		return err
	}
	live, err := c.values.Edit(r.Context(), n.resource, document, dryRun)
	if err != nil {
		return err
	}
	return writeObject(w, http.StatusOK, live)
}

func (s *Server) plan(w http.ResponseWriter, r *http.Request, c *caller) error {
	n := namedBy(r)
	var edited *unstructured.Unstructured
	if r.Method == http.MethodPost {
		document, err := n.document(r)
		if err != nil {
			return err
		}
		if edited, err = c.values.Edit(r.Context(), n.resource, document, true); err != nil {
			return err
		}
	}
	plan, err := c.values.Plan(r.Context(), n.resource, n.namespace, n.name, edited)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, plan)
	return nil
}

// remove deletes an object, or says what would be deleted with it. The parameters uid and generation are those of the object
// that was read.
func (s *Server) remove(w http.ResponseWriter, r *http.Request, c *caller) error {
	dryRun, err := isDryRun(r)
	if err != nil {
		return err
	}
	n, query := namedBy(r), r.URL.Query()
	shown := metav1.ObjectMeta{Namespace: n.namespace, Name: n.name, UID: types.UID(query.Get("uid"))}
	if text := query.Get("generation"); text != "" {
		if shown.Generation, err = strconv.ParseInt(text, 10, 64); err != nil || shown.Generation <= 0 {
			return badRequest("generation is %q: set that of the object that you read, such as 1", text)
		}
	}
	goes, err := c.values.Delete(r.Context(), n.resource, shown, dryRun)
	if err != nil {
		return err
	}
	code := http.StatusAccepted
	if dryRun {
		code = http.StatusOK
	}
	writeJSON(w, code, map[string]any{"goes": goes})
	return nil
}

const defaultSince = 7 * 24 * time.Hour

// drifts lists the drifts of all kinds.
func (s *Server) drifts(w http.ResponseWriter, r *http.Request, c *caller) error {
	query, since := r.URL.Query(), defaultSince
	if text := query.Get("since"); text != "" {
		var err error
		if since, err = time.ParseDuration(text); err != nil || since <= 0 {
			return badRequest("since is %q: set a positive duration, such as 168h", text)
		}
	}
	all, failures := []plugin.Drift{}, []failure{}
	for _, kind := range plugin.Kinds() {
		drifts, note, err := c.values.Drifts(r.Context(), kind.Resource.Resource, query.Get("namespace"), since)
		switch status := statusOf(err); {
		case err != nil && status.Code == http.StatusUnauthorized:
			return err
		case err != nil:
			failures = append(failures, failure{kind.Name, status.Message})
		case note != "":
			failures = append(failures, failure{kind.Name, note})
		}
		all = append(all, drifts...)
	}
	slices.SortStableFunc(all, func(a, b plugin.Drift) int { return b.Time.Compare(a.Time.Time) })
	writeJSON(w, http.StatusOK, map[string]any{"items": all, "errors": failures})
	return nil
}

// kindNamed is the name of a kind as users write it: AppService, appservice or appservices.
func kindNamed(text string) string {
	for _, kind := range plugin.Kinds() {
		if strings.EqualFold(text, kind.Name) || strings.EqualFold(text, kind.Resource.Resource) {
			return kind.Name
		}
	}
	return text
}
