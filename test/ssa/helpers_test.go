package ssa_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

type counter struct{ atomic.Int64 }

// claimed is a configuration, asked whether it claims a field.
type claimed struct{ document map[string]any }

func ownFields(c ssa.Configuration) (claimed, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return claimed{}, err
	}
	document := map[string]any{}
	return claimed{document: document}, json.Unmarshal(raw, &document)
}

// claims follows a path such as .spec.containers[name="web"].image through the configuration.
func (c claimed) claims(path string) bool {
	if strings.HasPrefix(path, ".metadata.ownerReferences") {
		return true // completed by the applier
	}
	var at any = c.document
	for rest := path; rest != ""; {
		var ok bool
		if at, rest, ok = follow(at, rest); !ok {
			return false
		}
	}
	return true
}

func follow(at any, path string) (any, string, bool) {
	if strings.HasPrefix(path, "[") {
		key, rest, _ := strings.Cut(path[1:], "]")
		list, _ := at.([]any)
		for _, item := range list {
			if matches(item, key) {
				return item, rest, true
			}
		}
		return nil, "", false
	}
	fields, _ := at.(map[string]any)
	// Keys of labels and data hold dots, so the longest key that fits is meant.
	best := ""
	for key := range fields {
		if strings.HasPrefix(path[1:], key) && len(key) > len(best) {
			best = key
		}
	}
	if best == "" {
		return nil, "", false
	}
	return fields[best], path[1+len(best):], true
}

func matches(item any, key string) bool {
	fields, _ := item.(map[string]any)
	for _, part := range strings.Split(key, ",") {
		name, v, _ := strings.Cut(part, "=")
		have, ok := fields[name]
		if ok && fmt.Sprintf("%v", have) != strings.Trim(v, `"`) {
			return false
		}
	}
	return true
}

// difference shows what two states of an object differ in, but for the resourceVersion and the
// order and times of the managed fields. Who manages what counts.
func difference(a, b client.Object) string {
	return cmp.Diff(timeless(a), timeless(b))
}

func timeless(o client.Object) string {
	o = as[client.Object](o.DeepCopyObject())
	entries := o.GetManagedFields()
	for i := range entries {
		entries[i].Time = nil
	}
	slices.SortFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
		return strings.Compare(a.Manager+string(a.Operation)+a.Subresource, b.Manager+string(b.Operation)+b.Subresource)
	})
	o.SetManagedFields(entries)
	o.SetResourceVersion("")
	text, _ := yaml.Marshal(o)
	return string(text)
}

// refusedBeside are the fields that the API server refuses beside the configuration.
func refusedBeside(c ssa.Configuration) []string {
	deployment, ok := c.(*appsv1ac.DeploymentApplyConfiguration)
	if !ok || deployment.Spec.Strategy == nil || *deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil
	}
	return []string{"spec.strategy.rollingUpdate"}
}

// isQuantityMetric is a field whose ownership the server itself gets wrong: whoever updates an
// autoscaler that has a metric with a quantity is taken to have changed its metrics.
func isQuantityMetric(c ssa.Configuration, path string) bool {
	autoscaler, ok := c.(*autoscalingv2ac.HorizontalPodAutoscalerApplyConfiguration)
	return ok && path == ".spec.metrics" && slices.ContainsFunc(autoscaler.Spec.Metrics, func(m autoscalingv2ac.MetricSpecApplyConfiguration) bool {
		return m.Resource.Target.AverageValue != nil
	})
}
