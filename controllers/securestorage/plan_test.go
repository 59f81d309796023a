package securestorage

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/pkg/phases"
)

// userOf reads as a user who may not read Secrets.
type userOf struct{ client.Reader }

// Get implements [client.Reader].
func (u userOf) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, isSecret := into.(*corev1.Secret); isSecret {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, errors.New("RBAC"))
	}
	return u.Reader.Get(ctx, key, into, options...)
}

// plans plans with what a reader may read.
func (f *fixture) plans(reader client.Reader) []phases.PlannedPhase {
	f.t.Helper()
	access := &cloudAccess{cloud: f.process.access.cloud, credentials: f.process.access.credentials, ambient: f.ambient, secrets: reader, plans: true}
	engine, err := phases.New(definition(f.clock, access), phases.Dependencies{
		Reader: reader, Uncached: reader, Applier: f, Planner: f.process.applier.DryRun(), Scheme: testScheme(), Recorder: f, Clock: f.clock,
	})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(engine.Index(f.children)).To(Succeed())
	plan, err := engine.Plan(f.t.Context(), f.storage.DeepCopy())
	f.Expect(err).NotTo(HaveOccurred())
	return plan.Phases
}

// plan returns the plan of the keys.
func (f *fixture) plan(reader client.Reader) phases.PlannedPhase {
	f.t.Helper()
	return f.planOf("AccountKeys", reader)
}

func (f *fixture) planOf(phase string, reader client.Reader) phases.PlannedPhase {
	f.t.Helper()
	for _, planned := range f.plans(reader) {
		if planned.Name == phase {
			return planned
		}
	}
	return phases.PlannedPhase{}
}

// A grant that the account no longer needs is revoked, which is a write like others.
func TestPlanNamesTheRevocationOfFormerGrants(t *testing.T) {
	const revoke = "revoke the unused grant on key vault fixpoint-demo"
	for name, c := range map[string]struct {
		change func(*fixture)
		want   types.GomegaMatcher
	}{
		"nothing changes":     {func(*fixture) {}, BeEmpty()},
		"another key vault":   {func(f *fixture) { f.edit(inVault("second")) }, ConsistOf(And(HavePrefix("encrypt storage account "), HaveSuffix(", and then "+revoke)))},
		"another access type": {func(f *fixture) { f.edit(both(byPolicy, inVault("policies"))) }, ConsistOf(HaveSuffix(", and then " + revoke))},
		"another encryption":  {func(f *fixture) { f.Expect(f.server.UsePlatformKeys(f.name())).To(Succeed()) }, ConsistOf(Not(ContainSubstring("revoke")))},
		"another identity":    {func(f *fixture) { f.Expect(f.server.DropIdentity(f.name())).To(Succeed()) }, ConsistOf(revoke)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newVaultsFixture(t)
			f.runUntilReady()
			c.change(f)
			planned := f.planOf("Encryption", f)
			f.Expect(planned.Err).NotTo(HaveOccurred())
			var steps []string
			for _, change := range planned.Changes {
				steps = append(steps, change.Object)
			}
			f.Expect(steps).To(c.want)
		})
	}
}

// A plan lists no keys in Azure: whoever may plan may not have the permission, and must not see them.
func TestPlanOfExportedKeysListsNone(t *testing.T) {
	// given an object whose keys are exported
	f := newFixture(t, fastCloud(), exportingKeys)
	before := f.plan(f)
	f.Expect(before.Err).NotTo(HaveOccurred())
	f.Expect(before.Changes).To(HaveLen(1), "it would be created once the account is encrypted")
	f.Expect(f.listsOfKeys()).To(BeZero())
	f.runUntilReady()
	listed, keys := f.listsOfKeys(), f.exportedKeys()
	// then a plan changes nothing
	planned := f.plan(f)
	f.Expect(planned.Err).NotTo(HaveOccurred())
	f.Expect(planned.Verdict.IsDone()).To(BeTrue())
	f.Expect(planned.Changes).To(BeEmpty())
	f.Expect(f.listsOfKeys()).To(Equal(listed))
	f.Expect(f.exportedKeys()).To(Equal(keys))
	// and without its Secret, creates one
	secret, _ := child(f, &corev1.Secret{})
	f.Expect(f.children.Delete(f.t.Context(), secret)).To(Succeed())
	f.Expect(f.plan(f).Changes).To(HaveLen(1))
	f.Expect(f.listsOfKeys()).To(Equal(listed))
}

func TestPlanReadsSecretsOnlyIfKeysAreExported(t *testing.T) {
	// given an object that exports no keys
	f := newFixture(t, fastCloud(), exporting)
	f.runUntilReady()
	f.Expect(f.plan(userOf{f}).Err).NotTo(HaveOccurred())
	// when it exports them
	f.edit(exportingKeys)
	f.Expect(f.plan(userOf{f}).Err).To(MatchError(ContainSubstring("reading the Secret with the account keys")))
	f.runUntilReady()
	// then a plan not to export them any more reads the Secret that it deletes
	f.edit(exporting)
	f.Expect(f.condition(v1beta1.ConditionAccountKeysReady)).NotTo(BeNil())
	f.Expect(f.plan(userOf{f}).Err).To(HaveOccurred())
	f.Expect(f.plan(f).Changes).To(HaveLen(1))
}
