package phases_test

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fixpoint-dev/fixpoint/pkg/phases"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa"
)

// A Machine consists of a Disk, which is a Kubernetes object, and an IP, which is not. The list of phases
// is all that its controller says about the order of things; on deletion it is reversed.
func Example() {
	// A cluster in memory, in which a Disk takes a while to be attached.
	cluster := newFakeCluster()
	cluster.attachedAfter["boot"] = 1
	ip := "" // what a cloud holds

	boot := phases.Child[*scope, *deviceConfiguration, *Disk]{
		Name:      "Boot",
		ChildName: func(*scope) string { return "boot" },
		Desired: func(s *scope) (*deviceConfiguration, error) {
			return disk("boot").with("class", s.machine.Spec["class"]), nil
		},
		Health: func(live *Disk) phases.Verdict {
			if !live.Attached {
				return phases.Wait("NotAttached", "the disk is not attached yet", 5*time.Second)
			}
			return phases.Done("the disk is attached")
		},
	}
	address := phases.Step[*scope]{
		Name: "Address",
		Observe: func(context.Context, *scope) (phases.Observation, error) {
			if ip == "" {
				return phases.Missing("IPMissing", "allocate an IP"), nil
			}
			return phases.Done("the IP is allocated"), nil
		},
		Ensure: func(context.Context, *scope) (phases.Verdict, error) {
			ip = "allocated"
			return phases.Done("the IP is allocated"), nil
		},
		Undo: func(context.Context, *scope) (phases.Verdict, error) {
			ip = ""
			return phases.Done("the IP is released"), nil
		},
	}

	engine, err := phases.New(phases.Definition[*Machine, *scope]{
		Controller: "machine",
		Finalizer:  machineFinalizer,
		Phases:     []phases.Phase[*scope]{boot, address},
		Scope:      func(machine *Machine) *scope { return &scope{machine: machine} },
		Conditions: func(machine *Machine) []metav1.Condition { return machine.Status.Conditions },
		Status: func(s *scope, summary phases.Summary) ssa.Configuration {
			return machineStatus(s.machine.Name, summary)
		},
	}, phases.Dependencies{
		Reader:   reader{fakeCluster: cluster, cached: true},
		Uncached: reader{fakeCluster: cluster},
		Applier:  applier{fakeCluster: cluster},
		Scheme:   machineScheme(),
		Clock:    cluster.clock,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	reconcile := func(title string) {
		result, err := engine.Reconcile(context.Background(), machineRequest)
		fmt.Println(title, "reconcile again after:", result.RequeueAfter, "error:", err)
		if machine := cluster.machine(); machine != nil {
			for _, c := range machine.Status.Conditions {
				fmt.Printf("  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}

	cluster.createMachine(&Machine{Spec: map[string]string{"class": "fast"}})
	reconcile("created;")
	cluster.tick() // the disk is attached
	reconcile("attached;")
	cluster.deleteMachine()
	reconcile("deleted;")
	reconcile("gone;")
	fmt.Println("left:", cluster.left(), ip)

	// Output:
	// created; reconcile again after: 5s error: <nil>
	//   Ready=False NotAttached: Boot: the disk is not attached yet
	//   BootReady=False NotAttached: the disk is not attached yet
	//   AddressReady=Unknown Blocked: waiting for phase Boot
	//   Reconciling=True NotAttached: the disk is not attached yet
	// attached; reconcile again after: 0s error: <nil>
	//   Ready=True Ready: all phases are ready
	//   BootReady=True Ready: the disk is attached
	//   AddressReady=True Ready: the IP is allocated
	// deleted; reconcile again after: 30s error: <nil>
	//   Ready=False Terminating: Boot: waiting for Disk boot to be deleted (finalizers: foregroundDeletion)
	//   BootReady=False Terminating: waiting for Disk boot to be deleted (finalizers: foregroundDeletion)
	//   AddressReady=False Terminating: deleted
	//   Reconciling=True Terminating: waiting for Disk boot to be deleted (finalizers: foregroundDeletion)
	// gone; reconcile again after: 0s error: <nil>
	// left: []
}
