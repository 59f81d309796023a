package plugin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
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
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// planner plans objects of all kinds with the engines of the controllers.
type planner struct {
	// settings are those of the manager, as far as they are known.
	settings settings
	planning setup.Planning
	reader   *planReader
	// recorder records the dry runs of the plan that is being made.
	recorder       *recorder
	appservices    *appservice.Engine
	mcpservers     *mcpserver.Engine
	securestorages *securestorage.Engine
	// notes are what the plans assume.
	notes []string
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
	if err := made.useManager(ctx, c); err != nil {
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

// useManager takes the settings from the arguments of the manager's Deployment, or assumes its defaults.
func (p *planner) useManager(ctx context.Context, c *clients) error {
	found, note, err := c.managers(ctx)
	if err != nil {
		return err
	}
	p.settings.mcp.BridgeImage = controllers.DefaultBridgeImage
	if len(found) == 0 {
		if note == "" {
			note = "no Deployment of the manager was found"
		}
		p.note(note + ", so its default settings are assumed")
		p.settings.mcp.ManagerNamespace = managerNamespace
		p.settings.mcp.ManagerLabels = map[string]string{"control-plane": "controller-manager"}
		return nil
	}
	d := &found[0]
	p.settings.common.ManagerAccount = types.NamespacedName{Namespace: d.Namespace, Name: d.Spec.Template.Spec.ServiceAccountName}
	return p.settings.useFlags(managerFlags(d))
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
	s.common.NoClusterRights = flags["no-cluster-rights"] == "true"
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
	switch live := o.Object.(type) {
	case *v1beta1.AppService:
		if p.appservices == nil {
			if p.appservices, err = appservice.NewPlanner(p.planning, p.settings.common); err != nil {
				return plan, err
			}
		}
		return p.appservices.Plan(ctx, live)
	case *v1beta1.MCPServer:
		if p.mcpservers == nil {
			settings := p.settings.mcp
			settings.ManagerAccount = p.settings.common.ManagerAccount
			if p.mcpservers, err = mcpserver.NewPlanner(p.planning, mcpserver.Options{Options: p.settings.common, Settings: settings}); err != nil {
				return plan, err
			}
		}
		if live.Spec.Protocol.Probe != v1beta1.ProbeDisabled {
			p.note("a plan makes no MCP handshakes: it goes by the last result in the status")
		}
		return p.mcpservers.Plan(ctx, live)
	case *v1beta1.SecureStorage:
		if p.securestorages == nil {
			p.securestorages, err = securestorage.NewPlanner(p.planning, securestorage.Options{
				Options: p.settings.common, Cloud: cloud.New(p.settings.cloud), Credentials: p.settings.credential,
				AmbientScopes: securestorage.AmbientScopes{securestorage.AllNamespaces: {cloud.Anywhere}},
			})
			if err != nil {
				return plan, err
			}
		}
		p.noteCloud(live)
		return p.securestorages.Plan(ctx, live)
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
