package workload

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

func TestRedactionHidesValuesThatMayBeConfidential(t *testing.T) {
	const container = `.spec.template.spec.containers[name="app"]`
	cases := map[string]struct {
		path, desired, actual   string
		wantDesired, wantActual string
	}{
		"replicas":           {".spec.replicas", "3", "5", "3", "5"},
		"image":              {container + ".image", `"a:1"`, `"a:2"`, `"a:1"`, `"a:2"`},
		"a label":            {".metadata.labels.team", `"a"`, `"b"`, `"a"`, `"b"`},
		"removed":            {".spec.replicas", "3", "", "3", ""},
		"env value":          {container + `.env[name="TOKEN"].value`, `"one"`, `"s3cret"`, redacted, redacted},
		"env, removed":       {container + `.env[name="TOKEN"].value`, `"one"`, "", redacted, ""},
		"all env":            {container + ".env", `[{"name":"A","value":"s3cret"}]`, "", redacted, ""},
		"args":               {container + ".args", `["a"]`, `["--token=s3cret"]`, redacted, redacted},
		"command":            {container + ".command", `["a"]`, `["sh","-c","s3cret"]`, redacted, redacted},
		"probe command":      {container + ".livenessProbe.exec.command", `["a"]`, `["s3cret"]`, redacted, redacted},
		"probe header":       {container + ".livenessProbe.httpGet.httpHeaders", `[]`, `[{"name":"Authorization","value":"s3cret"}]`, redacted, redacted},
		"ConfigMap data":     {".data.A", `"1"`, `"s3cret"`, redacted, redacted},
		"key with a dot":     {".data.a.properties", `"1"`, `"s3cret"`, redacted, redacted},
		"binary data":        {".binaryData.A", `"1"`, `"s3cret"`, redacted, redacted},
		"annotation":         {".metadata.annotations.nginx/auth", `"1"`, `"s3cret"`, redacted, redacted},
		"request header":     {".spec.rules[0].filters[0].requestHeaderModifier.set", `[]`, `[{"name":"Authorization","value":"s3cret"}]`, redacted, redacted},
		"response header":    {".spec.rules[0].filters[0].responseHeaderModifier.set", `[]`, `[{"name":"Set-Cookie","value":"s3cret"}]`, redacted, redacted},
		"Secret as strings":  {".stringData.A", `"1"`, `"s3cret"`, redacted, redacted},
		"attributes of CSI":  {".spec.template.spec.volumes[name=\"v\"].csi.volumeAttributes.token", `"1"`, `"s3cret"`, redacted, redacted},
		"two in an object":   {".spec", `{"a":{"args":["s3cret"]},"b":{"c":1},"command":["s3cret"],"z":[{"env":["s3cret"]},{"x":1}]}`, "", `{"a":{"args":"(redacted)"},"b":{"c":1},"command":"(redacted)","z":[{"env":"(redacted)"},{"x":1}]}`, ""},
		"all of one field":   {".spec.template.spec.containers[name=\"a.b\"].env", `[{"name":"A"}]`, `"s3cret"`, redacted, redacted},
		"a whole container":  {container, `{"env":[{"name":"A","value":"s3cret"}],"image":"a:1","name":"app"}`, "", `{"env":"(redacted)","image":"a:1","name":"app"}`, ""},
		"nested in a list":   {".spec.template.spec.containers", `[{"args":["s3cret"],"name":"app"}]`, "", `[{"args":"(redacted)","name":"app"}]`, ""},
		"a whole ConfigMap":  {".metadata.managedFields", "", "", "", ""},
		"large numbers stay": {".spec.x", "12345678901234567890", "1", "12345678901234567890", "1"},
		"not JSON":           {".spec.x", "s3cret", "", redacted, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			drift := ssa.Drift{Path: c.path, Manager: "kubectl", Desired: c.desired, Actual: c.actual}

			redactionOf(&v1beta1.AppService{})(&drift)

			g.Expect(drift.Desired).To(Equal(c.wantDesired))
			g.Expect(drift.Actual).To(Equal(c.wantActual))
			g.Expect(drift.String()).NotTo(ContainSubstring("s3cret"))
		})
	}
}

func TestRedactionIsTurnedOffByAnnotation(t *testing.T) {
	g := NewWithT(t)
	app := &v1beta1.AppService{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1beta1.DriftValuesAnnotation: v1beta1.DriftValuesShow}}}
	g.Expect(redactionOf(app)).To(BeNil())
	app.Annotations[v1beta1.DriftValuesAnnotation] = "yes"
	g.Expect(redactionOf(app)).NotTo(BeNil(), "any other value keeps the redaction")
}

func TestRedactValues(t *testing.T) {
	g := NewWithT(t)
	object := map[string]any{"kind": "Secret", "data": map[string]any{"A": "s3cret"}}
	RedactValues(object)
	g.Expect(object).To(Equal(map[string]any{"kind": "Secret", "data": Redacted}))
}

func TestPoliciesAreThoseOfTheSpec(t *testing.T) {
	g := NewWithT(t)
	for _, drift := range []v1beta1.DriftPolicy{v1beta1.DriftCorrect, v1beta1.DriftReport} {
		for _, adoption := range []v1beta1.AdoptionPolicy{v1beta1.AdoptionNever, v1beta1.AdoptionIfUnowned} {
			policies := Policies(&v1beta1.AppService{}, adoption, drift)
			g.Expect(string(policies.Adoption)).To(Equal(string(adoption)))
			g.Expect(string(policies.Drift)).To(Equal(string(drift)))
		}
	}
}

func redactionOf(app *v1beta1.AppService) func(*ssa.Drift) {
	return Policies(app, v1beta1.AdoptionNever, v1beta1.DriftCorrect).Redact
}
