package pipectl

import (
	"testing"
	"time"
)

func TestTimeRange(t *testing.T) {
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ since, until, want string }{
		{"30d", "", "2026-03-01T12:00:00Z and 2026-03-31T12:00:00Z"},
		{"2w", "1w", "2026-03-17T12:00:00Z and 2026-03-24T12:00:00Z"},
		{"90m", "0s", "2026-03-31T10:30:00Z and 2026-03-31T12:00:00Z"},
		{"2026-01-01", "2026-02-01", "2026-01-01T00:00:00Z and 2026-02-01T00:00:00Z"},
		{"2026-01-01T01:00:00+01:00", "2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z and 2026-01-01T00:00:01Z"},
		{"1h30m", "2027-01-01", "2026-03-31T10:30:00Z and 2027-01-01T00:00:00Z"},
	} {
		s, err := timeRange(c.since, c.until, now)
		if err != nil || s.String() != c.want {
			t.Errorf("--since=%s --until=%s: between %s (%v), want %s", c.since, c.until, s, err, c.want)
		}
	}
	for _, c := range []struct{ since, until, want string }{
		{"", "", `--since is "", which is not a time`},
		{"yesterday", "", `--since is "yesterday", which is not a time`},
		{"-1h", "", `--since is "-1h", which is not a time`},
		{"1.5d", "", `--since is "1.5d", which is not a time`},
		{"999999999999d", "", `--since is "999999999999d", which is not a time`},
		{"1d", "tomorrow", `--until is "tomorrow", which is not a time`},
		{"1d", "2d", "the range of time begins at 2026-03-30T12:00:00Z, which is not before its end, 2026-03-29T12:00:00Z"},
	} {
		if s, err := timeRange(c.since, c.until, now); err == nil || err.Error() != c.want {
			t.Errorf("--since=%q --until=%q: between %s, %v; want the error %q", c.since, c.until, s, err, c.want)
		}
	}
}
