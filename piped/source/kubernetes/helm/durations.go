package helm

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// durationFunctions returns Helm's functions for durations. Except for mustToDuration, they
// treat invalid durations as 0.
func durationFunctions() template.FuncMap {
	whole := func(of func(time.Duration) int64) func(any) int64 {
		return func(v any) int64 { return of(orZero(v)) }
	}
	parts := func(of func(time.Duration) float64) func(any) float64 {
		return func(v any) float64 { return of(orZero(v)) }
	}
	return template.FuncMap{
		"mustToDuration":       duration,
		"durationSeconds":      parts(time.Duration.Seconds),
		"durationMilliseconds": whole(time.Duration.Milliseconds),
		"durationMicroseconds": whole(time.Duration.Microseconds),
		"durationNanoseconds":  whole(time.Duration.Nanoseconds),
		"durationMinutes":      parts(time.Duration.Minutes),
		"durationHours":        parts(time.Duration.Hours),
		"durationDays":         parts(func(d time.Duration) float64 { return d.Hours() / 24 }),
		"durationWeeks":        parts(func(d time.Duration) float64 { return d.Hours() / 24 / 7 }),
		"durationRoundTo":      toMultiple(time.Duration.Round),
		"durationTruncateTo":   toMultiple(time.Duration.Truncate),
	}
}

func orZero(v any) time.Duration {
	d, err := duration(v)
	if err != nil {
		return 0
	}
	return d
}

func toMultiple(of func(d, m time.Duration) time.Duration) func(v, m any) time.Duration {
	return func(v, m any) time.Duration {
		d, err := duration(v)
		if err != nil {
			return 0
		}
		multiple, err := duration(m)
		if err != nil {
			return d
		}
		return of(d, multiple)
	}
}

// duration converts a value to a duration: a time.Duration, a string such as 1h30m, or a
// number of seconds (also as a string).
func duration(v any) (time.Duration, error) {
	switch v := v.(type) {
	case nil:
		return 0, errors.New("invalid duration")
	case time.Duration:
		return v, nil
	case string:
		return durationOfText(strings.TrimSpace(v))
	}
	switch n := reflect.ValueOf(v); {
	case n.CanInt():
		if d := time.Duration(n.Int()) * time.Second; d/time.Second == time.Duration(n.Int()) {
			return d, nil
		}
	case n.CanUint():
		if d := time.Duration(n.Uint()) * time.Second; n.Uint() <= math.MaxInt64 && d/time.Second == time.Duration(n.Uint()) {
			return d, nil
		}
	case n.CanFloat():
		return durationOfSeconds(n.Float())
	default:
		return 0, fmt.Errorf("unsupported duration type %T", v)
	}
	return 0, fmt.Errorf("duration seconds overflow: %v", v)
}

func durationOfText(text string) (time.Duration, error) {
	if text == "" {
		return 0, errors.New("empty duration")
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("could not parse duration %q", text)
	}
	return durationOfSeconds(seconds)
}

func durationOfSeconds(seconds float64) (time.Duration, error) {
	nanoseconds := seconds * float64(time.Second)
	if math.IsNaN(seconds) || math.Abs(nanoseconds) >= math.MaxInt64 {
		return 0, fmt.Errorf("duration seconds overflow: %v", seconds)
	}
	return time.Duration(nanoseconds), nil
}
