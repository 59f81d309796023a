package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// limitRefusal is an object that breaks a limit which the schema itself sets.
type limitRefusal struct {
	// spec, or status if it is set, of the object, in YAML.
	spec, status string
	// says is the complaint as the user reads it.
	says string
}

// hook is the spec of an AppService with a hook of these fields.
func hook(fields string) string {
	return fmt.Sprintf(`{image: "shop:1", hooks: {preDeploy: {%s}}}`, fields)
}

// limitRefusals has an entry for every limit in the schema of the project's own fields,
// named as limitsOf names it. Its messages are Kubernetes' own.
var limitRefusals = map[string]limitRefusal{
	"spec required":       {says: `spec: Required value`},
	"spec.image required": {spec: `{port: 80}`, says: `spec.image: Required value`},
	"spec.image maxLength": {
		spec: fmt.Sprintf(`{image: %s}`, strings.Repeat("a", 513)),
		says: `spec.image: Too long: may not be more than 512 bytes`},
	"spec.imagePullPolicy enum": {
		spec: `{image: "shop:1", imagePullPolicy: Sometimes}`,
		says: `spec.imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`},
	"spec.port minimum": {
		spec: `{image: "shop:1", port: 0}`,
		says: `spec.port: Invalid value: 0: spec.port in body should be greater than or equal to 1`},
	"spec.port maximum": {
		spec: `{image: "shop:1", port: 65536}`,
		says: `spec.port: Invalid value: 65536: spec.port in body should be less than or equal to 65535`},
	"spec.strategy enum": {
		spec: `{image: "shop:1", strategy: BlueGreen}`,
		says: `spec.strategy: Unsupported value: "BlueGreen": supported values: "RollingUpdate", "Recreate"`},
	"spec.config maxProperties": {
		spec: fmt.Sprintf(`{image: "shop:1", config: {%s}}`, entries("KEY_", 65)),
		says: `spec.config: Too many: 65: must have at most 64 items`},
	"spec.configMountPath maxLength": {
		spec: fmt.Sprintf(`{image: "shop:1", configMountPath: /%s}`, strings.Repeat("a", 512)),
		says: `spec.configMountPath: Too long: may not be more than 512 bytes`},
	"spec.mounts maxItems": {
		spec: fmt.Sprintf(`{image: "shop:1", mounts: [%s]}`, repeated(17, `{name: m%[1]d, mountPath: /m%[1]d, emptyDir: {}}`)),
		says: `spec.mounts: Too many: 17: must have at most 16 items`},
	"spec.mounts[].name required": {
		spec: `{image: "shop:1", mounts: [{mountPath: /tmp, emptyDir: {}}]}`,
		says: `spec.mounts[0].name: Required value`},
	"spec.mounts[].name maxLength": {
		spec: fmt.Sprintf(`{image: "shop:1", mounts: [{name: %s, mountPath: /tmp, emptyDir: {}}]}`, strings.Repeat("a", 64)),
		says: `spec.mounts[0].name: Too long: may not be more than 63 bytes`},
	"spec.mounts[].mountPath required": {
		spec: `{image: "shop:1", mounts: [{name: tmp, emptyDir: {}}]}`,
		says: `spec.mounts[0].mountPath: Required value`},
	"spec.mounts[].mountPath maxLength": {
		spec: fmt.Sprintf(`{image: "shop:1", mounts: [{name: tmp, mountPath: /%s, emptyDir: {}}]}`, strings.Repeat("a", 512)),
		says: `spec.mounts[0].mountPath: Too long: may not be more than 512 bytes`},
	"spec.mounts[].emptyDir required": {
		spec: `{image: "shop:1", mounts: [{name: tmp, mountPath: /tmp}]}`,
		says: `spec.mounts[0].emptyDir: Required value`},
	"spec.mounts[].emptyDir.medium enum": {
		spec: `{image: "shop:1", mounts: [{name: tmp, mountPath: /tmp, emptyDir: {medium: Disk}}]}`,
		says: `spec.mounts[0].emptyDir.medium: Unsupported value: "Disk": supported values: "Memory"`},
	"spec.mounts[].emptyDir.sizeLimit pattern": {
		spec: `{image: "shop:1", mounts: [{name: tmp, mountPath: /tmp, emptyDir: {sizeLimit: 1 GB}}]}`,
		says: `spec.mounts[0].emptyDir.sizeLimit: Invalid value: "1 GB": spec.mounts[0].emptyDir.sizeLimit in body should match '^(\+|-)?(([0-9]{1,32}(\.[0-9]{0,32})?)|(\.[0-9]{1,32}))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$'`},
	"spec.env maxItems": {
		spec: fmt.Sprintf(`{image: "shop:1", env: [%s]}`, names("KEY_", 129)),
		says: `spec.env: Too many: 129: must have at most 128 items`},
	"spec.autoscaling.maxReplicas required": {
		spec: `{image: "shop:1", autoscaling: {targetCPUUtilizationPercent: 80}}`,
		says: `spec.autoscaling.maxReplicas: Required value`},
	"spec.autoscaling.targetCPUUtilizationPercent minimum": {
		spec: `{image: "shop:1", autoscaling: {maxReplicas: 3, targetCPUUtilizationPercent: 0}}`,
		says: `spec.autoscaling.targetCPUUtilizationPercent: Invalid value: 0: spec.autoscaling.targetCPUUtilizationPercent in body should be greater than or equal to 1`},
	"spec.autoscaling.targetCPUUtilizationPercent maximum": {
		spec: `{image: "shop:1", autoscaling: {maxReplicas: 3, targetCPUUtilizationPercent: 1001}}`,
		says: `spec.autoscaling.targetCPUUtilizationPercent: Invalid value: 1001: spec.autoscaling.targetCPUUtilizationPercent in body should be less than or equal to 1000`},
	"spec.autoscaling.targetMemoryUtilizationPercent minimum": {
		spec: `{image: "shop:1", autoscaling: {maxReplicas: 3, targetMemoryUtilizationPercent: 0}}`,
		says: `spec.autoscaling.targetMemoryUtilizationPercent: Invalid value: 0: spec.autoscaling.targetMemoryUtilizationPercent in body should be greater than or equal to 1`},
	"spec.autoscaling.targetMemoryUtilizationPercent maximum": {
		spec: `{image: "shop:1", autoscaling: {maxReplicas: 3, targetMemoryUtilizationPercent: 1001}}`,
		says: `spec.autoscaling.targetMemoryUtilizationPercent: Invalid value: 1001: spec.autoscaling.targetMemoryUtilizationPercent in body should be less than or equal to 1000`},
	"spec.ingress.host required": {
		spec: `{image: "shop:1", ingress: {path: /}}`,
		says: `spec.ingress.host: Required value`},
	"spec.ingress.host maxLength": {
		spec: fmt.Sprintf(`{image: "shop:1", ingress: {host: %s}}`, strings.Repeat("a", 254)),
		says: `spec.ingress.host: Too long: may not be more than 253 bytes`},
	"spec.ingress.path maxLength": {
		spec: fmt.Sprintf(`{image: "shop:1", ingress: {host: a.b, path: /%s}}`, strings.Repeat("a", 1024)),
		says: `spec.ingress.path: Too long: may not be more than 1024 bytes`},
	"spec.ingress.ingressClassName maxLength": {
		spec: fmt.Sprintf(`{image: "shop:1", ingress: {host: a.b, ingressClassName: %s}}`, strings.Repeat("a", 254)),
		says: `spec.ingress.ingressClassName: Too long: may not be more than 253 bytes`},
	"spec.ingress.tlsSecretName maxLength": {
		spec: fmt.Sprintf(`{image: "shop:1", ingress: {host: a.b, tlsSecretName: %s}}`, strings.Repeat("a", 254)),
		says: `spec.ingress.tlsSecretName: Too long: may not be more than 253 bytes`},
	"spec.ingress.annotations maxProperties": {
		spec: fmt.Sprintf(`{image: "shop:1", ingress: {host: a.b, annotations: {%s}}}`, entries("key-", 65)),
		says: `spec.ingress.annotations: Too many: 65: must have at most 64 items`},
	"spec.hooks.preDeploy.image maxLength": {
		spec: hook(`image: ` + strings.Repeat("a", 513)),
		says: `spec.hooks.preDeploy.image: Too long: may not be more than 512 bytes`},
	"spec.hooks.preDeploy.command minItems": {
		spec: hook(`image: "shop:1", command: []`),
		says: `spec.hooks.preDeploy.command: Invalid value: 0: spec.hooks.preDeploy.command in body should have at least 1 items`},
	"spec.hooks.preDeploy.command maxItems": {
		spec: hook(fmt.Sprintf(`command: [%s]`, repeated(65, `a%d`))),
		says: `spec.hooks.preDeploy.command: Too many: 65: must have at most 64 items`},
	"spec.hooks.preDeploy.command[] maxLength": {
		spec: hook(fmt.Sprintf(`command: [%s]`, strings.Repeat("a", 4097))),
		says: `spec.hooks.preDeploy.command[0]: Too long: may not be more than 4096 bytes`},
	"spec.hooks.preDeploy.args minItems": {
		spec: hook(`image: "shop:1", args: []`),
		says: `spec.hooks.preDeploy.args: Invalid value: 0: spec.hooks.preDeploy.args in body should have at least 1 items`},
	"spec.hooks.preDeploy.args maxItems": {
		spec: hook(fmt.Sprintf(`args: [%s]`, repeated(257, `a%d`))),
		says: `spec.hooks.preDeploy.args: Too many: 257: must have at most 256 items`},
	"spec.hooks.preDeploy.args[] maxLength": {
		spec: hook(fmt.Sprintf(`args: [%s]`, strings.Repeat("a", 16385))),
		says: `spec.hooks.preDeploy.args[0]: Too long: may not be more than 16384 bytes`},
	"spec.hooks.preDeploy.env maxItems": {
		spec: hook(fmt.Sprintf(`command: [migrate], env: [%s]`, repeated(129, `{name: A%d}`))),
		says: `spec.hooks.preDeploy.env: Too many: 129: must have at most 128 items`},
	"spec.hooks.preDeploy.activeDeadlineSeconds minimum": {
		spec: hook(`command: [migrate], activeDeadlineSeconds: 0`),
		says: `spec.hooks.preDeploy.activeDeadlineSeconds: Invalid value: 0: spec.hooks.preDeploy.activeDeadlineSeconds in body should be greater than or equal to 1`},
	"spec.hooks.preDeploy.activeDeadlineSeconds maximum": {
		spec: hook(`command: [migrate], activeDeadlineSeconds: 604801`),
		says: `spec.hooks.preDeploy.activeDeadlineSeconds: Invalid value: 604801: spec.hooks.preDeploy.activeDeadlineSeconds in body should be less than or equal to 604800`},
	"spec.imagePullSecrets maxItems": {
		spec: fmt.Sprintf(`{image: "shop:1", imagePullSecrets: [%s]}`, names("pull-", 17)),
		says: `spec.imagePullSecrets: Too many: 17: must have at most 16 items`},
	"spec.serviceAccountName maxLength": {
		spec: fmt.Sprintf(`{image: "shop:1", serviceAccountName: %s}`, strings.Repeat("a", 254)),
		says: `spec.serviceAccountName: Too long: may not be more than 253 bytes`},
	"spec.nodeSelector maxProperties": {
		spec: fmt.Sprintf(`{image: "shop:1", nodeSelector: {%s}}`, entries("key-", 33)),
		says: `spec.nodeSelector: Too many: 33: must have at most 32 items`},
	"spec.progressDeadlineSeconds minimum": {
		spec: `{image: "shop:1", progressDeadlineSeconds: 9}`,
		says: `spec.progressDeadlineSeconds: Invalid value: 9: spec.progressDeadlineSeconds in body should be greater than or equal to 10`},
	"spec.progressDeadlineSeconds maximum": {
		spec: `{image: "shop:1", progressDeadlineSeconds: 86401}`,
		says: `spec.progressDeadlineSeconds: Invalid value: 86401: spec.progressDeadlineSeconds in body should be less than or equal to 86400`},
	"spec.podSecurityStandard enum": {
		spec: `{image: "shop:1", podSecurityStandard: Privileged}`,
		says: `spec.podSecurityStandard: Unsupported value: "Privileged": supported values: "Baseline", "Restricted"`},
	"spec.adoptionPolicy enum": {
		spec: `{image: "shop:1", adoptionPolicy: Always}`,
		says: `spec.adoptionPolicy: Unsupported value: "Always": supported values: "Never", "IfUnowned"`},
	"spec.driftHistoryLimit minimum": {
		spec: `{image: "shop:1", driftHistoryLimit: -1}`,
		says: `spec.driftHistoryLimit: Invalid value: -1: spec.driftHistoryLimit in body should be greater than or equal to 0`},
	"spec.driftHistoryLimit maximum": {
		spec: `{image: "shop:1", driftHistoryLimit: 51}`,
		says: `spec.driftHistoryLimit: Invalid value: 51: spec.driftHistoryLimit in body should be less than or equal to 50`},
	"spec.driftPolicy enum": {
		spec: `{image: "shop:1", driftPolicy: Ignore}`,
		says: `spec.driftPolicy: Unsupported value: "Ignore": supported values: "Correct", "Report"`},

	// The controller keeps the status within these; a test of them shows that it has to.
	"status.phase enum": {
		status: `{phase: Fine}`,
		says:   `status.phase: Unsupported value: "Fine": supported values: "Pending", "Provisioning", "Running", "Degraded", "Failed", "Suspended", "Deleting"`},
	"status.hooks.preDeploy.phase enum": {
		status: `{hooks: {preDeploy: {phase: Ready}}}`,
		says:   `status.hooks.preDeploy.phase: Unsupported value: "Ready": supported values: "Pending", "Running", "Succeeded", "Failed"`},
	"status.hooks.preDeploy.version maxLength": {
		status: fmt.Sprintf(`{hooks: {preDeploy: {version: %s}}}`, strings.Repeat("a", 64)),
		says:   `status.hooks.preDeploy.version: Too long: may not be more than 63 bytes`},
	"status.hooks.preDeploy.succeededVersions maxItems": {
		status: fmt.Sprintf(`{hooks: {preDeploy: {succeededVersions: [%s]}}}`, repeated(33, `v%d`)),
		says:   `status.hooks.preDeploy.succeededVersions: Too many: 33: must have at most 32 items`},
	"status.hooks.preDeploy.succeededVersions[] maxLength": {
		status: fmt.Sprintf(`{hooks: {preDeploy: {succeededVersions: [%s]}}}`, strings.Repeat("a", 64)),
		says:   `status.hooks.preDeploy.succeededVersions[0]: Too long: may not be more than 63 bytes`},
	"status.conditions maxItems": {
		status: fmt.Sprintf(`{conditions: [%s]}`, repeated(33, `{type: T%d, status: "True", reason: R, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}`)),
		says:   `status.conditions: Too many: 33: must have at most 32 items`},
	"status.lastHandledReconcileAt maxLength": {
		status: fmt.Sprintf(`{lastHandledReconcileAt: %s}`, strings.Repeat("a", 65)),
		says:   `status.lastHandledReconcileAt: Too long: may not be more than 64 bytes`},
	"status.selector maxLength": {
		status: fmt.Sprintf(`{selector: %s}`, strings.Repeat("a", 1025)),
		says:   `status.selector: Too long: may not be more than 1024 bytes`},
	"status.url maxLength": {
		status: fmt.Sprintf(`{url: %s}`, strings.Repeat("a", 2049)),
		says:   `status.url: Too long: may not be more than 2048 bytes`},
	"status.drifts maxItems": {
		status: fmt.Sprintf(`{drifts: [%s]}`, repeated(51, `{time: "2026-01-01T00:00:00Z", kind: Service, name: shop%d, action: Corrected}`)),
		says:   `status.drifts: Too many: 51: must have at most 50 items`},
	"status.drifts[].time required": {
		status: `{drifts: [{kind: Service, name: shop, action: Corrected}]}`,
		says:   `status.drifts[0].time: Required value`},
	"status.drifts[].kind required": {
		status: `{drifts: [{time: "2026-01-01T00:00:00Z", name: shop, action: Corrected}]}`,
		says:   `status.drifts[0].kind: Required value`},
	"status.drifts[].name required": {
		status: `{drifts: [{time: "2026-01-01T00:00:00Z", kind: Service, action: Corrected}]}`,
		says:   `status.drifts[0].name: Required value`},
	"status.drifts[].action required": {
		status: `{drifts: [{time: "2026-01-01T00:00:00Z", kind: Service, name: shop}]}`,
		says:   `status.drifts[0].action: Required value`},
	"status.drifts[].action enum": {
		status: drift("action: Ignored"),
		says:   `status.drifts[0].action: Unsupported value: "Ignored": supported values: "Corrected", "Reported"`},
	"status.drifts[].kind maxLength": {
		status: drift("action: Corrected, kind: " + strings.Repeat("a", 64)),
		says:   `status.drifts[0].kind: Too long: may not be more than 63 bytes`},
	"status.drifts[].name maxLength": {
		status: drift("action: Corrected, name: " + strings.Repeat("a", 254)),
		says:   `status.drifts[0].name: Too long: may not be more than 253 bytes`},
	"status.drifts[].field maxLength": {
		status: drift("action: Corrected, field: " + strings.Repeat("a", 1025)),
		says:   `status.drifts[0].field: Too long: may not be more than 1024 bytes`},
	"status.drifts[].manager maxLength": {
		status: drift("action: Corrected, manager: " + strings.Repeat("a", 129)),
		says:   `status.drifts[0].manager: Too long: may not be more than 128 bytes`},
	"status.drifts[].desired maxLength": {
		status: drift("action: Corrected, desired: " + strings.Repeat("a", 257)),
		says:   `status.drifts[0].desired: Too long: may not be more than 256 bytes`},
	"status.drifts[].found maxLength": {
		status: drift("action: Corrected, found: " + strings.Repeat("a", 257)),
		says:   `status.drifts[0].found: Too long: may not be more than 256 bytes`},
}

func init() {
	// The three probes are of one type, so their limits are the same.
	for _, probe := range []string{"readiness", "liveness", "startup"} {
		maps.Copy(limitRefusals, probeLimits("spec.probes."+probe, probe))
	}
}

func probeLimits(path, probe string) map[string]limitRefusal {
	refusals := map[string]limitRefusal{
		path + ".path maxLength": {
			spec: fmt.Sprintf(`{image: "shop:1", probes: {%s: {path: /%s}}}`, probe, strings.Repeat("a", 1024)),
			says: path + `.path: Too long: may not be more than 1024 bytes`},
	}
	for field, bounds := range map[string][2]int{
		"port":                {1, 65535},
		"initialDelaySeconds": {0, 3600},
		"periodSeconds":       {1, 3600},
		"timeoutSeconds":      {1, 3600},
		"failureThreshold":    {1, 1000},
	} {
		says := func(value int, bound string) limitRefusal {
			return limitRefusal{
				spec: fmt.Sprintf(`{image: "shop:1", probes: {%s: {%s: %d}}}`, probe, field, value),
				says: fmt.Sprintf("%s.%s: Invalid value: %d: %s.%s in body should be %s", path, field, value, path, field, bound),
			}
		}
		refusals[path+"."+field+" minimum"] = says(bounds[0]-1, fmt.Sprintf("greater than or equal to %d", bounds[0]))
		refusals[path+"."+field+" maximum"] = says(bounds[1]+1, fmt.Sprintf("less than or equal to %d", bounds[1]))
	}
	return refusals
}

// drift is a status with one drift, of which the given fields win.
func drift(fields string) string {
	given := `time: "2026-01-01T00:00:00Z", `
	for key, value := range map[string]string{"kind": "Service", "name": "shop"} {
		if !strings.Contains(fields, key+": ") {
			given += key + ": " + value + ", "
		}
	}
	return `{drifts: [{` + given + fields + `}]}`
}

func repeated(count int, format string) string {
	var all []string
	for i := range count {
		all = append(all, fmt.Sprintf(format, i))
	}
	return strings.Join(all, ", ")
}

// entries are those of a map, names those of a list keyed by name.
func entries(prefix string, count int) string { return repeated(count, prefix+"%d: x") }
func names(prefix string, count int) string   { return repeated(count, "{name: "+prefix+"%d}") }

func TestLimitsTellTheFieldAndTheBound(t *testing.T) {
	existing := map[string]*unstructured.Unstructured{
		"AppService":    given(t, appService(NewWithT(t), "existing", `{image: "shop:1"}`)),
		"MCPServer":     given(t, build(NewWithT(t), "MCPServer", "existing", mcpServer())),
		"SecureStorage": given(t, secureStorage(NewWithT(t), "existing", `{}`)),
	}
	for _, cases := range kinds {
		for _, limit := range slices.Sorted(maps.Keys(cases.limits)) {
			c := cases.limits[limit]
			t.Run(cases.kind+"/"+limit, func(t *testing.T) {
				g := NewWithT(t)

				var err error
				if c.status != "" {
					object := existing[cases.kind].DeepCopy()
					object.Object["status"] = parse(g, c.status)
					_, err = tryUpdateStatus(g, object)
				} else {
					_, err = tryCreate(g, build(g, cases.kind, "shop", c.spec))
				}

				g.Expect(complaints(g, err)).To(ConsistOf(c.says))
			})
		}
	}
}
