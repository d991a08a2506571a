package kubernetes

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Replicas is a number of pods, written 2 or "2", or a share of the primary's,
// written "50%". 0 pods mean 1, as in PipeCD.
type Replicas struct {
	Number  int  // of pods, or the percentage
	Percent bool // Number is a percentage
}

// UnmarshalText reads a number or a percentage.
func (r *Replicas) UnmarshalText(text []byte) error {
	number, percent := strings.CutSuffix(strings.TrimSpace(string(text)), "%")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 || n == 0 && percent {
		return fmt.Errorf("expected %s, found %q", r.Expected(), text)
	}
	*r = Replicas{Number: int(n), Percent: percent}
	if n == 0 {
		r.Number = 1
	}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (r Replicas) MarshalText() ([]byte, error) {
	text := strconv.Itoa(r.Number)
	if r.Percent {
		text += "%"
	}
	return []byte(text), nil
}

// Expected says what Replicas are read from.
func (r Replicas) Expected() string { return "a number of pods such as 2, or a percentage such as 50%" }

// Of returns how many pods that is where the primary has so many: a percentage is
// rounded up, and it is at least 1.
func (r Replicas) Of(primary int32) int32 {
	if !r.Percent {
		return int32(max(1, r.Number))
	}
	share := math.Ceil(float64(r.Number) * float64(primary) / 100)
	return int32(max(1, min(share, math.MaxInt32)))
}

// JSONSchema returns the schema of what Replicas are read from.
func (r Replicas) JSONSchema() map[string]any {
	return map[string]any{"type": []string{"integer", "string"}, "minimum": 0, "pattern": "^[0-9]+%?$", "description": r.Expected()}
}
