package pipectl

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// span is a range of time.
type span struct{ from, to time.Time }

func (s span) String() string {
	return s.from.UTC().Format(time.RFC3339) + " and " + s.to.UTC().Format(time.RFC3339)
}

// timeRange parses the begin and the end of a range; an empty end is now.
func timeRange(since, until string, now time.Time) (s span, err error) {
	s.to = now
	if s.from, err = parseTime("since", since, now); err != nil {
		return s, err
	}
	if until != "" {
		if s.to, err = parseTime("until", until, now); err != nil {
			return s, err
		}
	}
	if !s.from.Before(s.to) {
		return s, hint(fmt.Errorf("the range of time begins at %s, which is not before its end, %s", s.from.UTC().Format(time.RFC3339), s.to.UTC().Format(time.RFC3339)),
			"--since is the begin, --until the end, which is now unless it is given")
	}
	return s, nil
}

// parseTime parses a flag's time: a date (in UTC), a time, or a duration before now.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	if d, err := durationOf(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, hint(fmt.Errorf("--%s is %q, which is not a time", flag, text),
		"write how long ago it was, such as 90m, 12h, 30d or 4w, or a time, such as 2026-01-31 or 2026-01-31T12:00:00Z")
}

// optionalTime parses a flag's time as unix milliseconds; "" is 0.
func optionalTime(flag, text string, now time.Time) (int64, error) {
	if text == "" {
		return 0, nil
	}
	at, err := parseTime(flag, text, now)
	return at.UnixMilli(), err
}

// durationOf parses the durations of time.ParseDuration, and whole days and weeks.
func durationOf(text string) (time.Duration, error) {
	const most = 100 * 366 // days: the maximum of time.Duration is 292 years
	for suffix, days := range map[string]int{"d": 1, "w": 7} {
		if n, err := strconv.Atoi(strings.TrimSuffix(text, suffix)); strings.HasSuffix(text, suffix) && err == nil && n <= most/days {
			return time.Duration(n*days) * 24 * time.Hour, nil
		}
	}
	return time.ParseDuration(text)
}
