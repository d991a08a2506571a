package store

import (
	"encoding/json"
	"fmt"
	"time"
)

// milli returns t as the database returns it: in UTC, truncated to milliseconds.
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

// millisAt encodes the time that at points to as toMilli does.
type millisAt struct{ at *time.Time }

// IsZero reports whether the time is zero.
func (m millisAt) IsZero() bool { return m.at.IsZero() }

// MarshalJSON implements json.Marshaler.
func (m millisAt) MarshalJSON() ([]byte, error) { return json.Marshal(toMilli(*m.at)) }

// UnmarshalJSON implements json.Unmarshaler.
func (m millisAt) UnmarshalJSON(text []byte) error {
	var ms int64
	if err := json.Unmarshal(text, &ms); err != nil {
		return err
	}
	*m.at = fromMilli(ms)
	return nil
}

// encode returns v as JSON. It fails only if v contains invalid raw JSON.
func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %T: %w", v, err)
	}
	return string(b), nil
}

// decode decodes JSON into v. An empty text changes nothing.
func decode(text string, v any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}
