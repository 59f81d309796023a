// Package campaign holds no code, only tests: specs of all kinds that are made from the schemas,
// against a real API server and the manager. Invalid ones have to be refused with the path of the
// field, or to show in a condition. Valid ones have to lead to the same state on every way there.
package campaign
