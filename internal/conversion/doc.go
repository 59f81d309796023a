// Package conversion converts objects of fixpoint.dev between the versions of the API, and serves the conversion
// webhook of the CustomResourceDefinitions.
//
// A conversion replaces names and values in the JSON of an object, and copies everything else byte for byte. It does
// not decode objects into Go types, which would change what users wrote: a quantity of 1000m becomes 1, an interval of
// 5m becomes 5m0s, and suspend: false and empty lists are dropped. Tools that compare what they applied with what is
// stored would report differences, and field managers would conflict about equal values. See
// docs/adr/0043-conversions-replace-names-in-json.md.
//
// The renamed fields are the table [renames]. Both directions follow from it, so that a conversion to another version
// and back returns the same object.
package conversion
