// Package web has the page of the console, as it is built from src.
package web

import "embed"

// Files are the page and its assets, below dist.
//
//go:embed all:dist
var Files embed.FS
