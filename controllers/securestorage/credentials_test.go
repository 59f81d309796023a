package securestorage

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// refusing credentials quote what they were given.
type refusing struct{}

func (refusing) Own() (azcore.TokenCredential, error) { return nil, errors.New("no identity") }

func (refusing) Secret(_, _, secret string) (azcore.TokenCredential, error) {
	return nil, errors.New("invalid: " + secret)
}

func (refusing) Assertion(_, _ string, _ func(context.Context) (string, error)) (azcore.TokenCredential, error) {
	return nil, errors.New("invalid tenant")
}

// What is wrong with a credential is said with the remedy, and without any part of the credential.
func TestReportsWhatIsWrongWithCredentials(t *testing.T) {
	complete := map[string][]byte{"tenantID": []byte("t"), "clientID": []byte("c"), "clientSecret": []byte("s3cret")}
	without := func(key string) map[string][]byte {
		data := maps.Clone(complete)
		data[key] = nil
		return data
	}
	fromSecret := func(storage *v1beta1.SecureStorage) {
		storage.Spec.Provider.CredentialsSecretRef = &v1beta1.SecureStorageCredentialsSecretRef{Name: "own"}
	}
	for name, c := range map[string]struct {
		edit            func(*v1beta1.SecureStorage)
		data            map[string][]byte
		credentials     cloud.Credentials
		reason, message string
	}{
		"no Secret": {
			fromSecret, nil, cloud.TokenCredentials{},
			v1beta1.ReasonCredentialsMissing, "Secret own (spec.provider.credentialsSecretRef) does not exist; create it",
		},
		"no tenantID": {
			fromSecret, without("tenantID"), cloud.TokenCredentials{},
			v1beta1.ReasonCredentialsMissing, "Secret own (spec.provider.credentialsSecretRef) has no key tenantID; add it",
		},
		"no clientID": {
			fromSecret, without("clientID"), cloud.TokenCredentials{},
			v1beta1.ReasonCredentialsMissing, "Secret own (spec.provider.credentialsSecretRef) has no key clientID; add it",
		},
		"no clientSecret": {
			fromSecret, without("clientSecret"), cloud.TokenCredentials{},
			v1beta1.ReasonCredentialsMissing, "Secret own (spec.provider.credentialsSecretRef) has no key clientSecret; add it",
		},
		"a Secret with other values": {
			fromSecret, complete, refusing{},
			v1beta1.ReasonCredentialsInvalid, "Secret own (spec.provider.credentialsSecretRef) is not a valid credential; check that tenantID and clientID are UUIDs",
		},
		"an identity with other values": {
			workloadIdentity, nil, refusing{},
			v1beta1.ReasonCredentialsInvalid, "spec.provider.workloadIdentity is not a valid credential; check that tenantID and clientID are UUIDs",
		},
		"a manager without an identity": {
			func(*v1beta1.SecureStorage) {}, nil, refusing{},
			v1beta1.ReasonCredentialsMissing, "the manager has no credential of its own; set spec.provider.credentialsSecretRef or spec.provider.workloadIdentity, or configure a credential for the manager",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fastCloud())
			c.edit(f.storage)
			f.secrets = map[string]*corev1.Secret{}
			if c.data != nil {
				f.secrets["billing/own"] = &corev1.Secret{Data: c.data}
			}
			f.process.access.credentials = c.credentials
			credential, err := f.process.access.credential(t.Context(), f.storage)
			f.Expect(err).To(MatchError(c.message))
			f.Expect(credential).To(Equal(cloud.Credential{}))
			verdict, err := newScope().classifyError(err)
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(verdict.Reason()).To(Equal(c.reason))
			f.Expect(verdict.Message()).To(Equal(c.message))
			f.Expect(verdict.IsStalled()).To(BeTrue())
		})
	}
}

// given keeps the credentials that it is given.
type given struct {
	cloud.TokenCredentials
	values []string
}

func (g *given) Secret(tenantID, clientID, secret string) (azcore.TokenCredential, error) {
	g.values = []string{tenantID, clientID, secret}
	return g.TokenCredentials.Secret(tenantID, clientID, secret)
}

// A value that was written to a file or typed ends with a line break, with which Microsoft Entra ID rejects it.
func TestIgnoresSpaceAroundCredentials(t *testing.T) {
	f, credentials := newFixture(t, fastCloud()), &given{}
	f.process.access.credentials = credentials
	f.secrets["billing/own"].Data = map[string][]byte{"tenantID": []byte("t\n"), "clientID": []byte(" c\r\n"), "clientSecret": []byte("s3cret\n")}
	_, err := f.process.access.fromSecret(t.Context(), "billing", "own")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(credentials.values).To(Equal([]string{"t", "c", "s3cret"}))
	// A value of nothing else is none.
	f.secrets["billing/own"].Data["clientSecret"] = []byte(" \n")
	_, err = f.process.access.fromSecret(t.Context(), "billing", "own")
	f.Expect(err).To(MatchError("Secret own (spec.provider.credentialsSecretRef) has no key clientSecret; add it"))
}

type unreadable struct{ client.Reader }

// Get implements [client.Reader].
func (unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("the API server does not respond")
}

// It is retried: nothing is known about the Secret.
func TestUnreadableSecretIsAnError(t *testing.T) {
	f := newFixture(t, fastCloud())
	f.process.access.secrets = unreadable{}
	_, err := f.process.access.fromSecret(t.Context(), "billing", "own")
	f.Expect(err).To(MatchError("reading the credentials in Secret own: the API server does not respond"))
	_, err = newScope().classifyError(err)
	f.Expect(err).To(HaveOccurred())
}

// tokenRequests answers with a token or an error, and keeps what was requested.
type tokenRequests struct {
	client.SubResourceClient
	err       error
	account   client.ObjectKey
	audiences []string
}

// Create implements [client.SubResourceClient].
func (r *tokenRequests) Create(_ context.Context, account, request client.Object, _ ...client.SubResourceCreateOption) error {
	token := request.(*authenticationv1.TokenRequest) //nolint:errcheck // only TokenRequests are created
	r.account, r.audiences = client.ObjectKeyFromObject(account), token.Spec.Audiences
	token.Status.Token = "issued"
	return r.err
}

func TestRequestsTokenOfServiceAccount(t *testing.T) {
	accounts := schema.GroupResource{Resource: "serviceaccounts"}
	for name, c := range map[string]struct {
		account, named string
		err            error
		message        string
		temporary      bool
	}{
		"named":   {account: "storage", named: "storage"},
		"default": {account: "", named: "default"},
		"does not exist": {
			account: "storage", named: "storage", err: apierrors.NewNotFound(accounts, "storage"),
			message: "ServiceAccount storage (spec.provider.workloadIdentity) does not exist; create it",
		},
		"not allowed": {
			account: "storage", named: "storage", err: apierrors.NewForbidden(accounts, "storage", errors.New("RBAC")),
			message: "the manager is not allowed to request tokens of ServiceAccount storage (spec.provider.workloadIdentity); have an administrator grant it the verb create on " +
				"serviceaccounts/token: set rbac.workloadIdentity of the chart, or apply the component config/workload-identity; see Permissions in docs/operations.md",
		},
		"no response": {
			account: "storage", named: "storage", err: errors.New("EOF"), temporary: true,
			message: "the API server issued no token for ServiceAccount storage (spec.provider.workloadIdentity): it did not respond",
		},
		"unavailable": {
			account: "storage", named: "storage", err: apierrors.NewServiceUnavailable("request 7"), temporary: true,
			message: "the API server issued no token for ServiceAccount storage (spec.provider.workloadIdentity): ServiceUnavailable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fastCloud())
			requests := &tokenRequests{err: c.err}
			f.process.access.tokens = requests
			credential, err := f.process.access.fromServiceAccount("billing", v1beta1.SecureStorageWorkloadIdentity{TenantID: "t", ClientID: "c", ServiceAccountName: c.account})
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(credential.Scopes).To(Equal([]cloud.Scope{cloud.Anywhere}))
			token, err := credential.Token.GetToken(t.Context(), policy.TokenRequestOptions{})
			f.Expect(requests.account).To(Equal(client.ObjectKey{Namespace: "billing", Name: c.named}))
			f.Expect(requests.audiences).To(Equal([]string{"api://AzureADTokenExchange"}))
			if c.message != "" {
				f.Expect(err).To(MatchError(c.message))
				f.Expect(err).To(HaveField("Temporary", c.temporary))
				return
			}
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(token.Token).To(Equal("issued"))
		})
	}
}

func TestRefusedCredentialNamesTheRemedies(t *testing.T) {
	g := NewWithT(t)
	storage := newScope().storage
	g.Expect(refuseAmbient(storage, nil)).To(MatchError(And(
		ContainSubstring("namespace billing is not allowed to use the credential of the manager"),
		HaveSuffix("--ambient-credentials=billing=/subscriptions/s/resourceGroups/g of the manager"),
	)))
}

// The credential of the manager is only that of those who name no other.
func TestIsAmbient(t *testing.T) {
	g := NewWithT(t)
	storage := newScope().storage
	g.Expect(isAmbient(storage)).To(BeTrue())
	workloadIdentity(storage)
	g.Expect(isAmbient(storage)).To(BeFalse())
	storage = newScope(adopt).storage
	g.Expect(isAmbient(storage)).To(BeFalse())
}

// Only a credential that was never allowed shows that nothing was created: one that is missing may have been there before.
func TestHasNothingInCloud(t *testing.T) {
	notAllowed := &credentialError{v1beta1.ReasonCredentialsNotAllowed, "x"}
	for name, c := range map[string]struct {
		err       error
		accountID string
		want      bool
	}{
		"never allowed":      {err: notAllowed, want: true},
		"not allowed now":    {err: notAllowed, accountID: "a"},
		"missing":            {err: credentialMissing("x")},
		"invalid":            {err: credentialInvalid("x")},
		"refused by Azure":   {err: &cloud.Error{Kind: cloud.Denied}},
		"the cloud was read": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope()
			s.storage.Status.AccountID = c.accountID
			NewWithT(t).Expect(s.hasNothingInCloud(c.err)).To(Equal(c.want))
		})
	}
}

// What the status records is not forgotten without a credential.
func TestHasNoRecord(t *testing.T) {
	for name, c := range map[string]struct {
		status v1beta1.SecureStorageStatus
		want   bool
	}{
		"nothing":   {v1beta1.SecureStorageStatus{Conditions: []metav1.Condition{{}}}, true},
		"account":   {v1beta1.SecureStorageStatus{AccountID: "a"}, false},
		"principal": {v1beta1.SecureStorageStatus{PrincipalID: "p"}, false},
		"grant":     {v1beta1.SecureStorageStatus{Grants: []v1beta1.SecureStorageGrant{{}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(hasNoRecord(&v1beta1.SecureStorage{Status: c.status})).To(Equal(c.want))
		})
	}
}
