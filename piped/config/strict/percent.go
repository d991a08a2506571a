package strict

import (
	"fmt"
	"strconv"
	"strings"
)

// Percent is a whole percentage, written 10, "10" or "10%".
type Percent int

// UnmarshalText reads a percentage of 0 or more.
func (p *Percent) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(string(text)), "%"))
	if err != nil || n < 0 {
		return fmt.Errorf("expected %s, found %q", p.Expected(), text)
	}
	*p = Percent(n)
	return nil
}

// Expected says what a Percent is read from.
func (p Percent) Expected() string { return "a percentage such as 50 or 50%" }

// MarshalText writes the percentage with its sign.
func (p Percent) MarshalText() ([]byte, error) { return []byte(strconv.Itoa(int(p)) + "%"), nil }

// JSONSchema returns the schema of what a Percent is read from.
func (p Percent) JSONSchema() map[string]any {
	return map[string]any{"type": []string{"integer", "string"}, "minimum": 0, "pattern": "^[0-9]+%?$", "description": p.Expected()}
}
