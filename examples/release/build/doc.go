// Package build compiles the programs of a release from a work tree: the same bytes for
// the same commit and the same version of Go, on any machine and in any directory. It
// writes only the files that it is asked for.
package build
