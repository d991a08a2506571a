package main

import "github.com/spf13/cobra"

// Exit codes. A command that finds problems has printed them.
const (
	exitFailed = 1
	exitUsage  = 2
)

// failure is an error with an exit code. Without err everything was printed already.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string {
	if f.err == nil {
		return "failed"
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// usageError converts an error of the flags; it is for cobra.Command.SetFlagErrorFunc.
func usageError(_ *cobra.Command, err error) error { return &failure{exitUsage, err} }
