// Package replace writes a value into the text of a file, at the place that a replacement of
// an event rule defines: a field of YAML, JSON or HCL, or the match of a regular expression.
// It preserves all other bytes: comments, order, indentation, quotes, line ends.
//
// It defines the syntax of the places and the form of a written value. It neither reads files
// nor evaluates their content. Its test cases are the files in testdata: a replacement, and
// the text before and after it.
package replace
