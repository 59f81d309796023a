package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// sbomPath is where scanners of images look for one.
const sbomPath = "/usr/share/sbom/" + sbomFile

const sbomFile = "fixpoint.spdx.json"

const (
	mainModule  = "github.com/fixpoint-dev/fixpoint"
	rootsModule = "golang.org/x/crypto/x509roots/fallback"
	none        = "NOASSERTION"
)

// billOfMaterials lists, in SPDX 2.3, the programs and every module that is linked
// into one of them, as the programs themselves record it.
func billOfMaterials(bin string, platform v1.Platform, s stamp) ([]byte, error) {
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: "fixpoint-" + platform.Architecture,
		CreationInfo: &spdx.CreationInfo{
			Created:  s.date.Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "fixpoint-image"}},
		},
	}
	modules := map[string]*spdx.Package{}
	for _, program := range programs {
		if err := addProgram(doc, modules, filepath.Join(bin, program), s); err != nil {
			return nil, err
		}
	}
	authorities, err := moduleOfThisProgram(rootsModule)
	if err != nil {
		return nil, err
	}
	roots := modulePackage(modules, authorities)
	doc.Relationships = append(doc.Relationships, relationship("DOCUMENT", common.TypeRelationshipDescribe, roots.PackageSPDXIdentifier))
	for _, key := range slices.Sorted(maps.Keys(modules)) {
		doc.Packages = append(doc.Packages, modules[key])
	}
	return encode(doc)
}

// addProgram adds a program as a package that depends on its modules.
func addProgram(doc *spdx.Document, modules map[string]*spdx.Package, path string, s stamp) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the build information of %s: %w", path, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	name := filepath.Base(path)
	program := &spdx.Package{
		PackageName: name, PackageSPDXIdentifier: identifier("Program", name), PackageVersion: s.version,
		PackageFileName: "/" + name, PackageDownloadLocation: none,
		PackageLicenseConcluded: "Apache-2.0", PackageLicenseDeclared: "Apache-2.0", PackageCopyrightText: none,
		PackageChecksums:      []common.Checksum{{Algorithm: common.SHA256, Value: fmt.Sprintf("%x", sha256.Sum256(content))}},
		PrimaryPackagePurpose: "APPLICATION",
	}
	doc.Packages = append(doc.Packages, program)
	doc.Relationships = append(doc.Relationships, relationship("DOCUMENT", common.TypeRelationshipDescribe, program.PackageSPDXIdentifier))
	parts := append([]*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...)
	for _, module := range parts {
		if module.Replace != nil {
			module = module.Replace
		}
		part := modulePackage(modules, module)
		doc.Relationships = append(doc.Relationships, relationship(program.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, part.PackageSPDXIdentifier))
	}
	return nil
}

// modulePackage is the package of a module, the same for all programs.
func modulePackage(modules map[string]*spdx.Package, module *debug.Module) *spdx.Package {
	key := module.Path + "@" + module.Version
	if known := modules[key]; known != nil {
		return known
	}
	modules[key] = &spdx.Package{
		PackageName: module.Path, PackageSPDXIdentifier: identifier("Module", key), PackageVersion: module.Version,
		PackageDownloadLocation: none, // the purl below identifies it, not the proxy
		PackageLicenseConcluded: none, PackageLicenseDeclared: none, PackageCopyrightText: none,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL,
			Locator: "pkg:golang/" + key,
		}},
	}
	return modules[key]
}

// moduleOfThisProgram finds a module whose content this program, not one of the
// programs in the image, added to the image.
func moduleOfThisProgram(path string) (*debug.Module, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, fmt.Errorf("this program has no build information")
	}
	for _, module := range info.Deps {
		if module.Path == path {
			return module, nil
		}
	}
	return nil, fmt.Errorf("this program was built without the module %s", path)
}

func relationship(from common.ElementID, kind string, to common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, Relationship: kind, RefB: common.DocElementID{ElementRefID: to},
	}
}

// identifier has only the characters that SPDX allows.
func identifier(kind, name string) common.ElementID {
	safe := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	// Two names may differ in what was replaced alone.
	return common.ElementID(fmt.Sprintf("%s-%s-%x", kind, safe, sha256.Sum256([]byte(name)))[:len(kind)+len(safe)+10])
}

// encode gives the document a namespace that its content decides.
func encode(doc *spdx.Document) ([]byte, error) {
	content, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("writing the bill of materials: %w", err)
	}
	doc.DocumentNamespace = fmt.Sprintf("https://%s/sbom/%x", mainModule, sha256.Sum256(content))
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(doc); err != nil {
		return nil, fmt.Errorf("writing the bill of materials: %w", err)
	}
	return out.Bytes(), nil
}
