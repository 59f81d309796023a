package mutation

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
)

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir, Name, Export string
	GoFiles                       []string
}

// listPackages lists the packages in the directories and all their dependencies, with export data, and what
// the helpers of instrumented packages import.
func listPackages(root string, dirs ...string) (map[string]listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Name,Export,GoFiles", "cmp", "os", "strconv", "sync"}, dirs...)...)
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	packages := map[string]listed{}
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("decoding the packages: %w", err)
		}
		packages[p.ImportPath] = p
	}
}

// importerOf imports packages from their export data.
func importerOf(fset *token.FileSet, packages map[string]listed) types.Importer {
	return importer.ForCompiler(fset, "gc", func(importPath string) (io.ReadCloser, error) { return os.Open(packages[importPath].Export) })
}
