// Package validation holds no code, only tests: every rule by which the API
// server refuses an object of the project, with the message that a user then sees.
package validation
