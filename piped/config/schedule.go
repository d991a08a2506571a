package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is a cron expression of five fields: minute, hour, day of month,
// month, day of week. A day that both day fields restrict needs to match one of
// them only. It is safe for concurrent use.
type Schedule struct {
	text string
	spec *cron.SpecSchedule // sets of bits
}

// UnmarshalText reads a cron expression.
func (s *Schedule) UnmarshalText(text []byte) error {
	read, err := parseCron(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("expected %s, found %q: %w", s.Expected(), text, err)
	}
	*s = read
	return nil
}

func parseCron(text string) (Schedule, error) {
	if n := len(strings.Fields(text)); n != 5 {
		return Schedule{}, fmt.Errorf("it does not have 5 fields but %d", n)
	}
	if strings.Contains(text, "=") {
		return Schedule{}, errors.New("a time zone goes into timeZone")
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(text)
	if err != nil {
		return Schedule{}, err
	}
	s := Schedule{text: text, spec: parsed.(*cron.SpecSchedule)} // what five fields give
	if s.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Schedule{}, errors.New("there is no such day")
	}
	return s, nil
}

// Expected says what a Schedule is read from.
func (s Schedule) Expected() string { return "a cron expression of five fields such as 0 22 * * 1-5" }

// String returns the expression as written.
func (s Schedule) String() string { return s.text }

// IsZero reports whether there is no expression.
func (s Schedule) IsZero() bool { return s.spec == nil }

// Equal reports whether s and o were written the same.
func (s Schedule) Equal(o Schedule) bool { return s.text == o.text }

// maxGap is longer than two leap days are apart, in years.
const maxGap = 9

// next returns the first minute after t that the schedule names, in t's time
// zone; zero when there is none. What a clock put forward leaves out does not
// come, what one put back repeats comes twice. (The library's own Next loses a
// whole day where clocks are put forward at midnight.)
func (s Schedule) next(t time.Time) time.Time {
	t = t.Truncate(time.Minute).Add(time.Minute)
	for end := t.AddDate(maxGap, 0, 0); t.Before(end); {
		switch {
		case !s.day(t):
			t = nextDay(t)
		case s.spec.Hour&(1<<t.Hour()) == 0:
			t = t.Add(time.Duration(60-t.Minute()) * time.Minute)
		case s.spec.Minute&(1<<t.Minute()) == 0:
			t = t.Add(time.Minute)
		default:
			return t
		}
	}
	return time.Time{}
}

// day reports whether the schedule names the day of t.
func (s Schedule) day(t time.Time) bool {
	const star = 1 << 63 // the field is *
	ofMonth, ofWeek := s.spec.Dom&(1<<t.Day()) != 0, s.spec.Dow&(1<<t.Weekday()) != 0
	days := ofMonth || ofWeek
	if (s.spec.Dom|s.spec.Dow)&star != 0 {
		days = ofMonth && ofWeek
	}
	return days && s.spec.Month&(1<<t.Month()) != 0
}

// nextDay returns the first moment of the day after t's, which is not midnight
// everywhere and not once everywhere.
func nextDay(t time.Time) time.Time {
	d := time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, t.Location())
	for d.Day() == t.Day() {
		d = d.Add(30 * time.Minute)
	}
	if earlier := d.Add(-time.Hour); earlier.Day() == d.Day() {
		return earlier
	}
	return d
}

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
