// Package web holds the pages of the console: TypeScript in src, which `make generate` bundles into dist.
package web

import "embed"

// Files are the bundle, below the directory dist.
//
//go:embed dist
var Files embed.FS
