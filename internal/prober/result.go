package prober

import (
	"maps"
	"slices"
)

// State summarizes the probes of a server.
type State string

// The states of a server.
const (
	// Unknown: some replicas have no result for the current token, for example after a restart of the
	// manager. It is not a failure: a server that was Ready should stay Ready until another State.
	Unknown State = "Unknown"
	// Answering: the last probe of every replica succeeded, or only one failed since.
	Answering State = "Answering"
	// Closed: all replicas respond, and some respond with 401 or 403.
	Closed State = "Closed"
	// Failing: two probes of a replica failed in a row.
	Failing State = "Failing"
)

// NotCounted is the number of tools, prompts or resources that have not been counted.
const NotCounted = -1

// Server is the description that a server returns.
type Server struct {
	Name            string
	Version         string
	ProtocolVersion string
	// Capabilities are the names of the declared capabilities, sorted.
	Capabilities []string
	// Tools, Prompts and Resources are numbers of items: 0 without the capability, NotCounted if they have
	// not been listed.
	Tools, Prompts, Resources int
}

// Equal reports whether the descriptions are equal.
func (s Server) Equal(other Server) bool {
	return s.sameIdentity(other) &&
		s.Tools == other.Tools && s.Prompts == other.Prompts && s.Resources == other.Resources
}

func (s Server) sameIdentity(other Server) bool {
	return s.Name == other.Name && s.Version == other.Version &&
		s.ProtocolVersion == other.ProtocolVersion && slices.Equal(s.Capabilities, other.Capabilities)
}

// Result is the latest result for the current token of a target.
type Result struct {
	State State
	// Replicas is the number of probed replicas, Answered the number whose last probe succeeded (401 and
	// 403 do not count), and Decided the number that are not Unknown.
	Replicas, Answered, Decided int
	// Server is the latest description, also of a server that now fails; nil if none.
	Server *Server
	// Err is why the State is Closed or Failing. For Unknown and Answering it is the error of the last
	// probe, if that failed, for information only. Its message does not change from probe to probe.
	Err *Error
	// Contract is what all replicas offered when they were last listed; nil if that is not known, because
	// Target.Contract is false, some replicas have not been listed yet, or they differ.
	Contract *Contract
	// ContractErr is why the first replica was counted, but has no contract; nil if it has one.
	ContractErr *Error
	// Offers are the contracts of the replicas, also of those in Target.Unready, by their addresses; nil without
	// Target.Verify.
	Offers map[string]Offer
	// ListErr is why the tools, prompts and resources of Server could not all be counted in the last
	// attempt; nil if they were.
	ListErr *Error
}

// Offer is the contract of a replica. It is the zero Offer before the first probe.
type Offer struct {
	// Contract is what the replica offered when its lists were last read; nil if they never were, or if Refused.
	Contract *Contract
	// Err is why Contract is nil, by the last probe, or by the last one that refused a response.
	Err *Error
}

// Refused reports whether the replica responded with what the prober refuses for its content, because it is too large or no
// MCP, since its lists were last read. Clients with other limits may get another contract from it.
func (o Offer) Refused() bool { return o.Err != nil && o.Err.isContent() }

func (o Offer) same(other Offer) bool {
	return sameContract(o.Contract, other.Contract) && sameError(o.Err, other.Err)
}

// sameStatus reports whether a status shows both results alike.
func (r Result) sameStatus(other Result) bool {
	return r.State == other.State && r.Replicas == other.Replicas && r.Answered == other.Answered && r.Decided == other.Decided &&
		sameServer(r.Server, other.Server) && sameError(r.Err, other.Err) && sameError(r.ListErr, other.ListErr) &&
		sameContract(r.Contract, other.Contract) && sameError(r.ContractErr, other.ContractErr) &&
		maps.EqualFunc(r.Offers, other.Offers, Offer.same)
}

func sameServer(a, b *Server) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}

func sameError(a, b *Error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
