// Package specs makes specs of our kinds out of the schemas in their CustomResourceDefinitions:
// invalid ones at every boundary that a schema draws, and valid ones by a seed that makes the same
// ones again.
//
// A schema alone does not know what turns an option on, so that each kind has a few specs to begin
// with, in the folder seeds: together they set every field. Everything else follows from the schema.
package specs
