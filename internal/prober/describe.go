package prober

import (
	"context"
	"iter"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxName bounds, in bytes, each text from a server, because it is stored in an object.
const maxName = 256

// describe converts the result of a handshake. It leaves the numbers of tools, prompts and resources 0.
func describe(found *mcp.InitializeResult) Server {
	server := Server{ProtocolVersion: found.ProtocolVersion}
	if info := found.ServerInfo; info != nil {
		server.Name, server.Version = truncate(info.Name), truncate(info.Version)
	}
	capabilities := found.Capabilities
	if capabilities == nil {
		return server
	}
	for name, declared := range map[string]bool{
		"completions":  capabilities.Completions != nil,
		"experimental": len(capabilities.Experimental) > 0,
		"extensions":   len(capabilities.Extensions) > 0,
		"logging":      capabilities.Logging != nil, //nolint:staticcheck // deprecated in the newest version, and declared by the older ones
		"prompts":      capabilities.Prompts != nil,
		"resources":    capabilities.Resources != nil,
		"tools":        capabilities.Tools != nil,
	} {
		if declared {
			server.Capabilities = append(server.Capabilities, name)
		}
	}
	slices.Sort(server.Capabilities)
	return server
}

func truncate(s string) string {
	if len(s) <= maxName {
		return s
	}
	end := 0
	for i := range s {
		if i > maxName {
			break
		}
		end = i
	}
	return s[:end]
}

// count counts tools, prompts and resources, and reports whether all lists could be read.
func count(ctx context.Context, session *mcp.ClientSession, declared *mcp.ServerCapabilities, server *Server) bool {
	if declared == nil {
		return true
	}
	if declared.Tools != nil {
		server.Tools = length(session.Tools(ctx, nil))
	}
	if declared.Prompts != nil {
		server.Prompts = length(session.Prompts(ctx, nil))
	}
	if declared.Resources != nil {
		server.Resources = length(session.Resources(ctx, nil))
	}
	return server.Tools != NotCounted && server.Prompts != NotCounted && server.Resources != NotCounted
}

// resetCounts sets the numbers of declared capabilities to NotCounted.
func (s *Server) resetCounts() {
	for capability, number := range map[string]*int{"tools": &s.Tools, "prompts": &s.Prompts, "resources": &s.Resources} {
		if slices.Contains(s.Capabilities, capability) {
			*number = NotCounted
		}
	}
}

// keepCounts replaces numbers that are NotCounted by those of before.
func (s *Server) keepCounts(before Server) {
	if s.Tools == NotCounted {
		s.Tools = before.Tools
	}
	if s.Prompts == NotCounted {
		s.Prompts = before.Prompts
	}
	if s.Resources == NotCounted {
		s.Resources = before.Resources
	}
}

// length is the number of elements, or NotCounted if reading the list fails.
func length[T any](elements iter.Seq2[T, error]) int {
	n := 0
	for _, err := range elements {
		if err != nil {
			return NotCounted
		}
		n++
	}
	return n
}
