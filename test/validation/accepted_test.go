package validation

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// acceptance is an object that the API server takes, and what it makes of it.
type acceptance struct {
	name string
	// spec as it is given, in YAML.
	spec string
	// stored is the spec with the defaults, in YAML; left out, it is as given.
	stored string
}

// The two everything... cases together set every field that a spec has; there
// are two because some fields exclude each other. A test below keeps it so.
var acceptances = map[string]acceptance{
	"the least": {
		spec: `{image: shop}`,
		stored: `{image: shop, port: 8080, strategy: RollingUpdate, progressDeadlineSeconds: 600,
			adoptionPolicy: Never, driftPolicy: Correct, podSecurityStandard: Restricted}`},
	"defaults of nested fields": {
		spec: `{image: shop, probes: {readiness: {}}, autoscaling: {maxReplicas: 2, targetCPUUtilizationPercent: 80}, ingress: {host: a.b}}`,
		stored: `{image: shop, port: 8080, strategy: RollingUpdate, progressDeadlineSeconds: 600,
			adoptionPolicy: Never, driftPolicy: Correct, podSecurityStandard: Restricted,
			probes: {readiness: {path: /, periodSeconds: 10, timeoutSeconds: 1, failureThreshold: 3}},
			autoscaling: {minReplicas: 2, maxReplicas: 2, targetCPUUtilizationPercent: 80},
			ingress: {host: a.b, path: /}}`},
	"everything, with a fixed number of pods": {
		name: "a23456789-123456789-123456789-123456789-123456789-1234567",
		spec: `
image: registry.example.com:5000/team/shop_app/web--ui:1.4.2-rc.1@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
imagePullPolicy: Never
port: 65535
replicas: 2
strategy: Recreate
config: {_KEY: "", Key2: "two\nlines"}
mounts:
- {name: tmp, mountPath: /tmp, emptyDir: {sizeLimit: 64Mi, medium: Memory}}
- {name: 0-cache, mountPath: /var/cache/..x, emptyDir: {}}
env:
- {name: SECRET, valueFrom: {secretKeyRef: {name: shop, key: password}}}
- {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}
probes:
  readiness: {path: /ready, port: 1, initialDelaySeconds: 0, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 1}
  liveness: {path: /live, port: 65535, initialDelaySeconds: 3600, periodSeconds: 3600, timeoutSeconds: 3600, failureThreshold: 1000}
  startup: {path: /started, port: 8081, initialDelaySeconds: 5, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 30}
disruptionBudget: {maxUnavailable: 25%}
ingress:
  host: xn--bcher-kva.shop-1.example.com
  path: /shop
  ingressClassName: nginx.internal
  tlsSecretName: shop-tls
  annotations: {nginx.ingress.kubernetes.io/proxy-body-size: 8m}
imagePullSecrets: [{name: one}, {name: two}]
serviceAccountName: shop.account-1
automountServiceAccountToken: true
podSecurityStandard: Restricted
podSecurityContext: {runAsUser: 1000, fsGroup: 1000}
containerSecurityContext: {readOnlyRootFilesystem: true}
nodeSelector: {kubernetes.io/arch: arm64}
hooks:
  preDeploy:
    image: shop/migrations:7
    command: [/app/migrate, up]
    args: ["", --all]
    env: [{name: USER, valueFrom: {secretKeyRef: {name: admin, key: user}}}]
    resources: {limits: {memory: 1Gi}}
    activeDeadlineSeconds: 604800
progressDeadlineSeconds: 10
adoptionPolicy: IfUnowned
driftPolicy: Report
driftHistoryLimit: 50
suspend: true`},
	"everything, with an autoscaler and files": {
		name: "a",
		spec: `
image: localhost/shop
port: 1
strategy: RollingUpdate
config: {shop.properties: one, .hidden: two, 1st_file-name: three}
configMountPath: /etc/shop..d/conf
autoscaling: {minReplicas: 2, maxReplicas: 2, targetCPUUtilizationPercent: 1000, targetMemoryUtilizationPercent: 1}
disruptionBudget: {minAvailable: 0}
automountServiceAccountToken: false
podSecurityStandard: Baseline
progressDeadlineSeconds: 86400
adoptionPolicy: Never
driftPolicy: Correct
suspend: false`},
	"image of a registry at an IPv6 address": {
		spec: `{image: "[2001:db8::1]:5000/shop:1", port: 8080, strategy: RollingUpdate, progressDeadlineSeconds: 600,
			adoptionPolicy: Never, driftPolicy: Correct, podSecurityStandard: Restricted}`},
	"no hook": {
		spec: `{image: shop, port: 8080, strategy: RollingUpdate, progressDeadlineSeconds: 600,
			adoptionPolicy: Never, driftPolicy: Correct, podSecurityStandard: Restricted, hooks: {}}`},
	"hook with arguments of its image": {
		spec: `{image: shop, port: 8080, strategy: RollingUpdate, progressDeadlineSeconds: 600,
			adoptionPolicy: Never, driftPolicy: Correct, podSecurityStandard: Restricted, hooks: {preDeploy: {args: [migrate], activeDeadlineSeconds: 1}}}`},
	// Rules cost the API server time, and it gives up on one that costs too much.
	"config as large as it may be": {
		spec: fmt.Sprintf(`{image: shop, port: 8080, strategy: RollingUpdate, progressDeadlineSeconds: 600,
			adoptionPolicy: Never, driftPolicy: Correct, podSecurityStandard: Restricted, configMountPath: /etc/shop, config: {%s}}`,
			repeated(64, strings.Repeat("k", 251)+"%02d: "+strings.Repeat("v", 16384)))},
	"mounts as large as they may be": {
		spec: fmt.Sprintf(`{image: shop, port: 8080, strategy: RollingUpdate, progressDeadlineSeconds: 600,
			adoptionPolicy: Never, driftPolicy: Correct, podSecurityStandard: Restricted, configMountPath: /%s, mounts: [%s]}`,
			strings.Repeat("c", 511), repeated(16, `{name: m%[1]d, mountPath: /%02[1]d`+strings.Repeat("m", 509)+`, emptyDir: {sizeLimit: 0}}`))},
	"disruption budget of all": {
		spec: `{image: shop, port: 8080, strategy: RollingUpdate, progressDeadlineSeconds: 600,
			adoptionPolicy: Never, driftPolicy: Correct, podSecurityStandard: Restricted, disruptionBudget: {minAvailable: 100%}}`},
}

func TestAcceptedSpecsAreStoredWithTheirDefaults(t *testing.T) {
	for _, cases := range kinds {
		for label, c := range cases.acceptances {
			t.Run(cases.kind+"/"+label, func(t *testing.T) {
				g := NewWithT(t)
				name, stored := c.name, c.stored
				if name == "" {
					name = "shop"
				}
				if stored == "" {
					stored = c.spec
				}

				object, err := tryCreate(g, build(g, cases.kind, name, c.spec))

				g.Expect(err).NotTo(HaveOccurred())
				got, err := yaml.Marshal(object.Object["spec"])
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got).To(MatchYAML(stored))
			})
		}
	}
}

// The seeds of the campaign are stored as they are given, apart from defaults.
func TestSeedsAreAccepted(t *testing.T) {
	for _, cases := range kinds {
		for name, seed := range seedsOf(NewWithT(t), cases.kind) {
			t.Run(cases.kind+"/"+name, func(t *testing.T) {
				g := NewWithT(t)
				object := build(g, cases.kind, "shop", "")
				object.Object["spec"] = specs.Clone(seed)["spec"]

				stored, err := tryCreate(g, object)

				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(withDefaultsOf(stored.Object["spec"], seed["spec"])).To(Equal(stored.Object["spec"]))
			})
		}
	}
}

// seedsOf are the objects with the seeds of a kind, by the name of the seed.
func seedsOf(g *WithT, kind string) map[string]map[string]any {
	all, err := specs.Read(crdFolder)
	g.Expect(err).NotTo(HaveOccurred())
	for _, k := range all {
		if k.Name == kind {
			g.Expect(k.Seeds).NotTo(BeEmpty())
			return k.Seeds
		}
	}
	g.Expect(kind).To(BeEmpty(), "a kind of %s", crdFolder)
	return nil
}

// withDefaultsOf adds what only the stored value has, and replaces nothing.
func withDefaultsOf(stored, given any) any {
	switch given := given.(type) {
	case map[string]any:
		stored, ok := stored.(map[string]any)
		if !ok {
			return given
		}
		merged := maps.Clone(stored)
		for key, value := range given {
			merged[key] = withDefaultsOf(stored[key], value)
		}
		return merged
	case []any:
		stored, ok := stored.([]any)
		if !ok || len(stored) != len(given) {
			return given
		}
		merged := make([]any, len(given))
		for i := range given {
			merged[i] = withDefaultsOf(stored[i], given[i])
		}
		return merged
	default:
		return given
	}
}

func TestSamplesAreAccepted(t *testing.T) {
	samples, err := filepath.Glob("../../config/samples/fixpoint_*.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(samples).NotTo(BeEmpty())
	nested, err := filepath.Glob("../../config/samples/*/fixpoint_*.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	samples = append(samples, nested...)
	for _, sample := range samples {
		t.Run(filepath.Base(sample), func(t *testing.T) {
			g := NewWithT(t)
			text, err := os.ReadFile(sample)
			g.Expect(err).NotTo(HaveOccurred())
			for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
				object := &unstructured.Unstructured{}
				g.Expect(yaml.Unmarshal(document, &object.Object)).To(Succeed())
				_, err = tryCreate(g, object)
				g.Expect(err).NotTo(HaveOccurred())
			}
		})
	}
}

func TestScalingKeepsTheRules(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	_, err := appServices(g).Create(ctx, appService(g, "scaled", `{image: "shop:1", replicas: 3}`), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		g.Expect(appServices(g).Delete(ctx, "scaled", metav1.DeleteOptions{})).To(Succeed())
	})
	scale := func(replicas string) error {
		_, err := appServices(g).Patch(ctx, "scaled", types.MergePatchType,
			[]byte(`{"spec":{"replicas":`+replicas+`}}`), metav1.PatchOptions{}, "scale")
		return err
	}

	g.Expect(scale("4")).To(Succeed())
	g.Expect(complaints(g, scale("1"))).To(ConsistOf(HaveSuffix(replicasMessage)))

	scaled, err := appServices(g).Get(ctx, "scaled", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	replicas, _, err := unstructured.NestedInt64(scaled.Object, "spec", "replicas")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(replicas).To(BeEquivalentTo(4))
}

func TestStatusStoresZeroReplicas(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	_, err := appServices(g).Create(ctx, appService(g, "empty", `{image: "shop:1", replicas: 3}`), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		g.Expect(appServices(g).Delete(ctx, "empty", metav1.DeleteOptions{})).To(Succeed())
	})

	applied, err := appServices(g).Patch(ctx, "empty", types.ApplyPatchType, []byte(`{
		"apiVersion": "fixpoint.dev/v1beta1", "kind": "AppService", "metadata": {"name": "empty"},
		"status": {"replicas": 0, "readyReplicas": 0}}`), metav1.PatchOptions{FieldManager: "test"}, "status")

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(applied.Object["status"]).To(And(HaveKeyWithValue("replicas", int64(0)), HaveKeyWithValue("readyReplicas", int64(0))))
}

func TestKubectlFindsKindsByTheirShortNames(t *testing.T) {
	g := NewWithT(t)
	client, err := discovery.NewDiscoveryClientForConfig(shared.Admin())
	g.Expect(err).NotTo(HaveOccurred())

	resources, err := client.ServerResourcesForGroupVersion(v1beta1.SchemeGroupVersion.String())

	g.Expect(err).NotTo(HaveOccurred())
	for name, short := range map[string]string{"appservices": "asvc", "mcpservers": "mcp", "securestorages": "sst"} {
		g.Expect(resources.APIResources).To(ContainElement(And(
			HaveField("Name", name),
			HaveField("ShortNames", ConsistOf(short)),
			HaveField("Categories", ConsistOf("fixpoint")))))
	}
}
