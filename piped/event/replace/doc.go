// Package replace writes one value into the text of a file, at a place that a
// replacement of an event names: a field of YAML, JSON or HCL, or what a regular
// expression finds. Everything else of the file stays as it is, byte for byte:
// comments, order, indentation, quotes, line ends.
//
// It owns the syntax of the places and how a value is written there. It reads no
// file, knows no event and no repository, and never runs what a file holds.
//
// To test with it, call Apply; testdata holds a file before and after, and its
// replacement, for each case.
package replace
