package tenant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
	"github.com/fixpoint-dev/fixpoint/test/harness"
)

func attempts() []attempt {
	return slices.Concat(storageAttempts(), podAttempts(), objectAttempts(), networkAttempts(), bridgeAttempts())
}

// TestTenantGetsNothingOutsideOfItsNamespace runs all attempts. Beside what each of them expects, no user of the
// tenant and not the manager on their behalf changes an object of another namespace.
func TestTenantGetsNothingOutsideOfItsNamespace(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	g := NewWithT(t)
	before := w.outside(t.Context(), g)
	ledger := len(w.ledgerOf("/resourcegroups/victim/"))

	t.Run("attempts", func(t *testing.T) {
		for _, c := range attempts() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.try(w.newTrial(t, c.as))
			})
		}
	})

	g.Expect(w.outside(t.Context(), g)).To(Equal(before))
	g.Expect(w.ledgerOf("/resourcegroups/victim/")).To(HaveLen(ledger))
	g.Expect(w.reachedOutside(g)).To(BeEmpty())
}

// outside are the versions of the objects of the other team and of the manager, and of the roles and policies of
// the cluster, by kind, namespace and name. The Lease, the Events and the status of pods change without a tenant.
func (w *fixture) outside(ctx context.Context, g Gomega) map[string]string {
	versions := map[string]string{}
	for _, kind := range []string{
		"fixpoint.dev/v1beta1 AppService", "fixpoint.dev/v1beta1 MCPServer", "fixpoint.dev/v1beta1 SecureStorage",
		"v1 Secret", "v1 ConfigMap", "v1 Service", "v1 ServiceAccount", "v1 Namespace", "apps/v1 Deployment", "batch/v1 Job", "discovery.k8s.io/v1 EndpointSlice",
		"networking.k8s.io/v1 Ingress", "networking.k8s.io/v1 NetworkPolicy", "policy/v1 PodDisruptionBudget", "autoscaling/v2 HorizontalPodAutoscaler",
		"gateway.networking.k8s.io/v1 Gateway", "gateway.networking.k8s.io/v1 HTTPRoute",
		"rbac.authorization.k8s.io/v1 Role", "rbac.authorization.k8s.io/v1 RoleBinding", "rbac.authorization.k8s.io/v1 ClusterRole",
		"rbac.authorization.k8s.io/v1 ClusterRoleBinding", "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding",
	} {
		version, name, _ := strings.Cut(kind, " ")
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(version)
		list.SetKind(name + "List")
		g.Expect(w.admin.List(ctx, list)).To(Succeed())
		for _, item := range list.Items {
			if namespace := item.GetNamespace(); namespace != tenant && item.GetName() != "hash-key.fixpoint.dev" {
				versions[name+" "+namespace+"/"+item.GetName()] = item.GetResourceVersion()
			}
		}
	}
	return versions
}

// reachedOutside are the requests of users of the tenant for other namespaces that were not refused, and the writes
// of the manager there: it may only hold its Lease, and create the key of hashes and Events.
func (w *fixture) reachedOutside(g Gomega) cluster.Requests {
	requests, err := w.cluster.Audit().Since(w.began)
	g.Expect(err).NotTo(HaveOccurred())
	return requests.Where(func(r cluster.Request) bool {
		if r.Resource == "" || r.Namespace == tenant {
			return false
		}
		switch r.User {
		case editor, edit, plain, viewer, endpoints, "system:serviceaccount:" + tenant + ":" + account:
			return r.Code < http.StatusBadRequest
		case managerUser:
			isOwn := r.Resource == "leases" || r.Resource == "events" || r.Name == "hash-key.fixpoint.dev"
			isReview := strings.HasSuffix(r.Group, ".k8s.io") && strings.HasSuffix(r.Resource, "reviews")
			return r.IsWrite() && !isOwn && !isReview
		default:
			return false
		}
	})
}

// TestDocumentationListsTheAttempts compares the table of docs/security.md with the attempts.
func TestDocumentationListsTheAttempts(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(harness.Root, "docs", "security.md"))
	g.Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(content), "\n## A hostile tenant\n")
	g.Expect(found).To(BeTrue(), "docs/security.md has no section 'A hostile tenant'")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented, expected []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| attempt ") && !strings.HasPrefix(line, "| --- ") {
			documented = append(documented, strings.TrimSpace(line))
		}
	}
	for _, c := range attempts() {
		expected = append(expected, fmt.Sprintf("| %s | %s | %s |", c.name, c.as, c.result))
	}
	g.Expect(documented).To(Equal(expected), "the rows are:\n%s", strings.Join(expected, "\n"))
}

// idOf reads the ID and the method of a JSON-RPC message.
func idOf(body []byte) (id, method string) {
	var call struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(body, &call)
	return string(call.ID), call.Method
}

// reply sends a JSON-RPC result.
func reply(w http.ResponseWriter, id, result string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}
