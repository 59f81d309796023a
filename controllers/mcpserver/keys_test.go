package mcpserver

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// counting counts the objects that are read as a whole.
type counting struct {
	client.Client
	reads int
}

func (c *counting) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	c.reads++
	return c.Client.Get(ctx, key, object, options...)
}

func TestEachVersionOfAKeyIsReadOnce(t *testing.T) {
	g := NewWithT(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "key", UID: "1"}, Data: map[string][]byte{"token": []byte("one")}}
	world := &counting{Client: reading(secret)}
	keys := &keyReader{metadata: world.Client, data: world}
	server, token := client.ObjectKey{Namespace: "acme", Name: "tools"}, origin{"Secret", "key", "token"}
	read := func() string {
		value, err := keys.read(t.Context(), server, token)
		g.Expect(err).NotTo(HaveOccurred())
		return string(value)
	}

	g.Expect(read()).To(Equal("one"))
	g.Expect(read()).To(Equal("one"))
	g.Expect(world.reads).To(Equal(1))

	g.Expect(world.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	secret.Data["token"] = []byte("two")
	g.Expect(world.Update(t.Context(), secret)).To(Succeed())
	g.Expect(read()).To(Equal("two"))
	g.Expect(world.reads).To(Equal(2))

	keys.forget(server, token)
	g.Expect(read()).To(Equal("two"))
	g.Expect(world.reads).To(Equal(2), "what is used is kept")

	keys.forget(server)
	g.Expect(keys.known).To(BeEmpty(), "what is not asked for is not kept")
}

func TestKeysThatHoldNothing(t *testing.T) {
	g := NewWithT(t)
	world := reading(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "ca"},
		Data: map[string]string{"empty": ""}, BinaryData: map[string][]byte{"binary": []byte("PEM")}})
	keys := &keyReader{metadata: world, data: world}
	for key, want := range map[string]string{"empty": "", "none": "", "binary": "PEM"} {
		value, err := keys.read(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools"}, origin{"ConfigMap", "ca", key})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(value).NotTo(BeNil(), "nil would trust the system's authorities")
		g.Expect(string(value)).To(Equal(want))
	}
	_, err := keys.read(t.Context(), client.ObjectKey{Namespace: "acme", Name: "tools"}, origin{"Secret", "none", "x"})
	g.Expect(err).To(MatchError(ContainSubstring("looking for Secret none: ")))
}
