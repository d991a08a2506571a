// Package strict reads one YAML document of the form apiVersion, kind, spec
// into Go structs. Wrong types, typing errors in keys, oversized input and alias bombs
// are problems, each with file, line and dotted path, and all of them are reported
// together; a typing error is answered with the key that is meant. As PipeCD does, it
// reads a key whatever its case, the last of a key that stands twice, and the first of
// several documents. Unknown keys are not read. Document.Unread lists what is not.
//
// Struct fields are named by their yaml tags. Defaults are what the struct
// holds before decoding; null leaves them as they are.
//
// The package knows no configuration key itself, does no input or output and
// never shows a Secret.
package strict
