// Package specs derives specs from the schemas of the CRDs: invalid ones at every boundary of a schema, and random valid
// ones. The same seed derives the same specs.
//
// A schema does not say which fields turn an option on. Therefore each kind has some hand-written specs in the
// directory seeds, which together set every field.
package specs
