// Package strict reads one YAML document of the form apiVersion, kind, spec
// into Go structs and accepts nothing it does not know: unknown and duplicate
// keys, wrong types, second documents, oversized input and alias bombs are
// problems, each with file, line and dotted path, and all of them are reported
// together. A typing mistake is answered with the nearest valid key.
//
// Struct fields are named by their yaml tags. Defaults are what the struct
// holds before decoding; null leaves them as they are.
//
// The package knows no configuration key itself, does no input or output and
// never shows a Secret.
package strict
