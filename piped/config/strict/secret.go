package strict

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Secret is a text that no formatting, logging or encoding shows. The zero
// value is the empty secret.
type Secret struct {
	// A function, so that even a walk through unexported fields by reflection
	// shows no more than an address.
	reveal func() string
}

// NewSecret makes a Secret of text.
func NewSecret(text string) Secret { return Secret{reveal: func() string { return text }} }

// Reveal returns the text itself. Never log or wrap it.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// IsEmpty reports whether there is no text.
func (s Secret) IsEmpty() bool { return s.Reveal() == "" }

// Equal reports whether s and o hold the same text.
func (s Secret) Equal(o Secret) bool { return s.Reveal() == o.Reveal() }

// FromBase64 returns the secret whose standard base64 form s holds. The error
// does not show it.
func (s Secret) FromBase64() (Secret, error) {
	text, err := base64.StdEncoding.DecodeString(s.Reveal())
	if err != nil {
		return Secret{}, errors.New("expected base64 text (the value is not shown)")
	}
	return NewSecret(string(text)), nil
}

// String returns a placeholder.
func (s Secret) String() string { return redacted }

// Format writes a placeholder whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue returns a placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns a placeholder: a Secret does not survive encoding.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalText keeps the text.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}

// Expected says what a Secret is read from.
func (s Secret) Expected() string { return "a string" }
