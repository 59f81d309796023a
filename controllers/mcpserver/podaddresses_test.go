package mcpserver

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/prober"
)

// runningPod is a pod of the MCPServer tools.
func runningPod(name, address string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name, Labels: selectorOf(tools())},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "192.168.0.1", HostIPs: []corev1.HostIP{{IP: "192.168.0.1"}, {IP: "fd01::1"}},
			PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// Whoever may create EndpointSlices, which the role edit of many clusters includes, and pods with the
// labels of the MCPServer, must not lead the prober and its token to other addresses.
func TestOnlyPodsOfTheServerAreProbed(t *testing.T) {
	ready := ptr.To(true)
	forged := slice("forged", "tools", 10250, endpoint("10.0.0.9", ready), endpoint("169.254.169.254", ready), endpoint("192.168.0.1", ready))
	forged.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "tools", UID: "a", Controller: ptr.To(true)}}
	cases := map[string]struct {
		pods    []client.Object
		slices  []client.Object
		want    []string
		unknown bool
		host    bool
	}{
		"a pod":                         {pods: []client.Object{runningPod("a", "10.0.0.1")}, slices: []client.Object{slice("a", "tools", 8080, endpoint("10.0.0.1", ready))}, want: []string{"10.0.0.1:8080"}},
		"two families":                  {pods: []client.Object{runningPod("a", "10.0.0.1", func(p *corev1.Pod) { p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: "fd00::1"}) })}, slices: []client.Object{slice("a", "tools", 8080, endpoint("fd00::1", ready))}, want: []string{"[fd00::1]:8080"}},
		"a forged EndpointSlice beside": {pods: []client.Object{runningPod("a", "10.0.0.1")}, slices: []client.Object{slice("a", "tools", 8080, endpoint("10.0.0.1", ready)), forged}, want: []string{"10.0.0.1:8080"}, unknown: true},
		"a forged EndpointSlice alone":  {slices: []client.Object{forged}, unknown: true},
		"a pod of another namespace":    {pods: []client.Object{runningPod("a", "10.0.0.9", func(p *corev1.Pod) { p.Namespace = "other" })}, slices: []client.Object{forged}, unknown: true},
		"a pod of another MCPServer":    {pods: []client.Object{runningPod("a", "10.0.0.9", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} })}, slices: []client.Object{forged}, unknown: true},
		"a pod that has ended":          {pods: []client.Object{runningPod("a", "10.0.0.9", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, slices: []client.Object{forged}, unknown: true},
		"a pod in the host network": {pods: []client.Object{runningPod("a", "192.168.0.1", func(p *corev1.Pod) { p.Spec.HostNetwork = true })},
			slices: []client.Object{slice("a", "tools", 10250, endpoint("192.168.0.1", ready))}, host: true},
		"the other family of a node": {pods: []client.Object{runningPod("a", "fd01::1")}, slices: []client.Object{slice("a", "tools", 10250, endpoint("fd01::1", ready))}, host: true},
		"a pod that claims the address of one in the host network": {
			pods:   []client.Object{runningPod("a", "192.168.0.1", func(p *corev1.Pod) { p.Spec.HostNetwork = true }), runningPod("b", "192.168.0.1", func(p *corev1.Pod) { p.Status.HostIP, p.Status.HostIPs = "", nil })},
			slices: []client.Object{slice("a", "tools", 10250, endpoint("192.168.0.1", ready))}, host: true},
		"an old pod in the host network": {pods: []client.Object{runningPod("a", "192.168.0.1", func(p *corev1.Pod) { p.Spec.HostNetwork = true }), runningPod("b", "10.0.0.2")},
			slices: []client.Object{slice("a", "tools", 8080, endpoint("192.168.0.1", ready), endpoint("10.0.0.2", ready))}, want: []string{"10.0.0.2:8080"}, host: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			api := newClient(append(c.pods, c.slices...)...)
			s := &scope{server: tools(), reader: api, readers: readers{pods: &podReader{uncached: api}}}

			found, err := s.servingPods(context.Background())

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.addresses).To(Equal(c.want))
			g.Expect(found.unknown).To(Equal(c.unknown))
			g.Expect(found.hostNetwork).To(Equal(c.host))
		})
	}
}

func TestPodsAreListedOnceForEachVersionOfTheEndpointSlices(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	lists := 0
	api := interceptor.NewClient(newClient(runningPod("a", "10.0.0.1"), runningPod("b", "10.0.0.2")), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			lists++
			return c.List(ctx, list, options...)
		},
	})
	r := &podReader{uncached: api}
	server := tools()
	endpoints := []discoveryv1.EndpointSlice{*slice("a", "tools", 8080), *slice("b", "tools", 8080)}
	read := func() map[string]podAddress {
		of, err := r.addresses(ctx, server, endpoints)
		g.Expect(err).NotTo(HaveOccurred())
		return of
	}
	both := map[string]podAddress{"10.0.0.1": ownPod, "10.0.0.2": ownPod}
	g.Expect(read()).To(Equal(both))
	endpoints[0], endpoints[1] = endpoints[1], endpoints[0]
	g.Expect(read()).To(Equal(both))
	g.Expect(lists).To(Equal(1))

	// A deleted pod leaves the EndpointSlice. A forged one must not keep its address, which another pod may get.
	g.Expect(api.Delete(ctx, runningPod("b", ""))).To(Succeed())
	endpoints[0].ResourceVersion = "2"
	g.Expect(read()).To(Equal(map[string]podAddress{"10.0.0.1": ownPod}))
	g.Expect(lists).To(Equal(2))

	server.UID = "another"
	read()
	r.forget(client.ObjectKeyFromObject(server))
	read()
	g.Expect(lists).To(Equal(4))

	endpoints = nil
	g.Expect(read()).To(BeEmpty())
	g.Expect(lists).To(Equal(4))
}

func TestUnprobedVerdict(t *testing.T) {
	const waiting = "waiting for a ready pod behind the Service"
	for name, c := range map[string]struct {
		pods servingPods
		want outcome
	}{
		"no endpoint": {servingPods{}, outcome{"wait", "ProtocolPending", waiting}},
		"only forged": {servingPods{unknown: true}, outcome{"wait", "ProtocolPending", waiting + "; addresses in its EndpointSlices that no pod of the MCPServer has are ignored"}},
		"host network": {servingPods{hostNetwork: true, unknown: true}, outcome{"done", "ProbeDisabled",
			"the pods are not probed, because they use the network of their nodes: remove hostNetwork from spec.podOverrides.spec, or set spec.protocol.probe to Disabled"}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(outcomeOf(unprobedVerdict(c.pods))).To(Equal(c.want))
		})
	}
}

func TestWarnings(t *testing.T) {
	token := func(s *spec) { s.Protocol.CredentialsSecretRef = &v1beta1.MCPServerCredentialsSecretRef{Name: "key"} }
	encrypted := func(s *spec) { s.Protocol.Scheme = v1beta1.SchemeHTTPS }
	const unencrypted = "; the token of spec.protocol.credentialsSecretRef is sent unencrypted: "
	const uncounted = "; tools, prompts and resources cannot be counted: "
	tooLarge := &prober.Error{Kind: prober.TooLarge, Detail: "a list has more than 10000 items"}
	for name, c := range map[string]struct {
		changes []func(*spec)
		result  prober.Result
		want    outcome
	}{
		"none":               {nil, prober.Result{State: prober.Answering}, outcome{"done", "Ready", succeeded}},
		"a token over HTTP":  {[]func(*spec){token}, prober.Result{State: prober.Answering}, outcome{"done", "Ready", succeeded + unencrypted + "serve TLS and set spec.protocol.scheme to HTTPS, or remove spec.protocol.credentialsSecretRef"}},
		"a token for stdio":  {[]func(*spec){token, stdio}, prober.Result{State: prober.Answering}, outcome{"done", "Ready", succeeded + unencrypted + "remove spec.protocol.credentialsSecretRef, because the bridge requires no token"}},
		"a token over HTTPS": {[]func(*spec){token, encrypted}, prober.Result{State: prober.Answering}, outcome{"done", "Ready", succeeded}},
		"a list too large": {nil, prober.Result{State: prober.Answering, ListErr: tooLarge}, outcome{"done", "Ready", succeeded + uncounted +
			"the response is too large: a list has more than 10000 items; shorten the lists that the server returns, or their items"}},
		"a list that fails": {nil, prober.Result{State: prober.Answering, ListErr: &prober.Error{Kind: prober.Timeout}}, outcome{"done", "Ready", succeeded}},
		"a failure": {[]func(*spec){token}, prober.Result{State: prober.Failing, Err: &prober.Error{Kind: prober.Refused}, ListErr: tooLarge}, outcome{"wait", "ProtocolFailing",
			"MCP handshake failed: connection refused; check the server log, that the server listens on spec.port on all interfaces, and that network policies admit the manager"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := tools(c.changes...)
			NewWithT(t).Expect(outcomeOf(withWarnings(resultVerdict(server, c.result), server, c.result))).To(Equal(c.want))
		})
	}
}

func TestPodsThatCannotBeListedAreAnError(t *testing.T) {
	for name, c := range map[string]struct {
		forbidden client.ObjectList
		want      string
	}{
		"EndpointSlices": {&discoveryv1.EndpointSliceList{}, "listing the EndpointSlices of Service tools: no answer"},
		"pods":           {&corev1.PodList{}, "listing the pods of MCPServer tools: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := withoutLists(c.forbidden)
			s := &scope{server: tools(), reader: reader, prober: &fakeProber{}, readers: readers{pods: &podReader{uncached: reader}}}
			_, err := observeProtocol(t.Context(), s)
			NewWithT(t).Expect(err).To(MatchError(c.want))
		})
	}
}

// Probes never connect to nodes, whichever part of a pod says that an address is that of its node.
func TestAddressesOfNodesAreNotThoseOfPods(t *testing.T) {
	for name, c := range map[string]struct {
		pod  corev1.Pod
		want podAddress
	}{
		"own address":       {corev1.Pod{Status: corev1.PodStatus{HostIP: "10.0.0.2"}}, ownPod},
		"the host network":  {corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true}}, nodeAddress},
		"the node":          {corev1.Pod{Status: corev1.PodStatus{HostIP: "10.0.0.1"}}, nodeAddress},
		"one of the node's": {corev1.Pod{Status: corev1.PodStatus{HostIP: "10.0.0.2", HostIPs: []corev1.HostIP{{IP: "10.0.0.2"}, {IP: "10.0.0.1"}}}}, nodeAddress},
	} {
		t.Run(name, func(t *testing.T) {
			c.pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}}
			NewWithT(t).Expect(addressesOf([]corev1.Pod{c.pod})).To(Equal(map[string]podAddress{"10.0.0.1": c.want}))
		})
	}
}

func TestVersionOfEndpointsDoesNotDependOnTheirOrder(t *testing.T) {
	a := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{UID: "a", ResourceVersion: "2"}}
	b := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{UID: "b", ResourceVersion: "1"}}
	NewWithT(t).Expect(versionOf([]discoveryv1.EndpointSlice{b, a})).To(Equal("a@2,b@1"))
	NewWithT(t).Expect(versionOf([]discoveryv1.EndpointSlice{a, b})).To(Equal("a@2,b@1"))
}
