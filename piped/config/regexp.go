package config

import (
	"fmt"
	"regexp"
)

// Regexp is a regular expression in Go's language (RE2). Its zero value, which
// is also what "" gives, matches nothing. It is safe for concurrent use.
type Regexp struct{ re *regexp.Regexp }

// UnmarshalText compiles an expression.
func (r *Regexp) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*r = Regexp{}
		return nil
	}
	re, err := regexp.Compile(string(text))
	if err != nil {
		return fmt.Errorf("expected %s, found %q: %w", r.Expected(), text, err)
	}
	*r = Regexp{re}
	return nil
}

// Expected says what a Regexp is read from.
func (r Regexp) Expected() string { return "a regular expression such as ^docs:" }

// IsZero reports whether there is no expression.
func (r Regexp) IsZero() bool { return r.re == nil }

// MatchString reports whether the expression matches anywhere in s; false when
// there is none.
func (r Regexp) MatchString(s string) bool { return r.re != nil && r.re.MatchString(s) }

// String returns the expression as written.
func (r Regexp) String() string {
	if r.re == nil {
		return ""
	}
	return r.re.String()
}

// Equal reports whether r and o were written the same.
func (r Regexp) Equal(o Regexp) bool { return r.String() == o.String() }
