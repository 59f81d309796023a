package validation

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// refusal is an object that the API server must not take.
type refusal struct {
	// name of the object; left out, it is a good one.
	name string
	// spec of the object, in YAML.
	spec string
	// field is the path that the user is pointed to.
	field string
	// message is what the user is told: the whole text of a rule.
	message string
	// was is the spec that the object has before, for a rule about changes.
	was string
}

const (
	nameMessage       = "metadata.name is also the name of the Service and must consist of at most 57 lower-case letters, digits and '-', starting with a letter and ending with a letter or digit: rename the object"
	replicasMessage   = "replicas must be at least 2, because the eviction of a single pod is an outage: set 2 or more, or omit replicas to let an autoscaler set the number of pods"
	exclusive         = "replicas and autoscaling are mutually exclusive: remove replicas to let the autoscaler set the number of pods, or remove autoscaling to set a fixed number"
	imageMessage      = "image must be an OCI image reference: use the form [registry[:port]/]path[:tag][@digest] with a lower-case path and without a scheme, for example ghcr.io/acme/shop:1.4.2"
	envKeyMessage     = "config keys become environment variables and must consist of letters, digits and '_' and not start with a digit: rename the key, or set configMountPath to mount the keys as files"
	fileKeyMessage    = "config keys must consist of 1 to 253 letters, digits, '-', '_' and '.', and must not be '.' or start with '..': rename the key"
	valueMessage      = "config values must be at most 16384 characters: shorten the value, or store larger data elsewhere"
	mountMessage      = "configMountPath must be an absolute path other than '/', without ':', control characters, '.', '..' and empty segments, not ending with '/': use a value such as /etc/shop"
	mountsPathMessage = "mounts must not have the mountPath configMountPath: change one of them"
	appMountName      = "name must consist of lower-case letters, digits and '-', starting and ending with a letter or digit, and must not be 'config' or start with 'fixpoint-', which are reserved for Fixpoint: use a value such as tmp"
	appMountPath      = "mountPath must be an absolute path other than '/', without ':', control characters, '.', '..' and empty segments, not ending with '/': use a value such as /tmp"
	probeMessage      = "path must start with '/': use a value such as /healthz"
	minMessage        = "minReplicas must be at least 2, because the eviction of a single pod is an outage: set 2 or more"
	maxMessage        = "maxReplicas must not be less than minReplicas: raise maxReplicas or lower minReplicas"
	targetMessage     = "autoscaling needs at least one target: set targetCPUUtilizationPercent (80 is usual), targetMemoryUtilizationPercent, or both"
	budgetMessage     = "disruptionBudget needs exactly one of minAvailable and maxUnavailable: set one and remove the other"
	availMessage      = "minAvailable must be a number from 0 to 2147483647, or a percentage from '0%' to '100%': use a value such as 2 or '50%'"
	unavailMessage    = "maxUnavailable must be a number from 0 to 2147483647, or a percentage from '0%' to '100%': use a value such as 1 or '25%'"
	hostMessage       = "host must be a DNS name in lower case, not an IP address, and without scheme, port, path or wildcard: use a value such as shop.example.com"
	pathMessage       = "path must start with '/', without '.', '..' and empty segments and '%2F': use a value such as /shop"
	classMessage      = "ingressClassName must be the name of an IngressClass: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or omit it for the default of the cluster"
	tlsMessage        = "tlsSecretName must be the name of a Secret: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or omit it for plain HTTP"
	hookMessage       = "preDeploy needs image, command or args, because it would otherwise run the application itself, which does not end: set command to a value such as [/app/migrate, up]"
	hookProgram       = "command must start with the program to run: use a value such as [/app/migrate, up]"
	accountMessage    = "serviceAccountName must be the name of a ServiceAccount: use lower-case letters, digits, '-' and '.', starting and ending with a letter or digit, or omit it for the default ServiceAccount"
)

var ruleRefusals = map[string]refusal{
	"name that is too long for a Service's": {
		name: strings.Repeat("a", 58), spec: `{image: "shop:1"}`, field: "<nil>", message: nameMessage},
	"name that starts with a digit": {
		name: "9shop", spec: `{image: "shop:1"}`, field: "<nil>", message: nameMessage},
	"name with a dot": {
		name: "shop.v2", spec: `{image: "shop:1"}`, field: "<nil>", message: nameMessage},

	"image that is empty": {
		spec: `{image: ""}`, field: "spec.image", message: imageMessage},
	"image with a scheme": {
		spec: `{image: "https://ghcr.io/acme/shop:1"}`, field: "spec.image", message: imageMessage},
	"image with a path in upper case": {
		spec: `{image: "ghcr.io/Acme/shop:1"}`, field: "spec.image", message: imageMessage},
	"image with a space": {
		spec: `{image: "shop: 1"}`, field: "spec.image", message: imageMessage},
	"image with an empty tag": {
		spec: `{image: "shop:"}`, field: "spec.image", message: imageMessage},
	"image with a digest that is too short": {
		spec: `{image: "shop@sha256:abc"}`, field: "spec.image", message: imageMessage},
	"image with a line after it": {
		spec: `{image: "shop:1\nx"}`, field: "spec.image", message: imageMessage},

	"hook that would run the application": {
		spec: hook(`env: [{name: A}]`), field: "spec.hooks.preDeploy", message: hookMessage},
	"hook with a command that is empty": {
		spec: hook(`command: ["", up]`), field: "spec.hooks.preDeploy.command", message: hookProgram},
	"hook with an image with a scheme": {
		spec: hook(`image: "https://ghcr.io/acme/shop:1"`), field: "spec.hooks.preDeploy.image", message: imageMessage},

	"replicas of one": {
		spec: `{image: "shop:1", replicas: 1}`, field: "spec.replicas", message: replicasMessage},
	"replicas of none": {
		spec: `{image: "shop:1", replicas: 0}`, field: "spec.replicas", message: replicasMessage},
	"replicas beside autoscaling": {
		spec:  `{image: "shop:1", replicas: 2, autoscaling: {maxReplicas: 3, targetCPUUtilizationPercent: 80}}`,
		field: "spec.replicas", message: exclusive},

	"config key that is no variable": {
		spec: `{image: "shop:1", config: {shop.properties: x}}`, field: "spec.config", message: envKeyMessage},
	"config key that starts with a digit": {
		spec: `{image: "shop:1", config: {1ST: x}}`, field: "spec.config", message: envKeyMessage},
	"config key that is no file name": {
		spec: `{image: "shop:1", configMountPath: /etc/shop, config: {a/b: x}}`, field: "spec.config", message: fileKeyMessage},
	"config key that is the folder": {
		spec: `{image: "shop:1", configMountPath: /etc/shop, config: {".": x}}`, field: "spec.config", message: fileKeyMessage},
	"config key that leads out of the folder": {
		spec: `{image: "shop:1", configMountPath: /etc/shop, config: {"..data": x}}`, field: "spec.config", message: fileKeyMessage},
	"config key that is empty": {
		spec: `{image: "shop:1", configMountPath: /etc/shop, config: {"": x}}`, field: "spec.config", message: fileKeyMessage},
	"config key that is too long": {
		spec:  fmt.Sprintf(`{image: "shop:1", config: {%s: x}}`, strings.Repeat("K", 254)),
		field: "spec.config", message: fileKeyMessage},
	"config value that is too long": {
		spec:  fmt.Sprintf(`{image: "shop:1", config: {KEY: %s}}`, strings.Repeat("v", 16385)),
		field: "spec.config", message: valueMessage},
	"config mounted over everything": {
		spec: `{image: "shop:1", configMountPath: /}`, field: "spec.configMountPath", message: mountMessage},
	"config mounted over everything, written differently": {
		spec: `{image: "shop:1", configMountPath: /.}`, field: "spec.configMountPath", message: mountMessage},
	// A mount at /etc/shop would differ from it, and one would hide the other.
	"config mounted at a path that ends with a slash": {
		spec: `{image: "shop:1", configMountPath: /etc/shop/}`, field: "spec.configMountPath", message: mountMessage},
	"config mounted at a path with an empty segment": {
		spec: `{image: "shop:1", configMountPath: /etc//shop}`, field: "spec.configMountPath", message: mountMessage},
	"config mounted at a relative path": {
		spec: `{image: "shop:1", configMountPath: etc/shop}`, field: "spec.configMountPath", message: mountMessage},
	"config mounted at a path with a colon": {
		spec: `{image: "shop:1", configMountPath: "/etc:ro"}`, field: "spec.configMountPath", message: mountMessage},
	"config mounted at a path that goes up": {
		spec: `{image: "shop:1", configMountPath: /etc/../bin}`, field: "spec.configMountPath", message: mountMessage},

	"mounts at the same place": {
		spec:  `{image: "shop:1", mounts: [{name: a, mountPath: /a, emptyDir: {}}, {name: b, mountPath: /a, emptyDir: {}}]}`,
		field: "spec.mounts", message: mountsTwiceMessage},
	"mount at the place of the config": {
		spec:  `{image: "shop:1", configMountPath: /etc/shop, mounts: [{name: a, mountPath: /etc/shop, emptyDir: {}}]}`,
		field: "spec.mounts", message: mountsPathMessage},
	"mount in upper case":            badAppMount(`{name: Tmp}`, ".name", appMountName),
	"mount with the volume's name":   badAppMount(`{name: config}`, ".name", appMountName),
	"mount of a Fixpoint name":       badAppMount(`{name: fixpoint-files}`, ".name", appMountName),
	"mount without a name":           badAppMount(`{name: ""}`, ".name", appMountName),
	"mount over everything":          badAppMount(`{mountPath: /}`, ".mountPath", appMountPath),
	"mount at a relative path":       badAppMount(`{mountPath: tmp}`, ".mountPath", appMountPath),
	"mount at a path with a colon":   badAppMount(`{mountPath: "/tmp:ro"}`, ".mountPath", appMountPath),
	"mount at a path that goes up":   badAppMount(`{mountPath: /tmp/../etc}`, ".mountPath", appMountPath),
	"mount at a path of two names":   badAppMount(`{mountPath: /tmp/}`, ".mountPath", appMountPath),
	"mount at a path with a newline": badAppMount(`{mountPath: "/a\nb"}`, ".mountPath", appMountPath),
	"mount of less than nothing":     badAppMount(`{emptyDir: {sizeLimit: -1Mi}}`, ".emptyDir.sizeLimit", sizeLimitMessage),
	"mount of less than no bytes":    badAppMount(`{emptyDir: {sizeLimit: -1}}`, ".emptyDir.sizeLimit", sizeLimitMessage),

	"readiness path without a slash": {
		spec:  `{image: "shop:1", probes: {readiness: {path: healthz}}}`,
		field: "spec.probes.readiness.path", message: probeMessage},
	"liveness path without a slash": {
		spec:  `{image: "shop:1", probes: {liveness: {path: healthz}}}`,
		field: "spec.probes.liveness.path", message: probeMessage},
	"startup path without a slash": {
		spec:  `{image: "shop:1", probes: {startup: {path: ""}}}`,
		field: "spec.probes.startup.path", message: probeMessage},

	"autoscaling down to one": {
		spec:  `{image: "shop:1", autoscaling: {minReplicas: 1, maxReplicas: 3, targetCPUUtilizationPercent: 80}}`,
		field: "spec.autoscaling.minReplicas", message: minMessage},
	"autoscaling with its bounds swapped": {
		spec:  `{image: "shop:1", autoscaling: {minReplicas: 4, maxReplicas: 3, targetCPUUtilizationPercent: 80}}`,
		field: "spec.autoscaling.maxReplicas", message: maxMessage},
	"autoscaling below the default minimum": {
		spec:  `{image: "shop:1", autoscaling: {maxReplicas: 1, targetCPUUtilizationPercent: 80}}`,
		field: "spec.autoscaling.maxReplicas", message: maxMessage},
	"autoscaling by nothing": {
		spec:  `{image: "shop:1", autoscaling: {maxReplicas: 3}}`,
		field: "spec.autoscaling", message: targetMessage},

	"disruption budget of nothing": {
		spec: `{image: "shop:1", disruptionBudget: {}}`, field: "spec.disruptionBudget", message: budgetMessage},
	"disruption budget of both": {
		spec:  `{image: "shop:1", disruptionBudget: {minAvailable: 1, maxUnavailable: 1}}`,
		field: "spec.disruptionBudget", message: budgetMessage},
	"disruption budget with a negative minimum": {
		spec:  `{image: "shop:1", disruptionBudget: {minAvailable: -1}}`,
		field: "spec.disruptionBudget.minAvailable", message: availMessage},
	// More than Go's type for it holds: a manager could not read the object, nor any other beside it.
	"disruption budget with a minimum of more than 32 bits": {
		spec:  `{image: "shop:1", disruptionBudget: {minAvailable: 2147483648}}`,
		field: "spec.disruptionBudget.minAvailable", message: availMessage},
	"disruption budget with a minimum of more than all": {
		spec:  `{image: "shop:1", disruptionBudget: {minAvailable: "101%"}}`,
		field: "spec.disruptionBudget.minAvailable", message: availMessage},
	"disruption budget with a number as text": {
		spec:  `{image: "shop:1", disruptionBudget: {minAvailable: "1"}}`,
		field: "spec.disruptionBudget.minAvailable", message: availMessage},
	"disruption budget with a negative maximum": {
		spec:  `{image: "shop:1", disruptionBudget: {maxUnavailable: -1}}`,
		field: "spec.disruptionBudget.maxUnavailable", message: unavailMessage},
	"disruption budget with a maximum that is a word": {
		spec:  `{image: "shop:1", disruptionBudget: {maxUnavailable: half}}`,
		field: "spec.disruptionBudget.maxUnavailable", message: unavailMessage},

	// No manager could read the object, nor any other beside it.
	"quantity that is none": {
		spec:    `{image: "shop:1", resources: {requests: {cpu: "1e1.5"}}}`,
		field:   "spec.resources.requests.cpu",
		message: "spec.resources.requests.cpu" + quantityMessage},

	"host that is empty": {
		spec: `{image: "shop:1", ingress: {host: ""}}`, field: "spec.ingress.host", message: hostMessage},
	"host with a scheme": {
		spec: `{image: "shop:1", ingress: {host: "https://shop.example.com"}}`, field: "spec.ingress.host", message: hostMessage},
	"host with a port": {
		spec: `{image: "shop:1", ingress: {host: "shop.example.com:443"}}`, field: "spec.ingress.host", message: hostMessage},
	"host with a wildcard": {
		spec: `{image: "shop:1", ingress: {host: "*.example.com"}}`, field: "spec.ingress.host", message: hostMessage},
	"host in upper case": {
		spec: `{image: "shop:1", ingress: {host: Shop.example.com}}`, field: "spec.ingress.host", message: hostMessage},
	"host with an empty label": {
		spec: `{image: "shop:1", ingress: {host: shop..example.com}}`, field: "spec.ingress.host", message: hostMessage},
	"host that is an IP address": {
		spec: `{image: "shop:1", ingress: {host: 192.168.0.255}}`, field: "spec.ingress.host", message: hostMessage},
	"host that is an IP address with zeros": {
		spec: `{image: "shop:1", ingress: {host: 010.000.0.01}}`, field: "spec.ingress.host", message: hostMessage},
	"ingress path with an empty segment": {
		spec: `{image: "shop:1", ingress: {host: a.b, path: /shop//cart}}`, field: "spec.ingress.path", message: pathMessage},
	"ingress path that goes up": {
		spec: `{image: "shop:1", ingress: {host: a.b, path: /shop/..}}`, field: "spec.ingress.path", message: pathMessage},
	"ingress path with a dot": {
		spec: `{image: "shop:1", ingress: {host: a.b, path: /./shop}}`, field: "spec.ingress.path", message: pathMessage},
	"ingress path with an escaped slash": {
		spec: `{image: "shop:1", ingress: {host: a.b, path: /shop%2Fcart}}`, field: "spec.ingress.path", message: pathMessage},
	"ingress path without a slash": {
		spec: `{image: "shop:1", ingress: {host: a.b, path: shop}}`, field: "spec.ingress.path", message: pathMessage},
	"ingress class that is no name": {
		spec: `{image: "shop:1", ingress: {host: a.b, ingressClassName: My_Class}}`, field: "spec.ingress.ingressClassName", message: classMessage},
	"TLS secret that is no name": {
		spec: `{image: "shop:1", ingress: {host: a.b, tlsSecretName: ns/cert}}`, field: "spec.ingress.tlsSecretName", message: tlsMessage},

	"service account that is no name": {
		spec: `{image: "shop:1", serviceAccountName: Shop_Account}`, field: "spec.serviceAccountName", message: accountMessage},
}

// badAppMount has one mount, of which the given fields win.
func badAppMount(fields, field, message string) refusal {
	mount := read(`{name: tmp, mountPath: /tmp, emptyDir: {}}`)
	merge(mount, read(fields))
	text, err := yaml.Marshal(map[string]any{"image": "shop:1", "mounts": []any{mount}})
	if err != nil {
		panic(fmt.Sprintf("writing a spec: %v", err))
	}
	return refusal{spec: string(text), field: "spec.mounts[0]" + field, message: message}
}

func TestRulesTellTheFieldAndTheRemedy(t *testing.T) {
	for _, cases := range kinds {
		for label, c := range cases.refusals {
			t.Run(cases.kind+"/"+label, func(t *testing.T) {
				g := NewWithT(t)

				err := c.try(t, cases.kind)

				found := complaints(g, err)
				g.Expect(found).To(HaveLen(1), "a user who made one mistake is told one: %v", found)
				g.Expect(found[0]).To(HavePrefix(c.field + ": Invalid value"))
				g.Expect(found[0]).To(HaveSuffix(": " + c.message))
			})
		}
	}
}

// try creates the object, or changes it if it was another one before.
func (c refusal) try(t *testing.T, kind string) error {
	t.Helper()
	g := NewWithT(t)
	name := c.name
	if name == "" {
		name = "shop"
	}
	object := build(g, kind, name, c.spec)
	if c.was == "" {
		_, err := tryCreate(g, object)
		return err
	}
	before := given(t, build(g, kind, name, c.was))
	object.SetResourceVersion(before.GetResourceVersion())
	_, err := tryUpdate(g, object)
	return err
}
