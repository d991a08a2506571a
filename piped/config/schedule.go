package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is a cron expression of five fields: minute, hour, day of month,
// month, day of week. It is safe for concurrent use.
type Schedule struct {
	text string
	cron cron.Schedule
}

// UnmarshalText reads a cron expression.
func (s *Schedule) UnmarshalText(text []byte) error {
	parsed, err := parseCron(string(text))
	if err != nil {
		return fmt.Errorf("expected %s, found %q: %w", s.Expected(), text, err)
	}
	*s = Schedule{text: strings.TrimSpace(string(text)), cron: parsed}
	return nil
}

func parseCron(text string) (cron.Schedule, error) {
	if n := len(strings.Fields(text)); n != 5 {
		return nil, fmt.Errorf("it has %d fields, not 5", n)
	}
	if strings.Contains(text, "=") {
		return nil, errors.New("a time zone goes into timeZone")
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return nil, err
	}
	// A leap day comes within eight years; the parser looks five ahead.
	for year := 2000; year < 2010; year += 4 {
		if !parsed.Next(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
			return parsed, nil
		}
	}
	return nil, errors.New("there is no such day")
}

// Expected says what a Schedule is read from.
func (s Schedule) Expected() string { return "a cron expression of five fields such as 0 22 * * 1-5" }

// String returns the expression as written.
func (s Schedule) String() string { return s.text }

// IsZero reports whether there is no expression.
func (s Schedule) IsZero() bool { return s.cron == nil }

// Equal reports whether s and o were written the same.
func (s Schedule) Equal(o Schedule) bool { return s.text == o.text }

// next returns the first time after t, in t's time zone; zero when there is none
// within five years.
func (s Schedule) next(t time.Time) time.Time { return s.cron.Next(t) }

// TimeZone is a time zone of the IANA database; its zero value is UTC.
type TimeZone struct{ location *time.Location }

// UnmarshalText reads a zone's name.
func (z *TimeZone) UnmarshalText(text []byte) error {
	name := string(text)
	location, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return fmt.Errorf("expected %s, found %q", z.Expected(), text)
	}
	*z = TimeZone{location}
	return nil
}

// Expected says what a TimeZone is read from.
func (z TimeZone) Expected() string { return "a time zone such as Europe/Berlin or UTC" }

// String returns the zone's name.
func (z TimeZone) String() string { return z.Location().String() }

// Equal reports whether z and o are the same zone.
func (z TimeZone) Equal(o TimeZone) bool { return z.String() == o.String() }

// Location returns the zone.
func (z TimeZone) Location() *time.Location {
	if z.location == nil {
		return time.UTC
	}
	return z.location
}
