// Command kubectl-fixpoint is the kubectl plugin: kubectl fixpoint.
package main

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the user's credentials, as kubectl loads them

	"github.com/fixpoint-dev/fixpoint/internal/console"
	"github.com/fixpoint-dev/fixpoint/internal/plugin"
)

func main() { plugin.Main(console.Command) }
