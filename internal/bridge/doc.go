// Package bridge serves stdio servers of the Model Context Protocol over
// streamable HTTP.
//
// A client that sends initialize gets a session, and each session has its own
// child process: messages of the client are written to the standard input of the
// child, and messages that the child prints are sent to the client. Requests
// without a session, as in spec version 2026-07-28, share one child.
//
// Messages are relayed without interpretation. The bridge reads only the envelope
// (id, method, progress token), to find the HTTP response that a message belongs
// to. Unknown extensions are relayed like everything else.
//
// Memory is bounded: a session holds one message at a time, so a client that
// reads slowly slows its own child through the pipe. The shared child serves many
// clients, so a client that does not keep up loses its request instead of
// delaying the others.
package bridge
