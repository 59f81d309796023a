// Package bridge serves Model Context Protocol servers that speak stdio over
// streamable HTTP.
//
// A client that initializes gets a session, and a session is one child process
// of its own: what the client posts goes to the child's standard input, and
// what the child prints goes to the client. Requests without a session, as
// spec version 2026-07-28 has them, share one child.
//
// Messages are relayed unread. Of each the bridge looks only at the envelope
// (id, method, progress token), to know which HTTP response it belongs to; an
// extension that the bridge has never heard of passes like everything else.
//
// Memory is bounded: in a session a message is held only while it is handed
// on, so a client that reads slowly slows its own child by way of the pipe. The
// shared child serves many clients at once, hence there a client that does not
// keep up loses its request rather than slowing the others.
package bridge
