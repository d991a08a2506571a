package config

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/c785c783/piped/piped/config/strict"
)

// SkipOptions is skipOn of a stage: the stage is skipped when the commit's
// subject begins with one of the prefixes, or when every file changed since the
// running commit matches Paths, taken together (Patterns.MatchCombined). It
// survives JSON, under the names of the file.
type SkipOptions struct {
	// CommitMessagePrefixes skip the stage when the commit's subject begins with one of them.
	// Default: none.
	CommitMessagePrefixes []string `yaml:"commitMessagePrefixes" json:"commitMessagePrefixes,omitempty"`
	// Paths skip the stage when all files changed since the running commit match. They are
	// relative to the root of the repository; `!` excludes.
	// Default: none.
	Paths Patterns `yaml:"paths" json:"paths,omitempty"`
}

// IsZero reports whether the stage is never skipped.
func (s SkipOptions) IsZero() bool { return len(s.CommitMessagePrefixes) == 0 && len(s.Paths) == 0 }

func (s SkipOptions) complete(d *strict.Document, at string) {
	for i, p := range s.CommitMessagePrefixes {
		if p == "" {
			d.Problemf(fmt.Sprintf("%s.commitMessagePrefixes[%d]", at, i), "expected the beginning of a commit's subject, found an empty one, which every subject has")
		}
	}
}

func (s SkipOptions) equal(o SkipOptions) bool {
	return slices.Equal(s.CommitMessagePrefixes, o.CommitMessagePrefixes) && reflect.DeepEqual(s.Paths, o.Paths)
}
