package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

var (
	errNotReady     = errors.New("not all resources became Ready in time")
	errManagerEnded = errors.New("the manager exited")
)

// refreshInterval is how often the table is refreshed.
const refreshInterval = 250 * time.Millisecond

// show refreshes the table until ctx is done. With -until-ready it returns once all
// resources are Ready, or prints the whole table and returns errNotReady after the timeout.
func show(ctx context.Context, c *cluster.Cluster, m *manager, o options, say *display, console string) error {
	defer say.keep()
	resources, err := newLister(c.Admin())
	if err != nil {
		return err
	}
	var timeout <-chan time.Time
	if o.untilReady {
		timeout = time.After(o.timeout)
	}
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for hinted := false; ; {
		rows, objects, err := resources.list(ctx)
		if err != nil {
			return err
		}
		say.table(rows, time.Now())
		if allReady(rows) && o.untilReady {
			return nil
		}
		if allReady(rows) && !hinted {
			hinted = true
			if err := hint(c, m, objects, say, console); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout:
			say.whole(rows, time.Now())
			return errNotReady
		case <-m.process.Ended():
			return m.process.Failure(errManagerEnded)
		case <-c.Ended(cluster.APIServer):
			return errors.New("the API server exited")
		case <-ticker.C:
		}
	}
}

// hint prints commands to try on the running cluster.
func hint(c *cluster.Cluster, m *manager, objects []unstructured.Unstructured, say *display, console string) error {
	kubeconfig, err := c.Kubeconfig(cluster.Admin, cluster.Masters)
	if err != nil {
		return err
	}
	say.keep()
	say.line(hints(c.Kubectl(), kubeconfig, m.log, console, suggested(objects)))
	return nil
}

// suggested returns an AppService for the commands to try. It prefers one that sets
// spec.replicas: with an autoscaler, scaling the Deployment by hand is no drift.
func suggested(objects []unstructured.Unstructured) *unstructured.Unstructured {
	var found *unstructured.Unstructured
	for i, object := range objects {
		if object.GetKind() != "AppService" {
			continue
		}
		if _, isSet, _ := unstructured.NestedInt64(object.Object, "spec", "replicas"); isSet {
			return &objects[i]
		}
		if found == nil {
			found = &objects[i]
		}
	}
	return found
}

func hints(kubectl, kubeconfig, log, console string, app *unstructured.Unstructured) string {
	text := fmt.Sprintf(`
All resources are Ready. In another terminal:

  export KUBECONFIG=%s
  alias kubectl=%s
`, kubeconfig, kubectl)
	if app != nil {
		text += examples(app.GetNamespace(), app.GetName())
	}
	return text + fmt.Sprintf(`
The console, for the first browser that opens the URL:

  %s

Manager log: %s
Ctrl-C stops and removes everything.
`, console, log)
}

func examples(namespace, name string) string {
	return fmt.Sprintf(`
Change or delete a child; the manager reverts it:

  1. kubectl -n %[1]s scale deployment %[2]s --replicas=7
  2. kubectl -n %[1]s set image deployment %[2]s '*=example.com/other:1'
  3. kubectl -n %[1]s delete service %[2]s

See who changed what:

  kubectl -n %[1]s events --for appservice/%[2]s
  kubectl -n %[1]s get appservice %[2]s -o yaml | grep -A 100 drifts:
`, namespace, name)
}
