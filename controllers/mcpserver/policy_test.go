package mcpserver

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
)

const (
	unchanged = ". An existing Deployment and its pods are left unchanged"
	askAdmin  = "or ask the administrator to run the manager with --pod-overrides=all" + unchanged
	forbidden = ": the restricted Pod Security Standard forbids such pods: "
	again     = "; change these settings, " + askAdmin
)

// attacks are specs that would give their author more than the permission to create MCPServers.
var attacks = map[string]struct {
	change func(*spec)
	want   string
}{
	"the file system of the node": {overridden(`{"volumes":[{"name":"root","hostPath":{"path":"/"}}],"containers":[{"name":"server","volumeMounts":[{"name":"root","mountPath":"/node"}]}]}`),
		"spec.podOverrides" + forbidden + `restricted volume types (volume "root" uses restricted volume type "hostPath")` + again},
	"a privileged container": {overridden(`{"containers":[{"name":"server","securityContext":{"privileged":true}}]}`),
		"spec.podOverrides" + forbidden + `privileged (container "server" must not set securityContext.privileged=true)` + again},
	"a privileged init container": {overridden(`{"initContainers":[{"name":"a","image":"a:1","securityContext":{"privileged":true,"allowPrivilegeEscalation":true,"capabilities":{"drop":["ALL"]}}}]}`),
		"spec.podOverrides" + forbidden + `privileged (container "a" must not set securityContext.privileged=true), allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false)` + again},
	"a sidecar without restrictions": {overridden(`{"containers":[{"name":"log","image":"busybox"}]}`),
		"spec.podOverrides" + forbidden + `allowPrivilegeEscalation != false (container "log" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "log" must set securityContext.capabilities.drop=["ALL"])` + again},
	"the processes of the node": {overridden(`{"hostPID":true}`), "spec.podOverrides" + forbidden + "host namespaces (hostPID=true)" + again},
	"the network of the node":   {overridden(`{"hostNetwork":true}`), "spec.podOverrides" + forbidden + "host namespaces (hostNetwork=true)" + again},
	"a port of the node": {overridden(`{"containers":[{"name":"server","ports":[{"name":"x","containerPort":9090,"hostPort":9090,"protocol":"TCP"}]}]}`),
		"spec.podOverrides" + forbidden + `hostPort (container "server" uses hostPort 9090)` + again},
	"an AppArmor annotation": {func(s *spec) {
		s.PodOverrides = &v1beta1.MCPServerPodOverrides{Metadata: &v1beta1.MCPServerPodMetadata{
			Annotations: map[string]string{"container.apparmor.security.beta.kubernetes.io/server": "unconfined"}}}
	}, "spec.podOverrides" + forbidden + `forbidden AppArmor profile (annotation must not set AppArmor profile type to "container.apparmor.security.beta.kubernetes.io/server="unconfined"")` + again},
	"root": {overridden(`{"securityContext":{"runAsNonRoot":false}}`),
		"spec.podOverrides" + forbidden + "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)" + again},
	"a node": {overridden(`{"nodeName":"control-plane"}`),
		"spec.podOverrides.spec.nodeName: pods must be scheduled; select nodes with spec.scheduling, " + askAdmin},
	"another ServiceAccount": {overridden(`{"serviceAccountName":"deployer"}`),
		"spec.podOverrides.spec.serviceAccountName: the ServiceAccount must not be overridden; set spec.serviceAccount instead, " + askAdmin},
	"another ServiceAccount, by the deprecated field": {overridden(`{"serviceAccount":"deployer"}`),
		"spec.podOverrides.spec.serviceAccountName: the ServiceAccount must not be overridden; set spec.serviceAccount instead, " + askAdmin},
	"a user per session": {func(s *spec) {
		stdio(s)
		s.Bridge = &v1beta1.MCPServerBridge{FirstSessionUser: ptr.To[int64](100000)}
	}, "spec.bridge.firstSessionUser: it requires root and capabilities, which the restricted Pod Security Standard forbids; remove it, " + askAdmin},
	"privileged by the field of the spec": {func(s *spec) { s.ContainerSecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)} },
		"spec.containerSecurityContext" + forbidden + `privileged (container "server" must not set securityContext.privileged=true)` + again},
	"root by the field of the spec": {func(s *spec) {
		s.PodSecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(false), RunAsUser: ptr.To[int64](0)}
	},
		"spec.podSecurityContext" + forbidden + "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false), runAsUser=0 (pod must not set runAsUser=0)" + again},
}

func TestRefusesPodsThatAreNotPermitted(t *testing.T) {
	for name, c := range attacks {
		for _, policy := range []OverridesPolicy{"", OverridesRestricted} {
			t.Run(name+" "+string(policy), func(t *testing.T) {
				g := NewWithT(t)

				_, err := desiredDeployment(&scope{server: tools(c.change), settings: Settings{PodOverrides: policy}})

				g.Expect(err).To(MatchError(c.want))
				var refusal *workload.NotPermitted
				g.Expect(errors.As(err, &refusal)).To(BeTrue())
				g.Expect(refusal.ConditionReason()).To(Equal(v1beta1.ReasonNotPermitted))
				g.Expect(refusal.Permanent()).To(BeTrue())
			})
		}
		t.Run(name+" none", func(t *testing.T) {
			_, err := desiredDeployment(&scope{server: tools(c.change), settings: Settings{PodOverrides: OverridesNone}})
			NewWithT(t).Expect(err).To(HaveOccurred())
		})
		t.Run(name+" all", func(t *testing.T) {
			_, err := desiredDeployment(&scope{server: tools(c.change), settings: Settings{PodOverrides: OverridesAll}})
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
		})
	}
}

// The container of the server has what the bridge needs, and nothing else changes. The security contexts of the spec override it.
func TestUserPerSessionRunsTheBridgeAsRoot(t *testing.T) {
	g := NewWithT(t)
	settings := Settings{PodOverrides: OverridesAll}
	perSession := func(s *spec) { s.Bridge = &v1beta1.MCPServerBridge{FirstSessionUser: ptr.To[int64](100000)} }
	context := func(changes ...func(*spec)) string {
		template := podTemplate(tools(append([]func(*spec){stdio, perSession}, changes...)...), settings, "")
		g.Expect(asJSON(t, template.Spec.SecurityContext)).To(MatchYAML("{runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}"))
		g.Expect(asJSON(t, template.Spec.InitContainers[0].SecurityContext)).To(MatchYAML(
			"{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}"))
		return asJSON(t, template.Spec.Containers[0].SecurityContext)
	}

	g.Expect(context()).To(MatchYAML(
		"{runAsUser: 0, runAsNonRoot: false, allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [CHOWN, KILL, SETGID, SETUID]}}"))
	g.Expect(context(func(s *spec) {
		s.ContainerSecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
	})).To(MatchYAML(
		"{runAsUser: 0, runAsNonRoot: false, allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [CHOWN, KILL, SETGID, SETUID]}, readOnlyRootFilesystem: true}"))
}

func TestPolicyNoneRefusesAllOverrides(t *testing.T) {
	g := NewWithT(t)
	server := tools(overridden(`{"dnsPolicy":"None"}`))

	_, err := desiredDeployment(&scope{server: server, settings: Settings{PodOverrides: OverridesRestricted}})
	g.Expect(err).NotTo(HaveOccurred())

	_, err = desiredDeployment(&scope{server: server, settings: Settings{PodOverrides: OverridesNone}})
	g.Expect(err).To(MatchError("spec.podOverrides: the manager runs with --pod-overrides=none; remove spec.podOverrides, " + askAdmin))

	_, err = desiredDeployment(&scope{server: tools(), settings: Settings{PodOverrides: OverridesNone}})
	g.Expect(err).NotTo(HaveOccurred())
}

func TestParseOverridesPolicy(t *testing.T) {
	g := NewWithT(t)
	for _, name := range []string{"none", "restricted", "all"} {
		g.Expect(ParseOverridesPolicy(name)).To(Equal(OverridesPolicy(name)))
	}
	_, err := ParseOverridesPolicy("some")
	g.Expect(err).To(MatchError(`"some" does not exist: set none, restricted or all`))
}

// TestRefusesTheServiceAccountOfTheManager under every policy: the pods would have its permissions.
func TestRefusesTheServiceAccountOfTheManager(t *testing.T) {
	const refused = ": the pods would run as ServiceAccount acme/tools, which is that of the manager, and have its permissions; use another ServiceAccount, or another namespace" + unchanged
	account := types.NamespacedName{Namespace: "acme", Name: "tools"} // the MCPServer has the same name
	cases := map[string]struct {
		change func(*spec)
		want   string
	}{
		"by name": {func(s *spec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Name: "tools"} }, "spec.serviceAccount" + refused},
		"by creating one of its name": {func(s *spec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true} },
			"spec.serviceAccount" + refused},
		"by an override":             {overridden(`{"serviceAccountName":"tools"}`), "spec.podOverrides.spec.serviceAccountName" + refused},
		"by the deprecated override": {overridden(`{"serviceAccount":"tools"}`), "spec.podOverrides.spec.serviceAccountName" + refused},
		"by one that hides another": {func(s *spec) {
			s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Name: "robot"}
			overridden(`{"serviceAccountName":"tools","serviceAccount":"robot"}`)(s)
		}, "spec.podOverrides.spec.serviceAccountName" + refused},
		"another one":     {func(s *spec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Name: "robot"} }, ""},
		"the default one": {func(*spec) {}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := desiredDeployment(&scope{server: tools(c.change), settings: Settings{ManagerAccount: account, PodOverrides: OverridesAll}})
			if c.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(c.want))
		})
	}

	g := NewWithT(t)
	creates := &scope{server: tools(func(s *spec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true} }), settings: Settings{ManagerAccount: account}}
	_, err := serviceAccount.Desired(creates)
	g.Expect(err).To(MatchError("spec.serviceAccount.create" + refused))
	creates.settings.ManagerAccount.Namespace = "elsewhere"
	g.Expect(serviceAccount.Desired(creates)).NotTo(BeNil())
}

func TestEmptyNodeNameIsPermitted(t *testing.T) {
	_, err := desiredDeployment(&scope{server: tools(overridden(`{"nodeName":""}`)), settings: Settings{PodOverrides: OverridesRestricted}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}
