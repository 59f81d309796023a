package cloud_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/fakecloud"
)

// The token in the file is renewed while the manager runs.
func TestReadsTokenFileForEachRequest(t *testing.T) {
	g := NewWithT(t)
	server := fakecloud.New(fakecloud.Options{})
	demo := server.SeedDemo()
	endpoint := server.StartHTTP()
	t.Cleanup(endpoint.Close)
	path := filepath.Join(t.TempDir(), "token")
	write := func(content string) { g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed()) }
	own, err := cloud.FileCredentials{Path: path}.Own()
	g.Expect(err).NotTo(HaveOccurred())
	client, err := cloud.New(cloud.Config{Cloud: endpoint.Cloud(), AllowHTTP: true, Transport: endpoint.Client()}).
		Client(demo.Subscription, cloud.Credential{Name: "own", Token: own, Scopes: []cloud.Scope{cloud.Anywhere}})
	g.Expect(err).NotTo(HaveOccurred())
	read := func() error {
		_, err := client.Vault(t.Context(), "test", demo.Group, demo.Vault)
		return err
	}

	// given a token that was used
	write(fakecloud.Token("first") + "\n")
	g.Expect(read()).To(Succeed())
	g.Expect(server.Counts("")).To(HaveKey("first"))
	// when the file changes
	write(fakecloud.Token("second"))
	// then the next request carries the new token
	server.ResetCounts()
	g.Expect(read()).To(Succeed())
	g.Expect(server.Counts("")).To(And(HaveLen(1), HaveKey("second")))

	// and an unusable file is an error that names the file and the flag
	for what, breakFile := range map[string]func(){
		"is empty":     func() { write(" \n") },
		"no such file": func() { g.Expect(os.Remove(path)).To(Succeed()) },
	} {
		write(fakecloud.Token("second"))
		breakFile()
		err := read()
		g.Expect(cloud.Is(err, cloud.NoAssertion)).To(BeTrue(), "%v", err)
		g.Expect(err).To(MatchError(And(ContainSubstring(what), ContainSubstring(path), ContainSubstring("correct the file of --cloud-token-file"))))
	}
	// and the credential recovers with the file
	write(fakecloud.Token("third"))
	g.Expect(read()).To(Succeed())
}
