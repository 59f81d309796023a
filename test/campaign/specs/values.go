package specs

import "strings"

// oddTexts are mistakes in places of names, paths and words.
var oddTexts = []string{
	"", " ", "UPPER Case", "-a", "a-", "a..b", "../etc/passwd", "/a/b", "a:b", "ünïcode", "two\nlines", "tab\tbed", "nul\x00byte",
	"{{ .Values.name }}", "$(NAME)", "'; DROP TABLE", "a@b", "*", "*.example.com", "https://example.com/", "null", "true", "0", "-1",
	strings.Repeat("a", 64), strings.Repeat("a", 254), strings.Repeat("a.", 130) + "a", "10.0.0.300/99", "1e400", "30s", "-5m", "99999999h",
	"a/b/c", "kubernetes.io/", "Exists", "NoSchedule", "metadata.nonsense", "status.podIP",
}

// oddKeys are mistakes in places of map keys.
var oddKeys = []string{
	"", " ", "a b", "-a", "a-", ".", "..", "..a", "a/b/c", "/a", "a/", "ünïcode", "two\nlines", "UPPER_case", "fixpoint.dev/x",
	"app.kubernetes.io/name", strings.Repeat("a", 64), strings.Repeat("a", 254), strings.Repeat("b", 317), "a=b", "cpu", "kubernetes.io/x", "1", "$(NAME)",
}

// oddQuantities are numbers, percentages and quantities, most of them invalid.
var oddQuantities = []any{
	"", " ", "abc", "-1", "0", "1", "1 Gi", "1GiB", "1.5", "1.5%", "101%", "100%", "0%", "-5%", "%", "1e400", "1e3", "0x10", "1_000", "１",
	"99999999999999999999999", ".5", "5.", "+1", "1Ki", "1ki", "1u", "1n", "NaN", "Inf", "1m",
	// These look like quantities but cannot be parsed, or take hours to parse.
	"1e1.5", "1E.5", "1e5.", "1e99999999999999999999", "1e-999999999", "1E+2147483647", strings.Repeat("9", 1000), "." + strings.Repeat("0", 1000) + "1",
	int64(0), int64(-1), int64(1)<<31 - 1, int64(1) << 31, int64(-1) << 31, int64(1<<62 - 1),
}

// podOverrides returns valid and invalid patches of a pod.
func podOverrides() []any {
	var parts []any
	for _, text := range []string{
		`{}`, `{nonsense: 1}`, `{containers: server}`, `{containers: {}}`, `{containers: [server]}`, `{containers: [{}]}`, `{containers: [null]}`,
		`{containers: [{image: a}]}`, `{containers: [{name: server, image: 7}]}`, `{containers: [{name: server}, {name: server}]}`,
		`{containers: [{name: server, nonsense: 1}]}`, `{containers: [{name: Side Car, image: a}]}`, `{containers: [{name: sidecar}]}`,
		`{containers: [{name: sidecar, image: "a b"}]}`, `{containers: [{name: sidecar, image: a, ports: [{containerPort: 99999}]}]}`,
		`{containers: [{name: server, ports: [{containerPort: 70000}]}]}`, `{containers: [{name: server, ports: [{containerPort: x}]}]}`,
		`{containers: [{name: server, env: [{name: "A=B", value: x}]}]}`, `{containers: [{name: server, env: [{value: x}]}]}`,
		`{containers: [{name: server, resources: {limits: {cpu: x}}}]}`, `{containers: [{name: server, resources: {limits: {cpu: -1}}}]}`,
		`{containers: [{name: server, resources: {requests: {cpu: 1e1.5}}}]}`, `{volumes: [{name: v, emptyDir: {sizeLimit: "1e-999999999"}}]}`,
		`{containers: [{name: server, volumeMounts: [{name: nowhere, mountPath: /x}]}]}`,
		`{containers: [{name: server, livenessProbe: {periodSeconds: -1}}]}`, `{containers: [{name: server, lifecycle: {postStart: {}}}]}`,
		`{initContainers: [{name: server, image: a}]}`, `{initContainers: [{name: init, image: a, restartPolicy: Sometimes}]}`,
		`{volumes: [{name: v}]}`, `{volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}]}`, `{volumes: [{name: "V V", emptyDir: {}}]}`,
		`{volumes: [{name: v, hostPath: {path: ../x}}]}`, `{volumes: [{emptyDir: {}}]}`, `{volumes: [{name: v, emptyDir: {sizeLimit: x}}]}`,
		`{restartPolicy: Never}`, `{restartPolicy: 1}`, `{dnsPolicy: Nonsense}`, `{dnsConfig: {nameservers: [x]}}`, `{hostAliases: [{ip: x}]}`,
		`{terminationGracePeriodSeconds: -1}`, `{terminationGracePeriodSeconds: soon}`, `{activeDeadlineSeconds: 0}`, `{priority: high}`,
		`{serviceAccountName: A B}`, `{nodeName: A B}`, `{hostname: A.B}`, `{subdomain: "-"}`, `{schedulerName: ""}`, `{runtimeClassName: A B}`,
		`{hostNetwork: "yes"}`, `{hostNetwork: true}`, `{hostUsers: false, hostNetwork: true}`, `{shareProcessNamespace: true, hostPID: true}`,
		`{securityContext: {runAsUser: -1}}`, `{securityContext: {runAsUser: root}}`, `{readinessGates: [{conditionType: A B}]}`,
		`{nodeSelector: {"a b": c}}`, `{nodeSelector: {a: 1}}`, `{nodeSelector: [a]}`, `{tolerations: [{operator: Exists, value: x}]}`,
		`{topologySpreadConstraints: [{}]}`, `{affinity: {nodeAffinity: 1}}`, `{os: {name: plan9}}`, `{overhead: {cpu: x}}`,
		`{ephemeralContainers: [{name: e, image: a}]}`, `{imagePullSecrets: [{}]}`, `{resourceClaims: [{name: A B}]}`, `{schedulingGates: [{name: A B}]}`,
	} {
		part, err := Parse(text)
		if err != nil {
			panic(err) // the list is wrong
		}
		parts = append(parts, part)
	}
	return parts
}
