package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/peers"
	"github.com/fixpoint-dev/fixpoint/internal/references"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// forwarding is a server every pod of which serves the sessions of all.
func forwarding(s *spec) {
	stdio(s)
	s.Bridge = &v1beta1.MCPServerBridge{MaxSessions: 100, IdleTimeout: metav1.Duration{Duration: 30 * time.Minute}, MaxMessageBytes: 4194304}
	s.SessionRouting = v1beta1.SessionRoutingForward
}

// forwardingHTTP is the same for a server that serves HTTP.
func forwardingHTTP(s *spec) { s.SessionRouting = v1beta1.SessionRoutingForward }

func TestSessionKeysAreThoseOfTheReplicas(t *testing.T) {
	g := NewWithT(t)
	g.Expect(sessionKeyBytes).To(Equal(peers.KeyBytes))
	g.Expect(sessionKeyName).To(Equal(peers.KeyName))
	// A key is removed long after the next one seals.
	g.Expect(sessionKeyAge).To(BeNumerically(">", 100*peers.KeyActivation))
}

func TestRotateSessionKeys(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 500, time.UTC)
	const day = 24 * time.Hour
	// at is the name of a key of an age.
	at := func(age time.Duration) string { return now.Add(-age).Format(sessionKeyName) }
	cases := map[string]struct {
		// data are the names of the keys; a value of one letter is repeated to the size of a key.
		data  map[string]string
		want  []string
		fresh bool
		again time.Duration
	}{
		"none":                             {nil, []string{at(0)}, true, 7 * day},
		"a new one":                        {map[string]string{at(0): "a"}, []string{at(0)}, false, 7 * day},
		"a young one":                      {map[string]string{at(day): "a"}, []string{at(day)}, false, 6 * day},
		"one shortly before the age":       {map[string]string{at(7*day - time.Second): "a"}, []string{at(7*day - time.Second)}, false, time.Second},
		"one of the age":                   {map[string]string{at(7 * day): "a"}, []string{at(7 * day), at(0)}, true, 7 * day},
		"two":                              {map[string]string{at(8 * day): "a", at(day): "b"}, []string{at(8 * day), at(day)}, false, 6 * day},
		"two of twice the age":             {map[string]string{at(14 * day): "a", at(7 * day): "b"}, []string{at(7 * day), at(0)}, true, 7 * day},
		"a manager that was down for long": {map[string]string{at(90 * day): "a"}, []string{at(90 * day), at(0)}, true, 7 * day},
		"after that, when the next one has the age": {map[string]string{at(97 * day): "a", at(7 * day): "b"}, []string{at(7 * day), at(0)}, true, 7 * day},
		"two when a manager was down":               {map[string]string{at(90 * day): "a", at(83 * day): "b"}, []string{at(83 * day), at(0)}, true, 7 * day},
		"one that a user added":                     {map[string]string{at(3 * day): "a", at(day): "b"}, []string{at(3 * day), at(day)}, false, 4 * day},
		"many, of which only the newest one has a younger one": {map[string]string{
			at(60 * day): "a", at(50 * day): "b", at(40 * day): "c", at(30 * day): "d", at(20 * day): "e", at(10 * day): "f", at(day): "g"},
			[]string{at(10 * day), at(day)}, false, 6 * day},
		"a clock that is ahead":      {map[string]string{at(-time.Minute): "a"}, []string{at(-time.Minute)}, false, 7 * day},
		"a clock that was far ahead": {map[string]string{at(-300 * day): "a"}, []string{at(0), at(-300 * day)}, true, 7 * day},
		"not a key":                  {map[string]string{"key": "a", "20261123": "b", at(0): "short", at(day): ""}, []string{at(0)}, true, 7 * day},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			data := map[string][]byte{}
			for key, value := range c.data {
				data[key] = []byte(value)
				if len(value) == 1 {
					data[key] = bytes.Repeat([]byte(value), sessionKeyBytes)
				}
			}
			made := 0
			next := rotateSessionKeys(data, now, func() []byte {
				made++
				return bytes.Repeat([]byte("N"), sessionKeyBytes)
			})
			want := map[string][]byte{}
			for _, key := range c.want {
				want[key] = data[key]
			}
			if c.fresh {
				want[at(0)] = bytes.Repeat([]byte("N"), sessionKeyBytes)
			}
			g.Expect(next.data).To(Equal(want))
			g.Expect(made).To(Equal(map[bool]int{true: 1}[c.fresh]))
			g.Expect(next.again).To(BeNumerically("~", c.again, time.Second))
			g.Expect(next.again).To(BeNumerically(">", 0))

			// Without a change of the time, nothing changes.
			again := rotateSessionKeys(next.data, now, func() []byte { t.Error("another key"); return nil })
			g.Expect(again.data).To(Equal(next.data))
		})
	}
}

// Each change is decided when the one before said so. An id is opened until it is a week old, whenever it was sealed.
func TestKeysOpenWhatTheySealedForAWeek(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	data := map[string][]byte{}
	changes := 0
	sealed := map[string]time.Time{} // by key, the last time at which it sealed
	for end := now.AddDate(1, 0, 0); now.Before(end); {
		next := rotateSessionKeys(data, now, newSessionKey)
		for name := range data {
			if _, kept := next.data[name]; !kept {
				g.Expect(now.Sub(sealed[name])).To(BeNumerically(">=", sessionKeyAge-peers.KeyActivation), name)
			}
		}
		changes++
		data = next.data
		g.Expect(len(data)).To(BeNumerically("<=", 2))
		names := slices.Sorted(maps.Keys(data))
		if len(names) > 1 {
			sealed[names[0]] = now.Add(peers.KeyActivation)
		}
		now = now.Add(next.again)
	}
	g.Expect(changes).To(BeNumerically("~", 53, 1), "one change in a week")
}

func TestNewSessionKeysDiffer(t *testing.T) {
	g := NewWithT(t)
	a, b := newSessionKey(), newSessionKey()
	g.Expect(a).To(HaveLen(sessionKeyBytes))
	g.Expect(a).NotTo(Equal(b))
}

func TestDesiredSessionKeys(t *testing.T) {
	for name, change := range map[string]func(*spec){
		"not set": stdio,
		"None": func(s *spec) {
			forwarding(s)
			s.SessionRouting = v1beta1.SessionRoutingNone
		},
		"sse": func(s *spec) { // the schema refuses it
			forwarding(s)
			s.Transport = v1beta1.TransportSSE
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect((&scope{server: tools(change)}).desiredSessionKeys()).To(BeNil())
		})
	}
	g := NewWithT(t)
	s := &scope{server: tools(forwarding), sessionKeys: keysOfSessions{data: map[string][]byte{"20261123T120000Z": []byte("k")}}}
	g.Expect(asJSON(t, s.desiredSessionKeys())).To(MatchYAML(`
apiVersion: v1
kind: Secret
metadata:
  name: tools-session-keys
  namespace: acme
  labels: {app.kubernetes.io/name: tools, app.kubernetes.io/managed-by: fixpoint, fixpoint.dev/kind: mcpserver}
type: fixpoint.dev/session-keys
data: {20261123T120000Z: aw==}
`))
}

// keysReader is a reader of a cluster with a Secret, if there is one.
func keysReader(existing client.Object, err error) client.Reader {
	scheme := runtime.NewScheme()
	_ = clientgoscheme.AddToScheme(scheme)
	builder := fake.NewClientBuilder().WithScheme(scheme)
	if existing != nil {
		builder.WithObjects(existing)
	}
	return builder.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if err != nil {
				return err
			}
			return inner.Get(ctx, key, into, opts...)
		},
	}).Build()
}

func TestReadSessionKeys(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	name := now.Add(-time.Hour).Format(sessionKeyName)
	existing := map[string][]byte{name: bytes.Repeat([]byte("a"), sessionKeyBytes)}
	restored := &corev1.Secret{Data: existing, ObjectMeta: metav1.ObjectMeta{Name: "tools-session-keys", Namespace: "acme"}, Type: v1beta1.SecretTypeSessionKeys}
	secret := func(owner string) client.Object {
		return &corev1.Secret{Data: existing, ObjectMeta: metav1.ObjectMeta{Name: "tools-session-keys", Namespace: "acme",
			OwnerReferences: []metav1.OwnerReference{{UID: "uid-1", Name: owner, Controller: ptr.To(owner == "tools")}}}}
	}
	ownedByAnother := restored.DeepCopy()
	ownedByAnother.OwnerReferences = []metav1.OwnerReference{{UID: "uid-2", Name: "tools", Controller: ptr.To(true)}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "tools-session-keys", errors.New("no role"))
	cases := map[string]struct {
		// cached is what the cache has of the secret.
		cached, secret client.Object
		err            error
		plans          bool
		change         func(*spec)
		want           map[string][]byte // nil: none, or new ones
		fresh          bool
		verdict        string
		fails          string
	}{
		"existing keys":      {cached: secret("tools"), change: forwarding, want: existing},
		"cache without them": {secret: secret("tools"), change: forwarding, want: existing},
		"no Secret":          {change: forwarding, fresh: true},
		"a Secret of a user": {secret: secret("other"), change: forwarding, fresh: true},
		"restored keys":      {secret: restored, change: forwarding, fresh: true},
		"restored keys of another by policy": {secret: ownedByAnother, fresh: true, change: func(s *spec) {
			forwarding(s)
			s.AdoptionPolicy = v1beta1.AdoptionIfUnowned
		}},
		"restored keys by policy": {secret: restored, want: existing, change: func(s *spec) {
			forwarding(s)
			s.AdoptionPolicy = v1beta1.AdoptionIfUnowned
		}},
		"not configured":         {secret: secret("tools"), change: stdio},
		"unavailable":            {err: errors.New("no answer"), change: forwarding, fails: "reading Secret acme/tools-session-keys: no answer"},
		"forbidden":              {err: forbidden, change: forwarding, fails: "reading Secret"},
		"plan":                   {cached: secret("tools"), plans: true, change: forwarding, want: existing},
		"plan without a Secret":  {plans: true, change: forwarding},
		"plan without the right": {err: forbidden, plans: true, change: forwarding, verdict: "not readable for you; assumed to be unchanged"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := &phases.Cluster{Cached: keysReader(c.cached, c.err), Uncached: keysReader(c.secret, c.err)}
			s := &scope{server: tools(c.change), clock: testingclock.NewFakePassiveClock(now),
				readers: readers{plans: c.plans, references: &references.Reader{}}}
			if c.plans {
				s.references.Unreadable = func(error) {}
			}
			verdict, err := s.readSessionKeys(t.Context(), cluster.Cached, cluster.Uncached)
			if c.fails != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.fails)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			if c.verdict != "" {
				g.Expect(verdict.Message()).To(Equal(c.verdict))
				return
			}
			g.Expect(verdict).To(BeNil())
			if c.fresh {
				g.Expect(s.sessionKeys.data).To(HaveLen(1))
				g.Expect(s.sessionKeys.data).To(HaveKeyWithValue(now.Format(sessionKeyName), HaveLen(sessionKeyBytes)))
				before := fmt.Sprint(s.sessionKeys.data)
				_, err := s.readSessionKeys(t.Context(), cluster.Cached, cluster.Uncached)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(fmt.Sprint(s.sessionKeys.data)).To(Equal(before), "once per reconcile")
				return
			}
			g.Expect(s.sessionKeys.data).To(Equal(c.want))
		})
	}
}

func TestAdoptsOnlySessionKeys(t *testing.T) {
	const exists = "Secret acme/tools-session-keys exists and no controller owns it, so it is not changed; "
	never := func(s *spec) { s.AdoptionPolicy = v1beta1.AdoptionNever }
	unowned := func(s *spec) { s.AdoptionPolicy = v1beta1.AdoptionIfUnowned }
	cases := map[string]struct {
		policy     func(*spec)
		secretType corev1.SecretType
		want       outcome
	}{
		"a Secret of a user":              {never, corev1.SecretTypeOpaque, outcome{"stalled", v1beta1.ReasonNotOwned, exists + "delete it, or create an MCPServer with another name"}},
		"a Secret of a user, by policy":   {unowned, corev1.SecretTypeOpaque, outcome{"stalled", v1beta1.ReasonNotOwned, exists + "delete it, or create an MCPServer with another name"}},
		"restored session keys":           {never, v1beta1.SecretTypeSessionKeys, outcome{"stalled", v1beta1.ReasonNotOwned, exists + "delete it, or set spec.adoptionPolicy to IfUnowned"}},
		"restored session keys by policy": {unowned, v1beta1.SecretTypeSessionKeys, outcome{"done", v1beta1.ReasonReady, ""}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			live := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tools-session-keys", Namespace: "acme"}, Type: c.secretType}
			NewWithT(t).Expect(outcomeOf(sessionKeys.Adopt(&scope{server: tools(forwarding, c.policy)}, live))).To(Equal(c.want))
		})
	}
}

func TestSessionKeysAreDecidedAgain(t *testing.T) {
	g := NewWithT(t)
	verdict := sessionKeys.Ready(t.Context(), &scope{sessionKeys: keysOfSessions{again: time.Hour}}, nil)
	g.Expect(verdict.IsDone()).To(BeTrue())
	g.Expect(verdict.After()).To(Equal(time.Hour))
}

// A plan of an MCPServer without session keys must not read Secrets, and no drift of one with them has values.
func TestQuestionsAboutSessionKeysAreConfidential(t *testing.T) {
	configured := []metav1.Condition{{Type: v1beta1.ConditionSessionKeysReady}}
	cases := map[string]struct {
		plans  bool
		change func(*spec)
		before []metav1.Condition
		asked  bool
	}{
		"reconcile":                  {false, stdio, nil, true},
		"plan":                       {true, stdio, nil, false},
		"plan with session keys":     {true, forwarding, nil, true},
		"plan with former ones":      {true, stdio, configured, true},
		"reconcile with former ones": {false, stdio, configured, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			asked := false
			question := confidentially(func(_ context.Context, r phases.Reconcile[*scope]) (phases.Next, error) {
				asked = true
				drift := ssa.Drift{Path: ".data.20261123T120000Z", Desired: `"a"`, Actual: `"b"`}
				r.Policies.Redact(&drift)
				g.Expect(drift.Desired + drift.Actual).NotTo(Or(ContainSubstring(`"a"`), ContainSubstring(`"b"`)))
				return phases.Done("asked"), nil
			})
			next, err := question(t.Context(), phases.Reconcile[*scope]{Scope: &scope{server: tools(c.change), readers: readers{plans: c.plans}}, Before: c.before})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(asked).To(Equal(c.asked))
			verdict, ok := next.(phases.Verdict)
			g.Expect(ok && verdict.IsDone()).To(BeTrue())
		})
	}
	NewWithT(t).Expect(confidentially(nil)).To(BeNil())
}

func TestSecretOfTheNameIsWatched(t *testing.T) {
	g := NewWithT(t)
	its := references.Reference{Kind: references.Secret, Name: "tools-session-keys"}
	g.Expect(watchedReferencesOf(tools(forwarding))).To(ContainElement(its))
	g.Expect(watchedReferencesOf(tools(stdio))).NotTo(ContainElement(its))
	g.Expect(referencesOf(tools(forwarding))).NotTo(ContainElement(its), "the phase Dependencies does not wait for it")
}

func TestPodsForwardSessions(t *testing.T) {
	cases := map[string]struct {
		change func(*spec)
		mode   int32
		port   int32
		drain  string
	}{
		"defaults": {func(*spec) {}, 0o444, 9292, "48s"},
		"port":     {func(s *spec) { s.Port = 9292 }, 0o444, 9293, "48s"},
		"group of the volumes": {func(s *spec) {
			s.PodSecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](2000)}
		}, 0o440, 9292, "48s"},
		"security without a group": {func(s *spec) {
			s.PodSecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000)}
		}, 0o444, 9292, "48s"},
		"user per session": {func(s *spec) {
			s.PodSecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](2000)}
			s.Bridge.FirstSessionUser = ptr.To[int64](100000)
		}, 0o400, 9292, "48s"},
		"long sessions": {func(s *spec) { s.TerminationGracePeriodSeconds = 3612 }, 0o444, 9292, "1h0m0s"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := podTemplate(tools(forwarding, c.change), settings, "")
			container := template.Spec.Containers[0]
			g.Expect(asJSON(t, template.Spec.Volumes)).To(MatchYAML(fmt.Sprintf(
				"[{name: fixpoint-bridge, emptyDir: {}}, {name: fixpoint-session-keys, secret: {secretName: tools-session-keys, defaultMode: %d}}]", c.mode)))
			g.Expect(asJSON(t, container.VolumeMounts)).To(MatchYAML(
				"[{name: fixpoint-bridge, mountPath: /.fixpoint, readOnly: true}, {name: fixpoint-session-keys, mountPath: /.fixpoint-session-keys, readOnly: true}]"))
			g.Expect(asJSON(t, container.Env)).To(MatchYAML("[{name: FIXPOINT_POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]"))
			g.Expect(asJSON(t, container.Ports)).To(ContainSubstring(fmt.Sprintf(`{"name":"mcp-peers","containerPort":%d,"protocol":"TCP"}`, c.port)))
			g.Expect(strings.Join(container.Command, " ")).To(ContainSubstring(fmt.Sprintf(
				" --session-keys /.fixpoint-session-keys --server-id acme/tools --peer-listen :%d --peer-ip $(FIXPOINT_POD_IP) --drain-idle-timeout %s -- ", c.port, c.drain)))
			g.Expect(template.Spec.InitContainers[0].VolumeMounts).To(HaveLen(1), "the init container has no keys")
			g.Expect(template.Annotations).To(BeEmpty(), "new keys replace no pods")
			g.Expect(asJSON(t, desiredService(tools(forwarding, c.change)))).NotTo(ContainSubstring("peers"))
		})
	}
	t.Run("off", func(t *testing.T) {
		g := NewWithT(t)
		plain := podTemplate(tools(stdio), settings, "")
		off := podTemplate(tools(stdio, func(s *spec) { s.SessionRouting = v1beta1.SessionRoutingNone }), settings, "")
		g.Expect(asJSON(t, off)).To(Equal(asJSON(t, plain)))
	})
}

// The proxy of a server that serves HTTP has the keys, and the container of the server is as before.
func TestProxiesForwardSessions(t *testing.T) {
	cases := map[string]struct {
		change func(*spec)
		mode   int32
		port   int32
	}{
		"defaults": {func(*spec) {}, 0o444, 9292},
		"port":     {func(s *spec) { s.Port = 9292 }, 0o444, 9293},
		"group of the volumes": {func(s *spec) {
			s.PodSecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](2000)}
		}, 0o440, 9292},
		"limits": {limited, 0o444, 9292},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			template := templateOf(t, forwardingHTTP, c.change)
			g.Expect(template.Spec.Containers).To(HaveLen(2))
			proxy := containerNamed(template, proxyContainer)
			g.Expect(asJSON(t, template.Spec.Volumes)).To(MatchYAML(fmt.Sprintf(
				"[{name: fixpoint-session-keys, secret: {secretName: tools-session-keys, defaultMode: %d}}]", c.mode)))
			g.Expect(asJSON(t, proxy.VolumeMounts)).To(MatchYAML("[{name: fixpoint-session-keys, mountPath: /.fixpoint-session-keys, readOnly: true}]"))
			g.Expect(asJSON(t, proxy.Env)).To(MatchYAML("[{name: FIXPOINT_POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]"))
			g.Expect(asJSON(t, proxy.Ports)).To(MatchYAML(fmt.Sprintf(
				"[{name: mcp, containerPort: 9190, protocol: TCP}, {name: proxy-health, containerPort: 9191, protocol: TCP}, {name: mcp-peers, containerPort: %d, protocol: TCP}]", c.port)))
			g.Expect(strings.Join(proxy.Command, " ")).To(ContainSubstring(fmt.Sprintf(
				" --drain-timeout 48s --session-keys /.fixpoint-session-keys --server-id acme/tools --peer-listen :%d --peer-ip $(FIXPOINT_POD_IP)", c.port)))
			g.Expect(proxy.Command).NotTo(ContainElement("--drain-idle-timeout"))
			server := containerNamed(template, containerName)
			g.Expect(asJSON(t, server)).To(MatchJSON(asJSON(t, containerNamed(templateOf(t, limited, c.change), containerName))))
			g.Expect(asJSON(t, desiredService(tools(forwardingHTTP, c.change)))).To(MatchJSON(asJSON(t, desiredService(tools(c.change)))))
		})
	}
}

// No two listeners of a pod have one port, whatever that of the server is.
func TestPortsOfAPodDiffer(t *testing.T) {
	for _, port := range []int32{8080, 9190, 9191, 9192, 9193, 9292, 9293} {
		server := tools(forwardingHTTP, func(s *spec) { s.Port = port })
		used := []int32{port, proxyPort(server), bridgePort(server), peerPort(server)}
		slices.Sort(used)
		NewWithT(t).Expect(slices.Compact(slices.Clone(used))).To(Equal(used), "%d", port)
	}
}

func TestNetworkPolicyLetsPodsReachEachOther(t *testing.T) {
	const pods = "[{podSelector: {matchLabels: {app.kubernetes.io/name: tools, fixpoint.dev/kind: mcpserver}}}]"
	const ports = "ports: [{protocol: TCP, port: mcp-peers}]"
	restricted := &v1beta1.MCPServerNetworkPolicy{Ingress: &v1beta1.MCPServerNetworkIngress{}, Egress: &v1beta1.MCPServerNetworkEgress{DNS: v1beta1.DNSDenied}}
	cases := map[string]struct {
		policy *v1beta1.MCPServerNetworkPolicy
		want   string
	}{
		"both":    {restricted, "{policyTypes: [Ingress, Egress], ingress: [{from: " + pods + ", " + ports + "}], egress: [{to: " + pods + ", " + ports + "}]"},
		"ingress": {&v1beta1.MCPServerNetworkPolicy{Ingress: restricted.Ingress}, "{policyTypes: [Ingress], ingress: [{from: " + pods + ", " + ports + "}]"},
		"egress":  {&v1beta1.MCPServerNetworkPolicy{Egress: restricted.Egress}, "{policyTypes: [Egress], egress: [{to: " + pods + ", " + ports + "}]"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			desired := desiredNetworkPolicy(tools(forwarding, func(s *spec) { s.NetworkPolicy = c.policy }), settings)
			g.Expect(asJSON(t, desired.Spec)).To(MatchYAML(c.want + ", podSelector: {matchLabels: {app.kubernetes.io/name: tools, fixpoint.dev/kind: mcpserver}}}"))
		})
	}
	desired := desiredNetworkPolicy(tools(forwarding), settings)
	NewWithT(t).Expect(desired).To(BeNil(), "no policy restricts the pods of a server without spec.networkPolicy")
}

func TestSessionKeysRotateAtTheirAgeAndTolerateSkewedClocks(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		age  time.Duration
		want int
	}{
		"just before the age":     {sessionKeyAge - time.Second, 1},
		"of the age":              {sessionKeyAge, 2},
		"ahead by the skew":       {-time.Hour, 1},
		"ahead by more than that": {-time.Hour - time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{now.Add(-c.age).Format(sessionKeyName): bytes.Repeat([]byte("a"), sessionKeyBytes)}
			NewWithT(t).Expect(rotateSessionKeys(data, now, newSessionKey).data).To(HaveLen(c.want))
		})
	}
}

func TestSecretWithSessionKeysIsDeletedLast(t *testing.T) {
	g := NewWithT(t)
	s := &scope{server: tools(forwarding), sessionKeys: keysOfSessions{data: map[string][]byte{"a": []byte("k")}}}
	g.Expect(sessionKeys.Prune).To(Equal(phases.PruneLast), "pods mount it until they are replaced")
	g.Expect(sessionKeys.ChildName(s)).To(Equal("tools-session-keys"))
	g.Expect(sessionKeys.Health(nil)).To(Equal(phases.Done("Secret applied")))
	g.Expect(sessionKeys.Ready(t.Context(), s, nil).Message()).To(Equal("Secret applied"))
	desired, err := sessionKeys.Desired(s)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(desired.Data).To(Equal(s.sessionKeys.data))
}

// A plan asks nothing about session keys that are not configured, because its user may not read Secrets.
func TestAllQuestionsAboutSessionKeysAreSkippedByAPlanWithoutThem(t *testing.T) {
	g := NewWithT(t)
	declared, err := sessionKeys.Declare(clientgoscheme.Scheme)
	g.Expect(err).NotTo(HaveOccurred())
	reconcile := phases.Reconcile[*scope]{Scope: &scope{server: tools(stdio), readers: readers{plans: true}}, Owner: tools()}
	for name, question := range map[string]phases.Question[*scope]{"Next": declared.Next, "Undo": declared.Undo, "Observe": declared.Observe, "Last": declared.Last} {
		g.Expect(question).NotTo(BeNil(), name)
		next, err := question(t.Context(), reconcile)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(next).To(Equal(phases.NotConfigured()), name)
	}
	_, err = sessionKeys.Declare(runtime.NewScheme())
	g.Expect(err).To(HaveOccurred(), "Secrets are not in the scheme")
}

func TestSecretIsNotAppliedBeforeItsKeysAreRead(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "tools-session-keys", errors.New("no role"))
	for name, c := range map[string]struct {
		cached, err error
		plans       bool
		want        string
	}{
		"unavailable": {errors.New("no answer"), errors.New("no answer"), false, "reading Secret acme/tools-session-keys: no answer"},
		// New keys would replace those that the cache does not have yet.
		"unavailable, and not in the cache": {nil, errors.New("no answer"), false, "reading Secret acme/tools-session-keys: no answer"},
		"plan without the right":            {forbidden, forbidden, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			declared, err := sessionKeys.Declare(clientgoscheme.Scheme)
			g.Expect(err).NotTo(HaveOccurred())
			s := &scope{server: tools(forwarding), clock: testingclock.NewFakePassiveClock(earlier.Time), readers: readers{plans: c.plans, references: &references.Reader{}}}
			if c.plans {
				s.references.Unreadable = func(error) {}
			}
			cluster := &phases.Cluster{Cached: keysReader(nil, c.cached), Uncached: keysReader(nil, c.err)}
			next, err := declared.Next(t.Context(), phases.Reconcile[*scope]{Scope: s, Owner: s.server, Cluster: cluster})
			if c.want != "" {
				g.Expect(err).To(MatchError(c.want))
				g.Expect(next).To(BeNil(), "no Secret without keys is applied")
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(next).To(Equal(phases.Done("not readable for you; assumed to be unchanged")))
		})
	}
}

// Who has read the keys could open all sessions if a deleted Secret were created again with them.
func TestKeysOfADeletedSecretDoNotComeBack(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	name := now.Add(-time.Hour).Format(sessionKeyName)
	secret := func(uid types.UID, key string) *corev1.Secret {
		return &corev1.Secret{Data: map[string][]byte{name: bytes.Repeat([]byte(key), sessionKeyBytes)}, ObjectMeta: metav1.ObjectMeta{
			Name: "tools-session-keys", Namespace: "acme", UID: uid, OwnerReferences: []metav1.OwnerReference{{UID: "uid-1", Name: "tools", Controller: ptr.To(true)}}}}
	}
	first, second := secret("first", "a"), secret("second", "b")
	for name, c := range map[string]struct {
		// read is what the cache has when the keys are read, and live what it has when the Secret is.
		read, live, exists *corev1.Secret
		want               map[string][]byte // nil: new ones
		asked              int
		waits              bool
	}{
		"it exists":                      {read: first, live: first, exists: first, want: first.Data, asked: 1},
		"it never existed":               {asked: 1},
		"it is deleted meanwhile":        {read: first, asked: 2},
		"it is replaced meanwhile":       {read: first, live: second, exists: second, want: second.Data, asked: 2},
		"it is created meanwhile":        {live: second, exists: second, want: second.Data, asked: 1},
		"the cache does not have it yet": {exists: second, asked: 2, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reader := func(existing *corev1.Secret) client.Reader {
				if existing == nil {
					return keysReader(nil, nil)
				}
				return keysReader(existing.DeepCopy(), nil)
			}
			s := &scope{server: tools(forwarding), clock: testingclock.NewFakePassiveClock(now), readers: readers{references: &references.Reader{}}}
			asked := 0
			next, err := s.nextWithKeys(t.Context(), phases.Reconcile[*scope]{Scope: s, Cluster: &phases.Cluster{Cached: reader(c.read), Uncached: reader(c.exists)}},
				func(context.Context, phases.Reconcile[*scope]) (phases.Next, error) {
					asked++
					apply := phases.Apply{Decision: ssa.Decision{Request: ssa.Request{Desired: s.desiredSessionKeys()}}}
					if c.live != nil {
						apply.Decision.Request.Live = c.live
					}
					return apply, nil
				})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(asked).To(Equal(c.asked))
			if c.waits {
				g.Expect(next).To(Equal(phases.Wait(v1beta1.ReasonRecreating, "Secret tools-session-keys changed while it was read; reading it again", time.Second)))
				return
			}
			apply, ok := next.(phases.Apply)
			g.Expect(ok).To(BeTrue())
			desired, ok := apply.Decision.Request.Desired.(*corev1ac.SecretApplyConfiguration)
			g.Expect(ok).To(BeTrue())
			if c.want != nil {
				g.Expect(desired.Data).To(Equal(c.want))
				return
			}
			g.Expect(desired.Data).To(HaveLen(1))
			g.Expect(desired.Data).To(HaveKey(now.Format(sessionKeyName)))
		})
	}
}
