package cloud

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"testing/iotest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	. "github.com/onsi/gomega"
)

// answer returns the SDK's error for an error response.
func answer(status int, body string, headers ...string) error {
	response := &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body:    io.NopCloser(bytes.NewBufferString(body)),
		Request: &http.Request{Method: http.MethodPut, URL: &url.URL{Scheme: "https", Host: "cloud.test"}},
	}
	for i := 0; i < len(headers); i += 2 {
		response.Header.Set(headers[i], headers[i+1])
	}
	return runtime.NewResponseError(response)
}

func body(code, message string) string {
	return fmt.Sprintf(`{"error":{"code":%q,"message":%q}}`, code, message)
}

func TestClassify(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		kind    Kind
		message string
	}{
		"not found": {
			answer(404, body("ResourceNotFound", "The Resource 'Microsoft.Storage/storageAccounts/a' under resource group 'g' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix")),
			NotFound, "The Resource 'Microsoft.Storage/storageAccounts/a' under resource group 'g' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
		},
		"no group":        {answer(404, body("ResourceGroupNotFound", "Resource group 'g' could not be found.")), GroupMissing, "Resource group 'g' could not be found."},
		"no subscription": {answer(404, body("SubscriptionNotFound", "The subscription 's' could not be found.")), GroupMissing, "The subscription 's' could not be found."},
		"throttled":       {answer(429, body("SubscriptionRequestsThrottled", "Number of 'write' requests exceeded."), "Retry-After", "17"), Throttled, "Number of 'write' requests exceeded."},
		"throttled, unknown code": {
			answer(429, body("SomethingNew", "slow down")), Throttled, "slow down",
		},
		"busy": {
			answer(409, body("StorageAccountOperationInProgress", "An operation is currently performing on this storage account that requires exclusive access.")),
			InProgress, "An operation is currently performing on this storage account that requires exclusive access.",
		},
		"not provisioned": {answer(409, body("StorageAccountIsNotProvisioned", "x")), InProgress, "x"},
		"vault busy":      {answer(409, body("ConflictError", "A conflict occurred that prevented the operation from completing.")), InProgress, "A conflict occurred that prevented the operation from completing."},
		"changed": {
			answer(412, body("PreconditionFailed", "The condition '\"1-2\"' in the If-Match header was not satisfied.")),
			InProgress, `The condition '"1-2"' in the If-Match header was not satisfied.`,
		},
		"propagating": {
			answer(403, body("KeyVaultAuthenticationFailure", "The operation failed because of authentication issue on the keyvault. For more information, see - https://aka.ms/storagekeyvaultaccesspolicy\nRequestId:5f1c1fd4-e01a-0012-3ab4-5c6d7e8f9abc\nTime:2026-03-01T12:00:00.1234567Z")),
			Propagating, "The operation failed because of authentication issue on the keyvault. For more information, see - https://aka.ms/storagekeyvaultaccesspolicy",
		},
		"principal": {answer(400, body("PrincipalNotFound", "Principal 0f does not exist in the directory d.")), Propagating, "Principal 0f does not exist in the directory d."},
		"taken":     {answer(409, body("StorageAccountAlreadyTaken", "The storage account named a is already taken.")), NameTaken, "The storage account named a is already taken."},
		"elsewhere": {answer(409, body("StorageAccountAlreadyExists", "x")), NameTaken, "x"},
		"granted":   {answer(409, body("RoleAssignmentExists", "The role assignment already exists.")), AlreadyGranted, "The role assignment already exists."},
		"locked":    {answer(409, body("ScopeLocked", "The scope 's' cannot perform delete operation because following scope(s) are locked: 's'.")), Locked, "The scope 's' cannot perform delete operation because following scope(s) are locked: 's'."},
		"deny assignment": {
			answer(403, body("DenyAssignmentAuthorizationFailed", "The access is denied because of the deny assignment with name 'd'.")),
			Locked, "The access is denied because of the deny assignment with name 'd'.",
		},
		"request timeout": {answer(408, "<html>Request Timeout</html>"), Unreachable, "Azure responded with HTTP status 408"},
		"policy":          {answer(403, body("RequestDisallowedByPolicy", "Resource 'a' was disallowed by policy.")), Disallowed, "Resource 'a' was disallowed by policy."},
		"denied": {
			answer(403, body("AuthorizationFailed", "The client 'c' with object id 'o' does not have authorization to perform action 'Microsoft.Storage/storageAccounts/write' over scope 's'.")),
			Denied, "The client 'c' with object id 'o' does not have authorization to perform action 'Microsoft.Storage/storageAccounts/write' over scope 's'.",
		},
		"denied for a key":       {answer(400, body("ForbiddenByRbac", "[ForbiddenByRbac (Forbidden)] Caller is not authorized to perform action on resource.")), Denied, "[ForbiddenByRbac (Forbidden)] Caller is not authorized to perform action on resource."},
		"denied, without a code": {answer(403, ""), Denied, "HTTP status 403"},
		"token":                  {answer(401, body("ExpiredAuthenticationToken", "The access token expiry UTC time is earlier than now.")), BadCredentials, "The access token expiry UTC time is earlier than now."},
		"invalid":                {answer(400, body("AccountNameInvalid", "A is not a valid storage account name.")), Invalid, "A is not a valid storage account name."},
		"quota":                  {answer(409, body("MaxStorageAccountsCountPerSubscriptionExceeded", "x")), Invalid, "x"},
		"fixed":                  {answer(409, body("AccountPropertyCannotBeUpdated", "x")), Invalid, "x"},
		"server":                 {answer(500, body("InternalServerError", "Tracking id 1234 of this very moment")), Unreachable, "Azure responded with HTTP status 500"},
		"not JSON":               {answer(502, "<html>Bad Gateway</html>"), Unreachable, "Azure responded with HTTP status 502"},
		"no answer":              {&http.MaxBytesError{}, Unreachable, "Azure did not respond"},
		"timeout":                {fmt.Errorf("x: %w", context.DeadlineExceeded), Unreachable, "Azure did not respond in time"},
		"directory refuses":      {&azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: http.StatusUnauthorized}}, BadCredentials, "Microsoft Entra ID rejected the credential"},
		"directory unavailable":  {&azidentity.AuthenticationFailedError{}, Unreachable, "Microsoft Entra ID did not respond"},
		"canceled":               {fmt.Errorf("x: %w", context.Canceled), Unreachable, "Azure did not respond in time"},
		"directory fails":        {&azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 500}}, Unreachable, "Microsoft Entra ID did not respond"},
		"directory is busy":      {&azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 429}}, Unreachable, "Microsoft Entra ID did not respond"},
		"token, unknown code":    {answer(401, body("SomethingNew", "x")), BadCredentials, "x"},
		"busy, unknown code":     {answer(409, body("SomethingNew", "x")), InProgress, "x"},
		"changed, unknown code":  {answer(412, body("SomethingNew", "x")), InProgress, "x"},
		"invalid, unknown code":  {answer(400, body("SomethingNew", "x")), Invalid, "x"},
		"redirected":             {answer(302, body("SomethingNew", "x")), Unreachable, "Azure responded with HTTP status 302"},
		"no message":             {answer(400, `{"error":{"code":"SomethingNew","message":" "}}`), Invalid, "HTTP status 400"},
		"no response":            {&azcore.ResponseError{StatusCode: 400}, Invalid, "HTTP status 400"},
		"no assertion":           {fmt.Errorf("x: %w", &AssertionError{Message: "ServiceAccount a does not exist"}), NoAssertion, "ServiceAccount a does not exist"},
		"assertion fails":        {fmt.Errorf("x: %w", &AssertionError{Message: "no token for ServiceAccount a", Temporary: true}), Unreachable, "no token for ServiceAccount a"},
		"no credential":          {fmt.Errorf("x: %w", azidentity.NewCredentialUnavailableError("no managed identity")), BadCredentials, "Microsoft Entra ID rejected the credential"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := classify(OnAccount, "doing it", c.err)
			typed, ok := AsError(err)
			g.Expect(ok).To(BeTrue())
			g.Expect(typed.Kind).To(Equal(c.kind))
			g.Expect(typed.Message).To(Equal(c.message))
			g.Expect(typed.Target).To(Equal(OnAccount))
			g.Expect(err.Error()).To(HavePrefix("doing it: " + c.message))
			g.Expect(Is(err, c.kind)).To(BeTrue())
			g.Expect(Is(err, "another", "one")).To(BeFalse())
			g.Expect(errors.Is(err, c.err)).To(BeTrue())
		})
	}
	NewWithT(t).Expect(classify(OnAccount, "doing it", nil)).To(Succeed())
}

// The SDK marks other errors in the same way as a rejected credential: a response to PATCH or POST that is cut, and each error
// of a source of tokens.
func TestOnlyRejectionsAreOfTheCredential(t *testing.T) {
	noToken := func(err error) azcore.TokenCredential {
		return assertion(func(context.Context) (string, error) { return "", err })
	}
	rejected, err := credentialsAt(&directory{refuses: true}).Secret(tokenTenant, tokenClient, "proof")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	update := func(c *Client) error {
		_, err := c.UpdateAccount(t.Context(), "g", &Account{Name: "a"}, Change{})
		return err
	}
	for name, c := range map[string]struct {
		token azcore.TokenCredential
		call  func(c *Client) error
		kind  Kind
	}{
		"PATCH is cut": {bearer("t"), update, Unreachable},
		"POST is cut": {bearer("t"), func(c *Client) error {
			_, err := c.IsNameAvailable(t.Context(), "g", "a")
			return err
		}, Unreachable},
		"API server fails":       {noToken(&AssertionError{Message: "no token", Temporary: true}), update, Unreachable},
		"source of tokens fails": {noToken(io.ErrUnexpectedEOF), update, Unreachable},
		"token request canceled": {noToken(context.Canceled), update, Unreachable},
		"rejected":               {rejected, update, BadCredentials},
		"unavailable":            {bearer(""), update, BadCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			client, err := New(Config{Transport: cutting{}}).Client("s", Credential{Token: c.token, Scopes: []Scope{Anywhere}})
			g.Expect(err).NotTo(HaveOccurred())
			err = c.call(client)
			g.Expect(Is(err, c.kind)).To(BeTrue(), "%v", err)
		})
	}
}

// cutting is a transport that cuts the body of each response.
type cutting struct{}

// Do implements the SDK's transport.
func (cutting) Do(request *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: request, Body: io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))}, nil
}

// The kind of a code does not depend on the status, which differs between the services of Azure.
func TestClassifyKnowsErrorCodes(t *testing.T) {
	for kind, codes := range map[Kind][]string{
		GroupMissing: {"ResourceGroupNotFound", "SubscriptionNotFound"},
		Throttled:    {"TooManyRequests", "SubscriptionRequestsThrottled"},
		InProgress: {
			"StorageAccountOperationInProgress", "StorageAccountIsNotProvisioned", "ConflictError", "AnotherOperationInProgress", "PreconditionFailed",
		},
		Propagating: {"KeyVaultAuthenticationFailure", "KeyVaultAccessForbidden", "PrincipalNotFound"},
		NameTaken: {
			"StorageAccountAlreadyTaken", "StorageAccountAlreadyExists", "StorageAccountInAnotherResourceGroup", "AccountAlreadyExists",
			"StorageAccountNameInRecoverableState", "ObjectIsDeletedButRecoverable", "InvalidResourceLocation",
		},
		AlreadyGranted: {"RoleAssignmentExists"},
		Locked:         {"ScopeLocked", "AccountProtectedFromDeletion", "DenyAssignmentAuthorizationFailed"},
		Disallowed:     {"RequestDisallowedByPolicy"},
		Denied:         {"AuthorizationFailed", "LinkedAuthorizationFailed", "ForbiddenByRbac"},
		BadCredentials: {"AuthenticationFailed", "InvalidAuthenticationToken", "InvalidAuthenticationTokenTenant", "ExpiredAuthenticationToken"},
		Invalid: {
			"AccountPropertyCannotBeUpdated", "RoleAssignmentUpdateNotPermitted", "RoleAssignmentLimitExceeded", "MaxStorageAccountsCountPerSubscriptionExceeded",
			"StorageAccountCountExceedsLimitPerRegion", "SubscriptionNotRegistered", "MissingSubscriptionRegistration", "ReadOnlyDisabledSubscription",
		},
	} {
		for _, code := range codes {
			for _, status := range []int{http.StatusConflict, http.StatusForbidden, http.StatusInternalServerError} {
				NewWithT(t).Expect(Is(classify(OnAccount, "doing it", answer(status, body(code, "x"))), kind)).To(BeTrue(), "%s with status %d", code, status)
			}
		}
	}
}

func TestMessagesDoNotChangeBetweenRetries(t *testing.T) {
	for _, messages := range [][2]string{
		{"Denied.\r\nRequestId:8c3c2f4e-001a-0045-7d8e-aabbccddeeff\r\nTime:2026-01-01T10:11:12.9876543Z", "Denied.\r\nRequestId:11111111-001a-0045-7d8e-222222222222\r\nTime:2026-12-31T23:59:59Z"},
		{"Failed. Trace ID: 1a2b3c4d-0000-4000-8000-00000000abcd Correlation ID: 00000000-0000-4000-8000-00000000dcba Timestamp: 2026-01-01 00:00:00Z", "Failed. Trace ID: ffffffff-0000-4000-8000-00000000ffff Correlation ID: 99999999-0000-4000-8000-00000000eeee Timestamp: 2026-06-01 12:34:56Z"},
		{"Please retry (Activity ID: abcdef01-2345)", "Please retry (Activity ID: 99887766-ffff)"},
		{"Something, request id = 'abc123'.", "Something, request id = 'def456'."},
	} {
		NewWithT(t).Expect(withoutRequestIDs(messages[0])).To(Equal(withoutRequestIDs(messages[1])))
	}
	for _, message := range []string{
		"Tag 'time' is reserved.", "The client 'a' with object id 'c0ffee00-0000-4000-8000-00000000beef' may not.",
		"The client request identifies an account.", "Try again in time for 2026.",
	} {
		NewWithT(t).Expect(withoutRequestIDs(message)).To(Equal(message))
	}
}

func TestRetryAfter(t *testing.T) {
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	after := func(g *WithT, headers ...string) time.Duration {
		var response *azcore.ResponseError
		g.Expect(errors.As(answer(429, "", headers...), &response)).To(BeTrue())
		return retryAfter(response.RawResponse)
	}
	for name, c := range map[string]struct {
		headers []string
		want    time.Duration
	}{
		"none":                {nil, 0},
		"seconds":             {[]string{"Retry-After", "17"}, 17 * time.Second},
		"a date in the past":  {[]string{"Retry-After", in(-time.Minute)}, 0},
		"a date far away":     {[]string{"Retry-After", in(1000 * time.Hour)}, time.Hour},
		"milliseconds first":  {[]string{"Retry-After", "1", "x-ms-retry-after-ms", "120"}, 120 * time.Millisecond},
		"milliseconds, short": {[]string{"retry-after-ms", "30"}, 30 * time.Millisecond},
		"nonsense":            {[]string{"Retry-After", "soon"}, 0},
		"negative":            {[]string{"Retry-After", "-5"}, 0},
		"absurd":              {[]string{"Retry-After", "999999999999"}, time.Hour},
		"more than absurd":    {[]string{"Retry-After", "999999999999999999999999"}, time.Hour},
		"very negative":       {[]string{"Retry-After", "-9223372036854775808"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(after(g, c.headers...)).To(Equal(c.want))
		})
	}
	t.Run("a date", func(t *testing.T) {
		g := NewWithT(t)
		began := time.Now()
		left := after(g, "Retry-After", in(time.Minute))
		// The date has whole seconds.
		g.Expect(left).To(And(BeNumerically(">", time.Minute-time.Second-time.Since(began)), BeNumerically("<=", time.Minute)))
	})
	NewWithT(t).Expect(retryAfter(nil)).To(BeZero())
}

func FuzzErrorBody(f *testing.F) {
	for _, seed := range []string{"", "{}", "null", "[]", `{"error":"invalid_client"}`, `{"error":{"code":5}}`, body("A", "B"), body("A", "RequestId:"), "\xff", `{"error":{"code":"A","message":"Time:2026"}}`} {
		f.Add(seed, 400)
	}
	f.Fuzz(func(t *testing.T, body string, status int) {
		if status < 400 || status > 599 {
			return
		}
		typed, ok := AsError(classify(OnVault, "reading", answer(status, body)))
		if !ok || typed.Kind == "" || typed.Message == "" && status < 500 && body == "" {
			t.Fatalf("%d %q is %+v", status, body, typed)
		}
		if again := withoutRequestIDs(typed.Message); len(again) > len(typed.Message) {
			t.Fatalf("%q grew to %q", typed.Message, again)
		}
	})
}
