package build

import (
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDescribe states which source a value comes from.
func TestDescribe(t *testing.T) {
	recorded := &debug.BuildInfo{
		GoVersion: "go1.25.0", Main: debug.Module{Version: "v0.0.0-20261122-0123456789ab"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789ab"}, {Key: "vcs.time", Value: "2026-11-22T20:00:00Z"}},
	}
	cases := map[string]struct {
		version, commit, date string
		recorded              *debug.BuildInfo
		want                  Info
	}{
		"the linker's values first":     {"v1.2.0", "abcdef0", "2026-11-21T10:00:00Z", recorded, Info{"v1.2.0", "abcdef0", "2026-11-21T10:00:00Z", "go1.25.0"}},
		"without them, the Go tool's":   {"", "", "", recorded, Info{"v0.0.0-20261122-0123456789ab", "0123456789ab", "2026-11-22T20:00:00Z", "go1.25.0"}},
		"a placeholder is no value":     {"v1.2.0", "unknown", "", recorded, Info{"v1.2.0", "0123456789ab", "2026-11-22T20:00:00Z", "go1.25.0"}},
		"nothing was recorded anywhere": {"", "", "", &debug.BuildInfo{}, Info{"unknown", "unknown", "unknown", "unknown"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, describe(c.version, c.commit, c.date, c.recorded)); diff != "" {
				t.Errorf("build (-want +got):\n%s", diff)
			}
		})
	}
}
