// Package build describes how a program was built: its version, its commit and
// when that commit was made. The linker's values come first, then those that the Go
// tool records. It reads nothing but the program itself.
package build

import (
	"cmp"
	"runtime/debug"
)

// Unknown stands for what neither the linker nor the Go tool recorded.
const Unknown = "unknown"

// Info describes a build.
type Info struct {
	Version string // such as v1.2.0, or (devel) for a build from a work tree
	Commit  string
	Date    string // of the commit, RFC 3339
	Go      string // the version of Go
}

// Read describes the running program. Version, commit and date are what the linker set,
// "" if it set nothing.
func Read(version, commit, date string) Info {
	recorded, ok := debug.ReadBuildInfo()
	if !ok {
		recorded = &debug.BuildInfo{}
	}
	return describe(version, commit, date, recorded)
}

// describe completes what the linker set with what the Go tool recorded.
func describe(version, commit, date string, recorded *debug.BuildInfo) Info {
	settings := map[string]string{}
	for _, s := range recorded.Settings {
		settings[s.Key] = s.Value
	}
	return Info{
		Version: cmp.Or(known(version), recorded.Main.Version, Unknown),
		Commit:  cmp.Or(known(commit), settings["vcs.revision"], Unknown),
		Date:    cmp.Or(known(date), settings["vcs.time"], Unknown),
		Go:      cmp.Or(recorded.GoVersion, Unknown),
	}
}

// known returns a linker's value, "" for the placeholder of a Makefile that found
// none.
func known(value string) string {
	if value == Unknown {
		return ""
	}
	return value
}
