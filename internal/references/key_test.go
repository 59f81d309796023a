package references_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

var (
	tools = types.NamespacedName{Namespace: namespace, Name: "tools"}
	key   = []byte("0123456789abcdef0123456789abcdef")
)

func TestDeclare(t *testing.T) {
	const keyed = "63f20412b53118be29cf8496d047972b"
	cases := map[string]struct {
		finding references.Finding
		live    string
		want    string
		keyless bool
	}{
		"no data":                        {finding: references.Finding{}, live: keyed, want: "", keyless: true},
		"ConfigMaps only":                {finding: references.Finding{Hash: "aa"}, want: "aa", keyless: true},
		"Secret, new":                    {finding: references.Finding{Hash: "aa", Secret: true}, want: keyed},
		"Secret, unchanged":              {finding: references.Finding{Hash: "aa", Secret: true}, live: keyed, want: keyed},
		"Secret, changed":                {finding: references.Finding{Hash: "aa", Secret: true}, live: "bb", want: keyed},
		"Secret, unchanged since before": {finding: references.Finding{Hash: "aa", Secret: true}, live: "aa", want: "aa", keyless: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(references.Declare(c.finding, tools, c.live, key)).To(Equal(c.want))
			g.Expect(references.NeedsKey(c.finding, c.live)).To(Equal(!c.keyless))
		})
	}
}

// TestDeclareDependsOnAllOfItsInput: equal data in two objects, or in two namespaces, has different hashes.
func TestDeclareDependsOnAllOfItsInput(t *testing.T) {
	finding := references.Finding{Hash: "aa", Secret: true}
	other := []byte("ffffffffffffffffffffffffffffffff")
	hashes := map[string]string{
		"as is":             references.Declare(finding, tools, "", key),
		"another key":       references.Declare(finding, tools, "", other),
		"another namespace": references.Declare(finding, types.NamespacedName{Namespace: "elsewhere", Name: "tools"}, "", key),
		"another name":      references.Declare(finding, types.NamespacedName{Namespace: namespace, Name: "more"}, "", key),
		"other data":        references.Declare(references.Finding{Hash: "ab", Secret: true}, tools, "", key),
	}
	seen := map[string]string{}
	for name, hash := range hashes {
		NewWithT(t).Expect(seen).NotTo(HaveKey(hash), name)
		seen[hash] = name
	}
}

// guess finds a PIN of six digits by the annotation of a pod template, as whoever can read the template can:
// the format of the hash is public. The key is what they do not have.
func guess(t *testing.T, annotation string, hashOf func(references.Finding) string) (pin string) {
	t.Helper()
	cluster := newCluster(secret("pin", "pin", ""))
	all := []references.Reference{{Kind: references.Secret, Name: "pin", Keys: []string{"pin"}, Rolls: true}}
	const pins = 1_000_000
	for i := 481_000; i < 482_000; i++ { // the part of the search that contains the PIN
		pin := fmt.Sprintf("%06d", i%pins)
		cluster.reader.Forget("secret-pin")
		cluster.reader.Data = onlySecret{cluster.Client, secret("pin", "pin", pin)}
		if hashOf(cluster.find(t, all...)) == annotation {
			return pin
		}
	}
	return ""
}

// onlySecret answers each read with one Secret.
type onlySecret struct {
	client.Reader
	secret *corev1.Secret
}

func (o onlySecret) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	secret, ok := into.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("%T is not a Secret", into)
	}
	o.secret.DeepCopyInto(secret)
	return nil
}

func TestAnnotationDoesNotRevealSecretData(t *testing.T) {
	g := NewWithT(t)
	const pin = "481516"
	victim := newCluster(secret("pin", "pin", pin)).find(t, references.Reference{Kind: references.Secret, Name: "pin", Keys: []string{"pin"}, Rolls: true})
	unkeyed := func(f references.Finding) string { return f.Hash }

	// The hash without a key, which earlier versions declared, is found by trying all PINs.
	g.Expect(guess(t, victim.Hash, unkeyed)).To(Equal(pin))

	// The declared hash is not, neither without the key nor with one of the attacker's own,
	declared := references.Declare(victim, tools, "", key)
	g.Expect(guess(t, declared, unkeyed)).To(BeEmpty())
	g.Expect(guess(t, declared, func(f references.Finding) string { return references.Declare(f, tools, "", []byte("attacker")) })).To(BeEmpty())
	// nor by having the manager hash each PIN for an object that the attacker may create.
	own := types.NamespacedName{Namespace: namespace, Name: "attacker"}
	g.Expect(guess(t, declared, func(f references.Finding) string { return references.Declare(f, own, "", key) })).To(BeEmpty())
	// With the key, the search does find it: the searches above are not without effect.
	g.Expect(guess(t, declared, func(f references.Finding) string { return references.Declare(f, tools, "", key) })).To(Equal(pin))
}

func newKey(server *ssatest.Server) *references.Key {
	applier, err := ssa.New(ssa.Options{Client: server, FieldManager: "fixpoint-test"})
	if err != nil {
		panic(err)
	}
	return &references.Key{Namespace: "system", Reader: server, Applier: applier}
}

func TestKeyIsCreatedOnceAndSharedByReplicas(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	server := ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{})
	one, other := newKey(server), newKey(server)

	// Given that the key does not exist
	g.Expect(one.Read(ctx)).To(BeNil())
	g.Expect(other.Read(ctx)).To(BeNil())

	// When both replicas create it
	g.Expect(one.Create(ctx)).To(Succeed())
	first, err := one.Read(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first).To(HaveLen(32))
	g.Expect(other.Create(ctx)).To(Succeed())

	// Then both have the key of the first, and so has one that starts later.
	g.Expect(other.Read(ctx)).To(Equal(first))
	g.Expect(newKey(server).Read(ctx)).To(Equal(first))
	var stored corev1.Secret
	g.Expect(server.Get(ctx, client.ObjectKey{Namespace: "system", Name: references.KeySecret}, &stored)).To(Succeed())
	g.Expect(stored.Immutable).To(HaveValue(BeTrue()))
	g.Expect(stored.Data).To(Equal(map[string][]byte{"key": first}))

	// And a key of another cluster is another one.
	elsewhere := newKey(ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{}))
	g.Expect(elsewhere.Create(ctx)).To(Succeed())
	g.Expect(elsewhere.Read(ctx)).NotTo(Equal(first))
}

// Whoever can guess the key can guess the data of Secrets by the hash.
func TestKeyThatIsTooShortIsAnError(t *testing.T) {
	for size, isRefused := range map[int]bool{0: true, 1: true, 31: true, 32: false} {
		g := NewWithT(t)
		server := ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{})
		value := key[:size]
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: references.KeySecret}, Data: map[string][]byte{"key": value}}
		g.Expect(server.Create(context.Background(), secret)).To(Succeed())

		read, err := newKey(server).Read(context.Background())

		if !isRefused {
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(read).To(Equal(value))
			continue
		}
		g.Expect(err).To(MatchError(fmt.Sprintf("Secret system/hash-key.fixpoint.dev has %d bytes in the entry key, and needs at least 32: "+
			"restore it, or delete it to replace the pods that use data of Secrets", size)))
		g.Expect(read).To(BeNil())
	}
}

func TestKeyIsReadOnce(t *testing.T) {
	g := NewWithT(t)
	reads := 0
	server := ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{Intercept: func(call ssatest.Call) error {
		if call.Verb == "get" && call.Done {
			reads++
		}
		return nil
	}})
	key := newKey(server)
	g.Expect(key.Create(t.Context())).To(Succeed())
	first, err := key.Read(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	before := reads

	g.Expect(key.Read(t.Context())).To(Equal(first))

	g.Expect(reads).To(Equal(before))
	var stored corev1.Secret
	g.Expect(server.Get(t.Context(), client.ObjectKey{Namespace: "system", Name: references.KeySecret}, &stored)).To(Succeed())
	g.Expect(stored.Type).To(Equal(corev1.SecretTypeOpaque))
}

func TestErrorsOfTheKeyAreNotTakenForItsAbsence(t *testing.T) {
	for name, c := range map[string]struct {
		verb string
		do   func(*references.Key) error
		want string
	}{
		"read":   {"get", func(k *references.Key) error { _, err := k.Read(t.Context()); return err }, "reading Secret system/hash-key.fixpoint.dev: "},
		"create": {"apply", func(k *references.Key) error { return k.Create(t.Context()) }, "creating Secret system/hash-key.fixpoint.dev: "},
	} {
		t.Run(name, func(t *testing.T) {
			failure := errors.New("no route to host")
			server := ssatest.NewServer(clientgoscheme.Scheme, ssatest.Options{Intercept: func(call ssatest.Call) error {
				if call.Verb == c.verb && !call.Done {
					return failure
				}
				return nil
			}})
			err := c.do(newKey(server))
			NewWithT(t).Expect(err).To(And(MatchError(failure), MatchError(HavePrefix(c.want))))
		})
	}
}
