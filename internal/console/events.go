package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

// eventRow is an Event about an object.
type eventRow struct {
	Type      string      `json:"type"`
	Reason    string      `json:"reason"`
	Message   string      `json:"message"`
	Kind      string      `json:"kind"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Count     int32       `json:"count"`
	First     metav1.Time `json:"first"`
	Last      metav1.Time `json:"last"`
	Component string      `json:"component"`
}

// defaultEvents is how many Events are returned by default.
const defaultEvents = 100

// events lists the latest Events about objects of Fixpoint, or about those that the request names.
func (s *Server) events(w http.ResponseWriter, r *http.Request, c *caller) error {
	query, limit := r.URL.Query(), min(defaultEvents, s.options.EventsLimit)
	if text := query.Get("limit"); text != "" {
		asked, err := strconv.Atoi(text)
		if err != nil || asked < 1 {
			return badRequest("limit is %q: set a positive number", text)
		}
		limit = min(asked, s.options.EventsLimit)
	}
	kinds := []string{kindNamed(query.Get("kind"))}
	if kinds[0] == "" {
		kinds = nil
		for _, kind := range plugin.Kinds() {
			kinds = append(kinds, kind.Name)
		}
	}
	rows := []eventRow{}
	for _, kind := range kinds {
		selector := fields.Set{"regarding.kind": kind}
		if name := query.Get("name"); name != "" {
			selector["regarding.name"] = name
		}
		found, err := c.listEvents(r.Context(), query.Get("namespace"), selector)
		if err != nil {
			return err
		}
		rows = append(rows, found...)
	}
	slices.SortStableFunc(rows, func(a, b eventRow) int { return cmp.Or(b.Last.Compare(a.Last.Time), b.First.Compare(a.First.Time)) })
	writeJSON(w, http.StatusOK, map[string]any{"items": rows[:min(len(rows), limit)]})
	return nil
}

func (u *user) listEvents(ctx context.Context, namespace string, selector fields.Set) ([]eventRow, error) {
	const page = 500
	options := metav1.ListOptions{FieldSelector: selector.String(), Limit: page}
	var rows []eventRow
	for {
		list, err := u.api.Resource(eventsv1.SchemeGroupVersion.WithResource("events")).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			var event eventsv1.Event
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &event); err != nil {
				return nil, err
			}
			rows = append(rows, rowOfEvent(&event))
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return rows, nil
		}
	}
}

// rowOfEvent reads what both versions of the API of Events record.
func rowOfEvent(e *eventsv1.Event) eventRow {
	row := eventRow{
		Type: e.Type, Reason: e.Reason, Message: e.Note, Kind: e.Regarding.Kind, Namespace: e.Regarding.Namespace, Name: e.Regarding.Name,
		Count: max(1, e.DeprecatedCount), First: e.DeprecatedFirstTimestamp, Last: e.DeprecatedLastTimestamp,
		Component: cmp.Or(e.ReportingController, e.DeprecatedSource.Component),
	}
	if row.First.IsZero() {
		row.First = metav1.NewTime(e.EventTime.Time)
	}
	if e.Series != nil {
		row.Count, row.Last = e.Series.Count, metav1.NewTime(e.Series.LastObservedTime.Time)
	}
	if row.Last.IsZero() {
		row.Last = row.First
	}
	if row.First.IsZero() {
		row.First, row.Last = e.CreationTimestamp, e.CreationTimestamp
	}
	return row
}
