package prober

import (
	"slices"
	"time"
)

// State is what the probes of a server have come to.
type State string

// The states of a server.
const (
	// Unknown: not every replica has been judged under the current token. It says nothing against
	// the server: after a restart of the manager every server is Unknown for a moment. Whoever was
	// Ready stays so until there is another State.
	Unknown State = "Unknown"
	// Answering: every replica answered its last probe, or has failed but one since it did.
	Answering State = "Answering"
	// Closed: every replica can be reached, and some answer 401 or 403.
	Closed State = "Closed"
	// Failing: a replica failed two probes in a row.
	Failing State = "Failing"
)

// NotCounted is the number of tools, prompts or resources of a server that has not told it.
const NotCounted = -1

// Server is what a server says of itself.
type Server struct {
	Name            string
	Version         string
	ProtocolVersion string
	// Capabilities are the names of what the server declares, sorted.
	Capabilities []string
	// Tools, Prompts and Resources are how many there are: 0 if the server does not declare the
	// capability, NotCounted if it does and has not listed them.
	Tools, Prompts, Resources int
}

// Equal reports whether the two servers say the same.
func (s Server) Equal(other Server) bool {
	return s.sameIdentity(other) &&
		s.Tools == other.Tools && s.Prompts == other.Prompts && s.Resources == other.Resources
}

func (s Server) sameIdentity(other Server) bool {
	return s.Name == other.Name && s.Version == other.Version &&
		s.ProtocolVersion == other.ProtocolVersion && slices.Equal(s.Capabilities, other.Capabilities)
}

// Result is what is known of a target under its current token.
type Result struct {
	State State
	// Since is when the server came into this State, as this process has seen it.
	Since time.Time
	// Failures is how many probes in a row have failed, of the replica with the most.
	Failures int
	// Replicas is how many are probed, and Answered how many of them answered their last probe:
	// those that answered 401 or 403 are not among them. Judged is how many are not Unknown.
	Replicas, Answered, Judged int
	// Server is the last that was heard of it, also when it fails now; nil if nothing was.
	Server *Server
	// Err is why the State is Closed or Failing. When it is Unknown or Answering it is what the
	// first failed probe met, if one has failed since; a condition may show it, but it decides
	// nothing. Its message is the same from probe to probe.
	Err *Error
}

// shows reports whether a status would show the same of both results.
func (r Result) shows(other Result) bool {
	return r.State == other.State && r.Replicas == other.Replicas && r.Answered == other.Answered && r.Judged == other.Judged &&
		sameServer(r.Server, other.Server) && sameError(r.Err, other.Err)
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
