package harness

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// Reporter adds a report to every expectation that fails. The failure is repeated after the report, which may be so
// long that only its end is shown.
type Reporter struct {
	*testing.T
	Report func() string
}

// Fatalf implements what Gomega needs of a test.
func (r Reporter) Fatalf(format string, args ...any) {
	r.Helper()
	failure := fmt.Sprintf(format, args...)
	r.T.Fatalf("%s\n%s\n%s", failure, r.Report(), failure)
}

// reportedLines is how much of each log is reported.
const reportedLines = 80

// Report shows the objects of the namespace with their managed fields, the Events, the ends of the
// managers' logs and their requests.
func (e *Env) Report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n=== namespace %s\n", e.Namespace)
	for _, list := range append(KindLists(), ChildLists()...) {
		e.reportList(&b, list)
	}
	var events eventsv1.EventList
	if err := e.Suite.API.List(e.Ctx, &events, client.InNamespace(e.Namespace)); err == nil {
		for _, event := range events.Items {
			if e.isInFocus(event.Regarding.Name) {
				fmt.Fprintf(&b, "--- Event %s %s/%s %s %s: %s\n", event.EventTime.Format("15:04:05.000"),
					event.Regarding.Kind, event.Regarding.Name, event.Type, event.Reason, event.Note)
			}
		}
	}
	for i, m := range e.Managers {
		fmt.Fprintf(&b, "--- log of manager %d\n%s\n", i+1, m.Log.Tail(reportedLines))
	}
	if e.Suite.audited {
		e.reportRequests(&b)
	}
	for _, detail := range e.Details {
		b.WriteString(detail())
	}
	return b.String()
}

func (e *Env) reportRequests(b *strings.Builder) {
	requests, err := e.Suite.Cluster.Audit().Since(e.Began)
	if err != nil {
		fmt.Fprintf(b, "--- no requests: %v\n", err)
		return
	}
	requests = requests.In(e.Namespace).Where(func(r cluster.Request) bool {
		return strings.HasPrefix(r.User, ManagerUser) || (r.User == cluster.Admin && r.IsWrite())
	})
	fmt.Fprintf(b, "--- requests of the manager and the test\n%s", requests[max(0, len(requests)-reportedLines):])
}

func (e *Env) reportList(b *strings.Builder, list client.ObjectList) {
	if err := e.Suite.API.List(e.Ctx, list, client.InNamespace(e.Namespace)); err != nil {
		if !meta.IsNoMatchError(err) {
			fmt.Fprintf(b, "--- %T: %v\n", list, err)
		}
		return
	}
	const atMost = 15 // a test may have a thousand
	reported := 0
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok || !e.isInFocus(object.GetName()) || object.GetName() == "kube-root-ca.crt" {
			return nil
		}
		if meta.LenList(list) > atMost && (reported == atMost || IsReady(object)) {
			return nil
		}
		reported++
		text, err := yaml.Marshal(object)
		fmt.Fprintf(b, "--- %T %s (%v)\n%s", object, object.GetName(), err, text)
		return nil
	})
}

func (e *Env) isInFocus(name string) bool {
	return len(e.Focus) == 0 || slices.ContainsFunc(e.Focus, func(focused string) bool { return strings.HasPrefix(name, focused) })
}
