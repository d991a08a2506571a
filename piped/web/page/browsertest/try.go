package browsertest

import (
	"errors"
	"fmt"
)

// Try runs do with what a Tab expects of a test, outside a test or to see how it fails. It returns
// do's error and all that were reported.
func Try(do func(TB) error) (err error) {
	tb := &attempt{}
	defer func() { err = errors.Join(err, tb.err) }()
	defer tb.cleanUp()
	defer func() {
		if p := recover(); p != nil && p != any(tb) {
			panic(p)
		}
	}()
	return do(tb)
}

// attempt is what the Tabs of Try report to. Its Fatalf panics with it.
type attempt struct {
	err      error
	cleanups []func()
}

func (a *attempt) Helper() {}

func (a *attempt) Errorf(format string, args ...any) {
	a.err = errors.Join(a.err, fmt.Errorf(format, args...))
}

func (a *attempt) Fatalf(format string, args ...any) {
	a.Errorf(format, args...)
	panic(a)
}

func (a *attempt) Cleanup(f func()) { a.cleanups = append(a.cleanups, f) }

func (a *attempt) cleanUp() {
	for i := len(a.cleanups) - 1; i >= 0; i-- {
		a.cleanups[i]()
	}
}
