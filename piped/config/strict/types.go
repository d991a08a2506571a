package strict

import (
	"fmt"
	"reflect"
	"time"
)

// Variant is implemented by pointers to structs with one field of type any,
// whose type follows from the struct's other fields.
type Variant interface {
	// Variant returns a pointer to what the field is read into, holding its
	// defaults, or nil when that cannot be known: the value is not checked then.
	// The other fields have been read before.
	Variant() any
}

// Choice is implemented by pointers to structs with one field of type any, whose type
// Rules.Choices decides.
type Choice interface {
	// Choice returns the key of the field that decides, and its value. The other fields
	// have been read before.
	Choice() (key, value string)
}

// Defaulter is implemented by pointers to types that stand below pointers or in
// lists and maps, and whose defaults are not their zero values.
type Defaulter interface {
	// Default sets the defaults of the fields that have one.
	Default()
}

// fresh returns a pointer to a new value of type t with its defaults.
func fresh(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if d, ok := p.Interface().(Defaulter); ok {
		d.Default()
	}
	return p
}

// variantsLast moves the pair that is read into a field of type any behind the
// others.
func variantsLast(pairs []pair, fields map[string]reflect.Value) []pair {
	var first, last []pair
	for _, p := range pairs {
		if f, ok := fields[p.key.Value]; ok && f.Kind() == reflect.Interface {
			last = append(last, p)
		} else {
			first = append(first, p)
		}
	}
	return append(first, last...)
}

// Duration is a time.Duration that is written to JSON as it is written by
// people, such as "1m30s".
type Duration time.Duration

// UnmarshalText reads Go's form of durations, or a number of nanoseconds.
func (d *Duration) UnmarshalText(text []byte) error {
	var got time.Duration
	if err := setDuration(reflect.ValueOf(&got).Elem(), string(text)); err != nil {
		return fmt.Errorf("expected %s, found %q", d.Expected(), text)
	}
	*d = Duration(got)
	return nil
}

// MarshalText writes Go's form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String returns Go's form.
func (d Duration) String() string { return time.Duration(d).String() }

// Expected says what a Duration is read from.
func (d Duration) Expected() string { return describe(durationType) }
