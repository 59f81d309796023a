package securestorage

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
	"github.com/fixpoint-dev/fixpoint/internal/workload"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// With managementPolicy Observe, no step gets to its Ensure, which alone writes, and no Undo writes. See docs/adr/0045.

// observes says whether the management policy only observes.
func observes(storage *v1beta1.SecureStorage) bool {
	return storage.Spec.ManagementPolicy == v1beta1.ManagementObserve
}

func (s *scope) observes() bool { return observes(s.storage) }

// observation is what a step observed.
type observation struct {
	phases.Observation
	err error
}

// observable returns the step with an Observe that never answers Missing if the account is only observed.
func observable(step phases.Step[*scope]) phases.Step[*scope] {
	observe := step.Observe
	step.Observe = func(ctx context.Context, s *scope) (phases.Observation, error) {
		if !s.observes() {
			return observe(ctx, s)
		}
		if s.observed == nil {
			s.observed = s.observeAll(ctx)
		}
		found := s.observed[step.Name]
		return found.Observation, found.err
	}
	return step
}

// observeAll observes all steps, each as if Ensure had done what the steps before it found missing. So the first step that
// differs, which blocks the others, reports all differences. It reports none while a step has to wait, for example because
// Azure throttles the requests: the report would change with each retry.
func (s *scope) observeAll(ctx context.Context) map[string]observation {
	if err := s.connectAndRead(ctx); err != nil {
		verdict, err := s.classifyError(err)
		return map[string]observation{storageAccount.Name: {verdict, err}}
	}
	found, differences := map[string]observation{}, []string{}
	var drifts []ssa.Drift
	assumed, first, complete := *s, "", true
	for _, step := range []phases.Step[*scope]{storageAccount, identity, keyAccess, encryption} {
		observed, err := step.Observe(ctx, &assumed)
		found[step.Name] = observation{observed, err}
		if missing, ok := observed.(phases.MissingObservation); ok {
			drifts = append(drifts, missing.Drifts()...)
			differences, first = append(differences, missing.Message()), cmp.Or(first, step.Name)
			if step.Planned != nil {
				step.Planned(&assumed)
			}
			continue
		}
		if verdict, ok := observed.(phases.Verdict); !ok || !verdict.IsDone() {
			complete = s.account == nil || err == nil && verdict.IsStalled()
			if !complete && first != "" {
				found[first] = observation{observed, err}
			}
			break
		}
	}
	s.vault, s.key, s.grant = assumed.vault, assumed.key, assumed.grant
	if complete {
		s.drifts, s.driftsKnown = drifts, true
	}
	return s.reportDifferences(found, differences)
}

// reportDifferences replaces what the steps would do by a report of all differences.
func (s *scope) reportDifferences(found map[string]observation, differences []string) map[string]observation {
	for name, step := range found {
		if _, differs := step.Observation.(phases.MissingObservation); differs {
			found[name] = observation{Observation: s.stalledUntilPoll(v1beta1.ReasonDiffers, fmt.Sprintf(
				"storage account %s differs from the spec; spec.managementPolicy is Observe, so nothing is changed; Manage would %s", s.account.Name, strings.Join(differences, ", and ")))}
		}
	}
	first := found[storageAccount.Name]
	if verdict, ok := first.Observation.(phases.Verdict); ok && verdict.IsDone() {
		found[storageAccount.Name] = observation{Observation: phases.DoneBecause(v1beta1.ReasonObserved, s.observedMessage()).RecheckAfter(s.pollInterval())}
	}
	return found
}

// withFields adds the fields that differ to what a step would do, unless the engine reports them as drifts.
func (s *scope) withFields(what, condition string, drifts []ssa.Drift) string {
	c := meta.FindStatusCondition(s.storage.Status.Conditions, condition)
	isReported := c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.storage.Generation
	if isReported && !s.observes() {
		return what
	}
	return what + " (" + describeDrifts(drifts) + ")"
}

// describeDrifts reads like "sku.name is Standard_LRS, desired Standard_GRS".
func describeDrifts(drifts []ssa.Drift) string {
	fields := make([]string, 0, len(drifts))
	for _, drift := range drifts {
		actual, desired := cmp.Or(drift.Actual, "not set"), cmp.Or(drift.Desired, "not set")
		fields = append(fields, fmt.Sprintf("%s is %s, desired %s", drift.Path, actual, desired))
	}
	return strings.Join(fields, "; ")
}

func (s *scope) observedMessage() string {
	message := "storage account " + s.account.Name + " is observed; spec.managementPolicy is Observe, so nothing is changed in Azure"
	owner, owned := tagOf(s.account.Tags, cloud.OwnerTag)
	switch {
	case s.isManaged():
		return message + "; the tag " + cloud.OwnerTag + " and the grants of this SecureStorage are kept"
	case owned:
		return message + fmt.Sprintf("; it is managed by another SecureStorage, with the UID %q (tag %s)", owner, cloud.OwnerTag)
	default:
		return message
	}
}

// reportedDrifts returns the desired status.drifts. They stay if not all could be read.
func (s *scope) reportedDrifts(summary phases.Summary) []v1beta1.Drift {
	if !s.observes() || summary.Deleting {
		return nil
	}
	old := s.storage.Status.Drifts
	if !s.driftsKnown {
		return old
	}
	summary.Drifts = nil
	for _, drift := range s.drifts {
		summary.Drifts = append(summary.Drifts, phases.ObservedDrift{Drift: drift, Child: "StorageAccount " + accountName(s.storage)})
	}
	return workload.Drifts(old, summary, ptr.To[int32](v1beta1.MaxDrifts))
}
