// Package telemetry records the requests to an MCP server: as lines of JSON for an audit, and as spans and metrics for an
// OpenTelemetry collector. It is the outermost middleware, so that refused requests are recorded, too. It neither refuses
// nor changes requests, and no request waits for a collector, or long for the reader of the lines.
package telemetry
