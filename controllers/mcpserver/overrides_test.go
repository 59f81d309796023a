package mcpserver

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func overridden(rawSpec string) func(*spec) {
	return func(s *spec) {
		s.PodOverrides = &v1beta1.MCPServerPodOverrides{Spec: &runtime.RawExtension{Raw: []byte(rawSpec)}}
	}
}

func TestOverridesAreMergedLikeAnApply(t *testing.T) {
	cases := map[string]struct {
		overrides *v1beta1.MCPServerPodOverrides
		want      map[string]string
	}{
		"none":  {nil, nil},
		"empty": {&v1beta1.MCPServerPodOverrides{}, nil},
		"metadata": {&v1beta1.MCPServerPodOverrides{Metadata: &v1beta1.MCPServerPodMetadata{
			Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"mesh": "off"}}},
			map[string]string{
				"spec.template.metadata.labels.team": "a",
				"spec.template.metadata.annotations": `{mesh: "off"}`,
			}},
		"a new field": {raw(`{"hostAliases":[{"ip":"10.0.0.1","hostnames":["a"]}],"dnsPolicy":"None"}`),
			map[string]string{pod + ".hostAliases": `[{ip: 10.0.0.1, hostnames: [a]}]`, pod + ".dnsPolicy": "None"}},
		"an existing field": {raw(`{"terminationGracePeriodSeconds":5}`), map[string]string{pod + ".terminationGracePeriodSeconds": "5"}},
		"the server container, by name": {raw(`{"containers":[{"name":"server","tty":true,"env":[{"name":"A","value":"1"}]}]}`),
			map[string]string{container + ".tty": "true", container + ".env": "[{name: A, value: '1'}]"}},
		"an additional port": {raw(`{"containers":[{"name":"server","ports":[{"containerPort":9090,"protocol":"TCP","name":"metrics"}]}]}`),
			map[string]string{container + ".ports": "[{name: mcp, containerPort: 8080, protocol: TCP}, {name: metrics, containerPort: 9090, protocol: TCP}]"}},
		"quantities": {raw(`{"containers":[{"name":"server","resources":{"limits":{"memory":"64Mi","cpu":1}}}]}`),
			map[string]string{container + ".resources": `{limits: {memory: 64Mi, cpu: "1"}}`}},
		"an additional container": {raw(`{"containers":[{"name":"log","image":"busybox","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}`), nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := tools(func(s *spec) { s.PodOverrides = c.overrides })

			desired, err := desiredDeployment(&scope{server: server, settings: settings})

			g.Expect(err).NotTo(HaveOccurred())
			containers := desired.Spec.Template.Spec.Containers
			if name == "an additional container" {
				g.Expect(containers).To(HaveLen(2))
				g.Expect(asJSON(t, containers[1])).To(MatchYAML("{name: log, image: busybox, imagePullPolicy: Always, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}"))
				desired.Spec.Template.Spec.Containers = containers[:1]
			}
			g.Expect(asJSON(t, desired)).To(MatchYAML(edited(t, plainDeployment, c.want)))
		})
	}
}

func raw(spec string) *v1beta1.MCPServerPodOverrides {
	return &v1beta1.MCPServerPodOverrides{Spec: &runtime.RawExtension{Raw: []byte(spec)}}
}

// Invalid overrides must not panic, and the error names the field.
func TestInvalidOverridesAreRejected(t *testing.T) {
	cases := map[string]struct {
		spec, message string
	}{
		"not an object":                          {`[1]`, "cannot unmarshal"},
		"not JSON":                               {`{`, "unexpected end"},
		"an unknown field":                       {`{"containerz":[]}`, "containerz"},
		"a wrong type":                           {`{"containers":"server"}`, "containers"},
		"a name twice":                           {`{"containers":[{"name":"a"},{"name":"a"}]}`, "a"},
		"a bad quantity":                         {`{"containers":[{"name":"server","resources":{"limits":{"memory":"much"}}}]}`, `spec.containers[0].resources.limits.memory: "much" is not a quantity`},
		"a quantity that takes a day to parse":   {`{"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1e-999999999"}}]}`, `spec.volumes[0].emptyDir.sizeLimit: "1e-999999999" is not a quantity`},
		"a bad quantity of the second container": {`{"containers":[{"name":"a"},{"name":"server","resources":{"limits":{"memory":"much"}}}]}`, `spec.containers[1].resources.limits.memory: "much" is not a quantity`},
		"a bad quantity in a later field":        {`{"dnsPolicy":"None","overhead":{"cpu":"1e1.5"}}`, `spec.overhead.cpu: "1e1.5" is not a quantity`},
		"the second of two quantities":           {`{"containers":[{"name":"server","resources":{"limits":{"cpu":"1","memory":"much"}}}]}`, `spec.containers[0].resources.limits.memory: "much" is not a quantity`},
		"a quantity in a list of quantities":     {`{"overhead":[{"sizeLimit":"much"}]}`, `spec.overhead[0].sizeLimit: "much" is not a quantity`},
		"a malformed quantity":                   {`{"overhead":{"cpu":"1e1.5"}}`, `spec.overhead.cpu: "1e1.5" is not a quantity`},
		"the first of many quantities":           {`{"containers":[{"name":"server","resources":{"requests":{"b":"x","a":"x"},"limits":{"d":"x","c":"x"}}}]}`, "spec.containers[0].resources.limits.c:"},
		"a quantity that is an object":           {`{"overhead":{"cpu":{}}}`, ""},
		"a number as text":                       {`{"terminationGracePeriodSeconds":"5"}`, "terminationGracePeriodSeconds"},
		"a huge number":                          {`{"terminationGracePeriodSeconds":1e99}`, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)

			_, err := desiredDeployment(&scope{server: tools(overridden(c.spec)), settings: settings})

			var mistake *overridesError
			g.Expect(errors.As(err, &mistake)).To(BeTrue(), "%v", err)
			g.Expect(mistake.ConditionReason()).To(Equal(v1beta1.ReasonInvalid))
			g.Expect(mistake.Permanent()).To(BeTrue())
			g.Expect(err.Error()).To(And(HavePrefix("spec.podOverrides is not a valid part of a pod template: "), ContainSubstring(c.message), HaveSuffix("; correct spec.podOverrides")))
		})
	}
}

// A null does not remove a field, as in an apply.
func TestEmptyOverridesChangeNothing(t *testing.T) {
	for _, empty := range []string{``, `null`, `{}`, `{"containers":null}`, `{"containers":[]}`, `{"nodeSelector":null}`} {
		t.Run(empty, func(t *testing.T) {
			g := NewWithT(t)
			desired, err := desiredDeployment(&scope{server: tools(overridden(empty)), settings: settings})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(asJSON(t, desired)).To(MatchYAML(edited(t, plainDeployment, nil)))
		})
	}
}

func TestErrorOfOverridesHasItsCause(t *testing.T) {
	cause := errors.New("no such field")
	NewWithT(t).Expect(errors.Is(&overridesError{cause}, cause)).To(BeTrue())
}
