package securestorage

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// A recorded account that is missing is lost: only the user decides that an empty one replaces it.
func TestDecideMissingAccount(t *testing.T) {
	for name, c := range map[string]struct {
		edit      func(*v1beta1.SecureStorageSpec)
		accountID string
		want      string
		message   string
		drifts    []ssa.Drift
	}{
		"never created":       {want: "missing: Creating", message: "create storage account coveted"},
		"lost":                {accountID: "a", want: "stalled: AccountLost", message: "storage account coveted is no longer in resource group g: it was deleted outside of this SecureStorage, possibly with its data, or moved; restore it in Azure or move it back, or, if it was deleted, set spec.accountLossPolicy to Recreate to create an empty account"},
		"lost, is replaced":   {edit: recreate, accountID: "a", want: "missing: Creating", message: "create storage account coveted", drifts: []ssa.Drift{{Path: "storageAccounts/coveted", Desired: "exists", Actual: "deleted"}}},
		"not lost":            {edit: recreate, want: "missing: Creating", message: "create storage account coveted"},
		"only observed":       {edit: observe, want: "wait: AccountMissing", message: "storage account coveted does not exist in resource group g of subscription s, and is not created, because spec.managementPolicy is Observe; create it in Azure, or set spec.managementPolicy to Manage"},
		"lost, only observed": {edit: both(observe, recreate), accountID: "a", want: "wait: AccountMissing", message: "storage account coveted does not exist in resource group g of subscription s, and is not created, because spec.managementPolicy is Observe; create it in Azure, or set spec.managementPolicy to Manage"},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), newScope(named("coveted"))
			if c.edit != nil {
				c.edit(&s.storage.Spec)
			}
			s.storage.Status.AccountID = c.accountID
			found := s.decideMissingAccount()
			g.Expect(observed(found, nil)).To(Equal(c.want))
			g.Expect(found.Message()).To(Equal(c.message))
			if missing, ok := found.(phases.MissingObservation); ok {
				g.Expect(missing.Drifts()).To(Equal(c.drifts))
			} else if verdict, ok := found.(phases.Verdict); ok {
				g.Expect(verdict.After()).To(BeNumerically("~", 5*time.Minute+15*time.Second, 15*time.Second))
			}
		})
	}
}

func TestDecideAccount(t *testing.T) {
	mine := map[string]string{cloud.OwnerTag: "uid"}
	adopts := func(s *v1beta1.SecureStorageSpec) {
		s.AdoptionPolicy, s.Provider.WorkloadIdentity = v1beta1.AdoptionIfUnowned, &v1beta1.SecureStorageWorkloadIdentity{}
	}
	const poll = 5*time.Minute + 15*time.Second
	for name, c := range map[string]struct {
		edit    func(*v1beta1.SecureStorageSpec)
		account cloud.Account
		want    string
		after   time.Duration
		drifts  []string
	}{
		"as desired":                           {account: cloud.Account{State: "Succeeded", Tags: mine}, want: "done", after: poll},
		"of another owner":                     {account: cloud.Account{State: "Succeeded", Tags: map[string]string{cloud.OwnerTag: "other"}}, want: "stalled: AccountNotOwned", after: poll},
		"of another, failed":                   {account: cloud.Account{State: "Failed", Tags: map[string]string{cloud.OwnerTag: "other"}}, want: "stalled: AccountNotOwned", after: poll},
		"of another, matches":                  {edit: observe, account: cloud.Account{State: "Succeeded", Tags: map[string]string{cloud.OwnerTag: "other"}}, want: "done", after: poll},
		"failed":                               {account: cloud.Account{State: "Failed", Tags: mine}, want: "missing: Creating"},
		"canceled":                             {account: cloud.Account{State: "Canceled", Tags: mine}, want: "missing: Creating"},
		"failed, with the key of the customer": {account: cloud.Account{State: "Failed", Tags: mine, Encryption: cloud.Encryption{KeySource: cloud.CustomerManaged}}, want: "stalled: Failed", after: poll},
		"failed, with no owner":                {edit: adopts, account: cloud.Account{State: "Failed"}, want: "stalled: Failed", after: poll},
		"failed, is observed":                  {edit: observe, account: cloud.Account{State: "Failed"}, want: "stalled: Failed", after: poll},
		"being deleted":                        {account: cloud.Account{State: "Deleting", Tags: mine}, want: "wait: OperationInProgress", after: 5 * time.Second},
		"just created":                         {account: cloud.Account{State: "Creating", Tags: mine, CreatedOn: noon}, want: "wait: Creating", after: 500 * time.Millisecond},
		"creating for 10 s":                    {account: cloud.Account{State: "ResolvingDNS", Tags: mine, CreatedOn: noon.Add(-10 * time.Second)}, want: "wait: Creating", after: 5 * time.Second},
		"creating for long":                    {account: cloud.Account{State: "Creating", Tags: mine, CreatedOn: noon.Add(-time.Hour)}, want: "wait: Creating", after: 17 * time.Second},
		"differs":                              {edit: tagged(map[string]string{"team": "billing"}), account: cloud.Account{State: "Succeeded", Tags: mine}, want: "missing: Updating", drifts: []string{"tags.team"}},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), newScope()
			if c.edit != nil {
				c.edit(&s.storage.Spec)
			}
			account := c.account
			account.Name, account.Location, account.SKU, account.HasIdentity = "a", "westeurope", "Standard_LRS", true
			s.account = &account
			found := s.decideAccount()
			g.Expect(observed(found, nil)).To(Equal(c.want))
			if verdict, ok := found.(phases.Verdict); ok {
				g.Expect(verdict.After()).To(BeNumerically("~", c.after, c.after/10))
			}
			var paths []string
			if missing, ok := found.(phases.MissingObservation); ok {
				for _, drift := range missing.Drifts() {
					paths = append(paths, drift.Path)
				}
			}
			g.Expect(paths).To(Equal(c.drifts))
		})
	}
}

// Who may adopt is said with what to do.
func TestRefusedOwnershipNamesTheRemedies(t *testing.T) {
	byUser := func(s *v1beta1.SecureStorageSpec) {
		s.Provider.WorkloadIdentity = &v1beta1.SecureStorageWorkloadIdentity{}
	}
	for name, c := range map[string]struct {
		edit func(*v1beta1.SecureStorageSpec)
		tags map[string]string
		want string
	}{
		"another owner": {adopt, map[string]string{cloud.OwnerTag: "it's"}, `storage account a is managed by another SecureStorage, with the UID "it's" (tag fixpoint.dev-owner); to release it, run 'kubectl fixpoint release securestorage/<name>' for that SecureStorage, or, if it does not exist in any cluster, 'az tag update --operation delete --resource-id /subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a --tags 'fixpoint.dev-owner=it'\''s''; or create a SecureStorage with another spec.accountName`},
		"another owner, and no adoption": {byUser, map[string]string{cloud.OwnerTag: "x"}, "storage account a is managed by another SecureStorage, " +
			`with the UID "x" (tag fixpoint.dev-owner); to release it, run 'kubectl fixpoint release securestorage/<name>' for that SecureStorage, ` +
			"or, if it does not exist in any cluster, 'az tag update --operation delete --resource-id " +
			"/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a --tags fixpoint.dev-owner=x', " +
			"and then set spec.adoptionPolicy to IfUnowned; or create a SecureStorage with another spec.accountName"},
		"another owner, manager": {func(*v1beta1.SecureStorageSpec) {}, map[string]string{cloud.OwnerTag: "x"}, "storage account a is managed by another SecureStorage, " +
			`with the UID "x" (tag fixpoint.dev-owner); to release it, run 'kubectl fixpoint release securestorage/<name>' for that SecureStorage, ` +
			"or, if it does not exist in any cluster, 'az tag update --operation delete --resource-id " +
			"/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a --tags fixpoint.dev-owner=x', " +
			"and then set the tag to uid, the UID of this SecureStorage; or create a SecureStorage with another spec.accountName"},
		"manager": {func(s *v1beta1.SecureStorageSpec) { s.AdoptionPolicy = v1beta1.AdoptionIfUnowned }, nil, "storage account a already exists and is not managed by this SecureStorage, and spec.adoptionPolicy does not apply to the credential of the manager; to adopt the account, set its tag fixpoint.dev-owner in Azure to uid, the UID of this SecureStorage; or create a SecureStorage with another spec.accountName"},
		"policy":  {byUser, nil, "storage account a already exists and is not managed by this SecureStorage; set spec.adoptionPolicy to IfUnowned to adopt it, or create a SecureStorage with another spec.accountName"},
		"location, and no adoption": {both(byUser, func(s *v1beta1.SecureStorageSpec) { s.Provider.Location = "eastus" }), nil,
			"storage account a cannot be adopted, because it is in location westeurope and spec.provider.location is eastus; " +
				"create a SecureStorage with another spec.accountName or spec.provider.location"},
		"location": {both(adopt, func(s *v1beta1.SecureStorageSpec) { s.Provider.Location = "eastus" }), nil, "storage account a cannot be adopted, because it is in location westeurope and spec.provider.location is eastus; create a SecureStorage with another spec.accountName or spec.provider.location"},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), newScope(c.edit)
			s.account = &cloud.Account{Name: "a", Location: "westeurope", Tags: c.tags}
			verdict, managed := s.decideOwnership()
			g.Expect(managed).To(BeFalse())
			g.Expect(outcome(verdict, nil)).To(Equal("stalled: AccountNotOwned"))
			g.Expect(verdict.Message()).To(Equal(c.want))
		})
	}
}

func TestShellQuoted(t *testing.T) {
	for text, want := range map[string]string{
		"azAZ09-_./=": "azAZ09-_./=", "": "", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "`": "'`'", "{": "'{'", "@": "'@'", "[": "'['", ":": "':'", "ä": "'ä'", "*": "'*'", ";": "';'",
	} {
		NewWithT(t).Expect(shellQuoted(text)).To(Equal(want))
	}
}

func TestAccountDrifts(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*v1beta1.SecureStorageSpec)
		account cloud.Account
		want    []ssa.Drift
	}{
		"none":                           {account: cloud.Account{Location: "westeurope", SKU: "Standard_LRS", HasIdentity: true, Tags: map[string]string{"Fixpoint.dev-owner": "uid", "cost": "42"}}},
		"another location is no drift":   {account: cloud.Account{Location: "eastus", SKU: "Standard_LRS", HasIdentity: true, Tags: map[string]string{cloud.OwnerTag: "uid"}}},
		"another location, observed":     {edit: observe, account: cloud.Account{Location: "eastus", SKU: "Standard_LRS", HasIdentity: true}, want: []ssa.Drift{{Path: "location", Desired: "westeurope", Actual: "eastus"}}},
		"the same location, observed":    {edit: observe, account: cloud.Account{Location: "westeurope", SKU: "Standard_LRS", HasIdentity: true}},
		"another SKU":                    {account: cloud.Account{SKU: "Standard_GRS", HasIdentity: true, Tags: map[string]string{cloud.OwnerTag: "uid"}}, want: []ssa.Drift{{Path: "sku.name", Desired: "Standard_LRS", Actual: "Standard_GRS"}}},
		"no SKU is asked for":            {edit: func(s *v1beta1.SecureStorageSpec) { s.SKU = "" }, account: cloud.Account{SKU: "Standard_GRS", HasIdentity: true, Tags: map[string]string{cloud.OwnerTag: "uid"}}},
		"no identity":                    {account: cloud.Account{SKU: "Standard_LRS", Tags: map[string]string{cloud.OwnerTag: "uid"}}, want: []ssa.Drift{{Path: "identity.type", Desired: "SystemAssigned", Actual: "None"}}},
		"no tags":                        {edit: tagged(map[string]string{"a": "1", "z": ""}), account: cloud.Account{SKU: "Standard_LRS", HasIdentity: true}, want: []ssa.Drift{{Path: "tags.a", Desired: "1"}, {Path: "tags." + cloud.OwnerTag, Desired: "uid"}, {Path: "tags.z"}}},
		"another value":                  {edit: tagged(map[string]string{"a": "1"}), account: cloud.Account{SKU: "Standard_LRS", HasIdentity: true, Tags: map[string]string{"A": "2", cloud.OwnerTag: "uid"}}, want: []ssa.Drift{{Path: "tags.a", Desired: "1", Actual: "2"}}},
		"no tag of an owner is observed": {edit: both(observe, tagged(map[string]string{"a": "1"})), account: cloud.Account{Location: "westeurope", SKU: "Standard_LRS", HasIdentity: true}, want: []ssa.Drift{{Path: "tags.a", Desired: "1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			if c.edit != nil {
				c.edit(&s.storage.Spec)
			}
			NewWithT(t).Expect(accountDrifts(s.storage, &c.account)).To(Equal(c.want))
		})
	}
}

// The update of an account has what differs, and all tags if one differs, because it replaces them.
func TestChangesWhatDiffers(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*v1beta1.SecureStorageSpec)
		change func(*fixture) error
		want   string
	}{
		"SKU":                 {edit: func(s *v1beta1.SecureStorageSpec) { s.SKU = v1beta1.SKUStandardGRS }, want: `{"sku":{"name":"Standard_GRS"}}`},
		"no SKU is asked for": {edit: both(func(s *v1beta1.SecureStorageSpec) { s.SKU = "" }, tagged(map[string]string{"a": "1"})), want: `{"tags":{"a":"1","cost":"42","fixpoint.dev-owner":"5b0c7ad7-2f43-4e0e-9a53-4f1d5f3b2a10"}}`},
		"tags":                {edit: tagged(map[string]string{"a": "1"}), want: `{"tags":{"a":"1","cost":"42","fixpoint.dev-owner":"5b0c7ad7-2f43-4e0e-9a53-4f1d5f3b2a10"}}`},
		"identity":            {change: func(f *fixture) error { return f.server.DropIdentity(f.name()) }, want: `{"identity":{"type":"SystemAssigned"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := readyFixture(t)
			f.Expect(f.server.SetTags(f.name(), map[string]string{"cost": "42", cloud.OwnerTag: string(f.storage.UID)})).To(Succeed())
			if c.edit != nil {
				f.edit(c.edit)
			}
			if c.change != nil {
				f.Expect(c.change(f)).To(Succeed())
			}
			f.clock.Step(time.Minute)
			var bodies []string
			f.onRequest = func(r *http.Request) {
				if r.Method == http.MethodPatch {
					body, err := io.ReadAll(r.Body)
					f.Expect(err).NotTo(HaveOccurred())
					r.Body = io.NopCloser(bytes.NewReader(body))
					bodies = append(bodies, string(body))
				}
			}
			s := f.connected()
			verdict, err := ensureStorageAccount(t.Context(), s)
			f.Expect(outcome(verdict, err)).To(Equal("done"))
			f.Expect(verdict.After()).To(BeNumerically(">=", f.storage.Spec.PollInterval.Duration))
			f.Expect(bodies).To(HaveExactElements(MatchJSON(c.want)))
			f.Expect(accountDrifts(s.storage, s.account)).To(BeEmpty(), "the phases that follow see the account as it is now")
		})
	}
}

// answering replaces a text in the responses to writes.
type answering struct {
	policy.Transporter
	old, now string
}

// Do implements [policy.Transporter].
func (a answering) Do(request *http.Request) (*http.Response, error) {
	response, err := a.Transporter.Do(request)
	if err != nil || request.Method != http.MethodPatch {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(body, []byte(a.old), []byte(a.now))))
	return response, err
}

// Azure may answer with the account as it was: the phase then waits, and the next ones do not begin.
func TestWaitsForTheChangeToShow(t *testing.T) {
	restartWith := func(f *fixture, old, now string) {
		f.start(cloud.New(cloud.Config{Cloud: fakecloud.CloudAt("https://fake.test"), Transport: answering{f, old, now}, Clock: f.clock}))
	}
	t.Run("account", func(t *testing.T) {
		f := readyFixture(t)
		f.edit(func(s *v1beta1.SecureStorageSpec) { s.SKU = v1beta1.SKUStandardGRS })
		f.clock.Step(time.Minute)
		restartWith(f, "Standard_GRS", "Standard_LRS")
		verdict, err := ensureStorageAccount(t.Context(), f.connected())
		f.Expect(outcome(verdict, err)).To(Equal("wait: Updating"))
		f.Expect(verdict.After()).To(BeNumerically("~", 5*time.Second, 500*time.Millisecond))
	})
	t.Run("encryption", func(t *testing.T) {
		f := readyFixture(t)
		f.Expect(f.server.UsePlatformKeys(f.name())).To(Succeed())
		f.clock.Step(time.Minute)
		restartWith(f, "Microsoft.Keyvault", "Microsoft.Storage")
		s := f.connected()
		_, err := observeKeyAccess(t.Context(), s)
		f.Expect(err).NotTo(HaveOccurred())
		verdict, err := ensureEncryption(t.Context(), s)
		f.Expect(outcome(verdict, err)).To(Equal("wait: EncryptionDrifted"))
		f.Expect(verdict.After()).To(BeNumerically("~", 5*time.Second, 500*time.Millisecond))
	})
}

// EncryptionReady stops being True before an empty account, which is not encrypted with the key, is created.
func TestCreatesAccountOnceEncryptionIsNotReady(t *testing.T) {
	for name, c := range map[string]struct {
		condition metav1.Condition
		fault     *fakecloud.Fault
		want      string
		created   bool
		after     time.Duration
	}{
		"encrypted before":        {condition: metav1.Condition{Type: v1beta1.ConditionEncryptionReady, Status: metav1.ConditionTrue}, want: "wait: Creating", after: 500 * time.Millisecond},
		"not encrypted":           {condition: metav1.Condition{Type: v1beta1.ConditionEncryptionReady, Status: metav1.ConditionFalse}, want: "wait: Creating", created: true, after: time.Second},
		"another condition":       {condition: metav1.Condition{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue}, want: "wait: Creating", created: true, after: time.Second},
		"Azure suggests no delay": {want: "wait: Creating", created: true, after: 500 * time.Millisecond},
		"not permitted":           {fault: &fakecloud.Fault{Method: http.MethodPut, Status: http.StatusForbidden, Code: "AuthorizationFailed"}, want: "stalled: PermissionMissing", after: 5*time.Minute + 15*time.Second},
		"not sent":                {want: "error: protecting Secret own: the API server does not respond"},
		"its Secret is deleted":   {want: "stalled: CredentialsMissing"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fastCloud(), withSecret("own"))
			f.storage.Finalizers = []string{Finalizer}
			if name == "Azure suggests no delay" {
				f.server.Turn(func(k *fakecloud.Knobs) { k.PollInterval = fakecloud.Delay{} })
			}
			s := f.connected()
			s.storage.Status.Conditions = []metav1.Condition{c.condition}
			if c.fault != nil {
				f.server.Inject(*c.fault)
			}
			switch name {
			case "not sent":
				f.process.access.protection.uncached = unreadable{}
			case "its Secret is deleted":
				delete(f.secrets, "billing/own")
			}
			verdict, err := ensureStorageAccount(t.Context(), s)
			f.Expect(outcome(verdict, err)).To(Equal(c.want))
			if err == nil {
				f.Expect(verdict.After()).To(BeNumerically("~", c.after, c.after/10))
			}
			account, exists := f.server.Account(f.name())
			f.Expect(exists).To(Equal(c.created))
			if exists {
				f.Expect(account.Tags).To(Equal(map[string]string{cloud.OwnerTag: string(f.storage.UID)}))
			}
			f.Expect(f.unprotected).To(BeEmpty())
		})
	}
}

// A creation that failed in Azure is repeated at once: there is no new account that is not encrypted yet.
// An account that exists loses nothing when its failed creation is repeated.
func TestRepeatsFailedCreation(t *testing.T) {
	f := readyFixture(t)
	f.Expect(f.server.UsePlatformKeys(f.name())).To(Succeed())
	f.clock.Step(time.Minute)
	s := f.connected()
	s.account.State = "Failed"
	s.account.Tags["cost"] = "42"
	var methods []string
	f.onRequest = func(r *http.Request) { methods = append(methods, r.Method) }
	f.Expect(observed(s.decideAccount(), nil)).To(Equal("missing: Creating"))
	f.Expect(outcome(ensureStorageAccount(t.Context(), s))).To(Equal("wait: Creating"))
	f.Expect(methods).To(Equal([]string{http.MethodPut}))
	account, _ := f.server.Account(f.name())
	f.Expect(account.Tags).To(And(HaveKeyWithValue("cost", "42"), HaveKey(cloud.OwnerTag)))
}

// A plan assumes what the writes would do, and changes nothing that was read.
func TestPlansAssume(t *testing.T) {
	g := NewWithT(t)
	s := newScope(named("a"), tagged(map[string]string{"team": "billing"}))
	g.Expect(outcome(planStorageAccount(s), nil)).To(Equal("done"))
	g.Expect(s.account).To(Equal(&cloud.Account{Name: "a", Location: "westeurope", SKU: "Standard_LRS", HasIdentity: true, Tags: map[string]string{"team": "billing", cloud.OwnerTag: "uid"}}))
	g.Expect(s.assumed).To(BeTrue())
	g.Expect(observed(observeIdentity(t.Context(), s))).To(Equal("done"), "the principal is not known in a plan")

	s.account.PrincipalID = "p"
	found, err := observeIdentity(t.Context(), s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.Message()).To(Equal("system-assigned identity has principal ID p"))

	s = newScope(func(spec *v1beta1.SecureStorageSpec) { spec.SKU = "" })
	read := &cloud.Account{Name: "b", Location: "eastus", SKU: "Standard_GRS", PrincipalID: "p", Tags: map[string]string{"cost": "42"}}
	before := *read
	s.account = read
	planStorageAccount(s)
	g.Expect(s.account).To(Equal(&cloud.Account{Name: "b", Location: "eastus", SKU: "Standard_GRS", PrincipalID: "p", HasIdentity: true, Tags: map[string]string{"cost": "42", cloud.OwnerTag: "uid"}}))
	g.Expect(*read).To(Equal(before))

	s.key, s.assumed = &cloud.Key{ID: "https://v.vault.azure.net/keys/k", VersionID: "https://v.vault.azure.net/keys/k/1", Version: "1"}, false
	g.Expect(outcome(planEncryption(s), nil)).To(Equal("done"))
	g.Expect(s.account.Encryption).To(Equal(cloud.Encryption{KeySource: cloud.CustomerManaged, VaultURI: "https://v.vault.azure.net", KeyName: "k", CurrentKeyID: "https://v.vault.azure.net/keys/k/1", CurrentVersion: "1"}))
	g.Expect(s.account.Name).To(Equal("b"))
	g.Expect(s.assumed).To(BeTrue())
	g.Expect(read.Encryption).To(Equal(cloud.Encryption{}))
	g.Expect(s.granted).To(BeFalse())
	g.Expect(outcome(keyAccess.Planned(s), nil)).To(Equal("done"))
	g.Expect(s.granted).To(BeTrue())
}

// An account that was moved is not taken for one that was deleted, and no empty account takes its place.
func TestMovedAccountIsNotReplaced(t *testing.T) {
	f := readyFixture(t)
	f.server.SeedGroup(f.demo.Subscription, "other", f.demo.Location)
	f.Expect(f.server.MoveAccount(f.name(), "other")).To(Succeed())
	f.clock.Step(time.Hour)
	f.Expect(f.runUntilReason(v1beta1.ReasonAccountLost).Message).To(ContainSubstring("or moved; restore it in Azure or move it back"))
	f.edit(recreate)
	f.runUntilReason(v1beta1.ReasonNameTaken)
	f.Expect(f.server.MoveAccount(f.name(), f.demo.Group)).To(Succeed())
	f.runUntilReady()
	f.Expect(f.created()).To(Equal(1))
}
