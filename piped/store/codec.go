package store

import (
	"encoding/json"
	"fmt"
	"time"
)

// milli returns t as it is read back: UTC, to the millisecond.
func milli(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}

// toMilli encodes a time; the zero time is 0.
func toMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// fromMilli decodes a time.
func fromMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// encode returns v as JSON. The values of this package always encode, except
// for raw JSON that is none.
func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %T: %w", v, err)
	}
	return string(b), nil
}

// decode reads JSON into v; the empty text leaves v as it is.
func decode(text string, v any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}
