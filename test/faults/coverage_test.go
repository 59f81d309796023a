package faults_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/test/faults"
)

// createAll returns the scenario that creates an object of the kind with all options.
func createAll(kind string) faults.Scenario { return scenarioOf(kind, "create") }

func scenarioOf(kind, name string) faults.Scenario {
	all := faults.Scenarios()
	return all[slices.IndexFunc(all, func(s faults.Scenario) bool { return s.ID() == kind+"/"+name })]
}

// alsoCreates are the scenarios with options that exclude some of those in "create".
var alsoCreates = map[string][]string{faults.MCPServer: {"create-sessions", "create-pinned"}}

// TestScenariosConfigureEveryPhase fails for a new optional phase that no scenario that creates an object turns on.
func TestScenariosConfigureEveryPhase(t *testing.T) {
	for _, kind := range faults.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			object := maps.Clone(baselineOf(t, createAll(kind)).Then.Objects[kind+"/web"])
			for _, name := range alsoCreates[kind] {
				maps.Copy(object, baselineOf(t, scenarioOf(kind, name)).Then.Objects[kind+"/web"])
			}
			for _, phase := range faults.PhaseNames(kind) {
				if phases.ConditionOf(phase) == v1beta1.ConditionStoredContractReady { // present only while it fails
					g.Expect(baselineOf(t, createAll(kind)).Then.Objects).To(HaveKey("ConfigMap/web" + v1beta1.ContractSuffix))
					continue
				}
				reason := ".status.conditions[" + phases.ConditionOf(phase) + "].reason"
				g.Expect(object).To(HaveKey(reason), "phase %s: turn it on in test/campaign/specs/seeds/appservice-autoscaled.yaml, or in AllServerOptions and off in NoServerOptions", phase)
			}
		})
	}
}

// TestHistoryRecordsEveryCachedKind fails for a new child kind that is missing in watchedKinds.
func TestHistoryRecordsEveryCachedKind(t *testing.T) {
	clusterScoped := []string{"customresourcedefinitions", "ingressclasses"}
	for _, kind := range faults.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			b := baselineOf(t, createAll(kind))
			for _, resource := range b.Caches {
				if !slices.Contains(clusterScoped, resource) {
					g.Expect(faults.WatchedResources()).To(ContainElement(resource), "add the kind to watchedKinds in kinds.go")
				}
			}
		})
	}
}

// notVaried are the fields that no dimension of a simulation varies, with the reason.
var notVaried = map[string]string{
	"AppService.adoptionPolicy":         "adopted children keep fields of their previous field manager; test/appservice covers it",
	"AppService.driftHistoryLimit":      "it limits only status.drifts; internal/workload covers it",
	"MCPServer.driftHistoryLimit":       "it limits only status.drifts; internal/workload covers it",
	"MCPServer.adoptionPolicy":          "adopted children keep fields of their previous field manager; test/mcpserver covers it",
	"MCPServer.httpRoute":               "the cluster of these tests does not have the Gateway API",
	"MCPServer.imagePullSecrets":        "the Secret would have to exist",
	"MCPServer.bridge":                  "only valid with one of the transports",
	"SecureStorage.provider":            "it is immutable",
	"SecureStorage.pollInterval":        "the simulation triggers reconciles instead",
	"SecureStorage.propagationDeadline": "the simulated cloud propagates within milliseconds",
}

// TestSimulationVariesEveryField fails for a new field of a spec that no dimension of the simulation varies.
func TestSimulationVariesEveryField(t *testing.T) {
	for _, kind := range faults.Kinds {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			varied, err := faults.VariedFields(kind)
			g.Expect(err).NotTo(HaveOccurred())
			for field := range schemaOf(g, kind).Properties["spec"].Properties {
				if notVaried[kind+"."+field] == "" && !varied[field] {
					t.Errorf("spec.%s: add a choice to dimensions in simulation_spec.go, or a reason to notVaried", field)
				}
			}
		})
	}
}

// schemaOf reads the schema of the stored version of a kind.
func schemaOf(g Gomega, kind string) apiextensionsv1.JSONSchemaProps {
	content, err := os.ReadFile("../../config/crd/bases/fixpoint.dev_" + strings.ToLower(kind) + "s.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	raw, err := yaml.YAMLToJSON(content)
	g.Expect(err).NotTo(HaveOccurred())
	var crd apiextensionsv1.CustomResourceDefinition
	g.Expect(json.Unmarshal(raw, &crd)).To(Succeed())
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	return *crd.Spec.Versions[i].Schema.OpenAPIV3Schema
}
