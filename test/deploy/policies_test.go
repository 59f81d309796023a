package deploy_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	policyApp = `
apiVersion: fixpoint.dev/v1beta1
kind: AppService
metadata: {name: NAME}
spec: {image: "registry.test/web:1", EXTRA}
`
	policyServer = `
apiVersion: fixpoint.dev/v1beta1
kind: MCPServer
metadata: {name: NAME}
spec: {image: "registry.test/tools:1", transport: streamable-http, EXTRA}
`
	policyStorage = `
apiVersion: fixpoint.dev/v1beta1
kind: SecureStorage
metadata: {name: NAME}
spec:
  provider: {subscriptionID: 00000000-0000-4000-8000-000000000000, resourceGroup: demo, location: westeurope, EXTRA}
  key: {vault: {name: fixpoint-demo}, name: storage}
`
)

// TestPoliciesRefuseWhatTheNamespaceDoesNotAllow applies config/policies to a real API server.
func TestPoliciesRefuseWhatTheNamespaceDoesNotAllow(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.install("crd")
	w.namespace("before")
	w.apply(inNamespace("before", strings.NewReplacer("NAME", "old", "EXTRA", "ingress: {host: bank.example.com}").Replace(policyApp)))
	w.install("policies")
	w.namespace("bare")
	w.namespace("tenant")
	for key, value := range map[string]string{
		"hosts":            "shop.example.com, *.tenant.example.com",
		"annotations":      "example.com/class, team.example.com/*",
		"service-accounts": "web,tenant-*",
	} {
		w.run("annotate", "namespace", "tenant", "policy.fixpoint.dev/"+key+"="+value)
	}
	dryRun := func(namespace, kind, extra string) error {
		text := inNamespace(namespace, strings.NewReplacer("NAME", "given", "EXTRA", extra).Replace(kind))
		_, err := w.kubectl.Pipe(w.ctx, text, "create", "--dry-run=server", "-f", "-")
		return err
	}
	const identity = "workloadIdentity: {tenantID: 00000000-0000-4000-8000-000000000001, clientID: 00000000-0000-4000-8000-000000000002, serviceAccountName: "
	// Until every policy is in force.
	for _, extra := range []string{"ingress: {host: a.test}", "ingress: {host: shop.example.com, annotations: {a: b}}", "serviceAccountName: admin"} {
		w.Eventually(func() error { return dryRun("tenant", policyApp, extra) }).Should(MatchError(ContainSubstring("is not allowed in namespace tenant")))
	}
	// Until they know every annotation of the namespace.
	for _, extra := range []string{"ingress: {host: shop.example.com}", "ingress: {host: shop.example.com, annotations: {example.com/class: a}}", "serviceAccountName: web"} {
		w.Eventually(func() error { return dryRun("tenant", policyApp, extra) }).Should(Succeed())
	}

	for name, c := range map[string]struct{ namespace, kind, extra, refused string }{
		"a plain AppService":               {"bare", policyApp, "", ""},
		"a plain MCPServer":                {"bare", policyServer, "", ""},
		"a listed host":                    {"tenant", policyApp, "ingress: {host: shop.example.com}", ""},
		"a host below a listed domain":     {"tenant", policyServer, "ingress: {host: a.tenant.example.com}", ""},
		"another host":                     {"tenant", policyApp, "ingress: {host: bank.example.com}", `spec.ingress.host: bank.example.com is not allowed in namespace tenant: use a host that the annotation policy.fixpoint.dev/hosts of the namespace allows ("shop.example.com, *.tenant.example.com"), or ask an administrator to add it`},
		"a host that only ends like one":   {"tenant", policyApp, "ingress: {host: eviltenant.example.com}", "spec.ingress.host: eviltenant.example.com"},
		"the domain itself":                {"tenant", policyApp, "ingress: {host: tenant.example.com}", "spec.ingress.host: tenant.example.com"},
		"a host without any list":          {"bare", policyApp, "ingress: {host: shop.example.com}", "is not allowed in namespace bare"},
		"hosts of a route":                 {"tenant", policyServer, "httpRoute: {parentRefs: [{name: g}], hostnames: [a.tenant.example.com, shop.example.com]}", ""},
		"one other host of a route":        {"tenant", policyServer, "httpRoute: {parentRefs: [{name: g}], hostnames: [shop.example.com, bank.example.com]}", "spec.httpRoute.hostnames: bank.example.com is not allowed"},
		"a route with all hosts":           {"tenant", policyServer, "httpRoute: {parentRefs: [{name: g}]}", "spec.httpRoute.hostnames: all hosts of the Gateway is not allowed"},
		"listed annotations of an Ingress": {"tenant", policyApp, "ingress: {host: shop.example.com, annotations: {example.com/class: a, team.example.com/x: b}}", ""},
		"another annotation of an Ingress": {"tenant", policyApp, "ingress: {host: shop.example.com, annotations: {nginx.ingress.kubernetes.io/server-snippet: a}}", "spec.ingress.annotations: nginx.ingress.kubernetes.io/server-snippet is not allowed"},
		"an annotation of a ServiceAccount": {"tenant", strings.Replace(policyServer, "NAME", "tenant-tools", 1), "serviceAccount: {create: true, annotations: {eks.amazonaws.com/role-arn: a}}",
			"spec.serviceAccount.annotations: eks.amazonaws.com/role-arn is not allowed"},
		"an annotation of pods":            {"tenant", policyServer, "podOverrides: {\"metadata\": {annotations: {sidecar.istio.io/inject: a}}}", "spec.podOverrides.metadata.annotations: sidecar.istio.io/inject is not allowed"},
		"a listed ServiceAccount":          {"tenant", policyApp, "serviceAccountName: web", ""},
		"a ServiceAccount with the prefix": {"tenant", policyServer, "serviceAccount: {name: tenant-tools}", ""},
		"the default ServiceAccount":       {"bare", policyServer, "serviceAccount: {name: default}", ""},
		"another of an AppService":         {"tenant", policyApp, "serviceAccountName: admin", "spec.serviceAccountName: admin is not allowed"},
		"another of the Job of a hook":     {"tenant", policyApp, "serviceAccountName: admin, hooks: {preDeploy: {args: [a]}}", "spec.serviceAccountName: admin is not allowed"},
		"one that only a hook has":         {"tenant", policyApp, "hooks: {preDeploy: {args: [a], serviceAccountName: admin}}", `unknown field "spec.hooks.preDeploy.serviceAccountName"`},
		"another of an MCPServer":          {"tenant", policyServer, "serviceAccount: {name: admin}", "spec.serviceAccount: admin is not allowed"},
		"one that is created":              {"tenant", policyServer, "serviceAccount: {create: true}", "spec.serviceAccount: given is not allowed"},
		"another in an override":           {"tenant", policyServer, "podOverrides: {spec: {serviceAccountName: admin}}", "spec.podOverrides.spec.serviceAccountName: admin is not allowed"},
		"another under its old name":       {"tenant", policyServer, "podOverrides: {spec: {serviceAccount: admin}}", "spec.podOverrides.spec.serviceAccountName: admin is not allowed"},
		"another of a SecureStorage":       {"tenant", policyStorage, identity + "admin}", "spec.provider.workloadIdentity.serviceAccountName: admin is not allowed"},
		"a listed one of a SecureStorage":  {"tenant", policyStorage, identity + "web}", ""},
		"a SecureStorage with a Secret":    {"tenant", policyStorage, "credentialsSecretRef: {name: azure}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := dryRun(c.namespace, c.kind, c.extra)
			if c.refused == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(c.refused)))
		})
	}

	// The manager can set the finalizer of an object that is older than the policy, and its user can repair it.
	w.run("-n", "before", "patch", "appservice", "old", "--type=merge", "-p", `{"metadata":{"finalizers":["fixpoint.dev/teardown"]}}`)
	_, err := w.kubectl.Run(w.ctx, "-n", "before", "patch", "appservice", "old", "--type=merge", "-p", `{"spec":{"port":8081}}`)
	w.Expect(err).To(MatchError(ContainSubstring("spec.ingress.host: bank.example.com is not allowed in namespace before")))
	w.run("-n", "before", "patch", "appservice", "old", "--type=json", "-p", `[{"op":"remove","path":"/spec/ingress"}]`)

	// The expressions fit the schemas of all kinds that they match.
	var policies admissionregistrationv1.ValidatingAdmissionPolicyList
	w.Eventually(func(g Gomega) {
		g.Expect(w.api.List(w.ctx, &policies, client.MatchingLabels{"app.kubernetes.io/name": "fixpoint"})).To(Succeed())
		g.Expect(policies.Items).To(HaveLen(3))
		for i := range policies.Items {
			g.Expect(policies.Items[i].Status.ObservedGeneration).To(Equal(policies.Items[i].Generation))
			g.Expect(policies.Items[i].Status.TypeChecking).NotTo(BeNil())
			g.Expect(policies.Items[i].Status.TypeChecking.ExpressionWarnings).To(BeEmpty())
		}
	}).Should(Succeed())
}
