package mcpserver

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayconfigurations "sigs.k8s.io/gateway-api/applyconfiguration"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// NewPlanner returns an engine that only plans. It makes no MCP handshakes: the last result in the status counts.
func NewPlanner(p setup.Planning, o Options) (*Engine, error) {
	dependencies, err := p.Dependencies(FieldManager,
		applyconfiguration.NewTypeConverter, gatewayconfigurations.NewTypeConverter)
	if err != nil {
		return nil, err
	}
	r, err := planReaders(p, o)
	if err != nil {
		return nil, err
	}
	return newEngine(dependencies, o, r, noProber{})
}

// planReaders read as the user does.
func planReaders(p setup.Planning, o Options) (readers, error) {
	served, err := isServed(p.API.RESTMapper(), p.API.Scheme(), &gatewayv1.HTTPRoute{})
	r := readers{
		references: &references.Reader{Metadata: p.Reader, Data: p.Reader, Unreadable: p.Unreadable},
		keys:       &keyReader{metadata: p.Reader, data: p.Reader},
		pods:       &podReader{uncached: p.Reader},
		gateways:   staticGatewayAPI(served),
		plans:      true,
	}
	if o.ManagerNamespace != "" {
		r.hashKey = &references.Key{Namespace: o.ManagerNamespace, Reader: p.Reader}
	}
	return r, err
}

// noProber has no results.
type noProber struct{}

// Set implements [Prober].
func (noProber) Set(client.ObjectKey, prober.Target) {}

// Forget implements [Prober].
func (noProber) Forget(client.ObjectKey) {}

// ContractText implements [Prober].
func (noProber) ContractText(string) string { return "" }

// Result implements [Prober].
func (noProber) Result(client.ObjectKey) (prober.Result, bool) {
	return prober.Result{State: prober.Unknown}, true
}

// assumeUnchanged is for a plan by a user who may not read what the spec refers to, or the key of hashes: it assumes
// that everything exists and is as it was.
func (s *scope) assumeUnchanged(ctx context.Context, err error) (phases.Observation, error) {
	if !s.references.Ignores(err) {
		return nil, err
	}
	var live appsv1.Deployment
	object := client.ObjectKeyFromObject(s.server)
	if err := s.reader.Get(ctx, object, &live); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting Deployment %s: %w", object, err)
	}
	s.dependencies = live.Spec.Template.Annotations[dependenciesHashAnnotation]
	return phases.Done("not readable for you; assumed to be unchanged"), nil
}
