package tenant_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

// podAttempts try to run pods with more rights than those of the namespace.
func podAttempts() []attempt {
	attempts := []attempt{
		{"run as root, privileged or with capabilities through the security contexts of an MCPServer", editor, "`NotPermitted`: the message names the field", func(a *trial) {
			for name, c := range map[string]struct{ fields, field, problem string }{
				"context-root":       {"podSecurityContext: {runAsUser: 0, runAsNonRoot: false}", "spec.podSecurityContext", "runAsNonRoot != true"},
				"context-seccomp":    {"podSecurityContext: {seccompProfile: {type: Unconfined}}", "spec.podSecurityContext", "seccompProfile"},
				"context-sysctl":     {"podSecurityContext: {sysctls: [{name: kernel.msgmax, value: \"1\"}]}", "spec.podSecurityContext", "forbidden sysctls"},
				"context-privileged": {"containerSecurityContext: {privileged: true}", "spec.containerSecurityContext", "privileged"},
				"context-capability": {"containerSecurityContext: {capabilities: {add: [SYS_ADMIN]}}", "spec.containerSecurityContext", "unrestricted capabilities"},
			} {
				a.Expect(a.server(name, c.fields)).To(Succeed())
				a.notPermitted(name, &v1beta1.MCPServer{}, c.field+": the restricted Pod Security Standard forbids such pods: ", c.problem, "change these settings")
			}
		}},
		{"run as root with capabilities by a user per session of the bridge", editor, "`NotPermitted`: the message names `spec.bridge.firstSessionUser`", func(a *trial) {
			a.Expect(a.server("session-users", "transport: stdio, command: [serve], bridge: {firstSessionUser: 100000}")).To(Succeed())
			a.notPermitted("session-users", &v1beta1.MCPServer{}, "spec.bridge.firstSessionUser: it requires root and capabilities", "the restricted Pod Security Standard forbids", "--pod-overrides=all")
		}},
		{"run privileged or with capabilities through the security contexts of an AppService", editor, "`NotPermitted`: the message names the field", func(a *trial) {
			for name, c := range map[string]struct{ fields, field string }{
				"app-privileged": {"podSecurityStandard: Baseline, containerSecurityContext: {privileged: true}", "spec.containerSecurityContext"},
				"app-capability": {"containerSecurityContext: {capabilities: {add: [NET_ADMIN]}}", "spec.containerSecurityContext"},
				"app-host":       {"podSecurityContext: {seLinuxOptions: {type: spc_t}}", "spec.podSecurityContext"},
			} {
				a.Expect(a.app(name, c.fields)).To(Succeed())
				a.notPermitted(name, &v1beta1.AppService{}, c.field, "Pod Security Standard", "An existing Deployment and its pods are left unchanged")
			}
		}},
		{"name the ServiceAccount of the manager in pods of the own namespace", edit, "no effect outside: the pods have the ServiceAccount of that name of their own namespace, which has no rights", func(a *trial) {
			a.mustCreate("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: " + account + "}\n")
			a.Expect(a.app("namesake", "serviceAccountName: "+account)).To(Succeed())
			becomesReady(a, "namesake", &v1beta1.AppService{})
			a.asNamesake(func(thief client.Client) {
				a.forbidden(thief.List(a.ctx, &corev1.SecretList{}, client.InNamespace(victim)))
				a.forbidden(thief.Get(a.ctx, client.ObjectKey{Namespace: system, Name: "hash-key.fixpoint.dev"}, &corev1.Secret{}))
				a.forbidden(thief.List(a.ctx, &v1beta1.MCPServerList{}))
			})
		}},
		{"mount a Secret, a ConfigMap or a volume of another namespace", editor, "a name with a namespace is refused: the message names the field; a name that only another namespace has: `DependencyMissing`, no pods", func(a *trial) {
			for field, fields := range map[string]string{
				"spec.mounts[0].secret.name":                     `mounts: [{name: a, mountPath: /a, secret: {name: victim/azure}}]`,
				"spec.mounts[0].configMap.name":                  `mounts: [{name: a, mountPath: /a, configMap: {name: ../victim/shop}}]`,
				"spec.mounts[0].persistentVolumeClaim.claimName": `mounts: [{name: a, mountPath: /a, persistentVolumeClaim: {claimName: victim/data}}]`,
				"spec.protocol.credentialsSecretRef.name":        `protocol: {credentialsSecretRef: {name: victim/azure, key: clientSecret}}`,
				"spec.protocol.caRef.name":                       `protocol: {scheme: HTTPS, caRef: {name: victim/azure}}`,
				"spec.serviceAccount.name":                       `serviceAccount: {name: victim/deployer}`,
				"spec.ingress.tlsSecretName":                     `ingress: {host: a.tenant.example.com, tlsSecretName: victim/azure}`,
			} {
				a.refused(a.server("foreign", fields), field, "use lower-case letters")
			}
			for name, c := range map[string]struct{ fields, missing string }{
				"foreign-secret":  {`mounts: [{name: a, mountPath: /a, secret: {name: azure}}]`, "Secret azure"},
				"foreign-env":     {`env: [{name: A, valueFrom: {secretKeyRef: {name: azure, key: clientSecret}}}]`, "Secret azure"},
				"foreign-slash":   {`env: [{name: A, valueFrom: {secretKeyRef: {name: victim/azure, key: clientSecret}}}]`, "Secret victim/azure"},
				"foreign-from":    {`envFrom: [{secretRef: {name: ../victim/azure}}]`, "Secret ../victim/azure"},
				"foreign-account": {`serviceAccount: {name: deployer}`, "ServiceAccount deployer"},
				"foreign-token":   {`protocol: {credentialsSecretRef: {name: azure, key: clientSecret}}`, "Secret azure"},
			} {
				a.Expect(a.server(name, c.fields)).To(Succeed())
				shows(a, name, &v1beta1.MCPServer{}, v1beta1.ReasonDependencyMissing, "missing: "+c.missing, "create the missing objects and keys")
				a.Expect(a.pods(tenant, name)).To(BeEmpty())
			}
			a.refused(a.app("foreign", `ingress: {host: a.tenant.example.com, tlsSecretName: victim/azure}`), "spec.ingress.tlsSecretName", "use lower-case letters")
			for name, c := range map[string]struct{ fields, missing string }{
				"app-foreign-env":     {`env: [{name: A, valueFrom: {secretKeyRef: {name: azure, key: clientSecret}}}]`, "Secret azure"},
				"app-foreign-slash":   {`env: [{name: A, valueFrom: {secretKeyRef: {name: victim/azure, key: clientSecret}}}]`, "Secret victim/azure"},
				"app-foreign-pull":    {`imagePullSecrets: [{name: ../victim/azure}]`, "Secret ../victim/azure"},
				"app-foreign-account": {`serviceAccountName: deployer`, "ServiceAccount deployer"},
			} {
				a.Expect(a.app(name, c.fields)).To(Succeed())
				shows(a, name, &v1beta1.AppService{}, v1beta1.ReasonDependencyMissing, "missing: "+c.missing, "create the missing objects and keys")
				a.Expect(a.pods(tenant, name)).To(BeEmpty())
			}
		}},
		{"run the Job of a hook privileged, or with a ServiceAccount or a Secret of another namespace", editor, "`NotPermitted` or `DependencyMissing`, no Job; fields that only a pod has are dropped", func(a *trial) {
			const hook = "hooks: {preDeploy: {command: [migrate]}}"
			a.Expect(a.app("hook-privileged", "podSecurityStandard: Baseline, containerSecurityContext: {privileged: true}, "+hook)).To(Succeed())
			a.notPermitted("hook-privileged", &v1beta1.AppService{}, "spec.containerSecurityContext", "Pod Security Standard")
			a.Expect(a.jobs("hook-privileged")).To(BeEmpty())
			for name, c := range map[string]struct{ fields, missing string }{
				"hook-account": {"serviceAccountName: deployer, " + hook, "ServiceAccount deployer"},
				"hook-pull":    {"imagePullSecrets: [{name: ../victim/azure}], " + hook, "Secret ../victim/azure"},
				"hook-env":     {`hooks: {preDeploy: {args: [a], env: [{name: A, valueFrom: {secretKeyRef: {name: azure, key: clientSecret}}}]}}`, "Secret azure"},
			} {
				a.Expect(a.app(name, c.fields)).To(Succeed())
				shows(a, name, &v1beta1.AppService{}, v1beta1.ReasonDependencyMissing, "missing: "+c.missing, "create the missing objects and keys")
				a.Expect(a.jobs(name)).To(BeEmpty())
			}
			a.Expect(a.app("hook-unknown", "hooks: {preDeploy: {command: [migrate], serviceAccountName: deployer, hostPID: true, securityContext: {privileged: true}}}")).To(Succeed())
			a.Eventually(func() []batchv1.Job { return a.jobs("hook-unknown") }).Should(HaveLen(1))
			pod := a.jobs("hook-unknown")[0].Spec.Template.Spec
			a.Expect(pod.ServiceAccountName).To(BeEmpty())
			a.Expect(pod.HostPID).To(BeFalse())
			a.Expect(fmt.Sprint(pod)).NotTo(ContainSubstring("Privileged:true"))
		}},
		{"write files over the bridge, or outside of the own directories", editor, "refused: the message names `files` or `mounts`", func(a *trial) {
			for _, path := range []string{"/.fixpoint/mcp-bridge", "/etc/../.fixpoint/x", "/a/./b", "relative", "/a:b"} {
				a.refused(a.server("files", fmt.Sprintf("files: [{path: %q, content: a}]", path)), "spec.files[0].path", "use a value such as")
				a.refused(a.server("files", fmt.Sprintf("mounts: [{name: a, mountPath: %q, emptyDir: {}}]", path)), "spec.mounts[0].mountPath", "use a value such as")
			}
			for _, path := range []string{"/", "/etc/../tmp", "/a/./b", "relative", "/a:b"} {
				a.refused(a.app("files", fmt.Sprintf("mounts: [{name: a, mountPath: %q, emptyDir: {}}]", path)), "spec.mounts[0].mountPath", "use a value such as")
			}
			a.refused(a.app("files", "mounts: [{name: config, mountPath: /a, emptyDir: {}}]"), "spec.mounts[0].name", "use a value such as")
			a.refused(a.server("files", "mounts: [{name: a, mountPath: /a, subPath: ../../etc, emptyDir: {}}]"), "spec.mounts[0].subPath", "use a value such as")
			a.refused(a.server("files", "mounts: [{name: fixpoint-bridge, mountPath: /a, emptyDir: {}}]"), "spec.mounts[0].name", "use a value such as")
		}},
		{"replace labels and annotations by which the manager knows its pods", editor, "refused: the message names `podOverrides`", func(a *trial) {
			for _, metadata := range []string{"labels: {app.kubernetes.io/name: shop}", "labels: {fixpoint.dev/kind: appservice}"} {
				a.refused(a.server("labels", "podOverrides: {metadata: {"+metadata+"}}"), "spec.podOverrides.metadata.labels", "rename the label")
			}
			a.refused(a.server("labels", "podOverrides: {metadata: {annotations: {fixpoint.dev/dependencies-hash: a}}}"), "spec.podOverrides.metadata.annotations", "rename the annotation")
		}},
	}
	return append(attempts, overrideAttempts()...)
}

// asNamesake runs a check as the ServiceAccount of the tenant that is named like that of the manager.
func (a *trial) asNamesake(check func(client.Client)) {
	a.t.Helper()
	cfg := a.cluster.Config(edit)
	token := a.token(a.ctx, a, a.clients(a, cfg), tenant, account)
	cfg.CertData, cfg.KeyData, cfg.BearerToken = nil, nil, token
	thief, err := client.New(cfg, client.Options{Scheme: a.admin.Scheme(), Mapper: a.admin.RESTMapper()})
	a.Expect(err).NotTo(HaveOccurred())
	check(thief)
}

// overrideAttempts are those through spec.podOverrides.
func overrideAttempts() []attempt {
	const (
		standard = "spec.podOverrides: the restricted Pod Security Standard forbids such pods: "
		remedy   = "or ask the administrator to run the manager with --pod-overrides=all"
		result   = "`NotPermitted`: the message names `spec.podOverrides`"
		allowed  = `securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`
	)
	override := func(name string, overrides map[string]string, texts ...string) attempt {
		return attempt{name + " with `podOverrides`", editor, result, func(a *trial) {
			for object, spec := range overrides {
				a.Expect(a.server("override-"+object, "podOverrides: {spec: {"+spec+"}}")).To(Succeed())
				a.notPermitted("override-"+object, &v1beta1.MCPServer{}, append(texts, remedy)...)
			}
		}}
	}
	return []attempt{
		override("mount directories of the node", map[string]string{"hostpath": "volumes: [{name: a, hostPath: {path: /}}]"}, standard, "restricted volume types"),
		override("run a privileged container", map[string]string{
			"privileged":           "containers: [{name: server, securityContext: {privileged: true}}]",
			"privileged-sidecar":   "containers: [{name: other, image: a, securityContext: {privileged: true}}]",
			"privileged-init":      "initContainers: [{name: other, image: a, securityContext: {privileged: true}}]",
			"privileged-ephemeral": "ephemeralContainers: [{name: other, image: a, securityContext: {privileged: true}}]",
		}, standard, "privileged"),
		override("add capabilities", map[string]string{"capability": "containers: [{name: server, securityContext: {capabilities: {add: [SYS_PTRACE]}}}]"}, standard, "unrestricted capabilities"),
		override("use the process IDs, the network or the memory of the node", map[string]string{"pid": "hostPID: true", "network": "hostNetwork: true", "ipc": "hostIPC: true"}, standard, "host namespaces"),
		override("listen on a port of the node", map[string]string{"port": "containers: [{name: server, ports: [{containerPort: 8080, hostPort: 443}]}]"}, standard, "hostPort"),
		override("run without a seccomp or AppArmor profile, or as root", map[string]string{
			"seccomp":   "containers: [{name: server, securityContext: {seccompProfile: {type: Unconfined}}}]",
			"apparmor":  "containers: [{name: server, securityContext: {appArmorProfile: {type: Unconfined}}}]",
			"root":      "securityContext: {runAsNonRoot: false, runAsUser: 0}",
			"windows":   "securityContext: {windowsOptions: {hostProcess: true}}",
			"procmount": "containers: [{name: server, securityContext: {procMount: Unmasked}}]",
		}, standard),
		override("choose a node without the scheduler", map[string]string{"node": "nodeName: node-1"}, "spec.podOverrides.spec.nodeName: pods must be scheduled; select nodes with spec.scheduling"),
		override("choose a ServiceAccount", map[string]string{"account": "serviceAccountName: deployer", "account-old-name": "serviceAccount: deployer"},
			"spec.podOverrides.spec.serviceAccountName: the ServiceAccount must not be overridden; set spec.serviceAccount instead"),
		{"hide fields in `podOverrides` by their spelling, as unknown fields, or twice", editor, "`Invalid` or refused, no pods", func(a *trial) {
			for name, spec := range map[string]string{
				"case": "HostPID: true", "unknown": "hostPids: true", "type": "hostPID: \"true\"", "list": "containers: {name: server}", "null": "containers: [null]",
			} {
				a.Expect(a.server("hidden-"+name, "podOverrides: {spec: {"+spec+"}}")).To(Succeed())
				server := shows(a, "hidden-"+name, &v1beta1.MCPServer{}, v1beta1.ReasonInvalid, "spec.podOverrides is not a valid part of a pod template", "correct spec.podOverrides")
				a.Expect(harness.Conditions(server)).To(HaveKeyWithValue("Stalled", "True Invalid"))
				a.Expect(a.pods(tenant, "hidden-"+name)).To(BeEmpty())
			}
			a.Expect(a.server("hidden-container", "podOverrides: {spec: {containers: [{name: side, image: a, "+allowed+"}], hostPID: false}}")).To(Succeed())
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "hidden-container"}}
			a.Eventually(func() error { return a.read(deployment, tenant, "hidden-container") }).Should(Succeed())
			a.Expect(deployment.Spec.Template.Spec.HostPID).To(BeFalse())
			a.Expect(strings.Contains(fmt.Sprint(deployment.Spec.Template.Spec), "Privileged:true")).To(BeFalse())
		}},
	}
}
