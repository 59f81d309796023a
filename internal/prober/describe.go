package prober

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxName bounds, in bytes, each text from a server, because it is stored in an object.
const maxName = 256

// describe converts the result of a handshake. It leaves the numbers of tools, prompts and resources 0.
func describe(found *mcp.InitializeResult) Server {
	server := Server{ProtocolVersion: found.ProtocolVersion}
	if info := found.ServerInfo; info != nil {
		server.Name, server.Version = printable(info.Name), printable(info.Version)
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

// printable removes what a terminal would not print, such as line breaks and control sequences, and truncates.
func printable(s string) string {
	return truncate(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, truncate(s)))
}

// truncate cuts a text to maxName bytes.
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

// count counts the declared tools, prompts and resources. The error is that of the first list that cannot
// be read; its number is NotCounted.
func count(ctx context.Context, session *mcp.ClientSession, declared *mcp.ServerCapabilities, w *probeTransport, server *Server) *Error {
	if declared == nil {
		return nil
	}
	var failure *Error
	read := func(isDeclared bool, list int, number *int, pages func() error) {
		if !isDeclared {
			return
		}
		before := w.startList(list)
		if err := pages(); err != nil {
			*number = NotCounted
			if failure == nil {
				failure = w.classifyError(ctx, err)
			}
			return
		}
		*number = w.items(list) - before
	}
	read(declared.Tools != nil, toolList, &server.Tools, func() error { return firstError(session.Tools(ctx, nil)) })
	read(declared.Prompts != nil, promptList, &server.Prompts, func() error { return firstError(session.Prompts(ctx, nil)) })
	read(declared.Resources != nil, resourceList, &server.Resources, func() error { return firstError(session.Resources(ctx, nil)) })
	return failure
}

// deriveContract returns the contract after the tools and prompts have been counted. It lists the resource templates,
// which many servers with resources do not have.
func deriveContract(ctx context.Context, session *mcp.ClientSession, declared *mcp.ServerCapabilities, w *probeTransport) (*Contract, *Error) {
	w.startList(templateList)
	if declared != nil && declared.Resources != nil {
		if err := firstError(session.ResourceTemplates(ctx, nil)); err != nil {
			failure, inSession := w.classifyError(ctx, err), session.ID() != "" || w.job.transport == SSE
			if !isNotServed(err, failure, inSession) {
				return nil, failure
			}
		}
	}
	return w.readContract()
}

// isNotServed reports whether the server does not know a method. In a session, 404 says that the server does not know the
// session, as after a restart.
func isNotServed(err error, failure *Error, inSession bool) bool {
	var answered *jsonrpc.Error
	return errors.As(err, &answered) && answered.Code == jsonrpc.CodeMethodNotFound ||
		failure.Kind == HTTPStatus && (failure.Status == http.StatusNotFound && !inSession || failure.Status == http.StatusNotImplemented)
}

// errNotDropped is the error of a list of which the SDK reads an item that the transport did not recognize.
var errNotDropped = errors.New("an item of a list was not counted")

// firstError reads all pages of a list. The items are counted by the transport, which drops them.
func firstError[T any](items iter.Seq2[T, error]) error {
	for _, err := range items {
		if err != nil {
			return err
		}
		return errNotDropped
	}
	return nil
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
