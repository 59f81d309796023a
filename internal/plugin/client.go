package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

// clients are all access that commands have to the API server.
type clients struct {
	client.WithWatch
	config *rest.Config
	// namespace that the command is about; empty is all.
	namespace string
}

// pageSize is how many objects one request lists.
const pageSize = 500

// connect builds the clients from the flags. It sends no request.
func (o *options) connect() (*clients, error) {
	config, err := o.restConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "kubectl-fixpoint"
	c, err := newClients(config)
	if err != nil {
		return nil, err
	}
	if !o.allNamespaces {
		if c.namespace, _, err = o.kubeconfig.Namespace(); err != nil {
			return nil, fmt.Errorf("reading the namespace from the kubeconfig: %w", err)
		}
	}
	return c, nil
}

// newClients builds the clients for all namespaces. It sends no request.
func newClients(config *rest.Config) (*clients, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // API Priority and Fairness limits requests on the server
	config.WarningHandler = rest.NoWarnings{}
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	return &clients{WithWatch: api, config: config}, nil
}

// get reads one object of Fixpoint.
func (c *clients) get(ctx context.Context, k *kind, name string) (object, error) {
	if c.namespace == "" {
		return object{}, fmt.Errorf("%s %s needs a namespace: replace --all-namespaces by --namespace", k.name, name)
	}
	live := k.empty()
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, live); err != nil {
		return object{}, explain(fmt.Errorf("reading %s %s/%s: %w", k.name, c.namespace, name, err))
	}
	return k.object(live), nil
}

// explain adds what helps to errors that everybody meets first.
func explain(err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%w: install the CustomResourceDefinitions of Fixpoint, or select another cluster with --context", err)
	}
	return err
}

// objects lists the objects that the target names, sorted. It returns as notes which of several kinds the user may not
// list, and fails if no kind can be listed.
func (c *clients) objects(ctx context.Context, t target) (objects []object, notes []string, err error) {
	if t.name != "" {
		one, err := c.get(ctx, t.kinds[0], t.name)
		return []object{one}, nil, err
	}
	found, failed := make([][]object, len(t.kinds)), make([]error, len(t.kinds))
	group, ctx := errgroup.WithContext(ctx)
	for i, k := range t.kinds {
		group.Go(func() error {
			err := c.listEach(ctx, k.list(), func(live client.Object) {
				found[i] = append(found[i], k.object(live))
			}, client.InNamespace(c.namespace))
			if apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
				failed[i] = err
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	if !slices.Contains(failed, nil) {
		return nil, nil, failed[0]
	}
	for i, err := range failed {
		if apierrors.IsForbidden(err) {
			notes = append(notes, mayNotList(t.kinds[i].name, c.namespace))
		}
	}
	return slices.Concat(found...), notes, nil
}

// mayNotList is the note about objects of a kind that the user may not list.
func mayNotList(kind, namespace string) string {
	where := "in namespace " + namespace
	if namespace == "" {
		where = "in all namespaces"
	}
	return "you may not list " + kind + " objects " + where
}

// listEach lists page by page. The pages share the list, and the objects keep what they point to.
func (c *clients) listEach(ctx context.Context, list client.ObjectList, each func(client.Object), options ...client.ListOption) error {
	return listPages(ctx, c, list, each, options...)
}

func listPages(ctx context.Context, reader client.Reader, list client.ObjectList, each func(client.Object), options ...client.ListOption) error {
	for next := ""; ; {
		page, ok := list.DeepCopyObject().(client.ObjectList)
		if !ok {
			return fmt.Errorf("%T is not a list", list)
		}
		if err := reader.List(ctx, page, append(slices.Clone(options), client.Limit(pageSize), client.Continue(next))...); err != nil {
			return explain(fmt.Errorf("listing %s: %w", strings.TrimSuffix(kindName(list), "List"), err))
		}
		err := meta.EachListItem(page, func(item runtime.Object) error {
			if live, ok := item.(client.Object); ok {
				each(live)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// children lists what the object controls, kind by kind in the order of the phases. It returns as notes what the
// user may not read.
func (c *clients) children(ctx context.Context, o object) (children []client.Object, notes []string, err error) {
	for _, list := range o.childLists() {
		some, note, err := c.controlled(ctx, o, list, o.GetNamespace(), childLabels(o))
		if err != nil {
			return nil, nil, err
		}
		children = append(children, some...)
		if note != "" {
			notes = append(notes, note)
		}
	}
	return children, notes, nil
}

// childLabels are on all children, so that a large namespace is not listed as a whole.
func childLabels(o object) client.ListOption {
	return client.MatchingLabels{workload.LabelName: o.GetName()}
}

// controlled lists the objects of a kind that the owner controls. Nothing is controlled of a kind that the cluster
// does not serve; the note says what the user may not read.
func (c *clients) controlled(ctx context.Context, owner metav1.Object, list client.ObjectList, namespace string, options ...client.ListOption) (found []client.Object, note string, err error) {
	err = c.listEach(ctx, list, func(live client.Object) {
		if metav1.IsControlledBy(live, owner) {
			found = append(found, live)
		}
	}, append(options, client.InNamespace(namespace))...)
	switch {
	case apierrors.IsForbidden(err):
		return nil, mayNotList(strings.TrimSuffix(kindName(list), "List"), namespace), nil
	case meta.IsNoMatchError(err):
		return nil, "", nil
	}
	return found, "", err
}
