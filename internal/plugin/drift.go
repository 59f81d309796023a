package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func newDrift(o *options) *cobra.Command {
	var follow bool
	var since time.Duration
	command := &cobra.Command{
		Use:   "drift [KIND[/NAME]] [--since 1h] [-w]",
		Short: "Show who changed what outside of Fixpoint, when, and whether it was reverted.",
		Long: "Show who changed what outside of Fixpoint, when, and whether it was reverted. The last 10 drifts of an object are in its status; " +
			"those that were reverted in Azure are Events, which a cluster keeps for an hour by default.",
		Example:           "  kubectl fixpoint drift -A --since 24h\n  kubectl fixpoint drift appservice/web -w",
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: o.completeObjects,
		RunE: func(command *cobra.Command, args []string) error {
			t, c, err := o.start(args)
			if err != nil {
				return err
			}
			if since < 0 {
				return fmt.Errorf("--since is %s: set a positive duration, such as 1h", since)
			}
			if follow {
				return o.followDrifts(command.Context(), c, t, since)
			}
			return o.show(command.Context(), func(ctx context.Context) (string, error) {
				rows, note, err := o.drifts(ctx, c, t, since)
				if err != nil {
					return "", err
				}
				return o.formatList(rows, note, func() string { return driftText(rows, o.now(), since) })
			})
		},
	}
	command.Flags().BoolVarP(&follow, "watch", "w", false, "Show drifts as they happen.")
	command.Flags().DurationVar(&since, "since", 0, "Show drifts that are not older, such as 1h. By default, all that are recorded.")
	o.addAllNamespaces(command)
	o.addOutput(command)
	return command
}

// driftRow is one drift with the object that it is about.
type driftRow struct {
	Namespace string `json:"namespace"`
	Object    string `json:"object"`
	v1beta1.Drift
	// Note is what an Event says about a drift in the cloud, which has no fields.
	Note string `json:"note,omitempty"`
}

// key tells drifts apart.
func (r driftRow) key() string {
	return fmt.Sprint(r.Namespace, r.Object, r.Time.Unix(), r.Kind, r.Name, r.Field, r.Manager, r.Desired, r.Found, r.Action, r.Note)
}

func (o *options) drifts(ctx context.Context, c *clients, t target, since time.Duration) (rows []driftRow, note string, err error) {
	objects, notes, err := c.objects(ctx, t)
	if err != nil {
		return nil, "", err
	}
	rows, more, err := c.driftsOf(ctx, objects, t)
	if err != nil {
		return nil, "", err
	}
	rows = slices.DeleteFunc(rows, o.isOlder(since))
	return rows, notesText(slices.Concat(notes, more)), nil
}

// isOlder says whether a drift is older than a duration; 0 is any.
func (o *options) isOlder(since time.Duration) func(driftRow) bool {
	oldest := time.Time{}
	if since > 0 {
		oldest = o.now().Add(-since)
	}
	return func(r driftRow) bool { return r.Time.Time.Before(oldest) }
}

// driftsOf are the drifts of the objects that the target names, the latest first.
func (c *clients) driftsOf(ctx context.Context, objects []object, t target) (rows []driftRow, notes []string, err error) {
	rows = driftRows(objects)
	if t.includesCloud() {
		events, err := c.events(ctx, client.InNamespace(c.namespace), t.driftEvents())
		switch {
		case apierrors.IsForbidden(err):
			notes = append(notes, "drifts of SecureStorages, because you may not list Events")
		case err != nil:
			return nil, nil, err
		}
		rows = append(rows, eventRows(events)...)
	}
	slices.SortStableFunc(rows, func(a, b driftRow) int { return b.Time.Compare(a.Time.Time) })
	return rows, notes, nil
}

func driftRows(objects []object) []driftRow {
	rows := []driftRow{}
	for _, o := range objects {
		for _, drift := range o.drifts {
			rows = append(rows, driftRow{Namespace: o.GetNamespace(), Object: strings.ToLower(o.kind.name) + "/" + o.GetName(), Drift: drift})
		}
	}
	return rows
}

// driftCorrected is the reason of the Events about reverted drifts.
const driftCorrected = "DriftCorrected"

// includesCloud is true if the target includes SecureStorages, whose drifts only Events record.
func (t target) includesCloud() bool {
	return slices.ContainsFunc(t.kinds, func(k *kind) bool { return k.name == "SecureStorage" })
}

// driftEvents selects the Events about drifts in the cloud, which no status records.
func (t target) driftEvents() client.MatchingFields {
	fields := client.MatchingFields{"regarding.kind": "SecureStorage", "reason": driftCorrected}
	if t.name != "" {
		fields["regarding.name"] = t.name
	}
	return fields
}

func eventRows(events []eventsv1.Event) []driftRow {
	rows := make([]driftRow, 0, len(events))
	for _, event := range events {
		row := driftRow{Namespace: event.Namespace, Object: strings.ToLower(event.Regarding.Kind) + "/" + event.Regarding.Name, Note: event.Note}
		row.Time, row.Action = metav1.NewTime(eventTime(event)), v1beta1.DriftCorrected
		rows = append(rows, row)
	}
	return rows
}

func driftText(rows []driftRow, now time.Time, since time.Duration) string {
	if len(rows) == 0 {
		if since > 0 {
			return "No drift in the last " + since.String() + ".\n"
		}
		return "No drift is recorded.\n"
	}
	lines := make([][]string, 0, len(rows))
	for _, row := range rows {
		lines = append(lines, []string{ago(now, &row.Time), row.Namespace, row.Object, strings.ToLower(string(row.Action)), driftCell(row)})
	}
	return table([]string{"AGE", "NAMESPACE", "OBJECT", "ACTION", "DRIFT"}, lines)
}

func driftCell(row driftRow) string {
	if row.Note != "" {
		return row.Note
	}
	text := driftSentence(row.Drift)
	return strings.TrimSuffix(text, "; "+strings.ToLower(string(row.Action)))
}

// driftSentence says who changed what, and what happened to it.
func driftSentence(d v1beta1.Drift) string {
	who := cmp.Or(d.Manager, "an unknown field manager")
	child := d.Kind + "/" + d.Name
	var text string
	switch {
	case d.Field == "":
		text = child + " was deleted"
	case d.Found == "":
		text = fmt.Sprintf("%s removed %s of %s (was %s)", who, d.Field, child, d.Desired)
	default:
		text = fmt.Sprintf("%s changed %s of %s from %s to %s", who, d.Field, child, d.Desired, d.Found)
	}
	return text + "; " + strings.ToLower(string(d.Action))
}

// followDrifts prints one line or document for each drift, old ones first. A watch begins with the objects that exist, so
// what they have is remembered. The times are no help: the clock of this machine may differ from that of the manager.
func (o *options) followDrifts(ctx context.Context, c *clients, t target, since time.Duration) error {
	rows, note, err := o.drifts(ctx, c, t, 0)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	show := func(rows []driftRow, isHidden func(driftRow) bool) error {
		for _, row := range slices.Backward(rows) {
			if !known[row.key()] && !isHidden(row) {
				text, err := o.formatOne(row, func() string { return driftLine(row) })
				if err != nil {
					return err
				}
				fmt.Fprint(o.Out, text)
			}
			known[row.key()] = true
		}
		return nil
	}
	if err := show(rows, o.isOlder(since)); err != nil {
		return err
	}
	fmt.Fprint(o.ErrOut, note)
	found := make(chan []driftRow)
	send := func(rows []driftRow) {
		select {
		case found <- rows:
		case <-ctx.Done():
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return o.watchKinds(ctx, c, t, func(live object) { send(driftRows([]object{live})) })
	})
	if t.includesCloud() {
		group.Go(func() error { return o.watchDriftEvents(ctx, c, t, send) })
	}
	group.Go(func() error {
		for {
			select {
			case rows := <-found:
				if err := show(rows, func(driftRow) bool { return false }); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
	return group.Wait()
}

// watchDriftEvents watches the Events about drifts in the cloud, if the user may.
func (o *options) watchDriftEvents(ctx context.Context, c *clients, t target, found func([]driftRow)) error {
	err := c.watch(ctx, &eventsv1.EventList{}, func(_ watch.EventType, live client.Object) {
		if event, ok := live.(*eventsv1.Event); ok {
			found(eventRows([]eventsv1.Event{*event}))
		}
	}, t.driftEvents())
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(o.ErrOut, "Not followed: %v\n", err)
		return nil
	}
	return err
}

func driftLine(row driftRow) string {
	return fmt.Sprintf("%s %s %s %s: %s\n", row.Time.UTC().Format(time.RFC3339), row.Namespace, row.Object,
		strings.ToLower(string(row.Action)), printable(driftCell(row)))
}
