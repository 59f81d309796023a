package mcpserver

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// countingClient counts reads of whole objects.
type countingClient struct {
	client.Client
	reads int
}

func (c *countingClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	c.reads++
	return c.Client.Get(ctx, key, object, options...)
}

func TestKeyReaderReadsEachVersionOnce(t *testing.T) {
	g := NewWithT(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "key", UID: "1"}, Data: map[string][]byte{"token": []byte("one")}}
	api := &countingClient{Client: newClient(secret)}
	keys := &keyReader{metadata: api.Client, data: api}
	server, token := client.ObjectKey{Namespace: "acme", Name: "tools"}, keyRef{"Secret", "key", "token"}
	read := func() string {
		value, err := keys.read(t.Context(), server, token)
		g.Expect(err).NotTo(HaveOccurred())
		return string(value)
	}

	g.Expect(read()).To(Equal("one"))
	g.Expect(read()).To(Equal("one"))
	g.Expect(api.reads).To(Equal(1))

	g.Expect(api.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	secret.Data["token"] = []byte("two")
	g.Expect(api.Update(t.Context(), secret)).To(Succeed())
	g.Expect(read()).To(Equal("two"))
	g.Expect(api.reads).To(Equal(2))

	// A Secret that was deleted and created again is another one, whatever its version.
	keys.store(server, token, version{uid: "2", resourceVersion: secret.ResourceVersion, value: []byte("stale")})
	g.Expect(read()).To(Equal("two"))
	api.reads = 2

	other := keyRef{"Secret", "key", "former"}
	_, err := keys.read(t.Context(), server, other)
	g.Expect(err).NotTo(HaveOccurred())
	api.reads = 2

	keys.forget(server, token)
	g.Expect(keys.known[server]).NotTo(HaveKey(other), "keys that are no longer in use are dropped")
	g.Expect(read()).To(Equal("two"))
	g.Expect(api.reads).To(Equal(2), "keys in use are kept")

	keys.forget(server, keyRef{"Secret", "never read", "token"})
	g.Expect(keys.known).To(BeEmpty(), "nothing is kept of a key that was not read")
	g.Expect(read()).To(Equal("two"))
	keys.forget(server)
	g.Expect(keys.known).To(BeEmpty(), "unused keys are dropped")
}

func TestKeyReaderOfMissingKeys(t *testing.T) {
	g := NewWithT(t)
	api := newClient(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "ca"},
		Data: map[string]string{"empty": ""}, BinaryData: map[string][]byte{"binary": []byte("PEM")}})
	keys := &keyReader{metadata: api, data: api}
	for key, want := range map[string]string{"empty": "", "none": "", "binary": "PEM"} {
		value, err := keys.read(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools"}, keyRef{"ConfigMap", "ca", key})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(value).NotTo(BeNil(), "nil would mean the system CAs")
		g.Expect(string(value)).To(Equal(want))
	}
	_, err := keys.read(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools"}, keyRef{"Secret", "none", "x"})
	g.Expect(err).To(MatchError(ContainSubstring("getting Secret none: ")))
}

// A value that cannot be read is an error and no empty value, which would be sent as a token, or replace the CAs.
func TestKeyThatCannotBeReadIsAnError(t *testing.T) {
	at := metav1.ObjectMeta{Namespace: "acme", Name: "key"}
	keys := &keyReader{metadata: newClient(&corev1.Secret{ObjectMeta: at}, &corev1.ConfigMap{ObjectMeta: at}), data: newClient()}
	for _, kind := range []string{"Secret", "ConfigMap"} {
		g := NewWithT(t)
		_, err := keys.read(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools"}, keyRef{kind, "key", "x"})
		g.Expect(err).To(MatchError(And(HavePrefix("reading "+kind+" key: "), ContainSubstring("not found"))))
		g.Expect(keys.known).To(BeEmpty())
	}
}
