package plugin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers"
	"github.com/fixpoint-dev/fixpoint/controllers/appservice"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/releases"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// planner plans objects of all kinds with the engines of the controllers.
type planner struct {
	// settings are what follows from the user: the cloud and permissions. Those of a manager are added to them.
	settings settings
	planning setup.Planning
	reader   *planReader
	// recorder records the dry runs of the plan that is being made.
	recorder *recorder
	// managers are the Deployments with the labels of the manager. If there are several, claims are the annotations in
	// which releases claim their namespaces, as far as the user may read them.
	managers []appsv1.Deployment
	claims   map[string]string
	// engines are by the Deployment of the manager whose settings they have.
	engines map[string]*engines
	// notes are what the plans assume.
	notes []string
}

// engines are those of one manager.
type engines struct {
	settings       settings
	appservices    *appservice.Engine
	mcpservers     *mcpserver.Engine
	securestorages *securestorage.Engine
}

// settings are what the manager's flags say that its plans depend on.
type settings struct {
	common     setup.Options
	mcp        mcpserver.Settings
	cloud      cloud.Config
	credential cloud.Credentials
}

// newPlanner reads the settings of the manager, as far as the user may.
func (c *clients) newPlanner(ctx context.Context, p planOptions) (*planner, error) {
	made := &planner{settings: settings{credential: ownLogin{cloud.AzureCredentials{}}}, recorder: &recorder{api: c}}
	reader := &planReader{api: c, fleet: p.all, namespace: c.namespace}
	made.reader = reader
	made.planning = setup.Planning{
		API: c, Reader: reader,
		Executes: func(dry phases.Applier) phases.Applier {
			made.recorder.Applier = dry
			return made.recorder
		},
		Unreadable: func(err error) { made.note("not all is known: " + err.Error()) },
	}
	if err := made.findManagers(ctx, c); err != nil {
		return nil, err
	}
	if err := made.useCloud(p); err != nil {
		return nil, err
	}
	return made, made.probeIngressClasses(ctx, c)
}

func (p *planner) note(note string) {
	if !slices.Contains(p.notes, note) {
		p.notes = append(p.notes, note)
	}
}

// findManagers reads the Deployments of managers, and which of several has claimed which namespaces. Whoever may create a
// Deployment in any namespace can give it the labels of the manager, but only administrators can write the claims.
func (p *planner) findManagers(ctx context.Context, c *clients) error {
	found, note, err := c.managers(ctx)
	if err != nil {
		return err
	}
	p.managers = found
	if len(found) == 0 {
		if note == "" {
			note = "no Deployment of the manager was found"
		}
		p.note(note + ", so its default settings are assumed")
	}
	if len(found) <= 1 {
		return nil
	}
	claims := &coordinationv1.Lease{}
	err = c.Get(ctx, client.ObjectKey{Namespace: releases.LeaseNamespace, Name: releases.LeaseName}, claims)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("reading the Lease in which managers claim their namespaces: %w", err)
	}
	p.claims = claims.Annotations
	return nil
}

// managerOf is the Deployment of the manager that reconciles a namespace; nil if none was found.
func (p *planner) managerOf(namespace string) *appsv1.Deployment {
	if len(p.managers) == 0 {
		return nil
	}
	in := func(namespace string) int {
		return slices.IndexFunc(p.managers, func(d appsv1.Deployment) bool { return d.Namespace == namespace })
	}
	if i := in(releases.ClaimantOf(p.claims, namespace)); i >= 0 || len(p.managers) == 1 {
		return &p.managers[max(i, 0)]
	}
	assumed := &p.managers[max(in(managerNamespace), 0)]
	p.note(fmt.Sprintf("%d Deployments have the labels of the manager, and it is not known which one reconciles namespace %s: the settings of %s/%s are assumed",
		len(p.managers), namespace, assumed.Namespace, assumed.Name))
	return assumed
}

// enginesFor are the engines with the settings of the manager that reconciles a namespace.
func (p *planner) enginesFor(namespace string) (*engines, error) {
	manager, key := p.managerOf(namespace), ""
	if manager != nil {
		key = manager.Namespace + "/" + manager.Name
	}
	if made, exists := p.engines[key]; exists {
		return made, nil
	}
	made := &engines{settings: p.settings}
	if err := made.settings.useManager(manager); err != nil {
		return nil, err
	}
	if p.engines == nil {
		p.engines = map[string]*engines{}
	}
	p.engines[key] = made
	return made, nil
}

// useManager takes the settings from the arguments of the manager's Deployment, or assumes its defaults.
func (s *settings) useManager(d *appsv1.Deployment) error {
	s.mcp.BridgeImage = controllers.DefaultBridgeImage
	if d == nil {
		s.mcp.ManagerNamespace = managerNamespace
		s.mcp.ManagerLabels = map[string]string{"control-plane": "controller-manager"}
		return nil
	}
	s.common.ManagerAccount = types.NamespacedName{Namespace: d.Namespace, Name: d.Spec.Template.Spec.ServiceAccountName}
	return s.useFlags(managerFlags(d))
}

// useFlags takes over the flags of the manager that its plans depend on.
func (s *settings) useFlags(flags map[string]string) error {
	s.mcp.ManagerNamespace = flags["pod-namespace"]
	if image := flags["bridge-image"]; image != "" {
		s.mcp.BridgeImage = image
	}
	if pairs := flags["pod-labels"]; pairs != "" {
		parsed, err := metav1.ParseToLabelSelector(pairs)
		if err != nil {
			return fmt.Errorf("reading --pod-labels of the manager: %w", err)
		}
		s.mcp.ManagerLabels = parsed.MatchLabels
	}
	if name := flags["pod-overrides"]; name != "" {
		policy, err := mcpserver.ParseOverridesPolicy(name)
		if err != nil {
			return fmt.Errorf("reading --pod-overrides of the manager: %w", err)
		}
		s.mcp.PodOverrides = policy
	}
	s.common.NoClusterRights = s.common.NoClusterRights || flags["no-cluster-rights"] == "true"
	return nil
}

// useCloud reads the cloud with the user's own login.
func (p *planner) useCloud(o planOptions) error {
	if o.cloudEndpoint != "" {
		config, err := cloud.Endpoint(o.cloudEndpoint)
		if err != nil {
			return fmt.Errorf("--cloud-endpoint: %w", err)
		}
		p.settings.cloud = config
	}
	if o.cloudTokenFile != "" {
		if _, err := cloud.ReadToken(o.cloudTokenFile); err != nil {
			return fmt.Errorf("--cloud-token-file is %q, but it contains no token: %w", o.cloudTokenFile, err)
		}
		p.settings.credential = ownLogin{cloud.FileCredentials{Path: o.cloudTokenFile}}
	} else if p.settings.cloud.AllowHTTP {
		return fmt.Errorf("--cloud-endpoint is %q, which would send your Azure login unencrypted: set an https URL, or --cloud-token-file for a fake cloud", o.cloudEndpoint)
	}
	p.settings.cloud.Transport = readOnly{http.DefaultClient}
	return nil
}

// probeIngressClasses finds out whether the user may list IngressClasses, which are cluster-scoped.
func (p *planner) probeIngressClasses(ctx context.Context, c *clients) error {
	err := c.List(ctx, &networkingv1.IngressClassList{}, client.Limit(1))
	if apierrors.IsForbidden(err) {
		p.settings.common.NoClusterRights = true
		p.note("you may not list IngressClasses, so the class of every Ingress is assumed to exist")
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing IngressClasses: %w", err)
	}
	return nil
}

// plan plans one object.
func (p *planner) plan(ctx context.Context, o object) (objectPlan, error) {
	p.recorder.executed, p.recorder.desired, p.recorder.fieldManager = nil, nil, o.kind.fieldManager
	if namespace := o.GetNamespace(); !p.reader.fleet && p.reader.namespace != namespace {
		p.reader.namespace, p.reader.lists = namespace, nil // an object of a file may be in another namespace
	}
	plan, err := p.engine(ctx, o)
	if err != nil {
		return objectPlan{}, err
	}
	if o.GetDeletionTimestamp() == nil && !o.suspended && !slices.Contains(o.GetFinalizers(), appservice.Finalizer) {
		p.note("the manager also adds its finalizer " + appservice.Finalizer + " to objects that do not have it")
	}
	for _, change := range plan.Changes() {
		if change.Action == phases.ActionUndo {
			p.note("what a deletion undoes in the cloud may be undone already: only the step itself finds out")
		}
	}
	return describePlan(o, plan, p.recorder.executed)
}

func (p *planner) engine(ctx context.Context, o object) (plan phases.Plan, err error) {
	made, err := p.enginesFor(o.GetNamespace())
	if err != nil {
		return plan, err
	}
	common := made.settings.common
	switch live := o.Object.(type) {
	case *v1beta1.AppService:
		if made.appservices == nil {
			if made.appservices, err = appservice.NewPlanner(p.planning, common); err != nil {
				return plan, err
			}
		}
		return made.appservices.Plan(ctx, live)
	case *v1beta1.MCPServer:
		if made.mcpservers == nil {
			settings := made.settings.mcp
			settings.ManagerAccount = common.ManagerAccount
			if made.mcpservers, err = mcpserver.NewPlanner(p.planning, mcpserver.Options{Options: common, Settings: settings}); err != nil {
				return plan, err
			}
		}
		if live.Spec.Protocol.Probe != v1beta1.ProbeDisabled {
			p.note("a plan makes no MCP handshakes: it goes by the last result in the status")
		}
		return made.mcpservers.Plan(ctx, live)
	case *v1beta1.SecureStorage:
		if made.securestorages == nil {
			made.securestorages, err = securestorage.NewPlanner(p.planning, securestorage.Options{
				Options: common, Cloud: cloud.New(p.settings.cloud), Credentials: p.settings.credential,
				AmbientScopes: securestorage.AmbientScopes{securestorage.AllNamespaces: {cloud.Anywhere}},
			})
			if err != nil {
				return plan, err
			}
		}
		p.noteCloud(live)
		return made.securestorages.Plan(ctx, live)
	default:
		return plan, fmt.Errorf("%T cannot be planned", o.Object)
	}
}

func (p *planner) noteCloud(storage *v1beta1.SecureStorage) {
	_, readsAzure := p.settings.credential.(ownLogin)
	if readsAzure && storage.Spec.Provider.CredentialsSecretRef == nil {
		p.note("Azure was read with your own login; the manager uses another credential, whose permissions are not known")
	}
	if storage.UID == "" || storage.ResourceVersion == "" {
		p.note("without spec.accountName, the name of the storage account follows from the UID, which a new object does not have yet")
	}
}

// ownLogin reads the cloud as the user. Credentials of a Secret are used if the user may read the Secret.
type ownLogin struct{ cloud.Credentials }

// Assertion implements [cloud.Credentials]: a plan requests no token of a ServiceAccount.
func (l ownLogin) Assertion(string, string, func(context.Context) (string, error)) (azcore.TokenCredential, error) {
	return l.Own()
}

// readOnly refuses all requests to the cloud but reads.
type readOnly struct{ *http.Client }

// Do implements the transport of the SDK.
func (t readOnly) Do(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		return nil, fmt.Errorf("a plan must not send %s %s", request.Method, strings.TrimSuffix(request.URL.Path, "/"))
	}
	return t.Client.Do(request)
}
