package harness

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fixpoint-dev/fixpoint/test/cluster"
)

// InstallGatewayAPI installs the definitions of HTTPRoutes and Gateways, which the Go module of the
// Gateway API holds.
func InstallGatewayAPI(ctx context.Context, c *cluster.Cluster) error {
	folder, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		return fmt.Errorf("finding the module of the Gateway API: %w", err)
	}
	standard := filepath.Join(strings.TrimSpace(string(folder)), "config", "crd", "standard")
	return c.InstallCRDs(ctx,
		filepath.Join(standard, "gateway.networking.k8s.io_httproutes.yaml"),
		filepath.Join(standard, "gateway.networking.k8s.io_gateways.yaml"),
	)
}
