package prober

import (
	"reflect"
	"testing"

	. "github.com/onsi/gomega"
)

// TestStatusChangesWithWhatItShows changes each field of a result. A change that a status does not show must not cause a
// reconcile, or else each probe would.
func TestStatusChangesWithWhatItShows(t *testing.T) {
	before := func() Result {
		return Result{
			State: Failing, Replicas: 3, Answered: 1, Decided: 2,
			Server: &Server{Name: "a", Version: "1", ProtocolVersion: "2", Capabilities: []string{"tools"}, Tools: 1, Prompts: 2, Resources: 3},
			Err:    &Error{Kind: HTTPStatus, Status: 500}, Contract: &Contract{Digest: "1"}, ContractErr: &Error{Kind: NotMCP},
			Offers:  map[string]Offer{"a": {Contract: &Contract{Digest: "1"}}, "b": {Err: &Error{Kind: Refused}}},
			ListErr: &Error{Kind: Timeout},
		}
	}
	cases := map[string][]func(*Result){
		"State":    {func(r *Result) { r.State = Answering }},
		"Replicas": {func(r *Result) { r.Replicas++ }},
		"Answered": {func(r *Result) { r.Answered++ }},
		"Decided":  {func(r *Result) { r.Decided++ }},
		"Server": {
			func(r *Result) { r.Server = nil }, func(r *Result) { r.Server.Name = "b" }, func(r *Result) { r.Server.Version = "2" },
			func(r *Result) { r.Server.ProtocolVersion = "3" }, func(r *Result) { r.Server.Capabilities = nil },
			func(r *Result) { r.Server.Tools++ }, func(r *Result) { r.Server.Prompts++ }, func(r *Result) { r.Server.Resources++ },
		},
		"Err":         {func(r *Result) { r.Err = nil }, func(r *Result) { r.Err.Status = 501 }},
		"Contract":    {func(r *Result) { r.Contract = nil }, func(r *Result) { r.Contract.Digest = "2" }},
		"ContractErr": {func(r *Result) { r.ContractErr = nil }, func(r *Result) { r.ContractErr.Detail = "x" }},
		"Offers": {
			func(r *Result) { r.Offers = nil }, func(r *Result) { r.Offers["c"] = Offer{} }, func(r *Result) { delete(r.Offers, "b") },
			func(r *Result) { r.Offers["a"] = Offer{Contract: &Contract{Digest: "2"}} }, func(r *Result) { r.Offers["b"] = Offer{Err: &Error{Kind: DNS}} },
		},
		"ListErr": {func(r *Result) { r.ListErr = nil }, func(r *Result) { r.ListErr.Kind = TooLarge }},
	}
	for field := range reflect.TypeFor[Result]().Fields() {
		t.Run(field.Name, func(t *testing.T) {
			g := NewWithT(t)
			changes, ok := cases[field.Name]
			g.Expect(ok).To(BeTrue(), "say whether a status shows the field")
			for _, change := range changes {
				after := before()
				change(&after)
				g.Expect(before().sameStatus(after)).To(BeFalse())
				g.Expect(after.sameStatus(before())).To(BeFalse())
			}
		})
	}
	g := NewWithT(t)
	g.Expect(before().sameStatus(before())).To(BeTrue())
	g.Expect(Result{}.sameStatus(Result{})).To(BeTrue())
}

func TestAggregateOfNoReplicaIsUnknown(t *testing.T) {
	NewWithT(t).Expect(aggregate(nil)).To(Equal(Result{State: Unknown}))
}

func TestMessagesOfErrorsWithoutDetails(t *testing.T) {
	g := NewWithT(t)
	for _, kind := range []ErrorKind{DNS, Refused, Unreachable, Disconnected, Timeout, TLS, Redirected, TooLarge, NotMCP, Protocol, Invalid, NotForwarded} {
		g.Expect((&Error{Kind: kind}).Error()).NotTo(BeEmpty(), string(kind))
	}
	g.Expect((&Error{Kind: Protocol}).Error()).To(Equal("unexpected response"))
	for kind, closed := range map[ErrorKind]bool{Unauthorized: true, Forbidden: true, HTTPStatus: false, Refused: false} {
		g.Expect((&Error{Kind: kind}).closed()).To(Equal(closed), string(kind))
	}
}
