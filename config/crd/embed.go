// Package crd has the CustomResourceDefinitions of Fixpoint.
package crd

import "embed"

// Bases are the files with one definition each, below bases.
//
//go:embed bases/*.yaml
var Bases embed.FS
