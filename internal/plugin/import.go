package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	fixpointac "github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

type importOptions struct {
	subscription, group string
	filters             []string
	// secret and identity select the credentials of the manifests.
	secret, identity string
	policy           string
	timeout          time.Duration
	cloud            planOptions
}

func newImport(o *options) *cobra.Command {
	var i importOptions
	command := &cobra.Command{
		Use:   "import securestorage --subscription UUID [--resource-group NAME] [--filter FILTER]",
		Short: "Print SecureStorages for existing storage accounts, under which the manager changes nothing.",
		Long: "Print SecureStorages for existing storage accounts that are encrypted with a customer-managed key. Each is planned: " +
			"the manager would change nothing, apart from its owner tag. What cannot be imported is listed in comments with the reason. Nothing is written, in Azure or in Kubernetes.\n\n" +
			"It reads Azure with your own login. The manifests contain no secrets. The exit code is 2 if an account cannot be imported.",
		Example: "  kubectl fixpoint import securestorage --subscription 00000000-0000-0000-0000-000000000001 --credentials-secret azure > accounts.yaml\n" +
			"  kubectl fixpoint import securestorage --subscription 00000000-0000-0000-0000-000000000001 --resource-group billing --filter 'name=inv*' --filter tag:team=billing",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"securestorage"},
		RunE: func(command *cobra.Command, args []string) error {
			k, err := kindOf(args[0])
			if err != nil {
				return err
			}
			if k.name != "SecureStorage" {
				return fmt.Errorf("%s cannot be imported: only securestorage can", args[0])
			}
			if err := i.check(); err != nil {
				return err
			}
			c, err := o.connect()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), i.timeout)
			defer cancel()
			return o.importStorages(ctx, c, i)
		},
	}
	flags := command.Flags()
	flags.StringVar(&i.subscription, "subscription", "", "`UUID` of the subscription. Required.")
	flags.StringVar(&i.group, "resource-group", "", "`NAME` of a resource group. The default is all.")
	flags.StringArrayVar(&i.filters, "filter", nil, "Import only accounts that match: name=PATTERN or tag:KEY=PATTERN, where * matches any text. Repeat it to require several.")
	flags.StringVar(&i.secret, "credentials-secret", "", "`NAME` of the Secret for spec.provider.credentialsSecretRef.")
	flags.StringVar(&i.identity, "workload-identity", "", "`CLIENT/TENANT`, two UUIDs, for spec.provider.workloadIdentity.")
	flags.StringVar(&i.policy, "management-policy", string(v1beta1.ManagementObserve), "spec.managementPolicy of the SecureStorages: Observe or Manage.")
	flags.DurationVar(&i.timeout, "timeout", 30*time.Minute, "How long to read Azure, which limits the requests.")
	i.cloud.addCloudFlags(command)
	return command
}

func (i importOptions) check() error {
	switch {
	case i.subscription == "":
		return errors.New("no subscription is given: set --subscription to the id in the output of az account show")
	case !isUUID(i.subscription):
		return fmt.Errorf("--subscription is %q, which is not a UUID: use the id in the output of az account show", i.subscription)
	case i.secret != "" && i.identity != "":
		return errors.New("--credentials-secret and --workload-identity are mutually exclusive: leave one out")
	case i.policy != string(v1beta1.ManagementObserve) && i.policy != string(v1beta1.ManagementManage):
		return fmt.Errorf("--management-policy is %q: set Observe or Manage", i.policy)
	}
	if client, tenant, _ := strings.Cut(i.identity, "/"); i.identity != "" && (!isUUID(client) || !isUUID(tenant)) {
		return fmt.Errorf("--workload-identity is %q: set the client ID and the tenant ID, two UUIDs, separated by /", i.identity)
	}
	for _, filter := range i.filters {
		key, pattern, found := strings.Cut(filter, "=")
		if _, err := path.Match(pattern, ""); !found || err != nil || key != "name" && !strings.HasPrefix(key, "tag:") {
			return fmt.Errorf("--filter is %q: set name=PATTERN or tag:KEY=PATTERN", filter)
		}
	}
	return i.cloud.checkCloud()
}

func isUUID(text string) bool {
	_, err := cloud.ParseScope("/subscriptions/" + text)
	return err == nil && !strings.Contains(text, "/")
}

// matches says whether an account matches all filters. Azure ignores the case of the names of tags.
func (i importOptions) matches(account *cloud.Account) bool {
	return !slices.ContainsFunc(i.filters, func(filter string) bool {
		key, pattern, _ := strings.Cut(filter, "=")
		if key == "name" {
			isMatch, _ := path.Match(pattern, account.Name)
			return !isMatch
		}
		for name, value := range account.Tags {
			if isMatch, _ := path.Match(pattern, value); isMatch && strings.EqualFold(name, strings.TrimPrefix(key, "tag:")) {
				return false
			}
		}
		return true
	})
}

// imported is an account, and its SecureStorage or why it cannot be imported.
type imported struct {
	account *cloud.Account
	spec    v1beta1.SecureStorageSpec
	refusal string
}

// concurrentPlans is how many accounts are planned at a time. The request limits of the subscription set the pace.
const concurrentPlans = 8

func (o *options) importStorages(ctx context.Context, c *clients, i importOptions) error {
	found, err := c.planImport(ctx, i)
	if err != nil {
		return err
	}
	refused := 0
	for _, one := range found {
		text, err := one.manifest(c.namespace)
		if err != nil {
			return err
		}
		if one.refusal != "" {
			refused++
		}
		fmt.Fprint(o.Out, text)
	}
	fmt.Fprintf(o.ErrOut, "%d storage accounts found, %d SecureStorages planned: the manager would change nothing, apart from the owner tag. %d accounts cannot be imported.\n", len(found), len(found)-refused, refused)
	if i.secret == "" && i.identity == "" {
		fmt.Fprintln(o.ErrOut, "The manifests select the credential of the manager, which adopts no account before its tag names the SecureStorage: set --credentials-secret or --workload-identity for another credential.")
	}
	if refused > 0 {
		return &exitError{code: exitChanges}
	}
	return nil
}

// planImport lists the accounts, sorted by name, and plans a SecureStorage for each.
func (c *clients) planImport(ctx context.Context, i importOptions) ([]*imported, error) {
	p := &planner{settings: settings{credential: ownLogin{cloud.AzureCredentials{}}}}
	if err := p.useCloud(i.cloud); err != nil {
		return nil, err
	}
	own, err := p.settings.credential.Own()
	if err != nil {
		return nil, fmt.Errorf("finding your Azure login: %w: run az login", err)
	}
	shared := cloud.New(p.settings.cloud)
	azure, err := shared.Client(i.subscription, cloud.Credential{Name: "own", Token: own, Scopes: []cloud.Scope{cloud.Anywhere}})
	if err != nil {
		return nil, err
	}
	accounts, err := allPages(ctx, azure.Accounts(i.group))
	if err != nil {
		return nil, err
	}
	vaults, err := allPages(ctx, azure.Vaults())
	if err != nil {
		return nil, err
	}
	engine, err := securestorage.NewPlanner(setup.Planning{API: c, Reader: noObjects{}}, securestorage.Options{
		Cloud: shared, Credentials: p.settings.credential,
		AmbientScopes: securestorage.AmbientScopes{securestorage.AllNamespaces: {cloud.Anywhere}},
	})
	if err != nil {
		return nil, err
	}
	var found []*imported
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrentPlans)
	for _, account := range accounts {
		if !i.matches(account) {
			continue
		}
		one := i.derive(account, vaults)
		found = append(found, one)
		if one.refusal == "" {
			group.Go(func() error { return one.verify(ctx, engine) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *imported) int { return cmp.Compare(a.account.Name, b.account.Name) })
	return found, nil
}

// noObjects is the cluster as an object sees it that has not been created: it has no children.
type noObjects struct{}

// Get implements [client.Reader].
func (noObjects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.Name)
}

// List implements [client.Reader].
func (noObjects) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// allPages reads a list, and waits while Azure throttles it.
func allPages[T any](ctx context.Context, pages cloud.Pages[T]) ([]T, error) {
	var all []T
	for pages.More() {
		page, err := pages.Next(ctx)
		if failure, ok := cloud.AsError(err); ok && failure.Kind == cloud.Throttled {
			if err := sleep(ctx, failure.RetryAfter); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
	}
	return all, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return fmt.Errorf("Azure throttles the requests, and --timeout has passed: set a longer one, or import fewer accounts with --filter: %w", ctx.Err())
	case <-time.After(d):
		return nil
	}
}

// derive returns the SecureStorage that describes an account, or why there is none.
func (i importOptions) derive(account *cloud.Account, vaults []*cloud.Vault) *imported {
	one := &imported{account: account}
	for name, owner := range account.Tags {
		if strings.EqualFold(name, cloud.OwnerTag) {
			one.refusal = fmt.Sprintf("it is managed by the SecureStorage with the UID %q (tag %s): to manage it by another one, release it first with kubectl fixpoint release, "+
				"or, if that SecureStorage does not exist in any cluster, remove the tag: az tag update --operation delete --resource-id %s --tags %s",
				owner, name, quotedForShell(account.ID), quotedForShell(name+"="+owner))
			return one
		}
	}
	e := account.Encryption
	if e.KeySource != cloud.CustomerManaged {
		one.refusal = "it is encrypted with keys that Azure manages: write its manifest, and select a key in spec.key"
		return one
	}
	uri := strings.ToLower(strings.TrimSuffix(e.VaultURI, "/"))
	at := slices.IndexFunc(vaults, func(v *cloud.Vault) bool { return strings.ToLower(strings.TrimSuffix(v.URI, "/")) == uri })
	if at < 0 {
		one.refusal = "its key vault " + e.VaultURI + " is not in subscription " + i.subscription + ", or you may not read it: write its manifest with spec.key.vaultID"
		return one
	}
	vault := vaults[at]
	group := groupOf(account.ID)
	one.spec = v1beta1.SecureStorageSpec{
		Provider:    v1beta1.SecureStorageProvider{SubscriptionID: i.subscription, ResourceGroup: group, Location: account.Location},
		SKU:         v1beta1.SecureStorageSKU(account.SKU),
		AccountName: account.Name,
		Key:         v1beta1.SecureStorageKey{Vault: &v1beta1.SecureStorageVault{Name: path.Base(vault.ID)}, Name: e.KeyName, Version: e.KeyVersion},
		Access:      v1beta1.SecureStorageAccess{Type: v1beta1.AccessRoleAssignment},

		ManagementPolicy: v1beta1.SecureStorageManagementPolicy(i.policy),
		DeletionPolicy:   v1beta1.DeletionRetain,
		AdoptionPolicy:   v1beta1.AdoptionIfUnowned,
	}
	if ofVault := groupOf(vault.ID); !strings.EqualFold(ofVault, group) {
		one.spec.Key.Vault.ResourceGroup = ofVault
	}
	if !vault.RBAC {
		one.spec.Access.Type = v1beta1.AccessPolicy
	}
	if i.secret != "" {
		one.spec.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: i.secret}
	}
	if client, tenant, found := strings.Cut(i.identity, "/"); found {
		one.spec.Provider.WorkloadIdentity = &v1beta1.SecureStorageWorkloadIdentity{ClientID: client, TenantID: tenant}
	}
	return one
}

// groupOf returns the resource group in a resource ID.
func groupOf(id string) string {
	parts := strings.Split(strings.Trim(id, "/"), "/")
	for n := 0; n+1 < len(parts); n += 2 {
		if strings.EqualFold(parts[n], "resourceGroups") {
			return parts[n+1]
		}
	}
	return ""
}

// verify plans the SecureStorage: if it is only observed and each phase is done, Manage changes nothing but the owner tag.
func (one *imported) verify(ctx context.Context, engine *securestorage.Engine) error {
	storage := &v1beta1.SecureStorage{ObjectMeta: metav1.ObjectMeta{Name: one.account.Name}, Spec: one.spec}
	storage.Spec.ManagementPolicy = v1beta1.ManagementObserve
	storage.Spec.Provider.CredentialsSecretRef, storage.Spec.Provider.WorkloadIdentity = nil, nil // Azure is read with the user's login
	for {
		plan, err := engine.Plan(ctx, storage.DeepCopy())
		if err != nil {
			return fmt.Errorf("planning the SecureStorage for storage account %s: %w", one.account.Name, err)
		}
		gate := gateOf(plan)
		switch {
		case gate == nil:
			return nil
		case gate.Err != nil:
			return fmt.Errorf("planning the SecureStorage for storage account %s: %w", one.account.Name, gate.Err)
		case gate.Verdict.Reason() != v1beta1.ReasonThrottled:
			one.refusal = gate.Verdict.Message()
			return nil
		}
		if err := sleep(ctx, gate.Verdict.After()); err != nil {
			return err
		}
	}
}

// gateOf returns the phase that is not done, or nil.
func gateOf(plan phases.Plan) *phases.PlannedPhase {
	at := slices.IndexFunc(plan.Phases, func(p phases.PlannedPhase) bool { return p.Err != nil || p.Verdict != nil && !p.Verdict.IsDone() })
	if at < 0 {
		return nil
	}
	return &plan.Phases[at]
}

// manifest is a document of a YAML stream.
func (one *imported) manifest(namespace string) (string, error) {
	if one.refusal != "" {
		return "---\n# Not imported: storage account " + printable(one.account.Name) + ": " + printable(one.refusal) + ".\n", nil
	}
	spec := fixpointac.SecureStorageSpec()
	if err := workload.Convert(one.spec, spec); err != nil {
		return "", fmt.Errorf("serializing the SecureStorage for storage account %s: %w", one.account.Name, err)
	}
	raw, err := yaml.Marshal(fixpointac.SecureStorage(one.account.Name, namespace).WithSpec(spec))
	if err != nil {
		return "", fmt.Errorf("serializing the SecureStorage for storage account %s: %w", one.account.Name, err)
	}
	return "---\n# Planned: with managementPolicy Manage, the manager would only set its owner tag.\n" + string(raw), nil
}
