// Package plugin is the kubectl plugin: one file for each command, with pure functions from objects to text.
// All access to the API server goes through [clients], with the credential and the rights of the user.
package plugin
