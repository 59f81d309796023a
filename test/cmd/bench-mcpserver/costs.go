package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/controllers/mcpserver"
)

// write is one of those that an MCPServer costs and that the bare client does not send.
type write struct {
	what string
	send func(ctx context.Context, name string) error
}

// patcher sends a patch to an object or to its status.
type patcher func(ctx context.Context, o client.Object, patch client.Patch) error

// costs measures each sort of write alone, with no manager running, for as many MCPServers as a
// round makes: what an MCPServer costs beyond its children is at least the sum of some of them.
func (a *arena) costs(ctx context.Context, count int) (string, error) {
	writes, err := a.writes(ctx)
	if err != nil {
		return "", err
	}
	if err := a.stopManager(); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("\nWhat each write costs alone, in milliseconds of processor time, of all processes and of the API server:\n\n" +
		"| write | all | API server |\n| --- | --- | --- |\n")
	for _, w := range writes {
		cpu, err := a.cost(ctx, count, w)
		if err != nil {
			return "", fmt.Errorf("%s: %w", w.what, err)
		}
		perWrite := func(seconds float64) float64 { return seconds * 1000 / float64(count) }
		fmt.Fprintf(&b, "| %s | %.1f | %.1f |\n", w.what, perWrite(cpu.total()), perWrite(cpu["kube-apiserver"].Seconds()))
	}
	return b.String(), nil
}

// cost sends one write for every name, and counts until the watchers have had it too.
func (a *arena) cost(ctx context.Context, count int, w write) (cpuTimes, error) {
	const before, after = 2 * time.Second, 500 * time.Millisecond
	if err := pause(ctx, before); err != nil {
		return nil, err
	}
	cpu := readCPU()
	if err := each(ctx, count, w.send); err != nil {
		return nil, err
	}
	err := pause(ctx, after)
	return readCPU().minus(cpu), err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// writes are in the order in which they can be sent.
func (a *arena) writes(ctx context.Context) ([]write, error) {
	waiting, ready, err := a.statuses(ctx)
	if err != nil {
		return nil, err
	}
	namespace, err := a.newNamespace(ctx, "costs-")
	if err != nil {
		return nil, err
	}
	apply := func(c patcher, metadata, rest string) func(context.Context, string) error {
		return func(ctx context.Context, name string) error {
			body := fmt.Sprintf(`{"apiVersion":"fixpoint.dev/v1beta1","kind":"MCPServer","metadata":{"name":%q%s}%s}`, name, metadata, rest)
			target := &v1beta1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			return c(ctx, target, client.RawPatch(types.ApplyPatchType, []byte(body)))
		}
	}
	main := func(ctx context.Context, o client.Object, patch client.Patch) error {
		return a.user.Patch(ctx, o, patch, client.FieldOwner(mcpserver.FieldManager), client.ForceOwnership)
	}
	status := func(ctx context.Context, o client.Object, patch client.Patch) error {
		return a.user.Status().Patch(ctx, o, patch, client.FieldOwner(mcpserver.FieldManager), client.ForceOwnership)
	}
	return []write{
		{"an Event", func(ctx context.Context, name string) error { return a.user.Create(ctx, newEvent(namespace, name)) }},
		{"the creation of an MCPServer, by its user", func(ctx context.Context, name string) error {
			return a.user.Create(ctx, newServer(namespace, name))
		}},
		{"the apply of its finalizer", apply(main, `,"finalizers":["`+mcpserver.Finalizer+`"]`, "")},
		{"the apply of its first status", apply(status, "", `,"status":`+waiting)},
		{"the apply of its second status", apply(status, "", `,"status":`+ready)},
	}, nil
}

// statuses are what an MCPServer says when it waits, and when it is Ready.
func (a *arena) statuses(ctx context.Context) (waiting, ready string, err error) {
	namespace, err := a.newNamespace(ctx, "model-")
	if err != nil {
		return "", "", err
	}
	server := newServer(namespace, model)
	if err := a.user.Create(ctx, server); err != nil {
		return "", "", err
	}
	if err := a.untilReady(ctx, server); err != nil {
		return "", "", err
	}
	second, err := json.Marshal(server.Status)
	if err != nil {
		return "", "", err
	}
	server.Status.ReadyReplicas = 0
	for i := range server.Status.Conditions {
		server.Status.Conditions[i].Status, server.Status.Conditions[i].Reason = metav1.ConditionUnknown, v1beta1.ReasonBlocked
	}
	first, err := json.Marshal(server.Status)
	return string(first), string(second), err
}

func newEvent(namespace, name string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: name},
		EventTime:           metav1.NowMicro(),
		ReportingController: mcpserver.Name, ReportingInstance: mcpserver.Name,
		Action: v1beta1.ConditionReady, Reason: v1beta1.ReasonRolloutProgressing, Type: corev1.EventTypeNormal,
		Note:      "Ready is False: Deployment: 0 of 1 pods are updated",
		Regarding: corev1.ObjectReference{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "MCPServer", Namespace: namespace, Name: name},
	}
}
