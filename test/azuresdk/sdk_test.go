package azuresdk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/fixpoint-dev/fixpoint/test/npm"
)

const (
	storage       = "@azure/arm-storage"
	vaults        = "@azure/arm-keyvault"
	authorization = "@azure/arm-authorization"
	keys          = "@azure/keyvault-keys"
)

// An application that may log in.
const clientID, clientSecret = "11111111-1111-4111-8111-111111111111", "s3cret"

// hosts are the endpoints of the SDKs that the fake cloud stands for.
const hosts = "management.azure.com,login.microsoftonline.com,*.vault.azure.net"

var fakeCloud string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "fixpoint-azuresdk-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	fakeCloud = filepath.Join(folder, "fake-cloud")
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func prepare() error {
	if err := npm.Install("."); err != nil {
		return err
	}
	return npm.Run(exec.Command("go", "build", "-o", fakeCloud, "github.com/fixpoint-dev/fixpoint/cmd/fake-cloud"))
}

// report is what a scenario prints.
type report struct {
	// Facts are what the scenario found out.
	Facts json.RawMessage `json:"facts"`
	// Bodies counts the bodies that each SDK read, and that were compared with its models.
	Bodies map[string]int `json:"bodies"`
	// Results counts the values that the SDKs returned, and that were compared with their types.
	Results int `json:"results"`
	// Wrong are unknown, missing and wrong properties.
	Wrong []string `json:"wrong"`
}

func TestSDKsUnderstandTheFakeCloud(t *testing.T) {
	for name, c := range map[string]struct {
		// bodies and results are how many there are at least.
		bodies  map[string]int
		results int
	}{
		"account": {map[string]int{storage: 20, authorization: 2, keys: 1}, 25},
		"vault":   {map[string]int{vaults: 25}, 25},
		"key":     {map[string]int{vaults: 10, keys: 25}, 25},
		"grants":  {map[string]int{storage: 1, authorization: 30}, 25},
		"faults":  {map[string]int{storage: 25, vaults: 2, authorization: 2, keys: 2}, 15},
		"login":   {map[string]int{storage: 5, vaults: 4, keys: 4}, 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			// when
			got := play(t, g, name)
			// then the SDKs read each response without a property left over or missing
			g.Expect(got.Wrong).To(BeEmpty())
			for of, least := range c.bodies {
				g.Expect(got.Bodies[of]).To(BeNumerically(">=", least), "bodies that %s read", of)
			}
			g.Expect(got.Results).To(BeNumerically(">=", c.results))
			// and understood what it says
			want, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.Facts).To(MatchJSON(want))
			t.Logf("bodies %v, results %d", got.Bodies, got.Results)
		})
	}
}

// The inspection itself: each of these is in a response of the scenario.
func TestInspectionFindsWhatNoCloudSends(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	got := play(t, g, "liar")
	g.Expect(got.Wrong).To(ConsistOf(
		// properties that the SDK does not know
		"GET resourceGroups/providers/storageAccounts 200: surprise: unknown to "+storage,
		"GET resourceGroups/providers/storageAccounts 200: properties.encryption.services.blob.color: unknown to "+storage,
		"GET resourceGroups/providers/vaults 200: properties.accessPolicies[].mood: unknown to "+vaults,
		"GET keys/a 200: attributes.weight: unknown to "+keys,
		"GET fixpoint-demo/Microsoft.Authorization/x 200: color: unknown to "+authorization,
		"GET fixpoint-demo/Microsoft.Authorization/x 200: properties.surprise: unknown to "+authorization,
		"AuthorizationManagementClient.roleAssignments.get.color: not declared",
		// properties that are missing
		"StorageManagementClient.storageAccounts.getProperties.location: missing",
		"StorageManagementClient.storageAccounts.getProperties.sku.name: missing",
		"KeyVaultManagementClient.vaults.get.properties.tenantId: missing",
		// values of the wrong type, and values that the SDK does not know
		"StorageManagementClient.storageAccounts.getProperties.creationTime: null is not a time",
		`StorageManagementClient.storageAccounts.getProperties.isHnsEnabled: "no" is not a boolean`,
		`StorageManagementClient.storageAccounts.getProperties.kind: "StorageV3" is not a value of KnownKind`,
		`KeyVaultManagementClient.vaults.get.properties.accessPolicies[].permissions.keys[]: "fly" is not a value of KnownKeyPermissions`,
		`KeyVaultManagementClient.vaults.get.properties.sku.family: "B" is not a value of KnownSkuFamily`,
		"KeyVaultManagementClient.vaults.get.properties.vaultUri: 7 is not a text",
		"AuthorizationManagementClient.roleAssignments.get.principalId: 1 is not a text",
	))
}

// play runs a scenario against a cloud of its own.
func play(t *testing.T, g *WithT, scenario string) report {
	t.Helper()
	url, ca := serve(t, g)
	token := filepath.Join(t.TempDir(), "token")
	g.Expect(os.WriteFile(token, []byte("signed by a cluster"), 0o600)).To(Succeed())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	node := exec.CommandContext(ctx, "node", filepath.Join("scenarios", scenario+".mjs"))
	node.Env = append(os.Environ(), "FAKE_CLOUD="+url, "NODE_EXTRA_CA_CERTS="+ca, "CLIENT_ID="+clientID, "CLIENT_SECRET="+clientSecret, "TOKEN_FILE="+token)
	var out, failure bytes.Buffer
	node.Stdout, node.Stderr = &out, &failure
	g.Expect(node.Run()).To(Succeed(), "%s", &failure)
	var got report
	g.Expect(json.Unmarshal(out.Bytes(), &got)).To(Succeed(), "%s", &out)
	return got
}

// serve runs the fake cloud over HTTPS, and returns its URL and the file of its CA.
func serve(t *testing.T, g *WithT) (url, ca string) {
	t.Helper()
	ca = filepath.Join(t.TempDir(), "ca.pem")
	server := exec.Command(fakeCloud, "--listen=127.0.0.1:0", "--tls", "--tls-ca-out="+ca, "--tls-hosts="+hosts, "--knobs=instant", "--demo", "--client="+clientID+"="+clientSecret)
	out := gbytes.NewBuffer()
	server.Stdout, server.Stderr = out, out
	g.Expect(server.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Errorf("the fake cloud ended with %v:\n%s", err, out.Contents())
		}
	})
	g.Eventually(out).WithTimeout(time.Minute).Should(gbytes.Say("demo "))
	return strings.TrimSpace(regexp.MustCompile(`https://[^/ ]+`).FindString(string(out.Contents()))), ca
}
