// Package streams lets the response to a request go on after its handlers have returned. An event stream that is open for
// hours then has no stack of handlers and no buffers of net/http: only its connections, and two small goroutines.
package streams
