package fakecloud

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const demoHost = "fixpoint-demo.vault.azure.net"

// answer is a response of the data plane.
type answer struct {
	status int
	header http.Header
	body   map[string]any
}

func (a answer) code() string {
	failure, _ := a.body["error"].(map[string]any)
	text, _ := failure["code"].(string)
	return text
}

func (a answer) inner() string {
	failure, _ := a.body["error"].(map[string]any)
	inner, _ := failure["innererror"].(map[string]any)
	text, _ := inner["code"].(string)
	return text
}

// data sends a request to the data plane of a key vault.
func (f *fixture) data(method, host, path, body, token string) answer {
	f.t.Helper()
	request := httptest.NewRequestWithContext(f.t.Context(), method, "https://"+host+path, strings.NewReader(body))
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	recorder := httptest.NewRecorder()
	f.cloud.ServeHTTP(recorder, request)
	got := answer{status: recorder.Code, header: recorder.Header()}
	if recorder.Body.Len() > 0 {
		f.Expect(json.Unmarshal(recorder.Body.Bytes(), &got.body)).To(Succeed())
	}
	return got
}

func TestDataPlaneAnswers(t *testing.T) {
	const version = "?api-version=2025-07-01"
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code, inner        string
	}{
		"a list":                           {"GET", "/keys" + version, "", 200, "", ""},
		"a key":                            {"GET", "/keys/storage" + version, "", 200, "", ""},
		"a key with a slash at the end":    {"GET", "/keys/storage/" + version, "", 200, "", ""},
		"versions":                         {"GET", "/keys/storage/versions" + version, "", 200, "", ""},
		"a new key":                        {"POST", "/keys/other/create" + version, `{"kty":"EC"}`, 200, "", ""},
		"a new version":                    {"POST", "/keys/storage/create" + version, `{"kty":"RSA","key_size":3072}`, 200, "", ""},
		"a rotation":                       {"POST", "/keys/storage/rotate" + version, "", 200, "", ""},
		"a change":                         {"PATCH", "/keys/storage/" + version, `{"attributes":{"enabled":false}}`, 200, "", ""},
		"a deletion":                       {"DELETE", "/keys/storage" + version, "", 200, "", ""},
		"deleted keys":                     {"GET", "/deletedkeys" + version, "", 200, "", ""},
		"a missing key":                    {"GET", "/keys/none" + version, "", 404, "KeyNotFound", ""},
		"a missing version":                {"GET", "/keys/storage/none" + version, "", 404, "KeyNotFound", ""},
		"a key that is not deleted":        {"GET", "/deletedkeys/storage" + version, "", 404, "KeyNotFound", ""},
		"a rotation of a missing key":      {"POST", "/keys/none/rotate" + version, "", 404, "KeyNotFound", ""},
		"an unknown type of key":           {"POST", "/keys/other/create" + version, `{"kty":"DES"}`, 400, "BadParameter", ""},
		"a body that is not JSON":          {"POST", "/keys/other/create" + version, `{`, 400, "InvalidRequestContent", ""},
		"an unknown version":               {"GET", "/keys?api-version=1.0", "", 400, "BadParameter", ""},
		"an unknown operation":             {"POST", "/keys/storage/sing" + version, "{}", 400, "BadParameter", ""},
		"a name of a key that is deleted":  {"POST", "/keys/gone/create" + version, `{"kty":"RSA"}`, 409, "Conflict", "ObjectIsDeletedButRecoverable"},
		"a recovery":                       {"POST", "/deletedkeys/gone/recover" + version, "", 200, "", ""},
		"a purge despite purge protection": {"DELETE", "/deletedkeys/gone" + version, "", 403, "Forbidden", "ForbiddenByPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, Instant())
			_, err := f.cloud.SeedKey(f.demo.Vault, "gone", KeySpec{})
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(f.cloud.DeleteKey(f.demo.Vault, "gone")).To(Succeed())
			got := f.data(c.method, demoHost, c.path, c.body, Token("tester"))
			f.Expect(got.status).To(Equal(c.status), "%v", got.body)
			f.Expect(got.code()).To(Equal(c.code))
			f.Expect(got.inner()).To(Equal(c.inner))
		})
	}
}

func TestDataPlaneChallengesRequestsWithoutAToken(t *testing.T) {
	f := newFixture(t, Instant())
	for _, token := range []string{"", "forged"} {
		got := f.data("GET", demoHost, "/keys?api-version=2025-07-01", "", token)
		f.Expect(got.status).To(Equal(http.StatusUnauthorized))
		f.Expect(got.code()).To(Equal("Unauthorized"))
		f.Expect(got.header.Get("WWW-Authenticate")).To(Equal(`Bearer authorization="https://login.microsoftonline.com/` + Tenant + `", resource="https://vault.azure.net"`))
	}
}

func TestDataPlaneOfAMissingKeyVault(t *testing.T) {
	f := newFixture(t, Instant())
	got := f.data("GET", "none.vault.azure.net", "/keys?api-version=2025-07-01", "", Token("tester"))
	f.Expect(got.status).To(Equal(http.StatusNotFound))
	f.Expect(got.code()).To(Equal("VaultNotFound"))
}

func TestDataPlaneObeysFaultsDenialsAndTheLedger(t *testing.T) {
	f := newFixture(t, Instant())
	const rotate = "/keys/storage/rotate?api-version=2025-07-01"
	f.cloud.Inject(Fault{Method: "POST", Resource: "keys/storage", Status: http.StatusServiceUnavailable, Code: "ServerTimeout"})
	f.Expect(f.data("POST", demoHost, rotate, "", Token("tester")).code()).To(Equal("ServerTimeout"))
	f.Expect(f.data("POST", demoHost, rotate, "", Token("tester")).status).To(Equal(http.StatusOK))
	f.Expect(f.cloud.Effects(Created, "vaults/fixpoint-demo/keys/storage")).To(HaveLen(1))
	f.cloud.Deny(Denial{Who: "tester", Action: "Microsoft.KeyVault/vaults/keys/rotate/action"})
	denied := f.data("POST", demoHost, rotate, "", Token("tester"))
	f.Expect(denied.code()).To(Equal("Forbidden"))
	f.Expect(denied.inner()).To(Equal("ForbiddenByRbac"))
}

func TestDeletedKeyIsFoundAfterAWhile(t *testing.T) {
	f := newFixture(t, Knobs{ReadAfterWrite: Fixed(time.Minute)})
	f.Expect(f.data("DELETE", demoHost, "/keys/storage?api-version=2025-07-01", "", Token("tester")).body).To(HaveKey("recoveryId"))
	find := func() int {
		return f.data("GET", demoHost, "/deletedkeys/storage?api-version=2025-07-01", "", Token("tester")).status
	}
	f.Expect(find()).To(Equal(http.StatusNotFound))
	f.clock.Step(time.Minute)
	f.Expect(find()).To(Equal(http.StatusOK))
}

// A page of the data plane leads to the next one at the same host.
func TestPagesOfTheDataPlane(t *testing.T) {
	f := newFixture(t, Knobs{PageSize: 1})
	_, err := f.cloud.SeedKey(f.demo.Vault, "another", KeySpec{})
	f.Expect(err).NotTo(HaveOccurred())
	first := f.data("GET", demoHost, "/keys?api-version=2025-07-01", "", Token("tester"))
	link, _ := first.body["nextLink"].(string)
	next, found := strings.CutPrefix(link, "https://"+demoHost)
	f.Expect(found).To(BeTrue(), "%v", first.body)
	f.Expect(f.data("GET", demoHost, next, "", Token("tester")).body).To(And(HaveKey("value"), Not(HaveKey("nextLink"))))
}

func TestRecoveryLevelOfKeys(t *testing.T) {
	for name, c := range map[string]struct {
		vault Vault
		want  string
	}{
		"nothing":             {Vault{}, "Purgeable"},
		"soft delete":         {Vault{SoftDelete: true, RetentionDays: 90}, "Recoverable+Purgeable"},
		"purge protection":    {Vault{SoftDelete: true, RetentionDays: 90, PurgeProtection: true}, "Recoverable"},
		"a shorter retention": {Vault{SoftDelete: true, RetentionDays: 7}, "CustomizedRecoverable+Purgeable"},
		"a shorter retention, and purge protection": {Vault{SoftDelete: true, RetentionDays: 7, PurgeProtection: true}, "CustomizedRecoverable"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(c.vault.recoveryLevel()).To(Equal(c.want))
		})
	}
}
