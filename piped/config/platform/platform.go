// Package platform holds what the rooms of the kinds of application below package config
// share with it. It imports nothing, so that each of them can import it.
package platform

// Stage is a stage of a pipeline, whatever its kind.
type Stage struct {
	At      string // its path from the spec
	Name    string
	Options any // nil, or a pointer to the options of the stage
}
