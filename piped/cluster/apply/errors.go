package apply

import (
	"slices"
	"strings"
)

// several joins the errors of several objects in one line, unlike errors.Join.
type several []error

// Error returns the messages, separated by semicolons.
func (s several) Error() string {
	texts := make([]string, len(s))
	for i, err := range s {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors.
func (s several) Unwrap() []error { return s }

// together joins the errors that are not nil; it returns nil if all are. It changes errs.
func together(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return several(errs)
}
