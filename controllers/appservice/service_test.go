package appservice

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
)

func TestDesiredService(t *testing.T) {
	for name, port := range map[string]struct {
		port int32
		want string
	}{
		"default port": {8080, "8080"},
		"custom port":  {80, "80"},
	} {
		t.Run(name, func(t *testing.T) {
			app := webApp(func(spec *v1beta1.AppServiceSpec) { spec.Port = port.port })
			NewWithT(t).Expect(asJSON(t, desiredService(app))).To(MatchYAML(`
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
  labels: {app.kubernetes.io/name: web, app.kubernetes.io/managed-by: fixpoint}
spec:
  selector: {app.kubernetes.io/name: web}
  ports:
  - name: http
    protocol: TCP
    port: ` + port.want + `
    targetPort: http
`))
		})
	}
}
